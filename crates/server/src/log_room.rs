//! A warning when the logs of sliding limits outgrow their store: it denies too early then, and nothing else would show
//! it.

use std::collections::HashMap;

use tidegate_engine::{Engine, LogLimiter};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::bounds::{LOG_ROOM_LINES, LOG_ROOM_LOOK};

/// Looks at the stores in memory from time to time.
#[derive(Debug)]
pub(crate) struct LogRoom {
    ticks: Interval,
    /// Of each store, how many entries without room were logged.
    logged: HashMap<Box<str>, Logged>,
}

#[derive(Debug)]
struct Logged {
    entries: u64,
    lines: LogLimiter,
}

impl LogRoom {
    pub(crate) fn new() -> LogRoom {
        let mut ticks = interval(LOG_ROOM_LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        LogRoom { ticks, logged: HashMap::new() }
    }

    /// Waits for the next look at the stores and takes it. Nothing is lost if it is dropped before.
    pub(crate) async fn look(&mut self, engine: &Engine) {
        self.ticks.tick().await;
        let stores = engine.memory_stores();
        self.logged.retain(|name, _| stores.iter().any(|store| store.name == *name));
        for store in stores {
            let fresh = || Logged { entries: 0, lines: LogLimiter::new(LOG_ROOM_LINES, engine.clock().clone()) };
            let logged = self.logged.entry(store.name.clone()).or_insert_with(fresh);
            logged.warn(&store.name, store.log_entries_without_room);
        }
    }
}

impl Logged {
    fn warn(&mut self, store: &str, entries: u64) {
        // A store that was made anew counts from 0 again.
        let new = entries.checked_sub(self.entries).unwrap_or(entries);
        if new == 0 {
            self.entries = entries;
        } else if self.lines.turn().is_some() {
            self.entries = entries;
            tracing::warn!(
                store,
                entries = new,
                "no room for log entries: sliding_log and sliced_window deny too early; raise log_entries of the store"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_core::{Limit, Op};
    use tidegate_engine::Options;
    use tidegate_testkit::logs::capture;

    #[tokio::test(start_paused = true)]
    async fn entries_without_room_are_logged_once_and_again_later() {
        let captured = capture();
        // Room for 70 entries.
        let engine = Engine::new(Options { keys: Some(10), ..Options::default() }).unwrap();
        let limit = Limit::sliding_log(1_000, Duration::from_secs(3_600)).unwrap();
        let mut room = LogRoom::new();
        let lines = || captured.lines_with(&["WARN", "no room for log entries", "store=\"default\""]);
        room.look(&engine).await;
        assert_eq!(lines(), [""; 0]);
        for _ in 0..80 {
            engine.decide(b"user", &limit, Op::Take(1)).await.unwrap();
        }
        assert!(engine.memory_stores()[0].log_entries_without_room > 0);
        for _ in 0..3 {
            room.look(&engine).await;
        }
        assert_eq!(lines().len(), 1, "{:?}", lines());
        assert!(lines()[0].contains("raise log_entries of the store"), "{:?}", lines());
    }
}
