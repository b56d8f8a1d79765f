//! Traffic over time and how much of it several limits let pass, as rows of bars.

use std::io;
use std::time::Duration;

use tidegate::{FakeClock, Key, Limit, Limiter};

use super::screen::Screen;

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: usize = 10;
/// How long a tick is shown: a little faster than in real time.
const FRAME: Duration = Duration::from_millis(70);
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Requests per tick, and a row for each limit.
pub(super) struct Timeline {
    clock: FakeClock,
    traffic: Vec<u64>,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    limiter: Limiter,
    /// Requests that passed, for each tick so far.
    passed: Vec<u64>,
}

impl Timeline {
    pub(super) fn new(traffic: Vec<u64>) -> Timeline {
        Timeline { clock: FakeClock::new(), traffic, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &'static str, limit: Limit) -> io::Result<()> {
        let limiter = super::build(Limiter::builder(limit).clock(self.clock.clone()))?;
        self.rows.push(Row { name, limiter, passed: Vec::new() });
        Ok(())
    }

    /// Sends the traffic to every limit. Draws each tick if somebody watches, otherwise once at the end.
    pub(super) fn play(&mut self, screen: &mut Screen) -> io::Result<()> {
        let key = Key::new("ann").map_err(io::Error::other)?;
        for (tick, requests) in self.traffic.iter().enumerate() {
            for row in &mut self.rows {
                let passed = (0..*requests).filter(|_| row.limiter.check(key).is_allowed()).count();
                row.passed.push(passed as u64);
            }
            self.clock.advance(TICK);
            if screen.is_live() {
                self.draw(screen, tick + 1)?;
                screen.pause(FRAME)?;
                screen.go_back(self.rows.len() + 2)?;
            }
        }
        self.draw(screen, self.traffic.len())
    }

    /// Draws the first `ticks` ticks: the requests, a row for each limit, and a scale in seconds.
    fn draw(&self, screen: &mut Screen, ticks: usize) -> io::Result<()> {
        screen.line(&self.row("requests", &self.traffic[..ticks], screen, Screen::faint))?;
        for row in &self.rows {
            screen.line(&self.row(row.name, &row.passed[..ticks], screen, Screen::green))?;
        }
        let marks: String = (0..=self.traffic.len() / TICKS_PER_SECOND)
            .map(|second| format!("{:<TICKS_PER_SECOND$}", format!("{second} s")))
            .collect();
        let marks = screen.faint(marks.trim_end());
        screen.line(&format!("   {:<16}  {marks}", ""))
    }

    fn row(&self, name: &str, passed: &[u64], screen: &Screen, paint: fn(&Screen, &str) -> String) -> String {
        let tallest = self.traffic.iter().copied().max().unwrap_or(0);
        let mut bars = String::new();
        for (asked, passed) in self.traffic.iter().zip(passed) {
            bars += &match (asked, passed) {
                (0, _) => " ".to_owned(),
                (_, 0) => screen.red("·"),
                (_, passed) => paint(screen, &bar(*passed, tallest).to_string()),
            };
        }
        let ahead = " ".repeat(self.traffic.len() - passed.len());
        let total: u64 = passed.iter().sum();
        format!("   {name:<16}  {bars}{ahead}  {total:>3}")
    }
}

/// Returns a bar for `count` of `tallest`, at least of the lowest height.
fn bar(count: u64, tallest: u64) -> char {
    let height = (count * BARS.len() as u64).div_ceil(tallest.max(1));
    BARS[usize::try_from(height).map_or(0, |height| height.clamp(1, BARS.len()) - 1)]
}
