//! Free ports.

use std::net::TcpListener;
use std::process::id;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a port of the loopback address that nobody listens on. It is below the range that the system gives to clients,
/// so that no connection takes it, and test processes look in different places.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    loop {
        let turn = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + (id().wrapping_mul(199) + turn) % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
