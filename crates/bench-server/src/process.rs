//! Programs that run beside a bench, on cores of their own, and what they cost.

use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that was started. It ends when this is dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it. What it prints is dropped.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Process {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Process(child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `make bench-server` and `make bench-redis` install what they need")
        }))
    }

    /// The number under which the system knows it.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Seconds of CPU that it has used, in user and system mode.
    ///
    /// # Panics
    /// If it has ended.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // Kernels report hundredths of a second.
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A half of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The first one, which the servers have that are measured.
    Servers,
    /// The second one, which their clients have.
    Clients,
}

/// A program that has one half of the cores; all of them where there is only one.
pub fn on(half: Half, program: impl AsRef<OsStr>) -> Command {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (first, last) = match half {
        Half::Servers => (0, (cores / 2).max(1) - 1),
        Half::Clients => (cores / 2, cores - 1),
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &format!("{first}-{last}")]).arg(program);
    command
}

/// Runs a command to its end, and returns what it printed.
///
/// # Panics
/// If it fails.
pub fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Ports on which nothing listens.
///
/// # Panics
/// If there are none.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let held: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|number| held[number].local_addr().unwrap().port())
}

/// Waits until something listens on this port.
///
/// # Panics
/// If nothing does within ten seconds.
pub fn wait_for(port: u16) {
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing listens on port {port}");
}
