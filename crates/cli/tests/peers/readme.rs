//! Commands of the pages under examples/ and docs/ print what stands there.

use std::process::{Command, Stdio};

use tidegate_testkit::process::command;
use tidegate_testkit::repository::root;

/// A command of a `console` block, and what it prints.
struct Shown {
    command: String,
    output: String,
}

/// The commands of all `console` blocks: lines after `$ `, which go on after a backslash, with what follows them.
fn shown(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut inside, mut continued) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Shown { command: command.to_owned(), output: String::new() });
            continued = line.ends_with('\\');
        } else if let Some(last) = all.last_mut() {
            let part = if continued { &mut last.command } else { &mut last.output };
            *part += &format!("\n{line}");
            continued = continued && line.ends_with('\\');
        }
    }
    all
}

/// Told apart by this line.
const BETWEEN: &str = "---- next command ----";

/// What differs each time: what stands after these is a time.
const TIMES: [&str; 7] =
    [";t=", "retry-after: ", "x-ratelimit-reset: ", "_ns\":", "\"now\":\"", "\"at\":\"", "\"durationuntilreset\":\""];

/// What else differs each time: what stands after these is an id or a hash.
const IDS: [&str; 4] = ["tidegate-decision: ", "\"decision\":\"", "\"node\":\"", "\"policy_hash\":\""];

/// The output with `N` for times and ids, and without the lines that tell dates and lengths.
fn comparable(text: &str) -> String {
    let is_shown = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !["date:", "content-length:"].iter().any(|start| line.starts_with(start))
    };
    text.lines()
        .filter(is_shown)
        .map(|line| without_ids(&without_times(line)))
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

fn without_times(line: &str) -> String {
    replaced(line, &TIMES, |byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte))
}

fn without_ids(line: &str) -> String {
    replaced(line, &IDS, |byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// A line with `N` for the bytes of these kinds that stand after any of some texts.
fn replaced(line: &str, after: &[&str], is_part: impl Fn(u8) -> bool) -> String {
    let mut text = line.trim_end().to_owned();
    for before in after {
        let mut from = 0;
        // Names of headers are written in either case.
        while let Some(place) = text.to_ascii_lowercase().get(from..).and_then(|rest| rest.find(*before)) {
            let start = from + place + before.len();
            let length = text[start..].bytes().take_while(|byte| is_part(*byte)).count();
            text.replace_range(start..start + length, "N");
            from = start;
        }
    }
    text
}

/// Runs all commands of a page of the examples in turn, with other addresses, and compares what they print.
pub(crate) fn check(page: &str, replaced: &[(&str, &str)]) {
    let mut text = std::fs::read_to_string(root().join("examples").join(page)).unwrap();
    for (from, to) in replaced {
        assert!(text.contains(from), "{page} has no `{from}`");
        text = text.replace(from, to);
    }
    check_text(page, &text, |_| ());
}

/// Runs all commands of a text in turn in one shell, prepared by the caller, and compares what they print.
pub(crate) fn check_text(page: &str, text: &str, prepare: impl FnOnce(&mut Command)) {
    let all = shown(text);
    assert!(!all.is_empty(), "{page} shows no command");
    // One shell, so that what a command sets is there for the next; a line between tells what is whose.
    let script: String = all.iter().map(|one| format!("{}\necho; echo '{BETWEEN}'\n", one.command)).collect();
    let mut shell = command("bash", &["-c", &script]);
    prepare(&mut shell);
    let output = shell.stderr(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut parts = printed.split(BETWEEN);
    for Shown { command: line, output: expected } in all {
        let printed = parts.next().unwrap_or_default();
        assert_eq!(comparable(printed), comparable(&expected), "{page}: $ {line}\nprinted:\n{printed}");
    }
}

#[test]
fn commands_and_times_are_found() {
    let text = "```sh\n$ not this\n```\n```console\n$ a \\\n  b\nx;t=5, y;t=61\n$ c\nRetry-After: 12\n```\n";
    let all: Vec<(String, String)> = shown(text).into_iter().map(|it| (it.command, comparable(&it.output))).collect();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(all, [pair("a \\\n  b", "x;t=N, y;t=N"), pair("c", "Retry-After: N")]);
}
