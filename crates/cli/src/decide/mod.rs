//! `tidegate decide`: JSON lines in, decisions out, on the caller's own clock.
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

/// Read operations as JSON lines from stdin, answer each with one JSON line on stdout
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

const EXAMPLES: &str = r#"Operations, one JSON object a line:
  {"op":"new","limit":LIMIT}     set the limit and forget every key; if it fails, nothing changes
  {"op":"limit","limit":LIMIT}   set the limit; if algorithm and window stay, so does the state
  {"op":"charge","at_ns":T}      take "cost" units if they fit (default 1; 0 takes nothing)
  {"op":"debit","at_ns":T}       count "cost" units (default 1) whether they fit or not
  {"op":"ask","at_ns":T}         answer as charge would, take nothing; "cost":0 asks whether more than the limit is used
  {"op":"refund","at_ns":T}      give "cost" units back, to where "receipt" says they were taken
  {"op":"peek","at_ns":T}        take nothing
  {"op":"reset","at_ns":T}       forget the key

T is your clock, in nanoseconds. All but new and limit take a "key", which counts by itself
(default "default"). With "want_receipt":true, a charge or debit that passes has a "receipt".

LIMIT is text like "100/minute", or one of
  {"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}
  {"algorithm":"token_bucket","rate":10,"per_ns":1000000000,"capacity":5}
  {"algorithm":"leaky_bucket","rate":10,"per_ns":1000000000,"capacity":5}
  {"algorithm":"fixed_window","limit":5,"window_ns":60000000000,"stagger":false}
  {"algorithm":"sliding_log","limit":5,"window_ns":60000000000}
  {"algorithm":"sliding_counter","limit":5,"window_ns":60000000000}
  {"algorithm":"sliced_window","limit":5,"window_ns":60000000000,"slices":60}
  {"algorithm":"calendar_window","limit":5,"period":"month","time_zone":"Europe/Berlin","anchor":15}
"stagger" gives the windows of each key an instant of its own to start at. It, "slices", "burst" and
"capacity" may be left out: what passes at once is then what the rate tells. A calendar_window without
"time_zone" is in UTC, without "anchor" it starts at midnight, on monday, on the 1st or on 01-01. As in a configuration,
"rate":"10/second" says rate and per_ns, or limit and window_ns, at once. A sliding_log has a limit of at
most 10000. In text, write ns, us, ms, s, min, h, day, week, month (30 days) or year (365), with a number
before it if you like: "5/10s".

Answers, one a line:
  {"ok":true}
  {"allowed":true,"limit":5,"remaining":4,"retry_after_ns":null,"reset_after_ns":100000000}
  {"allowed":false,"limit":5,"remaining":0,"retry_after_ns":100000000,"reset_after_ns":500000000}
  {"error":"at_ns: missing; ..."}
A denial that no wait would help has "retry_after_ns":null and "never":true. After an error the
next line is read. Blank lines are skipped. A line has at most 65536 bytes.

Examples:
  printf '%s\n' '{"op":"new","limit":"5/second"}' '{"op":"charge","at_ns":0}' | tidegate decide
  tidegate decide < operations.jsonl > answers.jsonl"#;

pub(crate) fn run(_: &Args) -> io::Result<()> {
    let input = io::stdin();
    if input.is_terminal() {
        eprintln!(
            r#"Type operations, like {{"op":"new","limit":"5/second"}}; Ctrl-D ends. See tidegate decide --help."#
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
