//! What is known of one connection between its commands.

use std::net::SocketAddr;

use crate::bounds::{QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX};
use crate::protocol::{Peer, Protocol, Via};

use super::command::throttle::Pending;
use super::parse::{Command, Span};

/// What is known of one connection.
pub(crate) struct Session {
    /// Unlike that of any other connection.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) peer: Peer,
    /// Whether the password was said, or need not be.
    pub(crate) authenticated: bool,
    /// Wrong passwords that were said.
    pub(crate) wrong_passwords: u32,
    /// What the client calls itself; empty if it does not.
    pub(crate) name: Vec<u8>,
    pub(crate) library_name: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// What came since MULTI.
    pub(crate) queue: Option<Queue>,
    /// Each CL.THROTTLE that was read and is not answered yet.
    pub(crate) pending: Pending,
    /// Commands that are to be asked of a store together.
    pub(crate) together: Queue,
    /// Whether the connection ends after the replies so far.
    pub(crate) ends: bool,
    /// Commands that were answered.
    pub(crate) commands: u64,
}

impl Session {
    pub(crate) fn new(id: u64, address: SocketAddr, peer: Peer, authenticated: bool) -> Session {
        Session {
            id,
            address,
            peer,
            authenticated,
            wrong_passwords: 0,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            queue: None,
            pending: Pending::default(),
            together: Queue::default(),
            ends: false,
            commands: 0,
        }
    }

    /// How its commands come in.
    pub(crate) fn via(&self) -> Via<'_> {
        Via::from_peer(Protocol::Resp, &self.peer)
    }
}

/// Commands that wait, for EXEC or until all of a pipeline are read.
#[derive(Default)]
pub(crate) struct Queue {
    /// Whether one of them was refused, so that none will be run.
    pub(crate) failed: bool,
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Where the spans of each command end.
    ends: Vec<usize>,
}

impl Queue {
    /// Keeps a command; false if there is no room for it.
    pub(crate) fn push(&mut self, command: &Command<'_>) -> bool {
        let length: usize = command.from(0).map(<[u8]>::len).sum();
        if self.ends.len() >= QUEUED_COMMANDS_MAX || self.bytes.len() + length > QUEUED_BYTES_MAX {
            return false;
        }
        for argument in command.from(0) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.spans.push(super::parse::span(start, self.bytes.len()));
        }
        self.ends.push(self.spans.len());
        true
    }

    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>() + self.ends.len() * size_of::<usize>()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The commands, in the order in which they came.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = |(start, end): (usize, &usize)| self.spans.get(start..*end).unwrap_or_default();
        starts.zip(&self.ends).map(spans).map(|spans| Command::new(&self.bytes, spans))
    }
}
