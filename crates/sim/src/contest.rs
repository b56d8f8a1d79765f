//! The limits that are compared, under the names of the documents.

use std::time::Duration;

use tidegate_core::adaptive::{
    AdaptiveError, Aimd, AimdConfig, Gradient2, Gradient2Config, Sparse, Vegas, VegasConfig, WindowConfig,
};

use crate::Gate;

/// Limits of which two or more are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// No limit.
    Open,
    /// A fixed limit.
    Fixed(u64),
    /// AIMD with its published numbers: drops by deadline.
    Aimd,
    /// AIMD that halves, once for each deadline.
    AimdHeld,
    /// AIMD for which 1.2 s is a drop.
    AimdTimeout,
    /// Vegas with its published numbers.
    Vegas,
    /// Vegas that bears a queue of 10 to 25 where it is published with 1 to 6.
    VegasWide,
    /// Gradient2 with its published numbers, and drops honoured.
    Gradient2,
    /// Gradient2 with a long-term time of 100 windows, that halves once for each deadline.
    Gradient2Short,
    /// The same with drops ignored, as the published formula does.
    Gradient2Deaf,
}

/// As many windows of 100 ms as fit into the deadline of 2 s.
const HOLD: u64 = 20;

impl Contestant {
    /// Those of the table over many seeds, in its order.
    pub const ADAPTIVE: [Contestant; 7] = [
        Contestant::Aimd,
        Contestant::AimdHeld,
        Contestant::AimdTimeout,
        Contestant::Vegas,
        Contestant::VegasWide,
        Contestant::Gradient2,
        Contestant::Gradient2Short,
    ];

    /// Those of the first table of the guide, in its order; `best` is the best fixed limit.
    #[must_use]
    pub const fn table(best: u64) -> [Contestant; 12] {
        let [aimd, held, timeout, vegas, wide, gradient2, short] = Contestant::ADAPTIVE;
        let fixed = [Contestant::Fixed(best / 2), Contestant::Fixed(best), Contestant::Fixed(best.saturating_mul(2))];
        let [half, best, twice] = fixed;
        let deaf = Contestant::Gradient2Deaf;
        [Contestant::Open, half, best, twice, aimd, held, timeout, vegas, wide, gradient2, short, deaf]
    }

    /// Its name in tables and plots.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Contestant::Open => "no limit".into(),
            Contestant::Fixed(limit) => format!("fixed, {limit}"),
            Contestant::Aimd => "AIMD".into(),
            Contestant::AimdHeld => "AIMD, backoff 0.5, hold 20".into(),
            Contestant::AimdTimeout => "AIMD, timeout 1.2 s".into(),
            Contestant::Vegas => "Vegas".into(),
            Contestant::VegasWide => "Vegas, threshold 10, alpha 15, beta 25".into(),
            Contestant::Gradient2 => "Gradient2".into(),
            Contestant::Gradient2Short => "Gradient2, long window 100, backoff 0.5, hold 20".into(),
            Contestant::Gradient2Deaf => "Gradient2, long window 100, drops ignored".into(),
        }
    }

    /// The limit, before its first request. `seed` is for what is left to chance in it.
    ///
    /// # Errors
    /// Never: the numbers are within their bounds.
    pub fn gate(self, seed: u64) -> Result<Gate, AdaptiveError> {
        self.gate_with(seed, Sparse::Extend)
    }

    /// The same, with a choice of what becomes of windows with too few samples.
    ///
    /// # Errors
    /// Never: the numbers are within their bounds.
    pub fn gate_with(self, seed: u64, sparse: Sparse) -> Result<Gate, AdaptiveError> {
        let window = WindowConfig { length: Duration::from_millis(100), sparse, ..WindowConfig::default() };
        let (aimd, gradient2) = (AimdConfig::default(), Gradient2Config::default());
        let short = Gradient2Config { long_window: 100, drop_backoff: 0.5, drop_hold: HOLD, ..gradient2 };
        let vegas = VegasConfig { seed, ..VegasConfig::default() };
        let wide = VegasConfig { threshold: 10.0, alpha: 15.0, beta: 25.0, ..vegas };
        match self {
            Contestant::Open => Ok(Gate::Open),
            Contestant::Fixed(limit) => Ok(Gate::Fixed(limit)),
            Contestant::Aimd => Gate::windowed(Aimd::new(aimd)?, window),
            Contestant::AimdHeld => Gate::windowed(Aimd::new(AimdConfig { backoff: 0.5, hold: HOLD, ..aimd })?, window),
            Contestant::AimdTimeout => {
                Gate::windowed(Aimd::new(AimdConfig { timeout: Duration::from_millis(1200), ..aimd })?, window)
            }
            Contestant::Vegas => Gate::windowed(Vegas::new(vegas)?, window),
            Contestant::VegasWide => Gate::windowed(Vegas::new(wide)?, window),
            Contestant::Gradient2 => Gate::windowed(Gradient2::new(gradient2)?, window),
            Contestant::Gradient2Short => Gate::windowed(Gradient2::new(short)?, window),
            Contestant::Gradient2Deaf => {
                Gate::windowed(Gradient2::new(Gradient2Config { drop_backoff: 1.0, ..short })?, window)
            }
        }
    }
}
