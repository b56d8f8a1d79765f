//! `tidegate decide`: reads operations as JSON lines and answers each, on the caller's own clock.
//!
//! bytes → `lines.rs` → `request.rs` → `ledger.rs` → `reply.rs` → bytes.

mod complaint;
mod ledger;
mod lines;
mod reply;
mod request;

use std::io::{self, BufWriter, IsTerminal, Write};

use crate::bounds::KEYS_MAX;
use complaint::Complaint;
use ledger::Ledger;
use lines::Lines;
use reply::Reply;
use request::Request;

/// Read operations as JSON lines from stdin and answer each with one JSON line on stdout
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

const EXAMPLES: &str = r#"Operations, one JSON object per line:
  {"op":"new","limit":LIMIT}     set the limit and forget all keys; after an error nothing changes
  {"op":"limit","limit":LIMIT}   change the limit; keys keep their state if algorithm and window are the same
  {"op":"charge","at_ns":T}      take "cost" units if they fit (default 1; 0 takes nothing)
  {"op":"debit","at_ns":T}       take "cost" units (default 1) even if they do not fit
  {"op":"ask","at_ns":T}         answer like charge, but take nothing; "cost":0 asks whether more than the limit is used
  {"op":"refund","at_ns":T}      return "cost" units (default 1) to where they were taken, as "receipt" says
  {"op":"peek","at_ns":T}        report the state, take nothing
  {"op":"reset","at_ns":T}       forget the key

T is the time on your clock, in nanoseconds. All operations except new and limit accept a "key" (default
"default"); each key is counted separately. With "want_receipt":true, the answer to a debit, or to a charge
that passes, has a "receipt" for refunds.

LIMIT is text such as "100/minute", or one of
  {"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}
  {"algorithm":"token_bucket","rate":10,"per_ns":1000000000,"capacity":5}
  {"algorithm":"leaky_bucket","rate":10,"per_ns":1000000000,"capacity":5}
  {"algorithm":"fixed_window","limit":5,"window_ns":60000000000,"stagger":false}
  {"algorithm":"sliding_log","limit":5,"window_ns":60000000000}
  {"algorithm":"sliding_counter","limit":5,"window_ns":60000000000}
  {"algorithm":"sliced_window","limit":5,"window_ns":60000000000,"slices":60}
  {"algorithm":"calendar_window","limit":5,"period":"month","time_zone":"Europe/Berlin","anchor":15}
"stagger":true starts the windows of each key at a different time. "stagger", "slices", "burst" and "capacity"
are optional; "slices" defaults to 60, "burst" and "capacity" to the units of the rate. A calendar_window
without "time_zone" uses UTC; without "anchor" it starts at midnight, on Monday, on the 1st or on 01-01.
As in a configuration, "rate":"10/second" replaces rate and per_ns, or limit and window_ns. The limit of a
sliding_log is at most 10000. The periods in text are ns, us, ms, s, min, h, day, week, month (30 days) and
year (365 days), optionally with a number: "5/10s".

Answers, one per line:
  {"ok":true}
  {"allowed":true,"limit":5,"remaining":4,"retry_after_ns":null,"reset_after_ns":100000000}
  {"allowed":false,"limit":5,"remaining":0,"retry_after_ns":100000000,"reset_after_ns":500000000}
  {"error":"at_ns: missing; ..."}
If waiting does not help, a denial has "retry_after_ns":null and "never":true. After an error, the next line
is processed. Blank lines are skipped. A line can have at most 65536 bytes.

The exit code is 0 at the end of the input, whatever the answers.

Examples:
  printf '%s\n' '{"op":"new","limit":"5/second"}' '{"op":"charge","at_ns":0}' | tidegate decide
  tidegate decide < operations.jsonl > answers.jsonl"#;

pub(crate) fn run(_: &Args) -> io::Result<()> {
    let input = io::stdin();
    if input.is_terminal() {
        eprintln!(
            r#"Enter one operation per line, such as {{"op":"new","limit":"5/second"}}. Ctrl-D ends. See tidegate decide --help."#
        );
    }
    let mut lines = Lines::new(input);
    let mut output = BufWriter::new(io::stdout());
    let mut ledger = Ledger::new(KEYS_MAX);
    while let Some(line) = lines.next(&mut output)? {
        let answer = line.and_then(Request::parse).and_then(|request| ledger.answer(request));
        answer.unwrap_or_else(Reply::from).write(&mut output)?;
    }
    output.flush()
}
