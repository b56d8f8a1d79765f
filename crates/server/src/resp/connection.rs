//! One connection: reads once, decides every command that is complete, writes all replies at once, and waits for more.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Sleep, sleep, timeout};

use crate::accepted::Accepted;
use crate::bounds::{IDLE, READ_BYTES_MAX, READ_BYTES_MIN, REPLIES_BYTES_MAX, SMALL_READS_MAX, STALL};
use crate::budget::{Account, Claim, GivenUp};
use crate::drain::Drain;
use crate::linger;
use crate::protocol::{Peer, Protocol};
use crate::seats::Activity;
use crate::stream::Stream;

use super::RespDoor;
use super::command::{self, Context};
use super::parse::{Parsed, Parser};
use super::reply::Replies;
use super::session::{Queue, Session};

/// Serves a connection until it ends.
pub(super) async fn serve(door: &RespDoor, accepted: Accepted, drain: Drain) {
    let Accepted { stream, address, account, activity } = accepted;
    let id = door.next_id.fetch_add(1, Ordering::Relaxed);
    let authenticated = door.password.is_none();
    let connection = Connection {
        door,
        stream,
        input: Input::new(),
        parser: Parser::default(),
        session: Session::new(id, address, Peer::new(&door.service.engine, address), authenticated),
        replies: Replies::new(),
        unfinished: Unfinished { account, claim: None },
        activity,
    };
    connection.run(drain).await;
}

struct Connection<'a> {
    door: &'a RespDoor,
    stream: Stream,
    input: Input,
    parser: Parser,
    session: Session,
    replies: Replies,
    unfinished: Unfinished,
    activity: Activity,
}

impl Connection<'_> {
    async fn run(mut self, drain: Drain) {
        let mut until = drain.clone();
        let mut drained = pin!(until.started());
        let mut patience = pin!(sleep(STALL));
        let mut watch = Watch { waits_for: Waits::Start, commands: 0 };
        loop {
            self.input.make_room();
            // What was sent before the end is answered, so reading comes first.
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input.bytes) => read,
                () = &mut drained => {
                    self.answer_last().await;
                    break;
                }
                () = self.unfinished.given_up() => {
                    self.give_up().await;
                    break;
                }
                () = &mut patience => {
                    if !watch.goes_on(patience.as_mut(), self.session.commands) {
                        break;
                    }
                    continue;
                }
            };
            match read {
                Ok(0) | Err(_) => return,
                Ok(count) => self.input.note_read(count),
            }
            if self.answer().await.is_err() {
                return;
            }
            if self.session.ends || drain.has_started() {
                break;
            }
            if self.note_unfinished().is_err() {
                self.give_up().await;
                break;
            }
            watch.expect(patience.as_mut(), self.waits_for(), self.session.commands);
        }
        linger::close(self.stream).await;
    }

    /// Answers every command that was read whole.
    async fn answer(&mut self) -> io::Result<()> {
        let Connection { door, stream, input, parser, session, replies, activity, .. } = self;
        let (mut taken, before) = (0, session.commands);
        let start = door.service.engine.clock().now();
        loop {
            parser.authenticated = session.authenticated;
            match parser.next(input.bytes.get(taken..).unwrap_or_default()) {
                Ok(Parsed::Command(command, length)) => {
                    taken += length;
                    command::run(&mut Context { door, session, replies }, &command).await;
                }
                Ok(Parsed::TooLong(length)) => {
                    taken += length;
                    command::refuse_too_long(&mut Context { door, session, replies }).await;
                }
                Ok(Parsed::Nothing(length)) => taken += length,
                Ok(Parsed::Incomplete) => break,
                Err(error) => {
                    command::settle(&mut Context { door, session, replies }).await;
                    replies.error(format_args!("ERR Protocol error: {error}"));
                    session.ends = true;
                }
            }
            if session.ends {
                break;
            }
            if replies.as_bytes().len() >= REPLIES_BYTES_MAX {
                write(stream, replies).await?;
            }
        }
        command::settle(&mut Context { door, session, replies }).await;
        let commands = session.commands - before;
        if commands > 0 {
            activity.note();
        }
        door.service.traffic.count_many(Protocol::Resp, commands);
        // Their replies are written together, so each took as long as all of them. Where there are so many that some were
        // written before, that includes the client's own time to read them.
        door.service.count_time(Protocol::Resp, commands, start);
        input.take(taken);
        write(stream, replies).await
    }

    /// Answers what had arrived when it was told to finish.
    async fn answer_last(&mut self) {
        // It was woken by the word to finish; what the sockets have to say is heard in between.
        tokio::task::yield_now().await;
        self.input.make_room();
        if let Ok(Ok(1..)) = timeout(Duration::ZERO, self.stream.read_buf(&mut self.input.bytes)).await {
            // Whether the replies were taken makes no difference to the end.
            let _ = self.answer().await;
        }
    }

    /// Says what is kept of a command that has not come whole, and of those that wait for EXEC.
    fn note_unfinished(&mut self) -> Result<(), GivenUp> {
        let queued = self.session.queue.as_ref().map_or(0, Queue::size);
        if self.input.bytes.is_empty() && queued == 0 {
            self.unfinished.claim = None;
            return Ok(());
        }
        self.unfinished.keep(self.input.bytes.len() + queued)
    }

    /// Ends with an error, since unfinished requests take too much memory and this one was the largest.
    async fn give_up(&mut self) {
        self.replies.error("ERR dropped: unfinished commands take too much memory; send each command without pauses");
        // Whether it was taken makes no difference to the end.
        let _ = write(&mut self.stream, &mut self.replies).await;
    }

    /// What the connection is silent about now.
    fn waits_for(&self) -> Waits {
        if !self.session.authenticated || self.session.commands == 0 {
            Waits::Start
        } else if self.input.bytes.is_empty() && !self.parser.is_skipping() {
            Waits::Next
        } else {
            Waits::Rest(self.session.commands)
        }
    }
}

/// What a connection keeps of commands that have not come whole.
struct Unfinished {
    account: Account,
    /// None while nothing is kept.
    claim: Option<Claim>,
}

impl Unfinished {
    fn keep(&mut self, bytes: usize) -> Result<(), GivenUp> {
        match &mut self.claim {
            Some(claim) => claim.set(bytes),
            none => {
                *none = Some(self.account.claim(bytes)?);
                Ok(())
            }
        }
    }

    /// Resolves when the memory is needed for others.
    async fn given_up(&self) {
        match &self.claim {
            Some(claim) => poll_fn(|context| claim.poll_given_up(context)).await,
            None => pending().await,
        }
    }
}

/// Writes all replies.
async fn write(stream: &mut Stream, replies: &mut Replies) -> io::Result<()> {
    if !replies.as_bytes().is_empty() {
        stream.write_all(replies.as_bytes()).await?;
        // Encrypted bytes may wait though all of them were taken.
        stream.flush().await?;
        replies.clear(REPLIES_BYTES_MAX);
    }
    Ok(())
}

/// What a silent connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Its first command, or the password.
    Start,
    /// The rest of the command with this number. A byte now and then does not make it wait longer.
    Rest(u64),
    /// Its next command.
    Next,
}

/// Ends the patience with a connection.
struct Watch {
    waits_for: Waits,
    /// Commands answered when the patience began.
    commands: u64,
}

impl Watch {
    /// Begins anew if it waits for something else. Busy connections do not: the clock of the patience is not touched for
    /// each command, it is asked for them when it rings.
    fn expect(&mut self, patience: Pin<&mut Sleep>, waits_for: Waits, commands: u64) {
        if self.waits_for != waits_for {
            self.waits_for = waits_for;
            self.begin(patience, commands);
        }
    }

    /// Whether the connection may go on though the patience rang: there were commands since it began.
    fn goes_on(&mut self, patience: Pin<&mut Sleep>, commands: u64) -> bool {
        let goes_on = self.waits_for == Waits::Next && self.commands != commands;
        if goes_on {
            self.begin(patience, commands);
        }
        goes_on
    }

    fn begin(&mut self, mut patience: Pin<&mut Sleep>, commands: u64) {
        let length: Duration = if self.waits_for == Waits::Next { IDLE } else { STALL };
        self.commands = commands;
        patience.set(sleep(length));
    }
}

/// What was read and not yet taken, in a buffer that fits what the connection mostly sends.
struct Input {
    bytes: Vec<u8>,
    /// How many bytes one read shall find room for.
    room: usize,
    /// Reads in a row that used little of it.
    small_reads: u32,
}

impl Input {
    fn new() -> Input {
        Input { bytes: Vec::new(), room: READ_BYTES_MIN, small_reads: 0 }
    }

    /// Makes room for a read.
    #[inline]
    fn make_room(&mut self) {
        // Half is enough behind the beginning of a command, so that its rest does not make the buffer grow.
        if self.bytes.capacity() - self.bytes.len() < self.room.div_ceil(2) {
            self.bytes.reserve_exact(self.room);
        }
    }

    /// Learns from a read of so many bytes.
    #[inline]
    fn note_read(&mut self, count: usize) {
        if self.bytes.len() == self.bytes.capacity() {
            self.room = (self.room * 2).min(READ_BYTES_MAX);
            self.small_reads = 0;
        } else if count > self.room / 4 {
            self.small_reads = 0;
        } else {
            self.small_reads += 1;
        }
    }

    /// Drops what was taken, and room that is not used.
    #[inline]
    fn take(&mut self, taken: usize) {
        if taken >= self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..taken);
        }
        if self.small_reads >= SMALL_READS_MAX {
            self.small_reads = 0;
            self.room = (self.room / 2).max(READ_BYTES_MIN);
            self.bytes.shrink_to(self.room);
        }
    }
}
