//! Output in a terminal: colours, and commands to try.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tidegate_testkit::process::{Process, directory};

use super::tidegate;

/// Opens a pseudoterminal. Returns the side that reads what is shown, and the side for a command to write to.
pub(crate) fn terminal() -> (File, OwnedFd) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let path = OsStr::from_bytes(name.to_bytes());
    let writer = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (screen.into(), writer)
}

/// Runs a command to its end with its stdout in a terminal, and returns what is shown there.
fn shown(mut command: Command) -> String {
    let (mut screen, writer) = terminal();
    let mut child = command.stdout(writer).spawn().unwrap();
    // It holds the terminal open.
    drop(command);
    let mut bytes = Vec::new();
    // Linux reports the end as an error.
    let _ = screen.read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

/// The longest time until a line is there.
const PATIENCE: Duration = Duration::from_secs(20);

const CONFIGURATION: &str = "domains: {api: {rules: [{name: x, limt: 5/minute}]}}\n";
const PLAIN: &str = "rules.yaml:1:35: error: rule `x`: unknown field `limt`; did you mean `limit`?\n";
const COLOURED: &str = "\x1b[1mrules.yaml:1:35\x1b[0m: \x1b[1m\x1b[31merror\x1b[0m: \
                        rule `x`: unknown field `limt`; did you mean `limit`?\n";
const TOTALS: &str = "1 file, 1 domain, 1 rule: 1 error, 0 warnings\n";

/// `tidegate check rules.yaml` with further arguments, in a directory with that file.
fn check(directory: &Path, arguments: &[&str]) -> Command {
    std::fs::write(directory.join("rules.yaml"), CONFIGURATION).unwrap();
    let mut command = tidegate();
    command.current_dir(directory).env("TERM", "xterm").args(["check", "rules.yaml"]).args(arguments);
    command
}

#[test]
fn problems_are_coloured_in_a_terminal() {
    let directory = directory();
    let check = |arguments: &[&str]| check(directory.path(), arguments);
    let (plain, coloured) = (format!("{PLAIN}{TOTALS}"), format!("{COLOURED}{TOTALS}"));
    assert_eq!(shown(check(&[])), coloured);
    assert_eq!(shown(check(&["--color", "auto"])), coloured);
    assert_eq!(shown(check(&["--color", "never"])), plain);
    for (variable, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut command = check(&[]);
        command.env(variable, value);
        assert_eq!(shown(command), plain, "{variable}={value}");
    }
    for (arguments, expected) in [(&[][..], &plain), (&["--color", "always"], &coloured)] {
        let output = check(arguments).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), *expected, "{arguments:?}, not in a terminal");
    }
}

#[test]
fn serve_shows_commands_to_try_in_a_terminal() {
    let (screen, writer) = terminal();
    let mut command = tidegate();
    command.args(["serve", "--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0", "--resp", "[::]:0"]);
    let _server = Process::start(directory(), &mut command, Some(writer.into()));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(screen).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let next = || lines.recv_timeout(PATIENCE).expect("one more line");
    let first = next();
    assert!(first.contains("serves HTTP on 0.0.0.0:") && !first.contains("Try"), "{first}");
    assert_eq!(next(), "Try these commands in another terminal:");
    // A listener on all addresses is on loopback too.
    for start in ["  curl -i 'http://127.0.0.1:", "  redis-cli -h ::1 -p ", "  curl http://127.0.0.1:"] {
        let line = next();
        assert!(line.starts_with(start), "{line}");
    }
}
