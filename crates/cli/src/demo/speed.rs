//! The speed of checks, measured on this machine.

use std::hint::black_box;
use std::io;

use tidegate::{Clock, Key, Limit, Limiter};

use super::screen::Screen;

const KEYS: usize = 10_000;
const MEASURED_NANOS: u64 = 300_000_000;

pub(super) fn show(screen: &mut Screen) -> io::Result<()> {
    screen.heading("4  The speed on this machine")?;
    let nanos_per_thousand = measure()?;
    let million_tenths = 10_000_000 / nanos_per_thousand.max(1);
    let build = if cfg!(debug_assertions) { ", in a debug build" } else { "" };
    screen.line(&format!(
        "   {}.{} million checks per second, {} ns each: one thread, {KEYS} keys{build}.",
        million_tenths / 10,
        million_tenths % 10,
        nanos_per_thousand / 1000,
    ))
}

/// Checks keys in turn for a moment, and returns the nanoseconds per thousand checks.
fn measure() -> io::Result<u64> {
    // High enough that every check passes: a denial writes nothing and would be faster.
    let limit = "1000000/second".parse::<Limit>().map_err(io::Error::other)?;
    let limiter = Limiter::builder(limit).keys(KEYS).build().map_err(io::Error::other)?;
    let names: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(Key::new).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let clock = Clock::system();
    let start = clock.now().as_nanos();
    let mut checks = 0;
    loop {
        for key in &keys {
            black_box(limiter.check(*key));
        }
        checks += KEYS as u64;
        let elapsed = clock.now().as_nanos() - start;
        if elapsed >= MEASURED_NANOS {
            return Ok(elapsed * 1000 / checks);
        }
    }
}
