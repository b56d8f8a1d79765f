//! Reads limits from configurations and JSON.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use tidegate_core::bounds::{SLICES_MAX, SPAN_NANOS_MAX, WINDOW_NANOS_MAX};
use tidegate_core::{Algorithm, Calendar, CalendarPeriod, Limit, LimitError, LimitNumbers, Rate};

use crate::duration::write_one_of;
use crate::json::{FieldError, Fields, Raw, quote, text, whole};
use crate::load::nearest;
use crate::request::Shown;
use crate::schema::{self, Anchor, Numbers, RateText};

const EXAMPLE: &str = r#"{"algorithm":"gcra","rate":"100/minute","burst":20}"#;
const UNITS: &str = "use 1 or more units";

/// The remedy for a value that is not a limit.
pub const LIMIT_REMEDY: &str =
    r#"write "100/minute" or an object like {"algorithm":"gcra","rate":"100/minute","burst":20}"#;

/// A problem that makes a limit unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitProblem {
    /// The field at fault, or `None` for the limit as a whole.
    pub field: Option<&'static str>,
    /// The problem, with the value.
    pub problem: String,
    /// A remedy.
    pub hint: String,
    /// Whether the limit would admit nothing, which is written in another way.
    pub(crate) lets_none_pass: bool,
}

impl LimitProblem {
    /// Returns the field and the problem, as `field: problem`. `whole` is the field that holds the limit.
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

/// A limit read from JSON.
#[derive(Clone, Debug)]
pub struct JsonLimit<'a> {
    /// Its own name, if it has one.
    pub name: Option<Cow<'a, str>>,
    /// The limit.
    pub limit: Limit,
    /// The units and the period that are reported for it.
    pub shown: Shown,
}

impl JsonLimit<'_> {
    /// Returns the limit itself, for callers that do not report its name: `owner` is the caller in the message.
    ///
    /// # Errors
    /// Returns an error if the limit has a name, since it would have no effect.
    pub fn unnamed(self, owner: &str) -> Result<Self, FieldError> {
        match &self.name {
            Some(name) => Err(refused_name("name", name, owner)),
            None => Ok(self),
        }
    }
}

/// Returns the error for a name of a limit in a place where `owner` does not report it, so that it would have no effect.
#[must_use]
pub fn refused_name(field: &str, name: &str, owner: &str) -> FieldError {
    let problem = format_args!("{} has no effect: {owner} does not report it", quote(name));
    FieldError::new(field, problem, "remove it")
}

/// Whether a limit may be a `calendar_window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendars {
    /// Calendar windows are accepted.
    Allowed,
    /// Calendar windows are refused, since a process keeps each calendar for good: for limits from clients.
    Refused,
}

/// Reads a limit from JSON: text like `"100/minute"`, or an object like that of a configuration.
///
/// # Errors
/// Returns an error that names the field if the value is not a limit or a parameter is invalid.
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

/// Reads a limit: text like `100/minute`, or an algorithm with its parameters.
///
/// # Errors
/// Returns the first problem: a parameter that is missing, out of bounds, or not one of the algorithm.
pub fn read_limit(limit: &schema::Limit, calendars: Calendars) -> Result<(Limit, Shown), LimitProblem> {
    let is_of_calendar = |numbers: &Numbers| numbers.algorithm.as_deref() == Some(Algorithm::CalendarWindow.name());
    if calendars == Calendars::Refused && matches!(limit, schema::Limit::Numbers(numbers) if is_of_calendar(numbers)) {
        let hint = "add a rule with this limit, or use fixed_window";
        return Err(problem("algorithm", "calendar_window is only allowed in configured rules", hint));
    }
    read_limit_of(limit, &|_| true).map_err(|problems| {
        let unknown = || LimitProblem { field: None, ..problem("", "cannot be read", use_one_of()) };
        problems.into_iter().next().unwrap_or_else(unknown)
    })
}

/// Reads a limit and returns all problems. `is_known` is false for fields that are there but could not be read.
pub(crate) fn read_limit_of(
    limit: &schema::Limit,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(Limit, Shown), Vec<LimitProblem>> {
    match limit {
        schema::Limit::Rate(text) => {
            let rate = parse_rate(text, &PERIODS, |_| None).map_err(|problem| vec![problem])?;
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
    // A number that is wrong with any rate is reported even if the rate cannot be read.
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
                problem.problem.push_str(" for sliding_log, which stores every unit");
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

/// Returns the calendar of a calendar window. Its period is part of the rate, or a field of its own.
fn calendar(algorithm: Algorithm, numbers: &Numbers) -> Result<Option<Calendar>, LimitProblem> {
    if algorithm != Algorithm::CalendarWindow {
        return Ok(None);
    }
    let (field, period) = match (&numbers.rate, &numbers.period) {
        (Some(RateText::Text(rate)), None) if rate.contains('/') => {
            ("rate", rate.split_once('/').map_or("", |(_, period)| period.trim()))
        }
        (None, Some(period)) => ("period", period.as_str()),
        // Any other problem was reported for the rate.
        _ => return Ok(None),
    };
    let period: CalendarPeriod = period.parse().map_err(|_| {
        let what = format!("unknown calendar period `{}`", quote(period));
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

/// Returns the rate, or `None` if fields that it needs could not be read.
fn rate_of(
    algorithm: Option<Algorithm>,
    numbers: &Numbers,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Option<Rate>, LimitProblem> {
    let mut numbers = numbers.clone();
    let has_window = numbers.limit.is_some() || numbers.window_ns.is_some();
    if has_window && algorithm.is_some_and(|algorithm| !is_window(algorithm)) {
        // They were reported as useless.
        (numbers.limit, numbers.window_ns) = (None, None);
        if numbers.rate.is_none() {
            return Ok(None);
        }
    }
    if ["rate", "per_ns", "limit", "window_ns", "period"].iter().all(|field| is_known(field)) {
        return rate(algorithm.unwrap_or(Algorithm::Gcra), &numbers).map(Some);
    }
    match &numbers.rate {
        Some(RateText::Text(text)) => parse_rate(text, &PERIODS, |_| Some("rate")).map(|_| None),
        _ => Ok(None),
    }
}

fn is_window(algorithm: Algorithm) -> bool {
    !algorithm.is_bucket()
}

fn algorithm(numbers: &Numbers) -> Result<Algorithm, LimitProblem> {
    let Some(name) = &numbers.algorithm else { return Ok(Algorithm::Gcra) };
    name.parse().map_err(|_| {
        let meant = nearest(name, Algorithm::ALL.map(Algorithm::name));
        let hint = meant.map_or_else(use_one_of, |meant| format!("did you mean `{meant}`?"));
        problem("algorithm", format!("`{}` is not known", quote(name)), hint)
    })
}

fn use_one_of() -> String {
    let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    format!("use one of {}", names.join(", "))
}

/// Returns a problem for each field that the algorithm does not use: it would have no effect.
fn useless(algorithm: Algorithm, numbers: &Numbers) -> impl Iterator<Item = LimitProblem> {
    let gcra = algorithm == Algorithm::Gcra;
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let (window, calendar) = (is_window(algorithm), algorithm == Algorithm::CalendarWindow);
    let fields = [
        ("burst", numbers.burst.is_some(), gcra, if bucket { "use capacity" } else { "remove it" }),
        ("capacity", numbers.capacity.is_some(), bucket, if gcra { "use burst" } else { "remove it" }),
        ("limit", numbers.limit.is_some(), window, "use rate, like 100/minute"),
        ("window_ns", numbers.window_ns.is_some(), window && !calendar, "use rate, like 100/minute"),
        ("slices", numbers.slices.is_some(), algorithm == Algorithm::SlicedWindow, "remove it"),
        ("stagger", numbers.stagger.is_some(), algorithm == Algorithm::FixedWindow, "remove it"),
        ("period", numbers.period.is_some(), calendar, "use rate, like 100/minute"),
        ("time_zone", numbers.time_zone.is_some(), calendar, "remove it, or use algorithm: calendar_window"),
        ("anchor", numbers.anchor.is_some(), calendar, "remove it, or use algorithm: calendar_window"),
    ];
    let useless = fields.into_iter().filter(|(_, there, used, _)| *there && !used);
    useless.map(move |(field, _, _, hint)| problem(field, format!("not a parameter of {algorithm}"), hint))
}

/// Returns the rate of a bucket, or the limit and length of a window as a rate.
fn rate(algorithm: Algorithm, numbers: &Numbers) -> Result<Rate, LimitProblem> {
    if algorithm == Algorithm::CalendarWindow {
        return rate_of_calendar(numbers);
    }
    match (&numbers.rate, numbers.per_ns, numbers.limit, numbers.window_ns) {
        (Some(RateText::Text(text)), None, None, None) => parse_rate(text, &PERIODS, written(numbers)),
        (Some(RateText::Units(units)), Some(per), None, None) => {
            Rate::from_nanos(*units, per).map_err(|error| of_core(error, written(numbers)))
        }
        (None, None, Some(units), Some(window)) => {
            Rate::new(units, Duration::from_nanos(window)).map_err(|error| of_core(error, written(numbers)))
        }
        (Some(_), _, Some(_), _) => Err(both("limit", "rate")),
        (Some(_), _, _, Some(_)) => Err(both("window_ns", "rate")),
        (Some(RateText::Text(_)), Some(_), ..) => Err(problem("per_ns", "rate already has a period", "remove per_ns")),
        (Some(RateText::Units(units)), None, ..) => Err(problem(
            "rate",
            format!("{units} has no period"),
            format!("{}, or add per_ns", with_periods(*units, &PERIODS).1),
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

/// Returns the units of a calendar window for its nominal period.
fn rate_of_calendar(numbers: &Numbers) -> Result<Rate, LimitProblem> {
    match (&numbers.rate, numbers.limit, &numbers.period) {
        (Some(RateText::Text(text)), None, None) => parse_rate(text, &CALENDAR_PERIODS, |_| Some("rate")),
        (None, Some(units), Some(period)) => {
            let field = |field| Some(if field == "period" { "period" } else { "limit" });
            format!("{units}/{period}").parse().map_err(|error| of_core(error, field))
        }
        (Some(_), Some(_), _) => Err(both("limit", "rate")),
        (Some(_), _, Some(_)) => Err(both("period", "rate")),
        (Some(RateText::Units(units)), ..) => {
            Err(problem("rate", format!("{units} has no period"), with_periods(*units, &CALENDAR_PERIODS).1))
        }
        (None, Some(_), None) => Err(missing("period", "one of day, week, month and year")),
        (None, None, _) => Err(problem("rate", "missing", "add rate, like 10000/month, or limit and period")),
    }
}

/// Periods that a number without one may have.
const PERIODS: [&str; 3] = ["second", "minute", "hour"];

const CALENDAR_PERIODS: [&str; 4] = ["day", "week", "month", "year"];

/// Reads a rate as text. `written` gives the field that holds it, by the name that core has for a part of it.
fn parse_rate(
    text: &str,
    periods: &[&str],
    written: impl Fn(&'static str) -> Option<&'static str>,
) -> Result<Rate, LimitProblem> {
    text.parse::<Rate>().map_err(|error| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let Some(units) = text.parse().ok().filter(|_| is_number) else { return of_core(error, written) };
        let (lets_none_pass, hint) = with_periods(units, periods);
        let problem = if lets_none_pass { "0 is too small".to_owned() } else { format!("{units} has no period") };
        LimitProblem { field: written("rate"), problem, hint, lets_none_pass }
    })
}

/// Returns whether the units admit nothing, and a hint with the rates that they may mean without a period.
fn with_periods(units: u64, periods: &[&str]) -> (bool, String) {
    let rates = periods.iter().map(|period| format!("{units}/{period}"));
    let rates: Vec<String> = rates.filter(|rate| rate.parse::<Rate>().is_ok()).collect();
    match rates.is_empty() {
        true => (units == 0, "write units and a period, like 100/minute".to_owned()),
        false => (false, write_one_of(rates)),
    }
}

fn shown(rate: Rate) -> Shown {
    Shown { units: rate.units(), period_ns: u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX) }
}

/// Returns a function from the fields in errors of core to the fields that were written.
fn written(numbers: &Numbers) -> impl Fn(&'static str) -> Option<&'static str> {
    let (units, length) = match (numbers.limit, numbers.per_ns) {
        (Some(_), _) => ("limit", "window_ns"),
        (None, Some(_)) => ("rate", "per_ns"),
        // Text has both.
        (None, None) => ("rate", "rate"),
    };
    move |field| match field {
        "rate" | "limit" => Some(units),
        "period" | "window" => Some(length),
        field => Some(field),
    }
}

/// Turns an error of core into a problem of the field that was written.
fn of_core(error: LimitError, written: impl Fn(&'static str) -> Option<&'static str>) -> LimitProblem {
    // A zero for the burst or the slices is a mistake and does not mean to deny everything.
    let lets_none_pass = matches!(&error, LimitError::Zero { field: "rate" | "limit" });
    let field = error.field();
    let text = error.to_string();
    let (message, hint) = text.split_once("; ").unwrap_or((&text, "see the reference of limits"));
    let named = message.split_once(": ").filter(|(name, _)| *name == field);
    let problem = named.map_or(message, |(_, problem)| problem).to_owned();
    LimitProblem { field: written(field), problem, hint: hint.to_owned(), lets_none_pass }
}

fn both(field: &'static str, other: &str) -> LimitProblem {
    problem(field, format!("cannot be combined with {other}"), format!("remove {other} or {field}"))
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
        assert_eq!(refused.message("limit"), "algorithm: calendar_window is only allowed in configured rules");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases = [
            (r#""5""#, None, "limit: 5 has no period"),
            (r#""0""#, None, "limit: 0 is too small"),
            (r#""99999999999999999999""#, None, "limit: cannot read `99999999999999999999`"),
            (r#"{"rate":"5"}"#, Some("rate"), "rate: 5 has no period"),
            (r#"{"algorithm":"calendar_window","rate":"5"}"#, Some("rate"), "rate: 5 has no period"),
            (r#""0/minute""#, None, "limit: 0 is too small"),
            (r#"{}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"gcra"}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"magic","rate":"5/s"}"#, Some("algorithm"), "algorithm: `magic` is not known"),
            (r#"{"rate":5}"#, Some("rate"), "rate: 5 has no period"),
            (r#"{"rate":"5/s","per_ns":5}"#, Some("per_ns"), "per_ns: rate already has a period"),
            (r#"{"rate":"5/s","capacity":5}"#, Some("capacity"), "capacity: not a parameter of gcra"),
            (r#"{"rate":"5/s","burst":0}"#, Some("burst"), "burst: 0 is too small"),
            (r#"{"rate":"5/s","slices":5}"#, Some("slices"), "slices: not a parameter of gcra"),
            (r#"{"limit":5,"window_ns":5}"#, Some("limit"), "limit: not a parameter of gcra"),
            (r#"{"algorithm":"sliding_log","limit":5}"#, Some("window_ns"), "window_ns: missing"),
            (r#"{"algorithm":"sliding_log","window_ns":5}"#, Some("limit"), "limit: missing"),
            (
                r#"{"algorithm":"sliding_log","rate":"5/s","limit":5}"#,
                Some("limit"),
                "limit: cannot be combined with rate",
            ),
            (
                r#"{"algorithm":"sliding_log","rate":"5/s","stagger":true}"#,
                Some("stagger"),
                "stagger: not a parameter of sliding_log",
            ),
            (r#"{"algorithm":"sliding_log","rate":"10001/day"}"#, Some("rate"), "rate: 10001 is too large"),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":1}"#, Some("limit"), "limit: 5 in 1 ns is too fast"),
            (r#"{"algorithm":"fixed_window","rate":"1/11y"}"#, Some("rate"), "rate: 346896000000000000 ns is too long"),
            (r#"{"algorithm":"fixed_window","limit":5,"window_ns":0}"#, Some("window_ns"), "window_ns: 0 is too small"),
            (r#"{"rate":5,"per_ns":0}"#, Some("per_ns"), "per_ns: 0 is too small"),
            (r#"{"rate":0,"per_ns":5}"#, Some("rate"), "rate: 0 is too small"),
            (r#"{"rate":"5/day","time_zone":"UTC"}"#, Some("time_zone"), "time_zone: not a parameter of gcra"),
            (r#"{"rate":"5/day","anchor":1}"#, Some("anchor"), "anchor: not a parameter of gcra"),
            (r#"{"algorithm":"calendar_window"}"#, Some("rate"), "rate: missing"),
            (r#"{"algorithm":"calendar_window","limit":5}"#, Some("period"), "period: missing"),
            (r#"{"algorithm":"calendar_window","rate":5}"#, Some("rate"), "rate: 5 has no period"),
            (r#"{"algorithm":"calendar_window","rate":"0/day"}"#, Some("rate"), "rate: 0 is too small"),
            (
                r#"{"algorithm":"calendar_window","rate":"5/hour"}"#,
                Some("rate"),
                "rate: unknown calendar period `hour`",
            ),
            (
                r#"{"algorithm":"calendar_window","rate":"5/day","period":"day"}"#,
                Some("period"),
                "period: cannot be combined with rate",
            ),
            (
                r#"{"algorithm":"calendar_window","limit":5,"window_ns":9}"#,
                Some("window_ns"),
                "window_ns: not a parameter of calendar_window",
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
