//! Limits as people write them, read to limits that can be asked.

use std::time::Duration;

use tidegate_core::bounds::SLICES_DEFAULT;
use tidegate_core::{Algorithm, Limit, LimitError, Rate};

use crate::request::Shown;
use crate::schema::{self, Numbers, RateText};

/// Why a limit cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {hint}")]
pub struct LimitProblem {
    /// The field at fault; empty if it is the limit as a whole.
    pub field: &'static str,
    /// What is wrong, with the field and its value.
    pub message: String,
    /// What would do.
    pub hint: String,
}

/// Reads a limit: text like `100/minute`, or an algorithm with its numbers.
///
/// # Errors
/// If a number is missing, out of bounds, or of no use to the algorithm.
pub fn read_limit(limit: &schema::Limit) -> Result<(Limit, Shown), LimitProblem> {
    read_limit_of(limit, &|_| true).map_err(|problems| {
        problems
            .into_iter()
            .next()
            .unwrap_or_else(|| problem("", "limit: cannot be read", "see the reference of limits"))
    })
}

/// The same with all problems. Fields that are not known were written, but nobody could read them.
pub(crate) fn read_limit_of(
    limit: &schema::Limit,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(Limit, Shown), Vec<LimitProblem>> {
    match limit {
        schema::Limit::Rate(text) => {
            let rate: Rate = text.parse().map_err(|error| vec![of_core(error, "")])?;
            let limit = Limit::gcra(rate, rate.units()).map_err(|error| vec![of_core(error, "")])?;
            Ok((limit, shown(rate)))
        }
        schema::Limit::Numbers(numbers) => read_numbers(numbers, is_known),
    }
}

fn read_numbers(numbers: &Numbers, is_known: &dyn Fn(&str) -> bool) -> Result<(Limit, Shown), Vec<LimitProblem>> {
    let mut problems = Vec::new();
    let algorithm = match algorithm(numbers) {
        Ok(algorithm) => Some(algorithm).filter(|_| is_known("algorithm")),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    problems.extend(algorithm.into_iter().flat_map(|algorithm| useless(algorithm, numbers)));
    let rate = match rate_of(algorithm, numbers, is_known) {
        Ok(rate) => rate,
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    // A number that fits no rate at all is told also where the rate cannot be read.
    let (Some(algorithm), Ok(stand_in)) = (algorithm, Rate::new(1, Duration::from_secs(1))) else {
        return Err(problems);
    };
    match (made(algorithm, rate.unwrap_or(stand_in), numbers), rate) {
        (Ok(limit), Some(rate)) if problems.is_empty() => return Ok((limit, shown(rate))),
        (Err(error), rate) if rate.is_some() || matches!(error, LimitError::Zero { .. }) => {
            problems.push(of_core(error, units_field(numbers)));
        }
        _ => (),
    }
    Err(problems)
}

/// The rate, if enough is known to tell of it.
fn rate_of(
    algorithm: Option<Algorithm>,
    numbers: &Numbers,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Option<Rate>, LimitProblem> {
    let mut numbers = numbers.clone();
    let has_window = numbers.limit.is_some() || numbers.window_ns.is_some();
    if has_window && algorithm.is_some_and(|algorithm| !is_window(algorithm)) {
        // That they are of no use was said.
        (numbers.limit, numbers.window_ns) = (None, None);
        if numbers.rate.is_none() {
            return Ok(None);
        }
    }
    if ["rate", "per_ns", "limit", "window_ns"].iter().all(|field| is_known(field)) {
        return rate(algorithm.unwrap_or(Algorithm::Gcra), &numbers).map(Some);
    }
    match &numbers.rate {
        Some(RateText::Text(text)) => text.parse::<Rate>().map(|_| None).map_err(|error| of_core(error, "rate")),
        _ => Ok(None),
    }
}

fn is_window(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

fn made(algorithm: Algorithm, rate: Rate, numbers: &Numbers) -> Result<Limit, LimitError> {
    let (units, window) = (rate.units(), rate.period());
    match algorithm {
        Algorithm::Gcra => Limit::gcra(rate, numbers.burst.unwrap_or(units)),
        Algorithm::TokenBucket => Limit::token_bucket(rate, numbers.capacity.unwrap_or(units)),
        Algorithm::LeakyBucket => Limit::leaky_bucket(rate, numbers.capacity.unwrap_or(units)),
        Algorithm::FixedWindow => Limit::fixed_window(units, window).map(|limit| match numbers.stagger {
            Some(true) => limit.staggered(),
            _ => limit,
        }),
        Algorithm::SlidingLog => Limit::sliding_log(units, window),
        Algorithm::SlidingCounter => Limit::sliding_counter(units, window),
        Algorithm::SlicedWindow => Limit::sliced_window_of(units, window, numbers.slices.unwrap_or(SLICES_DEFAULT)),
    }
}

fn algorithm(numbers: &Numbers) -> Result<Algorithm, LimitProblem> {
    let Some(name) = &numbers.algorithm else { return Ok(Algorithm::Gcra) };
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        let name: String = name.chars().take(40).collect();
        problem("algorithm", format!("algorithm: `{name}` is not known"), format!("use one of {}", names.join(", ")))
    })
}

/// A field without effect is a mistake that nobody would notice.
fn useless(algorithm: Algorithm, numbers: &Numbers) -> impl Iterator<Item = LimitProblem> {
    let gcra = algorithm == Algorithm::Gcra;
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let window = is_window(algorithm);
    let fields = [
        ("burst", numbers.burst.is_some(), gcra, if bucket { "write capacity" } else { "leave it out" }),
        ("capacity", numbers.capacity.is_some(), bucket, if gcra { "write burst" } else { "leave it out" }),
        ("limit", numbers.limit.is_some(), window, "write rate, like 100/minute"),
        ("window_ns", numbers.window_ns.is_some(), window, "write rate, like 100/minute"),
        ("slices", numbers.slices.is_some(), algorithm == Algorithm::SlicedWindow, "leave it out"),
        ("stagger", numbers.stagger.is_some(), algorithm == Algorithm::FixedWindow, "leave it out"),
    ];
    let useless = fields.into_iter().filter(|(_, there, used, _)| *there && !used);
    useless.map(move |(field, _, _, hint)| problem(field, format!("{field}: {algorithm} has no such number"), hint))
}

/// The rate of a bucket, or the limit and length of a window.
fn rate(algorithm: Algorithm, numbers: &Numbers) -> Result<Rate, LimitProblem> {
    match (&numbers.rate, numbers.per_ns, numbers.limit, numbers.window_ns) {
        (Some(RateText::Text(text)), None, None, None) => text.parse().map_err(|error| of_core(error, "rate")),
        (Some(RateText::Units(units)), Some(per), None, None) => {
            Rate::from_nanos(*units, per).map_err(|error| of_core(error, "rate"))
        }
        (None, None, Some(units), Some(window)) => {
            Rate::new(units, Duration::from_nanos(window)).map_err(|error| of_core(error, "limit"))
        }
        (Some(_), _, Some(_), _) => Err(both("limit", "rate")),
        (Some(_), _, _, Some(_)) => Err(both("window_ns", "rate")),
        (Some(RateText::Text(_)), Some(_), ..) => {
            Err(problem("per_ns", "per_ns: the rate says its period already", "leave per_ns out"))
        }
        (Some(RateText::Units(units)), None, ..) => Err(problem(
            "rate",
            format!("rate: {units} has no period"),
            format!("write {units}/minute or the like, or add per_ns"),
        )),
        (None, _, Some(_), None) => Err(missing("window_ns", "the length of the window in nanoseconds")),
        (None, _, None, Some(_)) => Err(missing("limit", "the units in a window")),
        (None, Some(_), ..) => Err(missing("rate", "the units in each per_ns")),
        (None, None, None, None) => {
            let hint = match is_window(algorithm) {
                false => "add rate, like 100/minute",
                true => "add rate, like 100/minute, or limit and window_ns",
            };
            Err(problem("rate", "rate: missing", hint))
        }
    }
}

fn shown(rate: Rate) -> Shown {
    Shown { units: rate.units(), period_ns: u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX) }
}

/// The field that tells the units.
fn units_field(numbers: &Numbers) -> &'static str {
    if numbers.limit.is_some() { "limit" } else { "rate" }
}

/// Core speaks of `limit`, `rate`, `window` and `period`; what was written may have other names.
fn of_core(error: LimitError, written: &'static str) -> LimitProblem {
    let field = match &error {
        LimitError::Zero { field } | LimitError::TooLarge { field, .. } => *field,
        LimitError::TooLong { field, .. } | LimitError::TooFast { field, .. } => *field,
        LimitError::Unreadable { .. } => "rate",
    };
    let field = match (field, written) {
        (_, "") => "",
        ("window" | "period", "limit") => "window_ns",
        ("limit" | "rate" | "window" | "period", _) => written,
        (field, _) => field,
    };
    let text = error.to_string();
    let (message, hint) = text.split_once("; ").unwrap_or((&text, "see the reference of limits"));
    problem(field, message, hint)
}

fn both(field: &'static str, other: &str) -> LimitProblem {
    problem(field, format!("{field}: {other} says it already"), format!("leave out {other} or {field}"))
}

fn missing(field: &'static str, what: &str) -> LimitProblem {
    problem(field, format!("{field}: missing"), format!("add {field}, {what}"))
}

fn problem(field: &'static str, message: impl Into<String>, hint: impl Into<String>) -> LimitProblem {
    LimitProblem { field, message: message.into(), hint: hint.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<(Limit, Shown), LimitProblem> {
        read_limit(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_way_to_write_a_limit() {
        let minute = Duration::from_secs(60);
        let per_minute = Rate::per_minute(5).unwrap();
        let cases = [
            (r#""5/minute""#, Limit::gcra(per_minute, 5)),
            (r#"{"rate":"5/minute"}"#, Limit::gcra(per_minute, 5)),
            (r#"{"rate":"5/minute","burst":9}"#, Limit::gcra(per_minute, 9)),
            (r#"{"algorithm":"gcra","rate":5,"per_ns":60000000000,"burst":2}"#, Limit::gcra(per_minute, 2)),
            (r#"{"algorithm":"token_bucket","rate":"5/1m","capacity":9}"#, Limit::token_bucket(per_minute, 9)),
            (r#"{"algorithm":"leaky_bucket","rate":"5/min"}"#, Limit::leaky_bucket(per_minute, 5)),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":60000000000}"#, Limit::fixed_window(5, minute)),
            (
                r#"{"algorithm":"fixed_window","rate":"5/minute","stagger":true}"#,
                Limit::fixed_window(5, minute).map(Limit::staggered),
            ),
            (r#"{"algorithm":"sliding_log","rate":"5/minute"}"#, Limit::sliding_log(5, minute)),
            (r#"{"algorithm":"sliding_counter","rate":5,"per_ns":60000000000}"#, Limit::sliding_counter(5, minute)),
            (r#"{"algorithm":"sliced_window","rate":"5/60s","slices":6}"#, Limit::sliced_window_of(5, minute, 6)),
            (r#"{"algorithm":"sliced_window","rate":"5/60s"}"#, Limit::sliced_window(5, minute)),
        ];
        for (json, expected) in cases {
            let (limit, shown) = read(json).unwrap();
            assert_eq!(limit, expected.unwrap(), "{json}");
            assert_eq!(shown, Shown { units: 5, period_ns: 60_000_000_000 }, "{json}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases = [
            (r#""5""#, "", "rate: cannot read `5`"),
            (r#""0/minute""#, "", "rate: 0 is too small"),
            (r#"{}"#, "rate", "rate: missing"),
            (r#"{"algorithm":"gcra"}"#, "rate", "rate: missing"),
            (r#"{"algorithm":"magic","rate":"5/s"}"#, "algorithm", "algorithm: `magic` is not known"),
            (r#"{"rate":5}"#, "rate", "rate: 5 has no period"),
            (r#"{"rate":"5/s","per_ns":5}"#, "per_ns", "per_ns: the rate says its period already"),
            (r#"{"rate":"5/s","capacity":5}"#, "capacity", "capacity: gcra has no such number"),
            (r#"{"rate":"5/s","burst":0}"#, "burst", "burst: 0 is too small"),
            (r#"{"rate":"5/s","slices":5}"#, "slices", "slices: gcra has no such number"),
            (r#"{"limit":5,"window_ns":5}"#, "limit", "limit: gcra has no such number"),
            (r#"{"algorithm":"sliding_log","limit":5}"#, "window_ns", "window_ns: missing"),
            (r#"{"algorithm":"sliding_log","window_ns":5}"#, "limit", "limit: missing"),
            (r#"{"algorithm":"sliding_log","rate":"5/s","limit":5}"#, "limit", "limit: rate says it already"),
            (r#"{"algorithm":"sliding_log","rate":"5/s","stagger":true}"#, "stagger", "stagger: sliding_log has"),
            (r#"{"algorithm":"sliding_log","rate":"10001/day"}"#, "rate", "limit: 10001 is too large"),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":1}"#, "limit", "rate: 5 in 1 ns is too fast"),
            (r#"{"algorithm":"fixed_window","rate":"1/11y"}"#, "rate", "window: "),
        ];
        for (json, field, message) in cases {
            let problem = read(json).unwrap_err();
            assert_eq!(problem.field, field, "{json}");
            assert!(problem.message.starts_with(message), "{json}: {problem}");
            assert!(!problem.hint.is_empty(), "{json}");
        }
    }
}
