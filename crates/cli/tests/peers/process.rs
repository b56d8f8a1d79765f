//! Processes that end with their test, and waiting for what they do.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest that anything is waited for. A test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often is looked at what is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// A process with a directory of its own, ended by its id when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) directory: TempDir,
    name: String,
}

impl Process {
    /// Starts it. What it says on stderr goes to a file in its directory, and so does stdout unless it is piped.
    pub(crate) fn start(directory: TempDir, command: &mut Command, stdout: Option<Stdio>) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = |end: &str| File::create(directory.path().join(end)).unwrap();
        command.stdin(Stdio::null()).stdout(stdout.unwrap_or_else(|| file("stdout").into())).stderr(file("stderr"));
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}; `make peers` installs it"));
        Process { child, directory, name }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it said on stderr so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }

    /// Stops it where it is. Each of its threads goes on for a moment after the signal.
    pub(crate) fn hang(&self) {
        self.signal(Signal::STOP);
        let stands = |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"));
        let all_stand = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            tasks.flatten().all(|task| std::fs::read_to_string(task.path().join("stat")).is_ok_and(stands))
        };
        assert!(eventually(all_stand), "it does not stop");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "{} does not end:\n{}", self.name, self.log());
        status.unwrap()
    }

    /// Waits until it is as it should be, or shows what it said.
    pub(crate) fn wait_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let mut status = None;
        let happened = eventually(|| {
            status = self.child.try_wait().unwrap();
            status.is_some() || is_so()
        });
        let well = happened && status.is_none();
        assert!(well, "{}: {what} does not happen, status {status:?}; it said:\n{}", self.name, self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            // Politely first: nginx takes its workers along only then.
            self.signal(Signal::TERM);
            if !eventually(|| self.child.try_wait().ok().flatten().is_some()) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{}", self.name, self.log());
        }
    }
}

/// Looks again and again until it is so; false if it never was.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if is_so() {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}

/// The windows of the examples end with the minute. A test that counts in them starts well before their end.
pub(crate) fn not_at_the_end_of_a_minute() {
    let second = || ::tidegate::Clock::system().now().as_nanos() / 1_000_000_000 % 60;
    assert!(eventually(|| second() < 50), "the minute does not end");
}

/// A directory of its own, removed when it is dropped.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A port that nobody listens on. It is outside of the range that the system gives to connections, so that none of those
/// can take it meanwhile; those given to other tests are other ones.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 100).unwrap() * 100;
    loop {
        let port = 12_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 18_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A file of the examples, with other ports and whatever else has to be replaced: each must be there.
pub(crate) fn example(path: &str, replaced: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(root().join("examples").join(path)).unwrap();
    for (from, to) in replaced {
        assert!(text.contains(from), "examples/{path} has no `{from}`");
        text = text.replace(from, to);
    }
    text
}

/// What `make peers` installed from PyPI.
pub(crate) fn venv(program: &str) -> PathBuf {
    let path = root().join("target/peers/venv/bin").join(program);
    assert!(path.exists(), "{} is missing; `make peers` installs it", path.display());
    path
}

/// A command that is ended if it takes far too long.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(program).args(arguments).stdin(Stdio::null());
    command
}

/// What a command that must succeed prints.
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let Output { status, stdout, stderr } = &output;
    let stderr = String::from_utf8_lossy(stderr);
    assert!(status.success(), "{command:?}: {status}\n{}{stderr}", String::from_utf8_lossy(stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script of `clients/` with Python.
pub(crate) fn python(script: &str, arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/clients").join(script);
    let mut all = vec!["-u", path.to_str().unwrap()];
    all.extend(arguments);
    command(venv("python"), &all)
}
