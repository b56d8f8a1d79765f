//! Every kind of line that cannot be answered, and the error that says why. Each is followed by a line that can.

use insta::assert_snapshot;

use super::{conversation, decide};

const NEW: &[u8] = b"{\"op\":\"new\",\"limit\":\"5/second\"}\n";

#[test]
fn not_an_operation() {
    assert_snapshot!(conversation(
        r#"
        {"op":"charge","at_ns":0}
        {"op":"limit","limit":"5/second"}
        hello
        5
        null
        "charge"
        [{"op":"charge"}]
        {
        {"op":"charge" "at_ns":0}
        {"op":"charge","at_ns":0} {"op":"charge","at_ns":0}
        {"op":"charge","at_ns":+1}
        {"op":"charge","at_ns":01}
        {"op":"charge","at_ns":0,}
        {"op":"\ud800"}
        {}
        {"op":"steal"}
        {"op":"a name that is far too long to be repeated in full in an answer"}
        {"op":5}
        {"op":null}
        {"op":"charge","op":"charge","at_ns":0}
        {"op":"new","limit":"5/second"}
        {"op":"charge","at_ns":0}
        "#
    ));
}

#[test]
fn not_a_charge() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":"5/second"}
        {"op":"charge"}
        {"op":"charge","at_ns":-1}
        {"op":"charge","at_ns":1.5}
        {"op":"charge","at_ns":1e3}
        {"op":"charge","at_ns":"0"}
        {"op":"charge","at_ns":null}
        {"op":"charge","at_ns":[0]}
        {"op":"charge","at_ns":9223372036854775808}
        {"op":"charge","at_ns":18446744073709551616}
        {"op":"charge","at_ns":999999999999999999999999999999999999999999999999}
        {"op":"charge","at_ns":0,"cost":-1}
        {"op":"charge","at_ns":0,"cost":0.5}
        {"op":"charge","at_ns":0,"cost":18446744073709551616}
        {"op":"charge","at_ns":0,"cost":true}
        {"op":"charge","at_ns":0,"key":""}
        {"op":"charge","at_ns":0,"key":7}
        {"op":"charge","at_ns":0,"key":"\ud800"}
        {"op":"charge","at_ns":0,"want_receipt":1}
        {"op":"charge","at_ns":0,"receipt":1}
        {"op":"charge","at_ns":0,"colour":"blue"}
        {"op":"refund","at_ns":0,"receipt":"x"}
        {"op":"refund","at_ns":0,"want_receipt":true}
        {"op":"peek","at_ns":0,"cost":1}
        {"op":"reset"}
        {"op":"charge","at_ns":0}
        {"op":"charge","at_ns":9223372036854775807}
        {"op":"charge","at_ns":0,"cost":18446744073709551615}
        "#
    ));
}

#[test]
fn not_a_limit() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new"}
        {"op":"new","limit":5}
        {"op":"new","limit":null}
        {"op":"new","limit":["5/second"]}
        {"op":"new","limit":"5 per second"}
        {"op":"new","limit":"0/second"}
        {"op":"new","limit":"11000000/second"}
        {"op":"new","limit":"1/200years"}
        {"op":"new","limit":"5/second","at_ns":0}
        {"op":"new","limit":{}}
        {"op":"new","limit":{"algorithm":5}}
        {"op":"new","limit":{"algorithm":"magic"}}
        {"op":"new","limit":{"algorithm":"gcra","algorithm":"gcra"}}
        {"op":"new","limit":{"algorithm":"gcra","per_ns":1000000000,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":-5,"per_ns":1000000000,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":0.5,"per_ns":1000000000,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":0,"per_ns":1000000000,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":11000000,"per_ns":1000000000,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":0,"burst":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":9999999999999999999,"burst":5}}
        {"op":"new","limit":{"name":"fast","algorithm":"gcra","rate":10,"per_ns":1000000000}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":0}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":9999999999999999999}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":1000000000,"capacity":5}}
        {"op":"new","limit":{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5,"window_ns":1}}
        {"op":"new","limit":{"algorithm":"token_bucket","rate":10,"per_ns":1000000000,"capacity":0}}
        {"op":"new","limit":{"algorithm":"leaky_bucket","rate":10,"per_ns":1000000000,"capacity":-1}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":0,"window_ns":1000000000}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":0}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":10}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":999999999999999999}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":1000000000,"stagger":"yes"}}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":1000000000,"slices":6}}
        {"op":"new","limit":{"algorithm":"sliding_log","limit":10001,"window_ns":1000000000}}
        {"op":"new","limit":{"algorithm":"sliding_log","limit":2.5,"window_ns":1000000000}}
        {"op":"new","limit":{"algorithm":"sliding_log","limit":5,"window_ns":1000000000,"stagger":true}}
        {"op":"new","limit":{"algorithm":"sliding_counter","limit":5}}
        {"op":"new","limit":{"algorithm":"sliced_window","limit":5,"window_ns":1000000000,"slices":0}}
        {"op":"new","limit":{"algorithm":"sliced_window","limit":5,"window_ns":1000000000,"slices":1001}}
        {"op":"new","limit":{"algorithm":"sliced_window","limit":5,"window_ns":1000000000,"slices":-1}}
        {"op":"charge","at_ns":0}
        {"op":"new","limit":"5/second"}
        "#
    ));
}

#[test]
fn invalid_utf8() {
    let answers = decide(&[b"\xff\n{\"op\":\"\xc3\x28\"}\n", NEW].concat());
    assert_eq!(
        answers,
        [
            r#"{"error":"line: not UTF-8 after byte 0; write JSON in UTF-8"}"#,
            r#"{"error":"line: not UTF-8 after byte 7; write JSON in UTF-8"}"#,
            r#"{"ok":true}"#,
        ]
    );
}

#[test]
fn a_key_is_bounded() {
    let charge = |length: usize| format!("{{\"op\":\"charge\",\"at_ns\":0,\"key\":\"{}\"}}\n", "k".repeat(length));
    let answers = decide(&[NEW, charge(4096).as_bytes(), charge(4097).as_bytes()].concat());
    assert!(answers[1].starts_with(r#"{"allowed":true"#), "{}", answers[1]);
    assert!(
        answers[2].starts_with(r#"{"error":"key: 4097 bytes are too long; a key has 1 to 4096 bytes"#),
        "{}",
        answers[2]
    );
}

#[test]
fn a_line_is_bounded() {
    let padded = |length: usize| {
        let mut line = br#"{"op":"new","limit":"5/second"}"#.to_vec();
        line.resize(length, b' ');
        line.push(b'\n');
        line
    };
    let answers = decide(&[padded(65_536), padded(65_537), padded(10_000_000), NEW.to_vec()].concat());
    assert_eq!(
        answers,
        [
            r#"{"ok":true}"#,
            r#"{"error":"line: 65537 bytes are too long; a line has at most 65536 bytes"}"#,
            r#"{"error":"line: 10000000 bytes are too long; a line has at most 65536 bytes"}"#,
            r#"{"ok":true}"#,
        ]
    );
}

#[test]
fn an_object_is_bounded() {
    let line = |count: usize| {
        let fields: String = (1..count).map(|number| format!(",\"f{number}\":1")).collect();
        format!("{{\"op\":\"peek\"{fields}}}\n")
    };
    let answers = decide(&[NEW, line(128).as_bytes(), line(129).as_bytes(), NEW].concat());
    assert_eq!(answers[1], r#"{"error":"at_ns: missing; use 0 to 9223372036854775807 nanoseconds of your clock"}"#);
    assert!(answers[2].starts_with(r#"{"error":"line: more than 128 fields; "#), "{}", answers[2]);
    assert_eq!(answers[3], r#"{"ok":true}"#);
}

#[test]
fn deep_nesting_is_only_an_error() {
    let deep = |open: &str| format!("{{\"op\":\"charge\",\"at_ns\":{}\n", open.repeat(30_000 / open.len()));
    let answers = decide(&[deep("[").as_bytes(), deep("{\"a\":").as_bytes(), NEW].concat());
    assert!(answers[..2].iter().all(|answer| answer.starts_with(r#"{"error":"line: not JSON"#)), "{answers:?}");
    assert_eq!(answers[2], r#"{"ok":true}"#);
}

#[test]
fn blank_lines_are_skipped() {
    assert_eq!(decide(b""), [""; 0]);
    assert_eq!(decide(b"\n \t\r\n\r\n  "), [""; 0]);
    assert_eq!(decide(&[b"\n\n", NEW, b"\r\n", NEW.trim_ascii_end(), b"\r\n\n"].concat()), [r#"{"ok":true}"#; 2]);
}
