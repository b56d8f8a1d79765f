//! What a line asks for. The JSON form of operations and limits is read here and nowhere else.

use std::time::Duration;

use serde_json::value::RawValue;
use tidegate::bounds::{
    INTERVAL_NANOS_MIN, KEY_BYTES_MAX, LOG_LIMIT_MAX, NANOS_PER_SECOND, SLICES_DEFAULT, SLICES_MAX, SPAN_NANOS_MAX,
    WINDOW_NANOS_MAX,
};
use tidegate::{Limit, LimitError, Op, Rate, Receipt, Time};

use super::Complaint;
use super::complaint::quote;
use super::fields::{Fields, text};

const LINE_EXAMPLE: &str = r#"{"op":"charge","at_ns":0}"#;
const LIMIT_EXAMPLE: &str = r#"{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}"#;
const LIMITS: &str =
    r#"write "100/minute" or an object like {"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}"#;
const OPS: &str = "use new, limit, charge, debit, ask, refund, peek or reset";
const ALGORITHMS: &str =
    "use gcra, token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_counter or sliced_window";
/// Most units a second that a limit can let pass.
const FASTEST: u64 = NANOS_PER_SECOND / INTERVAL_NANOS_MIN;
/// The key of lines that name none.
const KEY_DEFAULT: &str = "default";

/// What a line asks for.
pub(super) enum Request {
    /// Start over with this limit.
    New(Limit),
    /// Go on with this limit.
    Change(Limit),
    /// Decide for one key.
    Decide(Charge),
}

/// One operation on one key at one instant.
pub(super) struct Charge {
    pub(super) at: Time,
    pub(super) key: String,
    pub(super) op: Op,
    pub(super) want_receipt: bool,
}

impl Request {
    pub(super) fn parse(line: &str) -> Result<Request, Complaint> {
        let mut fields = Fields::parse("line", line, LINE_EXAMPLE)?;
        let name = text("op", fields.need("op", OPS)?, OPS)?;
        let request = match &*name {
            "new" => Request::New(limit_of(&mut fields)?),
            "limit" => Request::Change(limit_of(&mut fields)?),
            _ => Request::Decide(Charge::parse(&name, &mut fields)?),
        };
        fields.finish(&name)?;
        Ok(request)
    }
}

impl Charge {
    fn parse(name: &str, fields: &mut Fields<'_>) -> Result<Charge, Complaint> {
        let mut cost = || -> Result<u64, Complaint> {
            Ok(fields.whole("cost", format_args!("use 0 to {}", u64::MAX))?.unwrap_or(1))
        };
        let op = match name {
            "charge" => Op::Take(cost()?),
            "debit" => Op::Debit(cost()?),
            "ask" => Op::Ask(cost()?),
            "refund" => {
                let cost = cost()?;
                let receipt = fields.whole("receipt", "use the receipt of a charge or debit")?;
                Op::Refund(cost, receipt.map(Receipt::from_bits))
            }
            "peek" => Op::Peek,
            "reset" => Op::Reset,
            other => return Err(Complaint::new("op", format_args!("{} is unknown", quote(other)), OPS)),
        };
        let want_receipt = matches!(op, Op::Take(_) | Op::Debit(_)) && fields.flag("want_receipt")?;
        Ok(Charge { at: instant(fields)?, key: key(fields)?, op, want_receipt })
    }
}

fn instant(fields: &mut Fields<'_>) -> Result<Time, Complaint> {
    let latest = Time::MAX.as_nanos();
    let remedy = format_args!("use 0 to {latest} nanoseconds of your clock");
    let nanos = fields.need_whole("at_ns", remedy)?;
    if nanos > latest {
        return Err(Complaint::new("at_ns", format_args!("{nanos} is too large"), remedy));
    }
    Ok(Time::from_nanos(nanos))
}

fn key(fields: &mut Fields<'_>) -> Result<String, Complaint> {
    match fields.take("key") {
        None => Ok(KEY_DEFAULT.to_owned()),
        Some(value) => Ok(text("key", value, format_args!("use a string of 1 to {KEY_BYTES_MAX} bytes"))?.into_owned()),
    }
}

fn limit_of(fields: &mut Fields<'_>) -> Result<Limit, Complaint> {
    let value = fields.need("limit", LIMITS)?;
    match value.get().as_bytes() {
        [b'{', ..] => limit_object(value),
        [b'"', ..] => text("limit", value, LIMITS)?.parse().map_err(Complaint::about_text),
        _ => Err(Complaint::new("limit", format_args!("{} is not a limit", quote(value.get())), LIMITS)),
    }
}

fn limit_object(value: &RawValue) -> Result<Limit, Complaint> {
    let mut fields = Fields::parse("limit", value.get(), LIMIT_EXAMPLE)?;
    let algorithm = text("algorithm", fields.need("algorithm", ALGORITHMS)?, ALGORITHMS)?;
    let limit = match &*algorithm {
        "gcra" => bucket(&mut fields, "burst", Limit::gcra),
        "token_bucket" => bucket(&mut fields, "capacity", Limit::token_bucket),
        "leaky_bucket" => bucket(&mut fields, "capacity", Limit::leaky_bucket),
        "fixed_window" => {
            let limit = window(&mut fields, Limit::fixed_window)?;
            Ok(if fields.flag("stagger")? { limit.staggered() } else { limit })
        }
        "sliding_log" => window_up_to(&mut fields, format_args!("use 1 to {LOG_LIMIT_MAX}"), Limit::sliding_log),
        "sliding_counter" => window(&mut fields, Limit::sliding_counter),
        "sliced_window" => {
            let slices = fields.whole("slices", format_args!("use 1 to {SLICES_MAX}"))?.unwrap_or(SLICES_DEFAULT);
            window(&mut fields, |limit, length| Limit::sliced_window_of(limit, length, slices))
        }
        other => Err(Complaint::new("algorithm", format_args!("{} is unknown", quote(other)), ALGORITHMS)),
    }?;
    fields.finish(&algorithm)?;
    Ok(limit)
}

fn bucket(
    fields: &mut Fields<'_>,
    size_name: &'static str,
    make: impl Fn(Rate, u64) -> Result<Limit, LimitError>,
) -> Result<Limit, Complaint> {
    let units = fields.need_whole("rate", format_args!("use 1 to {FASTEST} per second"))?;
    let per_ns = fields.need_whole("per_ns", format_args!("use 1 to {SPAN_NANOS_MAX}"))?;
    let size = fields.need_whole(size_name, "use 1 or more, as many as come back within 100 years")?;
    Rate::from_nanos(units, per_ns).and_then(|rate| make(rate, size)).map_err(Complaint::about_object)
}

fn window(
    fields: &mut Fields<'_>,
    make: impl Fn(u64, Duration) -> Result<Limit, LimitError>,
) -> Result<Limit, Complaint> {
    window_up_to(fields, format_args!("use 1 to {FASTEST} per second of the window"), make)
}

fn window_up_to(
    fields: &mut Fields<'_>,
    remedy: std::fmt::Arguments<'_>,
    make: impl Fn(u64, Duration) -> Result<Limit, LimitError>,
) -> Result<Limit, Complaint> {
    let units = fields.need_whole("limit", remedy)?;
    let window_ns = fields.need_whole("window_ns", format_args!("use 1 to {WINDOW_NANOS_MAX}"))?;
    make(units, Duration::from_nanos(window_ns)).map_err(Complaint::about_object)
}
