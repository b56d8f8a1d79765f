//! Tidegate as a service: several protocols in front of one engine. A front end decodes, asks the engine and encodes.
//!
//! | to find | look in |
//! |---|---|
//! | the protocol of Redis, with CL.THROTTLE | `resp/` |
//! | Envoy's rate limit service | `rls/` |
//! | HTTP: checks, forward-auth, reports, administration, metrics | `http/` |
//! | starting, threads, signals, stopping | `run.rs` |
//! | rules that change while it runs, and files that do | `reload.rs`, `loads.rs`, `load_log.rs`, `file_marks.rs` |
//! | which front ends there are, and what they share | `protocol.rs`, `service.rs` |
//! | how they ask for decisions, and how much comes in | `checks.rs`, `traffic.rs` |
//! | clients that were turned away | `refusals.rs` |
//! | how often an address may send a wrong secret | `guesses.rs` |
//! | limits in answers: headers and problem bodies | `headers.rs` |
//! | bodies of requests within a bound, and all of them within a budget | `body.rs`, `budget.rs` |
//! | waiting for what is rare beside what is not | `bell.rs` |
//! | certificates, until when they are valid, and renewing them | `tls.rs`, `validity.rs`, `renewals.rs` |
//! | logs and traces, the log of decisions | `telemetry.rs`, `trace_parent.rs`, `decision_log/` |
//! | logs of sliding limits that outgrow their store | `log_room.rs` |
//! | how lines of the log are written, and panics logged | `line_queue.rs`, `log_writer.rs`, `panics.rs` |
//! | sockets, the cap on connections, draining, closing | `listener.rs`, `seats.rs`, `lanes.rs`, `descriptors.rs`, `drain.rs`, `linger.rs` |
//! | connections as front ends get them, in the clear or encrypted | `accepted.rs`, `stream.rs` |
//! | clients that do not read what is written to them | `write_stall.rs` |
//! | every bound on what comes in, with its reason | `bounds.rs` |

pub mod bounds;

mod accepted;
mod bell;
mod body;
mod budget;
mod checks;
mod decision_log;
mod descriptors;
mod drain;
mod file_marks;
mod guesses;
mod headers;
mod http;
mod lanes;
mod line_queue;
mod linger;
mod listener;
mod load_log;
mod loads;
mod log_room;
mod log_writer;
mod panics;
mod protocol;
mod refusals;
mod reload;
mod renewals;
mod resp;
mod rls;
mod run;
mod seats;
mod service;
mod stream;
mod telemetry;
mod tls;
mod trace_parent;
mod traffic;
mod validity;
mod write_stall;

pub use accepted::Accepted;
pub use budget::RequestMemory;
pub use decision_log::DecisionLog;
pub use drain::{Drain, Drainer};
pub use http::HttpDoor;
pub use listener::{Door, Listener, ListenerError};
pub use protocol::{Protocol, Via};
pub use reload::BadConfig;
pub use resp::RespDoor;
pub use rls::{RlsDoor, RlsOptions};
pub use run::{Addresses, ListenersTls, Options, RunError, run};
pub use service::Service;
pub use telemetry::{LogFormat, Telemetry, TelemetryError, TelemetryGuard};
pub use tls::{Tls, TlsError, TlsFile, TlsFiles};
pub use traffic::Traffic;

/// Ways in for the fuzzer, which has no others to what is private.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Any bytes on the Redis port.
    pub fn resp(bytes: &[u8]) {
        crate::resp::fuzz(bytes);
    }
}
