//! The built command, from outside. To accept changed snapshots: `INSTA_UPDATE=always cargo test -p tidegate-cli`.

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used)]

mod arbitrary;
mod arguments;
mod bad_lines;
mod configuration;
mod conversations;
mod demo;
mod explain;
mod guide;
mod operate;
mod operate_errors;
mod streams;
mod terminal;
mod top;
mod traces;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// The command under its own name, wherever it was built.
fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg0("tidegate").env_clear();
    command
}

/// Runs it to its end.
fn run(arguments: &[&str]) -> Output {
    tidegate().args(arguments).output().unwrap()
}

/// Feeds `input` to `tidegate decide` and returns its answers, one a line.
fn decide(input: &[u8]) -> Vec<String> {
    let piped = Stdio::piped;
    let mut child = tidegate().arg("decide").stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // Written beside the reading, or both sides could wait for each other with full pipes.
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Questions and answers, interleaved.
fn conversation(lines: &str) -> String {
    let questions: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let answers = decide(questions.join("\n").as_bytes());
    assert_eq!(questions.len(), answers.len());
    questions.iter().zip(answers).map(|(question, answer)| format!("> {question}\n< {answer}\n")).collect()
}
