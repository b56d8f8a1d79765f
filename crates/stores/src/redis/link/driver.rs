//! The task of one connection: it alone reads and writes the socket, and keeps the time of all calls on it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::bounds::{REPLIES_MAX, WRITE_NOTED_MIN};
use super::dial::{Io, Wire};
use super::pipe::{Pipe, Tally, Trouble, Turn};
use super::reply::{Inbox, Reply};

/// Serves a connection until it ends, and tells what the breaker counts.
pub(super) async fn drive(pipe: Arc<Pipe>, wire: Wire, mut note: impl FnMut(Tally)) {
    let Wire { stream, inbox } = wire;
    let (replies, wakers, out) = (Vec::new(), Vec::new(), Vec::new());
    let sleep = Box::pin(sleep_until(Instant::now()));
    let (is_stalled, is_flushed) = (false, true);
    let mut driver = Driver {
        pipe,
        stream,
        inbox,
        replies,
        wakers,
        out,
        end: 0,
        written: 0,
        sleep,
        ring: None,
        is_stalled,
        is_flushed,
    };
    // All that is in the socket is read before a call is given up, whatever others of this thread have to do.
    let trouble = unconstrained(poll_fn(|context| driver.poll(context, &mut note))).await;
    driver.close(&trouble);
}

const NO_REDIS: &str = "it does not answer like Redis";
const UNASKED: &str = "the server sent a reply without a request";

struct Driver {
    pipe: Arc<Pipe>,
    stream: Pin<Box<dyn Io>>,
    inbox: Inbox,
    replies: Vec<Reply>,
    wakers: Vec<Waker>,
    /// What is to be written. Its end is the `end`th byte of the connection.
    out: Vec<u8>,
    end: u64,
    written: u64,
    sleep: Pin<Box<Sleep>>,
    /// What the timer is set to.
    ring: Option<Instant>,
    /// Whether the socket did not take all bytes when it was last written to.
    is_stalled: bool,
    /// Whether the stream keeps none of the bytes that it took: one with TLS may.
    is_flushed: bool,
}

/// Also when the runtime drops the task.
impl Drop for Driver {
    fn drop(&mut self) {
        self.close(&Trouble::Broken("its Tokio runtime ended".into()));
    }
}

impl Driver {
    fn poll(&mut self, context: &mut Context<'_>, note: &mut impl FnMut(Tally)) -> Poll<Trouble> {
        loop {
            // Before the socket is read: what has arrived by then is known to the turn.
            let now = Instant::now();
            let read = self.read(context);
            let stream = self.stream.as_ref();
            let turned = self.pipe.turn(&mut Turn {
                now,
                has_input: &|| stream.has_input(),
                replies: &mut self.replies,
                wakers: &mut self.wakers,
                waker: context.waker(),
                out: &mut self.out,
                end: &mut self.end,
            });
            if turned.tally != Tally::default() {
                note(turned.tally);
            }
            self.wakers.drain(..).for_each(Waker::wake);
            if let Err(reason) = read {
                return Poll::Ready(Trouble::Broken(reason));
            }
            if turned.is_unasked {
                return Poll::Ready(Trouble::Broken(UNASKED.into()));
            }
            if turned.is_done {
                return Poll::Ready(Trouble::Broken("it was replaced".into()));
            }
            if let Err(error) = self.write(now, context) {
                return Poll::Ready(Trouble::Broken(error.to_string().into()));
            }
            if !self.is_due(turned.ring, now, context) {
                return Poll::Pending;
            }
        }
    }

    /// Reads all replies that are there.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Arc<str>> {
        loop {
            match self.inbox.poll_fill(self.stream.as_mut(), context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the server closed it".into()),
                Poll::Ready(Ok(_)) => self.inbox.take_all(&mut self.replies).map_err(|_| NO_REDIS)?,
                Poll::Ready(Err(error)) => return Err(error.to_string().into()),
            }
            if self.replies.len() > REPLIES_MAX {
                return Err(UNASKED.into());
            }
        }
    }

    /// Writes what the socket takes of what was handed out at `handed_out`.
    fn write(&mut self, handed_out: Instant, context: &mut Context<'_>) -> io::Result<()> {
        let from = self.written;
        let mut done = 0;
        while done < self.out.len() {
            match self.stream.as_mut().poll_write(context, &self.out[done..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => {
                    done += count;
                    self.written += count as u64;
                }
                Poll::Pending => break,
            }
        }
        self.out.drain(..done);
        let was_stalled = std::mem::replace(&mut self.is_stalled, !self.out.is_empty());
        if done == 0 && self.is_flushed {
            return Ok(());
        }
        self.is_flushed = self.stream.as_mut().poll_flush(context)?.is_ready();
        if done == 0 {
            return Ok(());
        }
        let now = Instant::now();
        // Bytes that had to wait for the socket, or for this thread.
        if was_stalled || now - handed_out >= WRITE_NOTED_MIN {
            self.pipe.written(from, self.written, now);
        }
        Ok(())
    }

    /// Sets the timer, and says whether it is time already.
    fn is_due(&mut self, ring: Option<Instant>, now: Instant, context: &mut Context<'_>) -> bool {
        let Some(at) = ring else { return false };
        // It may ring too early: then there is nothing to do but to set it anew.
        if self.ring.is_some_and(|set| now < set && set <= at) {
            return false;
        }
        self.ring = Some(at);
        self.sleep.as_mut().reset(at);
        self.sleep.as_mut().poll(context).is_ready()
    }

    fn close(&mut self, trouble: &Trouble) {
        self.pipe.close(trouble, self.written, &mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}
