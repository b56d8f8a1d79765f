//! Windows: many samples are combined into one, so that a limit does not follow each single request.

use std::time::Duration;

use super::error::{check_count, check_range, check_time};
use super::histogram::Histogram;
use super::{AdaptiveError, Sample};
use crate::Time;
use crate::bounds::WINDOW_SAMPLES_MIN_MAX;

/// How the times of a window are combined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Summary {
    /// The mean.
    Average,
    /// The time at this share of the sorted samples, 0 to 1, to within a sixteenth. The rank is rounded: at 0.625 of
    /// four samples it is the third.
    Percentile(f64),
}

/// How a window ends that has too few samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// The window goes on until it has enough. The limit still follows a server that has become slow, if less often.
    Extend,
    /// The window is discarded. If a server is so slow that no window has enough samples, the limit stays as it is.
    Discard,
}

/// The configuration of a [`Window`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowConfig {
    /// The length: a window ends with the first sample later than this after its start.
    pub length: Duration,
    /// The fewest samples of a window.
    pub samples_min: u64,
    /// A shorter response time is not counted: the response needed no work.
    pub rtt_min: Duration,
    /// How the times are combined.
    pub summary: Summary,
    /// How a window ends that has too few samples.
    pub sparse: Sparse,
}

impl Default for WindowConfig {
    fn default() -> WindowConfig {
        WindowConfig {
            length: Duration::from_secs(1),
            samples_min: 10,
            rtt_min: Duration::from_micros(100),
            summary: Summary::Average,
            sparse: Sparse::Extend,
        }
    }
}

/// Combines the samples of each window into one: one time for all, the most requests that were in flight, and whether
/// any was dropped. It takes the same room for any number of samples.
///
/// A sample below `rtt_min` is ignored, unless it was dropped: then it counts as a drop without a time, since a service
/// behind may refuse at once.
#[derive(Clone, Debug)]
pub struct Window {
    config: WindowConfig,
    gathered: Gathered,
}

#[derive(Clone, Debug)]
struct Gathered {
    since: Option<Time>,
    samples: u64,
    timed: u64,
    sum_nanos: u128,
    shortest: Duration,
    longest: Duration,
    in_flight_max: u64,
    dropped: bool,
    times: Histogram,
}

impl Window {
    /// Creates a window with this configuration. It begins with its first sample.
    ///
    /// # Errors
    /// Fails if the length is zero or longer than a day, `samples_min` is zero or too large, or a percentile is not 0
    /// to 1.
    pub fn new(config: WindowConfig) -> Result<Window, AdaptiveError> {
        check_time("length", config.length, WindowConfig::default().length)?;
        check_count("samples_min", config.samples_min, WINDOW_SAMPLES_MIN_MAX)?;
        if let Summary::Percentile(share) = config.summary {
            check_range("percentile", share, 0.0, 1.0)?;
        }
        Ok(Window { config, gathered: Gathered::since(None) })
    }

    /// Adds a sample that ended at `now`. If that completes a window, returns the combined sample for the limit.
    pub fn add(&mut self, now: Time, sample: Sample) -> Option<Sample> {
        let gathered = &mut self.gathered;
        // A sample that another thread overtook comes a little late. Only a clock that was set back is further behind, and
        // it would keep the window open until it has caught up.
        let length = self.config.length;
        let since = gathered.since.filter(|since| now.plus(length) >= *since).unwrap_or(now);
        gathered.since = Some(since);
        if sample.rtt < self.config.rtt_min && !sample.dropped {
            return None;
        }
        gathered.add(sample, sample.rtt >= self.config.rtt_min, self.config.summary);
        if now <= since.plus(length) {
            return None;
        }
        let enough = gathered.samples >= self.config.samples_min;
        if !enough && self.config.sparse == Sparse::Extend {
            return None;
        }
        let whole = enough.then(|| gathered.summed(self.config.summary));
        self.gathered = Gathered::since(Some(now));
        whole
    }
}

impl Gathered {
    const fn since(since: Option<Time>) -> Gathered {
        Gathered {
            since,
            samples: 0,
            timed: 0,
            sum_nanos: 0,
            shortest: Duration::MAX,
            longest: Duration::ZERO,
            in_flight_max: 0,
            dropped: false,
            times: Histogram::new(),
        }
    }

    fn add(&mut self, sample: Sample, timed: bool, summary: Summary) {
        self.samples = self.samples.saturating_add(1);
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        self.dropped |= sample.dropped;
        if timed {
            self.timed = self.timed.saturating_add(1);
            self.sum_nanos = self.sum_nanos.saturating_add(sample.rtt.as_nanos());
            self.shortest = self.shortest.min(sample.rtt);
            self.longest = self.longest.max(sample.rtt);
            if summary != Summary::Average {
                self.times.add(sample.rtt);
            }
        }
    }

    /// The combined sample.
    fn summed(&self, summary: Summary) -> Sample {
        let rtt = match summary {
            Summary::Average => self.sum_nanos.checked_div(u128::from(self.timed)).map(from_nanos),
            Summary::Percentile(share) => self.times.percentile(share),
        };
        // A bucket's middle may lie outside of what was seen. Without any time it stays zero: not known.
        let rtt = rtt.map_or(Duration::ZERO, |rtt| rtt.max(self.shortest).min(self.longest));
        Sample { rtt, in_flight: self.in_flight_max, dropped: self.dropped }
    }
}

fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(config: WindowConfig) -> Window {
        Window::new(config).unwrap()
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    fn took(millis: u64) -> Sample {
        Sample { rtt: Duration::from_millis(millis), in_flight: 1, dropped: false }
    }

    #[test]
    fn passes_on_the_average_the_most_in_flight_and_drops() {
        let mut window = window(WindowConfig::default());
        for millis in 0..9 {
            assert_eq!(window.add(at(millis * 100), Sample { in_flight: 10 - millis, ..took(100 + millis) }), None);
        }
        assert_eq!(window.add(at(999), Sample { dropped: true, ..took(0) }), None, "the window is not over");
        // (100 + … + 108 + 109) / 10 = 104.5: the drop without a time counts no time.
        let expected = Sample { rtt: Duration::from_micros(104_500), in_flight: 10, dropped: true };
        assert_eq!(window.add(at(1001), took(109)), Some(expected));
        assert_eq!(window.add(at(1001), took(7)), None, "a new window has begun");
    }

    #[test]
    fn ignores_what_was_too_fast() {
        let mut window = window(WindowConfig { samples_min: 1, ..WindowConfig::default() });
        let fast = Sample { rtt: Duration::from_nanos(99_999), in_flight: 9, dropped: false };
        assert_eq!(window.add(at(0), fast), None);
        assert_eq!(window.add(at(2000), fast), None);
        assert_eq!(window.add(at(2000), took(5)), Some(took(5)));
    }

    #[test]
    fn goes_on_with_too_few_samples_or_forgets_them() {
        for (sparse, expected) in [(Sparse::Extend, Some(took(80))), (Sparse::Discard, None)] {
            let mut window = window(WindowConfig { sparse, ..WindowConfig::default() });
            for second in 0..9 {
                assert_eq!(window.add(at(second * 1000), took(80)), None);
            }
            assert_eq!(window.add(at(9000), took(80)), expected, "{sparse:?}");
        }
    }

    #[test]
    fn only_drops_at_once_pass_on_a_drop_without_a_time() {
        let mut window = window(WindowConfig::default());
        let refused = Sample { rtt: Duration::from_nanos(5), in_flight: 3, dropped: true };
        for millis in 0..9 {
            assert_eq!(window.add(at(millis), refused), None);
        }
        assert_eq!(window.add(at(1001), refused), Some(Sample { rtt: Duration::ZERO, ..refused }));
    }

    #[test]
    fn passes_on_a_percentile() {
        let mut window = window(WindowConfig { summary: Summary::Percentile(0.9), ..WindowConfig::default() });
        let told = (1..=10).filter_map(|step| window.add(at(step * 112), took(step * 100))).next();
        let millis = told.unwrap().rtt.as_millis();
        assert!((844..=956).contains(&millis), "{millis} is not about 900");
        let alike = (11..=30).filter_map(|step| window.add(at(step * 112), took(77))).next();
        assert_eq!(alike, Some(took(77)), "never outside of what was seen");
    }

    #[test]
    fn a_clock_set_back_does_not_hold_the_window_open() {
        let mut window = window(WindowConfig { samples_min: 1, ..WindowConfig::default() });
        assert_eq!(window.add(at(100_000), took(80)), None);
        assert_eq!(window.add(at(0), took(80)), None);
        assert_eq!(window.add(at(1001), took(80)), Some(took(80)));
    }

    #[test]
    fn a_window_ends_after_its_length() {
        let mut window = window(WindowConfig { samples_min: 1, ..WindowConfig::default() });
        let times = [0, 1000, 1001, 2001, 2002].map(|millis| window.add(at(millis), took(80)).is_some());
        assert_eq!(times, [false, false, true, false, true]);
    }

    #[test]
    fn a_late_sample_does_not_begin_the_window_earlier() {
        let mut window = window(WindowConfig { samples_min: 1, ..WindowConfig::default() });
        let times = [100, 0, 1050, 1100, 1101].map(|millis| window.add(at(millis), took(80)).is_some());
        assert_eq!(times, [false, false, false, false, true]);
    }
}
