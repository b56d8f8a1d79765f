//! Many who ask at once while something happens, and what they were told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::ask::{Http, Said};
use crate::fleet::Fleet;

/// What one of them was told, when, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) asked: Instant,
    pub(crate) took: Duration,
    pub(crate) said: Said,
    /// The entry that the question was about, which tells rules apart.
    pub(crate) entry: &'static str,
}

/// All that was told, in the order of asking.
pub(crate) struct Answers(pub(crate) Vec<Answer>);

/// Ends the load also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// So many clients ask all nodes in turn, one question after the other over HTTP, while something happens. `entry` says
/// what the question with this number is about.
pub(crate) fn during<T>(
    fleet: &Fleet,
    clients: usize,
    entry: impl Fn(u64) -> (&'static str, String) + Sync,
    something: impl FnOnce() -> T,
) -> (Answers, T) {
    let (end, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let ask = |number: usize| {
            let (end, count, entry) = (&end, &count, &entry);
            let address = fleet.node(number).http;
            move || {
                let (mut http, mut answers) = (Http::open(address), Vec::new());
                while !end.load(Relaxed) {
                    let (entry, value) = entry(count.fetch_add(1, Relaxed));
                    let asked = Instant::now();
                    let said = http.ask_with(&[(entry, &value)]);
                    answers.push(Answer { asked, took: asked.elapsed(), said, entry });
                }
                answers
            }
        };
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(ask(number))).collect();
        let guard = End(&end);
        let value = something();
        drop(guard);
        let mut all: Vec<Answer> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_by_key(|answer| answer.asked);
        (Answers(all), value)
    })
}

impl Answers {
    pub(crate) fn count(&self, said: Said) -> u64 {
        self.0.iter().filter(|answer| answer.said == said).count() as u64
    }

    /// Those about this entry.
    pub(crate) fn of(&self, entry: &str) -> Answers {
        Answers(self.0.iter().filter(|answer| answer.entry == entry).copied().collect())
    }

    /// Those that were asked for in this time.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Answers {
        Answers(self.0.iter().filter(|answer| (from..to).contains(&answer.asked)).copied().collect())
    }

    /// Questions a second.
    pub(crate) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return 0.0 };
        self.0.len() as f64 / last.asked.duration_since(first.asked).as_secs_f64().max(0.001)
    }

    /// What so many of a thousand did not exceed.
    pub(crate) fn took(&self, thousandth: usize) -> Duration {
        let mut all: Vec<Duration> = self.0.iter().map(|answer| answer.took).collect();
        all.sort_unstable();
        let place = (all.len() * thousandth / 1000).min(all.len().saturating_sub(1));
        all.get(place).copied().unwrap_or_default()
    }

    /// All of it in a line.
    pub(crate) fn told(&self) -> String {
        let (passed, denied, failed) = (self.count(Said::Passed), self.count(Said::Denied), self.count(Said::Failed));
        let rate = self.rate();
        let (middle, p99, most) = (self.took(500), self.took(990), self.took(1000));
        format!(
            "{passed} passed, {denied} denied, {failed} failed, {rate:.0}/s, p50 {middle:?}, p99 {p99:?}, max {most:?}"
        )
    }
}
