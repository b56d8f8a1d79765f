//! One connection as its callers and its driver share it: the calls that wait, and those that are under way.
//!
//! A call waits here, first come, first served, until the [`Window`] has room for it; then the driver writes it. Its time
//! budget begins with that and not before: what happened until then says nothing about the server.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{LATE_MAX, RING_PAUSE, WAITING_MAX};
use super::command::Packed;
use super::reply::Reply;
use super::window::{Pace, Window};

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
#[derive(Debug)]
pub(super) enum Outcome {
    Answered(Answer),
    NotSent(Trouble),
    /// It was written, and may have been done.
    Unknown(Trouble),
}

/// A reply, and how long it took.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
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
    pub(super) wait: Duration,
    /// At all.
    pub(super) leave: Option<Instant>,
}

#[derive(Debug)]
struct State {
    budget: Duration,
    slots: Vec<Slot>,
    free: Vec<usize>,
    waiting: VecDeque<usize>,
    asides: VecDeque<usize>,
    sent: VecDeque<Sent>,
    /// The number of the next call that is written.
    next_number: u64,
    window: Window,
    pace: Pace,
    /// When the socket was last read to its end.
    drained: Instant,
    /// When something is due, or before.
    ring: Option<Instant>,
    /// The oldest call is over its budget: no call waits for a window behind it.
    is_away: bool,
    /// No further calls come.
    is_retired: bool,
    over: Option<Trouble>,
    driver: Option<Waker>,
    driver_is_woken: bool,
}

/// The place of a call, from when it is made until its caller has the outcome.
#[derive(Debug)]
enum Slot {
    Free,
    Waiting {
        packed: Packed,
        since: Instant,
        until: Instant,
        leave: Option<Instant>,
        waker: Option<Waker>,
    },
    /// Its caller left; whoever has its number frees it.
    Left,
    Sent {
        leave: Option<Instant>,
        waited: Duration,
        waker: Option<Waker>,
    },
    Done(Outcome),
}

/// A call that was given to the driver.
#[derive(Debug)]
struct Sent {
    /// Nothing if its caller has an outcome.
    slot: Option<usize>,
    kind: Kind,
    number: u64,
    at: Instant,
    /// Where its bytes begin and end among all that are written to this connection.
    begin: u64,
    end: u64,
    /// Replies that are still to come; the last one is the answer.
    replies: u8,
    /// The server's refusal of what was to be done first.
    refusal: Option<Reply>,
    /// Whether it was given another budget, because the node looked too late.
    is_prolonged: bool,
    /// Whether its time is over, which the breaker counts once.
    is_over: bool,
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
        let state = State {
            budget,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            asides: VecDeque::new(),
            sent: VecDeque::new(),
            next_number: 0,
            window: Window::new(),
            pace: Pace::default(),
            drained: Instant::now(),
            ring: None,
            is_away: false,
            is_retired: false,
            over: None,
            driver: None,
            driver_is_woken: false,
        };
        Arc::new(Pipe { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in line.
    pub(super) fn call(self: &Arc<Self>, packed: Packed, kind: Kind, patience: &Patience) -> Result<Pending, Trouble> {
        let now = Instant::now();
        let mut state = self.state();
        state.admit(kind, patience)?;
        let until = now + patience.wait;
        let slot = state.place(Slot::Waiting { packed, since: now, until, leave: patience.leave, waker: None });
        match kind {
            Kind::Call => {
                state.waiting.push_back(slot);
                state.ring_by(patience.leave.map_or(until, |leave| leave.min(until)));
            }
            Kind::Aside => state.asides.push_back(slot),
        }
        state.wake_driver();
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
        let waits = !state.waiting.is_empty();
        state.pace.answered(answered, turn.now, waits);
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
        state.over = Some(trouble.clone());
        while let Some(sent) = state.sent.pop_front() {
            let outcome = match sent.begin < written {
                true => Outcome::Unknown(trouble.clone()),
                false => Outcome::NotSent(trouble.clone()),
            };
            state.finish(sent.slot, outcome, wakers);
        }
        for slot in std::mem::take(&mut state.waiting).into_iter().chain(std::mem::take(&mut state.asides)) {
            state.finish(Some(slot), Outcome::NotSent(trouble.clone()), wakers);
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

impl State {
    /// Whether a call may wait.
    fn admit(&mut self, kind: Kind, patience: &Patience) -> Result<(), Trouble> {
        if let Some(trouble) = &self.over {
            return Err(trouble.clone());
        }
        if kind == Kind::Aside {
            return Ok(());
        }
        if self.waiting.len() + self.sent.len() >= WAITING_MAX {
            return Err(Trouble::QueueFull);
        }
        let is_held = !self.is_away && !self.window.has_room(self.sent.len() + self.waiting.len());
        if is_held && self.pace.time_for(self.waiting.len()) > patience.wait {
            return Err(Trouble::TurnTooLate);
        }
        Ok(())
    }

    fn place(&mut self, slot: Slot) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.slots[number] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    fn free(&mut self, number: usize) {
        self.slots[number] = Slot::Free;
        self.free.push(number);
    }

    fn wake_driver(&mut self) {
        if !std::mem::replace(&mut self.driver_is_woken, true)
            && let Some(driver) = &self.driver
        {
            driver.wake_by_ref();
        }
    }

    /// Gives a caller its outcome, if it is still there.
    fn finish(&mut self, slot: Option<usize>, outcome: Outcome, wakers: &mut Vec<Waker>) {
        let Some(number) = slot else { return };
        match std::mem::replace(&mut self.slots[number], Slot::Done(outcome)) {
            Slot::Waiting { waker, .. } | Slot::Sent { waker, .. } => wakers.extend(waker),
            Slot::Left | Slot::Free | Slot::Done(_) => self.free(number),
        }
    }

    /// Takes in one reply; false if nobody asked for it.
    fn take_reply(&mut self, reply: Reply, tally: &mut Tally, wakers: &mut Vec<Waker>) -> bool {
        let Some(first) = self.sent.front_mut() else { return false };
        first.replies = first.replies.saturating_sub(1);
        if first.replies > 0 {
            if first.refusal.is_none() && matches!(reply, Reply::Error(_)) {
                first.refusal = Some(reply);
            }
            return true;
        }
        let Some(first) = self.sent.pop_front() else { return false };
        self.is_away = false;
        let took = self.drained.saturating_duration_since(first.at);
        let next = self.next_number;
        if first.kind == Kind::Call {
            self.window.answered(first.number, next, took >= self.budget / 2);
            match &reply {
                Reply::Error(error) if is_not_ready(error.code()) => tally.not_ready += 1,
                _ => tally.answered += 1,
            }
        }
        // It does not know the script because it would not be given it: that is what the caller must hear.
        let reply = match (reply, first.refusal) {
            (Reply::Error(error), Some(refusal)) if error.code() == "NOSCRIPT" => refusal,
            (reply, _) => reply,
        };
        let waited = match first.slot.map(|slot| &self.slots[slot]) {
            Some(Slot::Sent { waited, .. }) => *waited,
            _ => Duration::ZERO,
        };
        self.finish(first.slot, Outcome::Answered(Answer { reply, took, waited }), wakers);
        true
    }

    /// Ends what is due: calls whose turn did not come, those whose callers leave, and all of them if the oldest one is
    /// over its budget though all that is in the socket was read.
    fn look_at_the_time(&mut self, turn: &mut Turn<'_>, tally: &mut Tally) {
        self.end_waiting(turn.now, turn.wakers);
        self.end_sent(turn, tally);
        self.ring = self.next_ring(turn.now);
    }

    fn end_waiting(&mut self, now: Instant, wakers: &mut Vec<Waker>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|number| {
            let trouble = match &self.slots[*number] {
                Slot::Waiting { leave: Some(leave), .. } if *leave <= now => Trouble::CallerLeft,
                Slot::Waiting { until, .. } if *until <= now => Trouble::TurnTooLate,
                Slot::Waiting { .. } => return true,
                _ => Trouble::CallerLeft,
            };
            self.finish(Some(*number), Outcome::NotSent(trouble), wakers);
            false
        });
        self.waiting = waiting;
    }

    fn end_sent(&mut self, turn: &mut Turn<'_>, tally: &mut Tally) {
        let (budget, now) = (self.budget, turn.now);
        let wakers = &mut *turn.wakers;
        for number in 0..self.sent.len() {
            let Some(slot) = self.sent[number].slot else { continue };
            if matches!(self.slots[slot], Slot::Sent { leave: Some(leave), .. } if leave <= now) {
                self.sent[number].slot = None;
                self.finish(Some(slot), Outcome::Unknown(Trouble::CallerLeft), wakers);
            }
        }
        let asides = self.sent.iter_mut().filter(|sent| sent.kind == Kind::Aside);
        asides.for_each(|sent| sent.is_over = sent.due(budget) <= now);
        let Some(oldest) = self.sent.iter().find(|sent| sent.kind == Kind::Call) else { return };
        let due = oldest.due(budget);
        if due > now {
            return;
        }
        // A ring that came late has measured the node: the server gets one more chance.
        if now - due > LATE_MAX && !oldest.is_prolonged {
            self.sent.iter_mut().for_each(|sent| (sent.at, sent.is_prolonged) = (now, true));
            return;
        }
        // Bytes that the runtime has not noticed yet: they are read in a moment.
        if (turn.has_input)() {
            return;
        }
        let was_away = std::mem::replace(&mut self.is_away, true);
        for number in 0..self.sent.len() {
            let sent = &mut self.sent[number];
            // What was sent to a server that was away already has a budget of its own.
            if sent.kind == Kind::Call && (!was_away || sent.due(budget) <= now) {
                tally.late += u32::from(!std::mem::replace(&mut sent.is_over, true));
                let slot = sent.slot.take();
                self.finish(slot, Outcome::Unknown(Trouble::Away), wakers);
            }
        }
        for slot in std::mem::take(&mut self.waiting) {
            self.finish(Some(slot), Outcome::NotSent(Trouble::Away), wakers);
        }
    }

    /// When something is due next, or before. An answer that is not there after half its budget, or all of it, is looked for
    /// just then: only so it is known how long it took at least.
    fn next_ring(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.iter().filter_map(|number| match &self.slots[*number] {
            Slot::Waiting { until, leave, .. } => Some(leave.map_or(*until, |leave| leave.min(*until))),
            _ => None,
        });
        let sent = self.sent.iter().filter(|sent| !sent.is_over).map(|sent| {
            let (half, whole) = (sent.due(self.budget / 2), sent.due(self.budget));
            let due = if half > now { half } else { whole };
            match sent.slot.map(|slot| &self.slots[slot]) {
                Some(Slot::Sent { leave: Some(leave), .. }) => due.min(*leave),
                _ => due,
            }
        });
        waiting.chain(sent).min().map(|due| due.max(now + RING_PAUSE))
    }

    /// Hands out what may be written now.
    fn fill(&mut self, turn: &mut Turn<'_>) {
        while let Some(number) = self.asides.pop_front() {
            self.send(number, Kind::Aside, turn);
        }
        while !self.waiting.is_empty() {
            if !self.is_away && !self.window.has_room(self.sent.len()) {
                self.window.is_full();
                break;
            }
            if let Some(number) = self.waiting.pop_front() {
                self.send(number, Kind::Call, turn);
            }
        }
    }

    fn send(&mut self, slot: usize, kind: Kind, turn: &mut Turn<'_>) {
        let (packed, since, leave, waker) = match std::mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Waiting { packed, since, leave, waker, .. } => (packed, since, leave, waker),
            // Its caller left.
            _ => return self.free(slot),
        };
        let waited = turn.now.saturating_duration_since(since);
        self.slots[slot] = Slot::Sent { leave, waited, waker };
        let begin = *turn.end;
        turn.out.extend_from_slice(&packed.bytes);
        *turn.end += packed.bytes.len() as u64;
        let (number, replies) = (self.next_number, packed.replies);
        self.next_number += 1;
        let (slot, at, end) = (Some(slot), turn.now, *turn.end);
        let sent =
            Sent { slot, kind, number, at, begin, end, replies, refusal: None, is_prolonged: false, is_over: false };
        let half = sent.due(self.budget / 2);
        self.ring_by(leave.map_or(half, |leave| leave.min(half)));
        self.sent.push_back(sent);
    }

    fn ring_by(&mut self, due: Instant) {
        self.ring = Some(self.ring.map_or(due, |ring| ring.min(due)));
    }
}

impl Sent {
    fn due(&self, budget: Duration) -> Instant {
        self.at + budget
    }
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
            Slot::Sent { .. } => {
                let slot = Some(self.slot);
                if let Some(sent) = state.sent.iter_mut().find(|sent| sent.slot == slot) {
                    sent.slot = None;
                }
                state.free(self.slot);
            }
            Slot::Left | Slot::Free | Slot::Done(_) => state.free(self.slot),
        }
        drop(state);
        drop(old);
    }
}
