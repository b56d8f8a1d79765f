//! Examples as processes, for their tests.
#![allow(dead_code, reason = "each test uses its share")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that ends with its value.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts an example, and returns the address that it prints.
    pub(crate) fn start(program: &str, settings: &[(&str, &str)]) -> (Process, String) {
        let mut child = Command::new(program).envs(settings.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Process(child), line.trim().strip_prefix("listening on ").unwrap().to_owned())
    }
}

/// What an example says that cannot start, which it must end with 2 for.
pub(crate) fn complaint(program: &str, settings: &[(&str, &str)]) -> String {
    let output = Command::new(program).envs(settings.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The whole answer to a request, with its head.
pub(crate) fn ask(address: &str, request: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The status of an answer.
pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A number of a page of metrics.
pub(crate) fn metric(page: &str, series: &str) -> usize {
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series} is not in {page}")).parse().unwrap()
}

/// The series of what a part of a stack refused.
pub(crate) fn refused_by(part: &str) -> String {
    format!("tidegate_stack_refused_total{{stack=\"default\",part=\"{part}\"}}")
}

/// The series of what was shed of a class.
pub(crate) fn shed_of(class: &str) -> String {
    format!("tidegate_stack_shed_total{{stack=\"default\",class=\"{class}\"}}")
}

/// The series of how many a stack has room for and has taken.
pub(crate) const IN_FLIGHT: &str = "tidegate_stack_in_flight{stack=\"default\",part=\"shed\"}";
