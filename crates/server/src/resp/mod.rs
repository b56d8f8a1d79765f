//! The protocol of Redis: CL.THROTTLE for clients of redis-cell, TIDEGATE.CHECK for configured rules, TIDEGATE.ACQUIRE for
//! permits, and what clients expect of any Redis server when they connect.
//!
//! | to find | look in |
//! |---|---|
//! | reading, deciding and writing, over and over | `connection.rs` |
//! | from bytes to commands | `parse.rs`, `inline.rs` |
//! | what each command does | `command/` |
//! | replies in both versions of the protocol | `reply.rs` |
//! | what is known of a connection between commands | `session.rs` |

mod command;
mod connection;
mod inline;
mod parse;
mod reply;
mod session;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidegate_core::Time;

use crate::accepted::Accepted;
use crate::drain::Drain;
use crate::listener::Door;
use crate::protocol::Protocol;
use crate::service::Service;

/// The way in for Redis clients.
#[derive(Debug)]
pub struct RespDoor {
    service: Arc<Service>,
    started: Time,
    next_id: AtomicU64,
    /// Connections that are open.
    open: AtomicUsize,
    /// What AUTH has to say; none if it need not be said.
    password: Option<String>,
}

impl RespDoor {
    /// A door to this service.
    #[must_use]
    pub fn new(service: Arc<Service>) -> RespDoor {
        let started = service.engine.clock().now();
        RespDoor { service, started, next_id: AtomicU64::new(1), open: AtomicUsize::new(0), password: None }
    }

    /// The same for clients who say this password; without one they need not.
    #[must_use]
    pub fn with_password(self, password: Option<String>) -> RespDoor {
        RespDoor { password, ..self }
    }
}

impl Door for RespDoor {
    const NAME: &'static str = Protocol::Resp.name();

    async fn serve(self: Arc<Self>, accepted: Accepted, drain: Drain) {
        self.open.fetch_add(1, Ordering::Relaxed);
        let _open = Open(&self.open);
        connection::serve(&self, accepted, drain).await;
    }
}

/// A connection that is counted as open.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Feeds bytes to the parser whole and one by one, for the fuzzer: the commands must be the same.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    fn feed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<Vec<u8>>>, bool) {
        let (mut parser, mut kept, mut commands) = (parse::Parser::default(), Vec::new(), Vec::new());
        parser.authenticated = true;
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                match parser.next(&kept) {
                    Ok(parse::Parsed::Command(command, length)) => {
                        commands.push(command.from(0).map(<[u8]>::to_vec).collect());
                        kept.drain(..length);
                    }
                    Ok(parse::Parsed::TooLong(length)) => {
                        commands.push(Vec::new());
                        kept.drain(..length);
                    }
                    Ok(parse::Parsed::Nothing(length)) => drop(kept.drain(..length)),
                    Ok(parse::Parsed::Incomplete) => break,
                    Err(_) => return (commands, true),
                }
            }
        }
        (commands, false)
    }
    assert_eq!(feed(std::iter::once(bytes)), feed(bytes.chunks(1)));
}
