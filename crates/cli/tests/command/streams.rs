//! How `tidegate decide` reads and writes: as one side of a conversation, and as one end of a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use tidegate_testkit::process::directory;

use super::tidegate;

const NEW: &[u8] = b"{\"op\":\"new\",\"limit\":\"5/second\"}\n";

#[test]
fn an_answer_does_not_wait_for_the_next_line() {
    let mut child = tidegate().arg("decide").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(NEW).unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), r#"{"ok":true}"#);
    // A line that has begun does not hold back the answer to the one before it.
    stdin.write_all(&[NEW, &NEW[..10]].concat()).unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), r#"{"ok":true}"#);
    stdin.write_all(&NEW[10..]).unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), r#"{"ok":true}"#);
    drop(stdin);
    assert!(answers.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_ends_quietly_when_nobody_reads() {
    for arguments in [&["decide"][..], &["demo"], &["completions", "bash"], &["--help"]] {
        let piped = Stdio::piped;
        let mut child = tidegate().args(arguments).stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
        drop(child.stdout.take());
        // It may be gone before all is written, which is what is tested here.
        let _ = child.stdin.take().unwrap().write_all(&NEW.repeat(10_000));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {:?}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}

#[test]
fn check_fails_on_errors_that_nobody_reads() {
    let directory = directory();
    std::fs::write(directory.path().join("bad.yaml"), "domains: {api: {rules: [{limit: 0/s}]}}").unwrap();
    for arguments in [&["check", "bad.yaml"][..], &["check", "--format", "json", "bad.yaml"]] {
        let mut command = tidegate();
        command.current_dir(directory.path()).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}

#[test]
fn input_that_cannot_be_read_is_one_line() {
    let directory = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let output = tidegate().arg("decide").stdin(directory).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: Is a directory (os error 21)\n");
}
