//! Processes that end with their test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::wait::{PATIENCE, eventually};

/// A process with a temporary directory. It is ended when the value is dropped; a test that fails prints its log.
pub struct Process {
    /// The process.
    pub child: Child,
    /// Its directory, which is removed when the value is dropped.
    pub directory: TempDir,
    name: String,
}

impl Process {
    /// Starts a command. Its stderr goes to a file in the directory, and so does its stdout, unless another place is given.
    pub fn start(directory: TempDir, command: &mut Command, stdout: Option<Stdio>) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = |end: &str| File::create(directory.path().join(end)).unwrap();
        command.stdin(Stdio::null()).stdout(stdout.unwrap_or_else(|| file("stdout").into())).stderr(file("stderr"));
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}; `make peers` installs it"));
        Process { child, directory, name }
    }

    /// Returns the path of a file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns what it has written to stderr so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }

    /// Stops it with SIGSTOP and waits until all its threads are stopped.
    pub fn hang(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"));
        let all_are = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            tasks.flatten().all(|task| std::fs::read_to_string(task.path().join("stat")).is_ok_and(is_stopped))
        };
        assert!(eventually(all_are), "it does not stop");
    }

    /// Waits until it has ended by itself, for 20 s at most, and returns its status.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "{} does not end:\n{}", self.name, self.log());
        status.unwrap()
    }

    /// Waits until something holds, for 20 s at most.
    ///
    /// # Panics
    /// If it does not hold in that time, or the process ends: with the log.
    pub fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let mut status = None;
        let happened = eventually(|| {
            status = self.child.try_wait().unwrap();
            status.is_some() || holds()
        });
        let well = happened && status.is_none();
        assert!(well, "{}: {what} does not happen, status {status:?}; its log:\n{}", self.name, self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            // SIGTERM comes first: nginx ends its workers only then.
            self.signal(Signal::TERM);
            if !eventually(|| self.child.try_wait().ok().flatten().is_some()) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the log of {}:\n{}", self.name, self.log());
        }
    }
}

/// Creates a temporary directory, which is removed when the value is dropped.
pub fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns a command that is ended after 20 s.
pub fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(program).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command and returns what it prints.
///
/// # Panics
/// If the command fails.
pub fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let Output { status, stdout, stderr } = &output;
    let stderr = String::from_utf8_lossy(stderr);
    assert!(status.success(), "{command:?}: {status}\n{}{stderr}", String::from_utf8_lossy(stdout));
    String::from_utf8(output.stdout).unwrap()
}
