//! The operation in a line. The JSON form of operations is parsed only here; that of limits is the same as in a configuration.

use tidegate::bounds::KEY_BYTES_MAX;
use tidegate::{Limit, Op, Receipt, Time};
use tidegate_policy::json::{Fields, quote, text};
use tidegate_policy::{Calendars, LIMIT_REMEDY, read_json_limit};

use super::Complaint;

const LINE_EXAMPLE: &str = r#"{"op":"charge","at_ns":0}"#;
const OPS: &str = "use new, limit, charge, debit, ask, refund, peek or reset";
/// The key of lines without one.
const KEY_DEFAULT: &str = "default";

/// An operation.
pub(super) enum Request {
    /// Set this limit and forget all keys.
    New(Limit),
    /// Set this limit and keep the keys.
    Change(Limit),
    /// Decide about one key.
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
        let want_receipt = matches!(op, Op::Take(_) | Op::Debit(_)) && fields.flag("want_receipt")? == Some(true);
        Ok(Charge { at: instant(fields)?, key: key(fields)?, op, want_receipt })
    }
}

fn instant(fields: &mut Fields<'_>) -> Result<Time, Complaint> {
    let latest = Time::MAX.as_nanos();
    let remedy = format_args!("use 0 to {latest} nanoseconds of your clock");
    let nanos = fields.whole("at_ns", remedy)?.ok_or_else(|| Complaint::new("at_ns", "missing", remedy))?;
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
    Ok(read_json_limit(fields.need("limit", LIMIT_REMEDY)?, Calendars::Allowed)?.unnamed("decide")?.limit)
}
