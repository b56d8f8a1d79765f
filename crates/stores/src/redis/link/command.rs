//! A call of a script as commands of Redis.

use std::ops::Range;

use sha1_smol::Sha1;

/// A script: its text and the hash by which Redis knows it.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

impl Script {
    pub(crate) fn new(text: impl Into<String>) -> Script {
        let text = text.into();
        let sha = Sha1::from(&text).digest().to_string();
        Script { text, sha }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// An argument of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    Bytes(&'a [u8]),
    Signed(i64),
    Unsigned(u64),
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Arg::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Arg::Bytes(text.as_bytes())
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Arg::Signed(number)
    }
}

impl From<u64> for Arg<'_> {
    fn from(number: u64) -> Self {
        Arg::Unsigned(number)
    }
}

/// Commands as they are written, and how many replies they get; the last one is the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) replies: u8,
    /// Where its key is, if it is one command for one key: those for the same key keep their order.
    pub(super) key: Option<Range<usize>>,
    /// Set if calls that are the same to the byte may become one command: the word that says how often it is meant, a `1`
    /// with its length before it.
    pub(super) times: Option<Range<usize>>,
}

impl Packed {
    /// A command of these words.
    pub(super) fn of(words: &[&[u8]]) -> Packed {
        Packed::default().and(words)
    }

    /// The same, and then a command of these words.
    pub(super) fn and(mut self, words: &[&[u8]]) -> Packed {
        self.head(b'*', words.len());
        words.iter().for_each(|word| self.word(word));
        self.replies += 1;
        self
    }

    /// Writes the commands, which stand for so many calls, and counts the bytes.
    pub(super) fn write(&self, calls: usize, out: &mut Vec<u8>, end: &mut u64) {
        let before = out.len();
        match &self.times {
            Some(times) if calls > 1 => {
                out.extend_from_slice(&self.bytes[..times.start]);
                let mut word = Packed::default();
                word.word(Digits::default().of(calls as u64));
                out.extend_from_slice(&word.bytes);
                out.extend_from_slice(&self.bytes[times.end..]);
            }
            _ => out.extend_from_slice(&self.bytes),
        }
        *end += (out.len() - before) as u64;
    }

    fn head(&mut self, kind: u8, number: usize) {
        let mut digits = Digits::default();
        self.bytes.push(kind);
        self.bytes.extend_from_slice(digits.of(number as u64));
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn word(&mut self, word: &[u8]) {
        self.head(b'$', word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn arg(&mut self, arg: &Arg<'_>) {
        let mut digits = Digits::default();
        match arg {
            Arg::Bytes(bytes) => self.word(bytes),
            Arg::Unsigned(number) => self.word(digits.of(*number)),
            Arg::Signed(number) if *number >= 0 => self.word(digits.of(number.unsigned_abs())),
            Arg::Signed(number) => self.word(number.to_string().as_bytes()),
        }
    }
}

/// Room for the digits of a number.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

/// The command that runs a script which the server knows already.
pub(super) fn run(script: &Script, keys: &[&[u8]], args: &[Arg<'_>]) -> Packed {
    let mut packed = begin(script, keys, args.len());
    args.iter().for_each(|arg| packed.arg(arg));
    packed
}

/// The same of a script for one key, with how many calls it stands for before the other arguments: while it waits, equal
/// ones can be joined with it.
pub(super) fn run_joined(script: &Script, key: &[u8], args: &[Arg<'_>]) -> Packed {
    let once = Arg::from(1_u64);
    let mut packed = begin(script, &[key], 1 + args.len());
    let times = packed.bytes.len();
    packed.arg(&once);
    packed.times = Some(times..packed.bytes.len());
    args.iter().for_each(|arg| packed.arg(arg));
    packed
}

/// The command up to its keys.
fn begin(script: &Script, keys: &[&[u8]], args: usize) -> Packed {
    let bytes = keys.iter().map(|key| key.len() + 16).sum::<usize>() + args * 20 + 96;
    let mut packed = Packed { bytes: Vec::with_capacity(bytes), replies: 1, ..Packed::default() };
    packed.head(b'*', keys.len() + args + 3);
    packed.word(b"EVALSHA");
    packed.word(script.sha.as_bytes());
    packed.word(Digits::default().of(keys.len() as u64));
    keys.iter().for_each(|key| packed.word(key));
    if let [key] = keys {
        let end = packed.bytes.len() - b"\r\n".len();
        packed.key = Some(end - key.len()..end);
    }
    packed
}

/// The command that makes a script known to the server.
pub(super) fn load(script: &Script) -> Packed {
    Packed::of(&[b"SCRIPT", b"LOAD", script.text.as_bytes()])
}

/// Puts before a command what the node needs first: the script's text, and the word that lets a call in to a slot that
/// is still on its way. The latter holds for the next command alone, so it stands last. Such a command is not joined,
/// and keeps no order with others.
pub(super) fn prepare(command: &Packed, script: Option<&Script>, asking: bool) -> Packed {
    if script.is_none() && !asking {
        return command.clone();
    }
    let mut packed = script.map(load).unwrap_or_default();
    if asking {
        packed = packed.and(&[b"ASKING"]);
    }
    packed.bytes.extend_from_slice(&command.bytes);
    packed.replies += command.replies;
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_evalsha_with_keys_and_arguments() {
        let script = Script::new("return 1");
        let command = run(&script, &[b"k\0", b""], &[Arg::from(-5_i64), Arg::from(u64::MAX), Arg::from("a b")]);
        let expected = "*8\r\n$7\r\nEVALSHA\r\n$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n$1\r\n2\r\n$2\r\nk\0\r\n\
                        $0\r\n\r\n$2\r\n-5\r\n$20\r\n18446744073709551615\r\n$3\r\na b\r\n";
        assert_eq!((String::from_utf8(command.bytes).unwrap().as_str(), command.replies), (expected, 1));
    }

    #[test]
    fn a_call_that_can_be_joined_says_how_many_it_stands_for() {
        let script = Script::new("return 1");
        let command = run_joined(&script, b"key", &[Arg::from("t"), Arg::from(5_u64)]);
        assert_eq!(command.key.clone().map(|key| &command.bytes[key]), Some(&b"key"[..]));
        for calls in [1_usize, 2, 64] {
            let (mut out, mut end) = (Vec::new(), 10);
            command.write(calls, &mut out, &mut end);
            let expected = run(&script, &[b"key"], &[Arg::from(calls as u64), Arg::from("t"), Arg::from(5_u64)]);
            assert_eq!((out, end), (expected.bytes.clone(), 10 + expected.bytes.len() as u64));
        }
    }

    #[test]
    fn what_a_node_needs_first_stands_before_the_command() {
        let script = Script::new("return 1");
        let command = run(&script, &[], &[]);
        assert_eq!(prepare(&command, None, false), command);
        let sent = prepare(&command, Some(&script), true);
        assert_eq!(sent.replies, 3);
        let sent = String::from_utf8(sent.bytes).unwrap();
        let (load, asking, run) = (sent.find("SCRIPT"), sent.find("ASKING"), sent.find("EVALSHA"));
        assert!(load < asking && asking < run && load.is_some(), "{sent}");
    }
}
