//! Limits as people write them, in files and in JSON, read to limits that can be asked.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use tidegate_core::bounds::{SLICES_MAX, SPAN_NANOS_MAX, WINDOW_NANOS_MAX};
use tidegate_core::{Algorithm, Calendar, CalendarPeriod, Limit, LimitError, LimitNumbers, Rate};

use crate::json::{FieldError, Fields, Raw, quote, text, whole};
use crate::request::Shown;
use crate::schema::{self, Anchor, Numbers, RateText};

const EXAMPLE: &str = r#"{"algorithm":"gcra","rate":"100/minute","burst":20}"#;
const UNITS: &str = "use 1 or more units";

/// What to write as the limit of an object.
pub const LIMIT_REMEDY: &str =
    r#"write "100/minute" or an object like {"algorithm":"gcra","rate":"100/minute","burst":20}"#;

/// Why a limit cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitProblem {
    /// The field at fault; none if it is the limit as a whole.
    pub field: Option<&'static str>,
    /// What is wrong, with the value.
    pub problem: String,
    /// What would do.
    pub hint: String,
    /// Whether nothing would pass, which is not said by a limit.
    pub(crate) lets_none_pass: bool,
}

impl LimitProblem {
    /// The field at fault, and what is wrong with it; `whole` is the field that holds the limit.
    #[must_use]
    pub fn message(&self, whole: &str) -> String {
        format!("{}: {}", self.field.unwrap_or(whole), self.problem)
    }
}

impl From<LimitProblem> for FieldError {
    fn from(problem: LimitProblem) -> FieldError {
        FieldError::new(problem.field.unwrap_or("limit"), problem.problem, problem.hint)
    }
}

/// A limit that a JSON value holds.
#[derive(Clone, Debug)]
pub struct JsonLimit<'a> {
    /// Its own name, if it has one.
    pub name: Option<Cow<'a, str>>,
    /// The limit.
    pub limit: Limit,
    /// How it is told of.
    pub shown: Shown,
}

impl JsonLimit<'_> {
    /// The same, where nobody would ever see its name.
    ///
    /// # Errors
    /// If it has one.
    pub fn unnamed(self, owner: &str) -> Result<Self, FieldError> {
        match &self.name {
            Some(name) => Err(refused_name("name", name, owner)),
            None => Ok(self),
        }
    }
}

/// Why a limit may not have a name where `owner` does not tell it: a field without effect is a mistake that nobody would
/// notice.
#[must_use]
pub fn refused_name(field: &str, name: &str, owner: &str) -> FieldError {
    let problem = format_args!("{} has no effect, since {owner} does not tell it", quote(name));
    FieldError::new(field, problem, "leave it out")
}

/// Whether a limit may be one of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendars {
    /// It may.
    Allowed,
    /// It may not: a process keeps each calendar for good, so strangers must not bring theirs.
    Refused,
}

/// Reads a limit from JSON: text like `"100/minute"`, or an object like that of a configuration.
///
/// # Errors
/// If it is none, or its numbers are at fault.
pub fn read_json_limit(value: Raw<'_>, calendars: Calendars) -> Result<JsonLimit<'_>, FieldError> {
    let (name, limit) = match value.get().as_bytes() {
        [b'"', ..] => (None, schema::Limit::Rate(text("limit", value, LIMIT_REMEDY)?.into_owned())),
        [b'{', ..] => {
            let (name, numbers) = json_numbers(value)?;
            (name, schema::Limit::Numbers(numbers.into()))
        }
        _ => {
            let problem = format_args!("{} is not a limit", quote(value.get()));
            return Err(FieldError::new("limit", problem, LIMIT_REMEDY));
        }
    };
    let (limit, shown) = read_limit(&limit, calendars)?;
    Ok(JsonLimit { name, limit, shown })
}

fn json_numbers(value: Raw<'_>) -> Result<(Option<Cow<'_, str>>, Numbers), FieldError> {
    let mut fields = Fields::parse("limit", value.get(), EXAMPLE)?;
    let name = fields.text("name", "use text")?;
    let algorithm = fields.text("algorithm", use_one_of())?;
    let rate = match fields.take("rate") {
        None => None,
        Some(rate) if rate.get().starts_with('"') => {
            Some(RateText::Text(text("rate", rate, LIMIT_REMEDY)?.into_owned()))
        }
        Some(rate) => Some(RateText::Units(whole("rate", rate.get(), r#"write "100/minute", or units with per_ns"#)?)),
    };
    let numbers = Numbers {
        name: None,
        algorithm: algorithm.map(Cow::into_owned),
        rate,
        per_ns: fields.whole("per_ns", format_args!("use 1 to {SPAN_NANOS_MAX} nanoseconds"))?,
        burst: fields.whole("burst", UNITS)?,
        capacity: fields.whole("capacity", UNITS)?,
        limit: fields.whole("limit", UNITS)?,
        window_ns: fields.whole("window_ns", format_args!("use 1 to {WINDOW_NANOS_MAX} nanoseconds"))?,
        slices: fields.whole("slices", format_args!("use 1 to {SLICES_MAX}"))?,
        stagger: fields.flag("stagger")?,
        period: fields.text("period", "use day, week, month or year")?.map(Cow::into_owned),
        time_zone: fields.text("time_zone", "use a name like Europe/Berlin")?.map(Cow::into_owned),
        anchor: anchor(&mut fields)?,
        // Callers who bring a limit all count in the default store.
        store: None,
    };
    fields.finish("limit")?;
    Ok((name, numbers))
}

fn anchor(fields: &mut Fields<'_>) -> Result<Option<Anchor>, FieldError> {
    const REMEDY: &str = r#"write 15, "06:00", "monday" or "04-01""#;
    Ok(match fields.take("anchor") {
        None => None,
        Some(written) if written.get().starts_with('"') => {
            Some(Anchor::Text(text("anchor", written, REMEDY)?.into_owned()))
        }
        Some(written) => Some(Anchor::Day(whole("anchor", written.get(), REMEDY)?)),
    })
}

/// Reads a limit: text like `100/minute`, or an algorithm with its numbers.
///
/// # Errors
/// If a number is missing, out of bounds, or of no use to the algorithm.
pub fn read_limit(limit: &schema::Limit, calendars: Calendars) -> Result<(Limit, Shown), LimitProblem> {
    let is_of_calendar = |numbers: &Numbers| numbers.algorithm.as_deref() == Some(Algorithm::CalendarWindow.name());
    if calendars == Calendars::Refused && matches!(limit, schema::Limit::Numbers(numbers) if is_of_calendar(numbers)) {
        let hint = "write a rule with this limit, or use fixed_window";
        return Err(problem("algorithm", "calendar_window is for configured rules only", hint));
    }
    read_limit_of(limit, &|_| true).map_err(|problems| {
        let unknown = || LimitProblem { field: None, ..problem("", "cannot be read", use_one_of()) };
        problems.into_iter().next().unwrap_or_else(unknown)
    })
}

/// The same with all problems. Fields that are not known were written, but nobody could read them.
pub(crate) fn read_limit_of(
    limit: &schema::Limit,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(Limit, Shown), Vec<LimitProblem>> {
    match limit {
        schema::Limit::Rate(text) => {
            let rate: Rate = text.parse().map_err(|error| vec![of_core(error, |_| None)])?;
            let limit = Limit::gcra(rate, rate.units()).map_err(|error| vec![of_core(error, |_| None)])?;
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
    let calendar = match calendar(algorithm, numbers) {
        Ok(calendar) => calendar,
        Err(problem) => {
            problems.push(problem);
            return Err(problems);
        }
    };
    match (made(algorithm, rate.unwrap_or(stand_in), numbers, calendar), rate) {
        (Ok(limit), Some(rate)) if problems.is_empty() => return Ok((limit, shown(rate))),
        (Err(error), rate)
            if rate.is_some() || matches!(error, LimitError::Zero { .. } | LimitError::NoTime { .. }) =>
        {
            let is_long_log = algorithm == Algorithm::SlidingLog && matches!(error, LimitError::TooLarge { .. });
            let mut problem = of_core(error, written(numbers));
            if is_long_log {
                problem.problem.push_str(" for sliding_log, which keeps every unit");
                problem.hint.push_str(", or algorithm: sliced_window");
            }
            problems.push(problem);
        }
        _ => (),
    }
    Err(problems)
}

fn made(algorithm: Algorithm, rate: Rate, numbers: &Numbers, calendar: Option<Calendar>) -> Result<Limit, LimitError> {
    let mut made = LimitNumbers::from(rate);
    made.burst = if algorithm == Algorithm::Gcra { numbers.burst } else { numbers.capacity };
    made.slices = numbers.slices;
    made.stagger = numbers.stagger.unwrap_or_default();
    made.calendar = calendar;
    Limit::of(algorithm, &made)
}

/// The calendar of a calendar window, whose period stands in the rate or by itself.
fn calendar(algorithm: Algorithm, numbers: &Numbers) -> Result<Option<Calendar>, LimitProblem> {
    if algorithm != Algorithm::CalendarWindow {
        return Ok(None);
    }
    let (field, period) = match (&numbers.rate, &numbers.period) {
        (Some(RateText::Text(rate)), None) => ("rate", rate.split_once('/').map_or("", |(_, period)| period.trim())),
        (None, Some(period)) => ("period", period.as_str()),
        // Whatever else is wrong was said of the rate.
        _ => return Ok(None),
    };
    let period: CalendarPeriod = period.parse().map_err(|_| {
        let what = format!("`{}` is no period of a calendar", quote(period));
        problem(field, what, "use day, week, month or year, as in 10000/month")
    })?;
    let (zone, anchor) =
        (numbers.time_zone.as_deref().unwrap_or("UTC"), numbers.anchor.as_ref().map(Anchor::to_string));
    let made = Calendar::new(period, zone, anchor.as_deref());
    made.map(Some).map_err(|error| {
        let text = error.to_string();
        let (message, hint) = text.split_once("; ").unwrap_or((&text, "see the reference of limits"));
        let (field, what) = message.split_once(": ").unwrap_or(("time_zone", message));
        let field = ["anchor", "time_zone", "period"].into_iter().find(|name| *name == field).unwrap_or("time_zone");
        problem(field, what, hint)
    })
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
    if ["rate", "per_ns", "limit", "window_ns", "period"].iter().all(|field| is_known(field)) {
        return rate(algorithm.unwrap_or(Algorithm::Gcra), &numbers).map(Some);
    }
    match &numbers.rate {
        Some(RateText::Text(text)) => {
            text.parse::<Rate>().map(|_| None).map_err(|error| of_core(error, |_| Some("rate")))
        }
        _ => Ok(None),
    }
}

fn is_window(algorithm: Algorithm) -> bool {
    !algorithm.is_bucket()
}

fn algorithm(numbers: &Numbers) -> Result<Algorithm, LimitProblem> {
    let Some(name) = &numbers.algorithm else { return Ok(Algorithm::Gcra) };
    name.parse().map_err(|_| problem("algorithm", format!("`{}` is not known", quote(name)), use_one_of()))
}

fn use_one_of() -> String {
    let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    format!("use one of {}", names.join(", "))
}

/// A field without effect is a mistake that nobody would notice.
fn useless(algorithm: Algorithm, numbers: &Numbers) -> impl Iterator<Item = LimitProblem> {
    let gcra = algorithm == Algorithm::Gcra;
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let (window, calendar) = (is_window(algorithm), algorithm == Algorithm::CalendarWindow);
    let fields = [
        ("burst", numbers.burst.is_some(), gcra, if bucket { "write capacity" } else { "leave it out" }),
        ("capacity", numbers.capacity.is_some(), bucket, if gcra { "write burst" } else { "leave it out" }),
        ("limit", numbers.limit.is_some(), window, "write rate, like 100/minute"),
        ("window_ns", numbers.window_ns.is_some(), window && !calendar, "write rate, like 100/minute"),
        ("slices", numbers.slices.is_some(), algorithm == Algorithm::SlicedWindow, "leave it out"),
        ("stagger", numbers.stagger.is_some(), algorithm == Algorithm::FixedWindow, "leave it out"),
        ("period", numbers.period.is_some(), calendar, "write rate, like 100/minute"),
        ("time_zone", numbers.time_zone.is_some(), calendar, "leave it out, or use algorithm: calendar_window"),
        ("anchor", numbers.anchor.is_some(), calendar, "leave it out, or use algorithm: calendar_window"),
    ];
    let useless = fields.into_iter().filter(|(_, there, used, _)| *there && !used);
    useless.map(move |(field, _, _, hint)| problem(field, format!("{algorithm} does not take it"), hint))
}

/// The rate of a bucket, or the limit and length of a window.
fn rate(algorithm: Algorithm, numbers: &Numbers) -> Result<Rate, LimitProblem> {
    if algorithm == Algorithm::CalendarWindow {
        return rate_of_calendar(numbers);
    }
    match (&numbers.rate, numbers.per_ns, numbers.limit, numbers.window_ns) {
        (Some(RateText::Text(text)), None, None, None) => {
            text.parse().map_err(|error| of_core(error, written(numbers)))
        }
        (Some(RateText::Units(units)), Some(per), None, None) => {
            Rate::from_nanos(*units, per).map_err(|error| of_core(error, written(numbers)))
        }
        (None, None, Some(units), Some(window)) => {
            Rate::new(units, Duration::from_nanos(window)).map_err(|error| of_core(error, written(numbers)))
        }
        (Some(_), _, Some(_), _) => Err(both("limit", "rate")),
        (Some(_), _, _, Some(_)) => Err(both("window_ns", "rate")),
        (Some(RateText::Text(_)), Some(_), ..) => {
            Err(problem("per_ns", "the rate says its period already", "leave per_ns out"))
        }
        (Some(RateText::Units(units)), None, ..) => Err(problem(
            "rate",
            format!("{units} has no period"),
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
            Err(problem("rate", "missing", hint))
        }
    }
}

/// The units of a calendar window in its usual period.
fn rate_of_calendar(numbers: &Numbers) -> Result<Rate, LimitProblem> {
    match (&numbers.rate, numbers.limit, &numbers.period) {
        (Some(RateText::Text(text)), None, None) => text.parse().map_err(|error| of_core(error, |_| Some("rate"))),
        (None, Some(units), Some(period)) => {
            let field = |field| Some(if field == "period" { "period" } else { "limit" });
            format!("{units}/{period}").parse().map_err(|error| of_core(error, field))
        }
        (Some(_), Some(_), _) => Err(both("limit", "rate")),
        (Some(_), _, Some(_)) => Err(both("period", "rate")),
        (Some(RateText::Units(units)), ..) => {
            Err(problem("rate", format!("{units} has no period"), format!("write {units}/month or the like")))
        }
        (None, Some(_), None) => Err(missing("period", "one of day, week, month and year")),
        (None, None, _) => Err(problem("rate", "missing", "add rate, like 10000/month, or limit and period")),
    }
}

fn shown(rate: Rate) -> Shown {
    Shown { units: rate.units(), period_ns: u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX) }
}

/// What a limit's numbers were called that core calls `rate`, `limit`, `period` and `window`.
fn written(numbers: &Numbers) -> impl Fn(&'static str) -> Option<&'static str> {
    let (units, length) = match (numbers.limit, numbers.per_ns) {
        (Some(_), _) => ("limit", "window_ns"),
        (None, Some(_)) => ("rate", "per_ns"),
        // Text says both.
        (None, None) => ("rate", "rate"),
    };
    move |field| match field {
        "rate" | "limit" => Some(units),
        "period" | "window" => Some(length),
        field => Some(field),
    }
}

/// What core says, of the field as it was written.
fn of_core(error: LimitError, written: impl Fn(&'static str) -> Option<&'static str>) -> LimitProblem {
    // A burst or slices of nothing are a slip.
    let lets_none_pass = matches!(&error, LimitError::Zero { field: "rate" | "limit" });
    let field = error.field();
    let text = error.to_string();
    let (message, hint) = text.split_once("; ").unwrap_or((&text, "see the reference of limits"));
    let named = message.split_once(": ").filter(|(name, _)| *name == field);
    let problem = named.map_or(message, |(_, problem)| problem).to_owned();
    LimitProblem { field: written(field), problem, hint: hint.to_owned(), lets_none_pass }
}

fn both(field: &'static str, other: &str) -> LimitProblem {
    problem(field, format!("{other} says it already"), format!("leave out {other} or {field}"))
}

fn missing(field: &'static str, what: &str) -> LimitProblem {
    problem(field, "missing", format!("add {field}, {what}"))
}

fn problem(field: &'static str, problem: impl fmt::Display, hint: impl Into<String>) -> LimitProblem {
    LimitProblem { field: Some(field), problem: problem.to_string(), hint: hint.into(), lets_none_pass: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a limit as files have it, and holds the other way against it.
    fn read(json: &str) -> Result<(Limit, Shown), LimitProblem> {
        let read = read_limit(&serde_json::from_str(json).unwrap(), Calendars::Allowed);
        let of_json = serde_json::from_str::<&serde_json::value::RawValue>(json)
            .map(|value| read_json_limit(value.into(), Calendars::Allowed))
            .unwrap();
        let of_json = of_json.map(|JsonLimit { limit, shown, .. }| (limit, shown));
        assert_eq!(of_json, read.clone().map_err(FieldError::from), "{json}");
        read
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
    fn every_way_to_write_a_calendar() {
        let calendar = |period, zone, anchor| Calendar::new(period, zone, anchor).unwrap();
        let berlin = calendar(CalendarPeriod::Month, "Europe/Berlin", Some("15"));
        for (json, calendar) in [
            (r#"{"algorithm":"calendar_window","rate":"9/month","time_zone":"Europe/Berlin","anchor":15}"#, berlin),
            (
                r#"{"algorithm":"calendar_window","limit":9,"period":"month","time_zone":"europe/berlin","anchor":"15"}"#,
                berlin,
            ),
            (r#"{"algorithm":"calendar_window","rate":"9/day"}"#, calendar(CalendarPeriod::Day, "UTC", None)),
            (
                r#"{"algorithm":"calendar_window","rate":"9/day","anchor":"06:30"}"#,
                calendar(CalendarPeriod::Day, "UTC", Some("06:30")),
            ),
            (
                r#"{"algorithm":"calendar_window","limit":9,"period":"week","anchor":"sunday"}"#,
                calendar(CalendarPeriod::Week, "UTC", Some("sunday")),
            ),
            (
                r#"{"algorithm":"calendar_window","rate":"9/year","anchor":"04-06"}"#,
                calendar(CalendarPeriod::Year, "UTC", Some("04-06")),
            ),
        ] {
            let (limit, shown) = read(json).unwrap();
            assert_eq!((limit, shown.units), (Limit::calendar_window(9, calendar).unwrap(), 9), "{json}");
        }
        let brought: schema::Limit = serde_json::from_str(r#"{"algorithm":"calendar_window","rate":"9/day"}"#).unwrap();
        let refused = read_limit(&brought, Calendars::Refused).unwrap_err();
        assert_eq!(refused.message("limit"), "algorithm: calendar_window is for configured rules only");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases = [
            (r#""5""#, None, "limit: cannot read `5`"),
            (r#""0/minute""#, None, "limit: 0 is too small"),
            (r#"{}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"gcra"}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"magic","rate":"5/s"}"#, Some("algorithm"), "algorithm: `magic` is not known"),
            (r#"{"rate":5}"#, Some("rate"), "rate: 5 has no period"),
            (r#"{"rate":"5/s","per_ns":5}"#, Some("per_ns"), "per_ns: the rate says its period already"),
            (r#"{"rate":"5/s","capacity":5}"#, Some("capacity"), "capacity: gcra does not take it"),
            (r#"{"rate":"5/s","burst":0}"#, Some("burst"), "burst: 0 is too small"),
            (r#"{"rate":"5/s","slices":5}"#, Some("slices"), "slices: gcra does not take it"),
            (r#"{"limit":5,"window_ns":5}"#, Some("limit"), "limit: gcra does not take it"),
            (r#"{"algorithm":"sliding_log","limit":5}"#, Some("window_ns"), "window_ns: missing"),
            (r#"{"algorithm":"sliding_log","window_ns":5}"#, Some("limit"), "limit: missing"),
            (r#"{"algorithm":"sliding_log","rate":"5/s","limit":5}"#, Some("limit"), "limit: rate says it already"),
            (
                r#"{"algorithm":"sliding_log","rate":"5/s","stagger":true}"#,
                Some("stagger"),
                "stagger: sliding_log does not take it",
            ),
            (r#"{"algorithm":"sliding_log","rate":"10001/day"}"#, Some("rate"), "rate: 10001 is too large"),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":1}"#, Some("limit"), "limit: 5 in 1 ns is too fast"),
            (r#"{"algorithm":"fixed_window","rate":"1/11y"}"#, Some("rate"), "rate: 346896000000000000 ns is too long"),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":0}"#, Some("window_ns"), "window_ns: 0 is too small"),
            (r#"{"rate":5,"per_ns":0}"#, Some("per_ns"), "per_ns: 0 is too small"),
            (r#"{"rate":0,"per_ns":5}"#, Some("rate"), "rate: 0 is too small"),
            (r#"{"rate":"5/day","time_zone":"UTC"}"#, Some("time_zone"), "time_zone: gcra does not take it"),
            (r#"{"rate":"5/day","anchor":1}"#, Some("anchor"), "anchor: gcra does not take it"),
            (r#"{"algorithm":"calendar_window"}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"calendar_window","limit":5}"#, Some("period"), "period: missing"),
            (r#"{"algorithm":"calendar_window","rate":5}"#, Some("rate"), "rate: 5 has no period"),
            (r#"{"algorithm":"calendar_window","rate":"0/day"}"#, Some("rate"), "rate: 0 is too small"),
            (
                r#"{"algorithm":"calendar_window","rate":"5/hour"}"#,
                Some("rate"),
                "rate: `hour` is no period of a calendar",
            ),
            (
                r#"{"algorithm":"calendar_window","rate":"5/day","period":"day"}"#,
                Some("period"),
                "period: rate says it",
            ),
            (
                r#"{"algorithm":"calendar_window","limit":5,"window_ns":9}"#,
                Some("window_ns"),
                "window_ns: calendar_window does not take it",
            ),
            (
                r#"{"algorithm":"calendar_window","rate":"5/day","time_zone":"Europe/Berln"}"#,
                Some("time_zone"),
                "time_zone: `Europe/Berln` is unknown",
            ),
            (
                r#"{"algorithm":"calendar_window","rate":"5/day","anchor":15}"#,
                Some("anchor"),
                "anchor: `15` is not a time of day",
            ),
        ];
        for (json, field, message) in cases {
            let problem = read(json).unwrap_err();
            assert_eq!(problem.field, field, "{json}");
            assert!(problem.message("limit").starts_with(message), "{json}: {problem:?}");
            assert!(!problem.hint.is_empty(), "{json}");
        }
    }
}
