//! A Redis of the test's own, on a socket in a folder of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{Connection, Value};

use super::Runs;
use crate::redis::link::Script;

pub(super) struct Live {
    server: Child,
    folder: PathBuf,
    connection: Connection,
}

impl Live {
    pub(super) fn start() -> Live {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-live-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("redis.sock");
        let mut server = Command::new("redis-server");
        server.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        let server = server.stdout(Stdio::null()).spawn().expect("redis-server is missing: `make peers` installs it");
        let client = redis::Client::open(format!("redis+unix://{}", socket.display())).unwrap();
        let connection = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            client.get_connection().ok()
        });
        Live { server, folder, connection: connection.expect("redis-server answers within 5 s") }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Runs for Live {
    fn restart(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
    }

    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Value {
        let mut call = redis::cmd("EVAL");
        call.arg(script.text()).arg(keys.len()).arg(keys).arg(args);
        call.query(&mut self.connection).unwrap()
    }
}
