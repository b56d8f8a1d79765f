//! A call of a script as commands of Redis.

use redis::{Cmd, Pipeline};

/// A script: its text and the hash by which Redis knows it.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

impl Script {
    pub(crate) fn new(text: impl Into<String>) -> Script {
        let text = text.into();
        let sha = redis::Script::new(&text).get_hash().to_owned();
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

/// The command that runs a script which the server knows already.
pub(super) fn run(script: &Script, keys: &[&[u8]], args: &[Arg<'_>]) -> Cmd {
    let bytes = keys.iter().map(|key| key.len()).sum::<usize>() + args.len() * 16 + 64;
    let mut command = Cmd::with_capacity(keys.len() + args.len() + 3, bytes);
    command.arg("EVALSHA").arg(&script.sha).arg(keys.len()).arg(keys);
    for arg in args {
        match arg {
            Arg::Bytes(bytes) => command.arg(bytes),
            Arg::Signed(number) => command.arg(number),
            Arg::Unsigned(number) => command.arg(number),
        };
    }
    command
}

/// What is sent in one piece, of which the last reply is the answer.
pub(super) enum Request<'a> {
    One(&'a Cmd),
    Several(Pipeline),
}

/// Puts before a command what the node needs first: the script's text, and the word that lets a call in to a slot that
/// is still on its way. The latter holds for the next command alone, so it stands last.
pub(super) fn prepare<'a>(command: &'a Cmd, load: Option<&Script>, asking: bool) -> Request<'a> {
    if load.is_none() && !asking {
        return Request::One(command);
    }
    let mut pipeline = redis::pipe();
    if let Some(script) = load {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.text);
    }
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(command.clone());
    Request::Several(pipeline)
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
        assert_eq!(String::from_utf8(command.get_packed_command()).unwrap(), expected);
    }

    #[test]
    fn what_a_node_needs_first_stands_before_the_command() {
        let script = Script::new("return 1");
        let command = run(&script, &[], &[]);
        assert!(matches!(prepare(&command, None, false), Request::One(_)));
        let Request::Several(pipeline) = prepare(&command, Some(&script), true) else { panic!("one command") };
        let sent = String::from_utf8(pipeline.get_packed_pipeline()).unwrap();
        let (load, asking, run) = (sent.find("SCRIPT"), sent.find("ASKING"), sent.find("EVALSHA"));
        assert!(load < asking && asking < run && load.is_some(), "{sent}");
    }
}
