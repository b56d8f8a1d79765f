//! The answer to a line.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tidegate::{Decision, Receipt, Retry};

use super::Complaint;

/// The answer to a line; the order of the fields is their order in JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Done {
        ok: bool,
    },
    Decided {
        allowed: bool,
        limit: u64,
        remaining: u64,
        retry_after_ns: Option<u64>,
        reset_after_ns: u64,
        /// Present, and true, only if waiting does not help.
        #[serde(skip_serializing_if = "Option::is_none")]
        never: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        receipt: Option<u64>,
    },
    Failed {
        error: String,
    },
}

impl Reply {
    pub(super) fn done() -> Reply {
        Reply::Done { ok: true }
    }

    /// Makes the answer to a decision. A denial took nothing and has no receipt.
    pub(super) fn to(decision: &Decision, want_receipt: bool) -> Reply {
        Reply::Decided {
            allowed: decision.is_allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after_ns: decision.retry_after().map(nanos),
            reset_after_ns: nanos(decision.reset_after()),
            never: (decision.retry() == Some(Retry::Never)).then_some(true),
            receipt: decision.receipt().filter(|_| want_receipt).map(Receipt::to_bits),
        }
    }

    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *output, self)?;
        output.write_all(b"\n")
    }
}

impl From<Complaint> for Reply {
    fn from(complaint: Complaint) -> Reply {
        Reply::Failed { error: complaint.into() }
    }
}

/// Returns a duration in nanoseconds. All durations in a decision fit into 64 bits.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
