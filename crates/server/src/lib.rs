//! Tidegate as a service: three protocols in front of one engine. A front end decodes, asks the engine and encodes.
//!
//! | to find | look in |
//! |---|---|
//! | the protocol of Redis, with CL.THROTTLE | `resp/` |
//! | Envoy's rate limit service | `rls/` |
//! | HTTP: checks, forward-auth, reports, administration, metrics | `http/` |
//! | what all three share | `service.rs` |
//! | what answers tell of limits: headers and problem bodies | `headers.rs` |
//! | certificates | `tls.rs` |
//! | sockets, the cap on connections, draining | `listener.rs`, `drain.rs` |
//! | every bound on what comes in, with its reason | `bounds.rs` |

pub mod bounds;

mod drain;
mod headers;
mod http;
mod listener;
mod resp;
mod rls;
mod service;
mod tls;

pub use drain::{Drain, Drainer};
pub use http::HttpDoor;
pub use listener::{Door, Listener, ListenerError};
pub use resp::RespDoor;
pub use rls::{RlsDoor, RlsOptions};
pub use service::{Protocol, Service};
pub use tls::{Tls, TlsError, TlsFiles};
