//! The parser on whatever bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::parse::{Parsed, Parser, ProtocolError};
use crate::bounds::{ARGUMENTS_MAX, COMMAND_BYTES_MAX, INLINE_BYTES_MAX};

type Commands = Vec<Vec<Vec<u8>>>;

/// Feeds pieces as a connection does, and tells the commands, the error, and the most bytes that were kept. A command that
/// was too long to be kept has no arguments.
fn feed<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    authenticated: bool,
) -> (Commands, Option<ProtocolError>, usize) {
    let mut parser = Parser::default();
    parser.authenticated = authenticated;
    let (mut commands, mut kept, mut most) = (Commands::new(), Vec::new(), 0);
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            match parser.next(&kept) {
                Ok(Parsed::Command(command, length)) => {
                    commands.push(command.from(0).map(<[u8]>::to_vec).collect());
                    kept.drain(..length);
                }
                Ok(Parsed::TooLong(length)) => {
                    commands.push(Vec::new());
                    kept.drain(..length);
                }
                Ok(Parsed::Nothing(length)) => {
                    assert!(length > 0, "it would be asked again for ever");
                    kept.drain(..length);
                }
                Ok(Parsed::Incomplete) => break,
                Err(error) => return (commands, Some(error), most),
            }
        }
        most = most.max(kept.len());
    }
    (commands, None, most)
}

/// Whole input at once.
fn parse(bytes: &[u8]) -> (Commands, Option<ProtocolError>) {
    let (commands, error, _) = feed([bytes], true);
    (commands, error)
}

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// What is likely to be taken for a command.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        Just(b"\\x4".to_vec()),
        Just(b"-1".to_vec()),
        Just(b"PING ".to_vec()),
        Just(b"*1\r\n$4\r\nPING\r\n".to_vec()),
        (0..30_u32).prop_map(|number| number.to_string().into_bytes()),
        vec(any::<u8>(), 0..4),
    ];
    vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn commands_come_out_as_they_were_sent(commands in vec(vec(vec(any::<u8>(), 0..20), 1..6), 0..8)) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        prop_assert_eq!(parse(&bytes), (commands, None));
    }

    #[test]
    fn any_split_gives_the_same(bytes in almost(), cuts in vec(1..20_usize, 1..20), authenticated: bool) {
        let whole = feed([&bytes[..]], authenticated);
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        let split = feed(pieces, authenticated);
        prop_assert_eq!((&whole.0, whole.1), (&split.0, split.1));
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..2000)) {
        parse(&bytes);
    }

    #[test]
    fn quoted_words_come_out_as_they_were(words in vec(vec(any::<u8>(), 0..10), 1..5)) {
        let quoted = |word: &Vec<u8>| {
            let hex: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{hex}\"")
        };
        let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ") + "\n";
        prop_assert_eq!(parse(line.as_bytes()), (vec![words], None));
    }
}

#[test]
fn typed_lines() {
    let check = |line: &str, expected: &[&str]| {
        let words: Vec<Vec<u8>> = expected.iter().map(|word| word.as_bytes().to_vec()).collect();
        let commands = if words.is_empty() { vec![] } else { vec![words] };
        assert_eq!(parse(line.as_bytes()), (commands, None), "{line:?}");
    };
    check("PING\n", &["PING"]);
    check("PING\r\n", &["PING"]);
    check("\r\n", &[]);
    check("  \n", &[]);
    check("  ECHO   hi  \r\n", &["ECHO", "hi"]);
    check("ECHO \"a b\"\n", &["ECHO", "a b"]);
    check("ECHO \"\\n\\r\\t\\b\\a\\\"\\\\\\x41\\xzz\"\n", &["ECHO", "\n\r\t\u{8}\u{7}\"\\Axzz"]);
    check("ECHO 'a\\'b\\n'\n", &["ECHO", "a'b\\n"]);
    check("ECHO \"\"\n", &["ECHO", ""]);
    check("ECHO pre\"a b\"\n", &["ECHO", "prea b"]);
    check("*0\r\n", &[]);
    check("*-1\r\n", &[]);
}

#[test]
fn what_is_not_a_command() {
    let check = |bytes: &[u8], expected: &str| {
        let error = parse(bytes).1.map(|error| error.to_string());
        assert_eq!(error.as_deref().unwrap_or_default(), expected, "{:?}", bytes.escape_ascii().to_string());
    };
    check(b"*x\r\n", "invalid multibulk length");
    check(b"*\r\n", "invalid multibulk length");
    check(b"*01\r\n", "invalid multibulk length");
    check(b"*1\rx", "invalid multibulk length");
    check(b"*99999999999", "invalid multibulk length");
    check(b"*1025\r\n", "invalid multibulk length");
    check(b"*1\r\n:1\r\n", "expected '$', got ':'");
    check(b"*1\r\n\r\n", "expected '$', got '\\r'");
    check(b"*1\r\n$-1\r\n", "invalid bulk length");
    check(b"*1\r\n$1048577\r\n", "invalid bulk length");
    check(b"*2\r\n$65537\r\n", "");
    check(b"*1\r\n$x\r\n", "invalid bulk length");
    check(b"*1\r\n$4\r\nPINGXX", "expected CRLF after an argument");
    check(b"ECHO \"a\n", "unbalanced quotes in request");
    check(b"ECHO \"a\"b\n", "unbalanced quotes in request");
    check(b"ECHO 'a\n", "unbalanced quotes in request");
    check(&vec![b'a'; INLINE_BYTES_MAX + 1], "too big inline request");
    check(&[&b"a ".repeat(ARGUMENTS_MAX + 1)[..], b"\n"].concat(), "too big inline request");
}

#[test]
fn commands_that_are_too_long_are_skipped() {
    let ping = encode(&[b"PING".to_vec()]);
    let check = |lengths: &[usize], expected: Option<&str>| {
        let long = encode(&lengths.iter().map(|length| vec![b'\r'; *length]).collect::<Vec<_>>());
        let bytes = [&ping[..], &long, &ping, &long, &ping].concat();
        let (whole, error) = parse(&bytes);
        if let Some(expected) = expected {
            assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected), "{lengths:?}");
            return;
        }
        let [ping, skipped] = [vec![b"PING".to_vec()], vec![]];
        assert_eq!(
            (whole, error),
            (vec![ping.clone(), skipped.clone(), ping.clone(), skipped, ping], None),
            "{lengths:?}"
        );
        for size in [1, 7, 4_096] {
            let (commands, error, most) = feed(bytes.chunks(size), true);
            assert_eq!((commands.len(), error), (5, None), "{lengths:?} by {size}");
            assert!(most <= COMMAND_BYTES_MAX, "{most}");
        }
    };
    check(&[65_537], None);
    check(&[4, 65_537], None);
    check(&[4, 65_537, 0, 3], None);
    check(&[4, 1_048_576, 1_048_576, 65_537], None);
    check(&[60_000, 60_000, 60_000], None);
    check(&[4, 1_048_577], Some("invalid bulk length"));
    check(&[4, 70_000, 1_048_577], Some("invalid bulk length"));
    for (broken, expected) in [
        (&b"xx"[..], "expected CRLF after an argument"),
        (b"\r\nx", "expected '$', got 'x'"),
        (b"\r\n$-1\r\n", "invalid bulk length"),
    ] {
        let bytes = [b"*2\r\n$65537\r\n", &[b'a'; 65_537][..], broken].concat();
        assert_eq!(parse(&bytes).1.map(|error| error.to_string()).as_deref(), Some(expected));
    }
}

#[test]
fn strangers_may_send_less() {
    let check = |bytes: &[u8], expected: Option<&str>| {
        let (_, error, _) = feed([bytes], false);
        assert_eq!(error.map(|error| error.to_string()).as_deref(), expected);
    };
    check(b"*10\r\n$16384\r\n", None);
    check(b"*11\r\n", Some("unauthenticated multibulk length"));
    check(b"*1\r\n$16385\r\n", Some("unauthenticated bulk length"));
    let large = encode(&vec![vec![b'a'; 16_384]; 9]);
    check(&large, Some("too big request"));
    // Typed lines too, whether their end has come or not.
    check(&vec![b'a'; 16_384], None);
    check(&vec![b'a'; 16_385], Some("too big inline request"));
    check(&[&vec![b'a'; 16_385][..], b"\n"].concat(), Some("too big inline request"));
    check(&[&b"a ".repeat(10)[..], b"\n"].concat(), None);
    check(&[&b"a ".repeat(11)[..], b"\n"].concat(), Some("too big inline request"));
}

#[test]
fn no_input_is_kept_beyond_the_bound() {
    let endless: [&[u8]; 4] = [b"a", b"*1024\r\n", b"$60000\r\n", b"\r\n"];
    for first in endless {
        let body = vec![b'a'; 1000];
        let pieces = std::iter::once(first).chain(std::iter::repeat_n(&body[..], 1000));
        let (_, error, most) = feed(pieces, true);
        assert!(error.is_some(), "{first:?}");
        assert!(most <= COMMAND_BYTES_MAX, "{most}");
    }
}
