//! One connection as its callers and its driver share it: the calls that wait, and those that are under way.
//!
//! A call waits here, first come, first served, until the [`Window`] has room for it; then the driver writes it. Its time
//! budget begins with that and not before: what happened until then says nothing about the server.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::TURN_TIME_MIN;
use super::calls::{Sent, Slot, State};
use super::command::Packed;
use super::reply::Reply;

/// One connection, for callers.
#[derive(Debug)]
pub(super) struct Pipe {
    state: Mutex<State>,
}

/// What is asked over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call, which waits for its turn and is over with its budget.
    Call,
    /// A question of the node itself, which goes at once and is over when whoever asks says so.
    Aside,
}

/// What became of a call.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Answered(Answer),
    NotSent(Trouble),
    /// It was written, and may have been done.
    Unknown(Trouble),
}

/// A reply, and how long it took.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Which of the calls it is that became one command, counted from 0.
    pub(super) place: usize,
    /// How long the server took at least: from the write to when the reply was looked for last and was not there.
    pub(super) took: Duration,
    /// How long the call waited for its turn.
    pub(super) waited: Duration,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is over.
    Broken(Arc<str>),
    /// The server did not answer a call within the budget.
    Away,
    /// As many calls wait as may.
    QueueFull,
    /// Its turn did not come in time, or would not have.
    TurnTooLate,
    /// Its caller waited no longer.
    CallerLeft,
}

/// When a call waits no longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For its turn.
    pub(super) until: Instant,
    /// At all.
    pub(super) leave: Option<Instant>,
}

impl Patience {
    /// Returns when a call that has no turn waits no longer for one.
    pub(super) fn end(&self) -> Instant {
        self.leave.map_or(self.until, |leave| leave.min(self.until))
    }
}

/// What came of a look at a connection, for the breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) answered: u32,
    /// Calls whose time was over.
    pub(super) late: u32,
    /// Calls that the server was not ready for.
    pub(super) not_ready: u32,
}

impl Pipe {
    pub(super) fn new(budget: Duration) -> Arc<Pipe> {
        Arc::new(Pipe { state: Mutex::new(State::new(budget)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in line.
    pub(super) fn call(self: &Arc<Self>, packed: Packed, kind: Kind, patience: &Patience) -> Result<Pending, Trouble> {
        let now = Instant::now();
        let mut state = self.state();
        // Where there is room, a call goes also if its request has no wait left.
        let until = patience.until.max(now + TURN_TIME_MIN);
        let patience = Patience { until, ..*patience };
        state.admit(kind, &patience, now)?;
        let slot = state.place(Slot::Waiting { since: now, until, leave: patience.leave, waker: None });
        let is_news = match kind {
            Kind::Call => state.waiting.push(packed, slot) | state.ring_by(patience.end()),
            Kind::Aside => state.asides.push(packed, slot),
        };
        if is_news {
            state.wake_driver();
        }
        drop(state);
        Ok(Pending { pipe: Arc::clone(self), slot })
    }

    /// No further calls come: the driver ends when those that are under way are answered.
    pub(super) fn retire(&self) {
        let mut state = self.state();
        state.is_retired = true;
        state.wake_driver();
    }

    /// Takes in replies, looks at the time, and hands out what is to be written now.
    pub(super) fn turn(&self, turn: &mut Turn<'_>) -> Turned {
        let mut state = self.state();
        state.driver_is_woken = false;
        if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(turn.waker)) {
            state.driver = Some(turn.waker.clone());
        }
        let answered = u32::try_from(turn.replies.len()).unwrap_or(u32::MAX);
        let (mut tally, mut is_unasked) = (Tally::default(), false);
        for reply in turn.replies.drain(..) {
            is_unasked |= !state.take_reply(reply, &mut tally, turn.wakers);
        }
        state.drained = turn.now;
        let is_behind = state.is_behind;
        state.pace.answered(answered, turn.now, is_behind);
        if state.ring.is_some_and(|ring| ring <= turn.now) {
            state.look_at_the_time(turn, &mut tally);
        }
        state.fill(turn);
        let is_idle = state.sent.is_empty() && state.waiting.is_empty() && state.asides.is_empty();
        Turned { tally, is_unasked, is_done: state.is_retired && is_idle, ring: state.ring }
    }

    /// Notes when these bytes were written, if that was not at once: the time of their calls begins then.
    pub(super) fn written(&self, from: u64, to: u64, now: Instant) {
        let mut state = self.state();
        let ends = |sent: &&mut Sent| sent.end > from;
        for sent in state.sent.iter_mut().rev().take_while(ends).filter(|sent| sent.end <= to) {
            sent.at = now;
        }
    }

    /// The connection is over, with so many bytes written.
    pub(super) fn close(&self, trouble: &Trouble, written: u64, wakers: &mut Vec<Waker>) {
        let mut state = self.state();
        // What ended it first is the reason.
        state.over.get_or_insert_with(|| trouble.clone());
        while let Some(sent) = state.sent.pop_front() {
            let outcome = match sent.begin < written {
                true => Outcome::Unknown(trouble.clone()),
                false => Outcome::NotSent(trouble.clone()),
            };
            state.finish_all(sent.members, &outcome, wakers);
        }
        for slot in state.waiting.drain().into_iter().chain(state.asides.drain()) {
            state.finish(slot, Outcome::NotSent(trouble.clone()), wakers);
        }
    }
}

/// What the driver brings along to a turn, and what it gets.
pub(super) struct Turn<'a> {
    /// Before the socket was read.
    pub(super) now: Instant,
    /// Whether bytes are in the socket that were not read.
    pub(super) has_input: &'a dyn Fn() -> bool,
    pub(super) replies: &'a mut Vec<Reply>,
    /// Whom to wake afterwards, when nothing is locked.
    pub(super) wakers: &'a mut Vec<Waker>,
    pub(super) waker: &'a Waker,
    /// What is to be written, and where its end is among all that was written.
    pub(super) out: &'a mut Vec<u8>,
    pub(super) end: &'a mut u64,
}

/// What came of a turn.
pub(super) struct Turned {
    pub(super) tally: Tally,
    /// A reply came that nobody asked for.
    pub(super) is_unasked: bool,
    /// The connection is retired, and nothing is left.
    pub(super) is_done: bool,
    /// When to look again at last.
    pub(super) ring: Option<Instant>,
}

/// Whether a server that says this cannot answer any call now.
pub(super) fn is_not_ready(code: &str) -> bool {
    matches!(code, "LOADING" | "BUSY" | "MASTERDOWN")
}

/// A call whose outcome is waited for. If this is dropped before it is written, it is never written.
#[derive(Debug)]
pub(super) struct Pending {
    pipe: Arc<Pipe>,
    slot: usize,
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.pipe.state();
        let old = match &mut state.slots[self.slot] {
            Slot::Waiting { waker, .. } | Slot::Sent { waker, .. } => match waker {
                Some(waker) if waker.will_wake(context.waker()) => None,
                waker => waker.replace(context.waker().clone()),
            },
            slot => {
                let done = std::mem::replace(slot, Slot::Left);
                drop(state);
                return match done {
                    Slot::Done(outcome) => Poll::Ready(outcome),
                    // Polled after it was ready.
                    _ => Poll::Pending,
                };
            }
        };
        drop(state);
        // Not under the lock: it may be the last that keeps another call.
        drop(old);
        Poll::Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.pipe.state();
        let old = std::mem::replace(&mut state.slots[self.slot], Slot::Left);
        match &old {
            // It stays in line, and is passed over when its turn comes.
            Slot::Waiting { .. } => {}
            Slot::Sent { number, .. } => state.leave(self.slot, *number),
            Slot::Left | Slot::Free | Slot::Done(_) => state.free(self.slot),
        }
        drop(state);
        drop(old);
    }
}
