//! The calls of one connection: those that wait, those that are under way, and their time.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::bounds::{LATE_MAX, RING_PAUSE, WAITING_MAX};
use super::line::{Entry, Line};
use super::pipe::{Answer, Kind, Outcome, Patience, Tally, Trouble, Turn, is_not_ready};
use super::reply::Reply;
use super::window::{Pace, Window};

#[derive(Debug)]
pub(super) struct State {
    pub(super) budget: Duration,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<usize>,
    pub(super) waiting: Line,
    pub(super) asides: Line,
    pub(super) sent: VecDeque<Sent>,
    /// The number of the next call that is written.
    pub(super) next_number: u64,
    pub(super) window: Window,
    pub(super) pace: Pace,
    /// Whether calls were left in line when the window was full.
    pub(super) is_behind: bool,
    /// When the socket was last read to its end.
    pub(super) drained: Instant,
    /// When something is due, or before.
    pub(super) ring: Option<Instant>,
    /// The oldest call is over its budget: no call waits for a window behind it.
    pub(super) is_away: bool,
    /// No further calls come.
    pub(super) is_retired: bool,
    pub(super) over: Option<Trouble>,
    pub(super) driver: Option<Waker>,
    pub(super) driver_is_woken: bool,
}

/// The place of a call, from when it is made until its caller has the outcome.
#[derive(Debug)]
pub(super) enum Slot {
    Free,
    Waiting {
        since: Instant,
        until: Instant,
        leave: Option<Instant>,
        waker: Option<Waker>,
    },
    /// Its caller left; whoever has its number frees it.
    Left,
    Sent {
        /// The number of its command.
        number: u64,
        leave: Option<Instant>,
        waited: Duration,
        waker: Option<Waker>,
    },
    Done(Outcome),
}

/// A call that was given to the driver.
#[derive(Debug)]
pub(super) struct Sent {
    /// The places of its calls in their order; nothing for those whose callers have an outcome or left.
    pub(super) members: SmallVec<[Option<usize>; 1]>,
    pub(super) kind: Kind,
    /// The hash of its key, if it has one key alone.
    pub(super) key: Option<u64>,
    pub(super) number: u64,
    pub(super) at: Instant,
    /// Where its bytes begin and end among all that are written to this connection.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Replies that are still to come; the last one is the answer.
    pub(super) replies: u8,
    /// The server's refusal of what was to be done first.
    pub(super) refusal: Option<Reply>,
    /// Whether it was given another budget, because the node looked too late.
    pub(super) is_prolonged: bool,
    /// Whether its time is over, which the breaker counts once.
    pub(super) is_over: bool,
}

impl State {
    pub(super) fn new(budget: Duration) -> State {
        State {
            budget,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: Line::default(),
            asides: Line::default(),
            sent: VecDeque::new(),
            next_number: 0,
            window: Window::new(),
            pace: Pace::default(),
            is_behind: false,
            drained: Instant::now(),
            ring: None,
            is_away: false,
            is_retired: false,
            over: None,
            driver: None,
            driver_is_woken: false,
        }
    }

    /// Whether a call may wait: not if its turn would come too late, by the pace of the last answers.
    pub(super) fn admit(&mut self, kind: Kind, patience: &Patience, now: Instant) -> Result<(), Trouble> {
        if let Some(trouble) = &self.over {
            return Err(trouble.clone());
        }
        if kind == Kind::Aside {
            return Ok(());
        }
        if self.waiting.calls() + self.sent.len() >= WAITING_MAX {
            return Err(Trouble::QueueFull);
        }
        let is_held = !self.is_away && !self.window.has_room(self.sent.len() + self.waiting.commands());
        if is_held && now + self.pace.time_for(self.waiting.commands()) > patience.end() {
            return Err(Trouble::TurnTooLate);
        }
        Ok(())
    }

    pub(super) fn place(&mut self, slot: Slot) -> usize {
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

    pub(super) fn free(&mut self, number: usize) {
        self.slots[number] = Slot::Free;
        self.free.push(number);
    }

    pub(super) fn wake_driver(&mut self) {
        if !std::mem::replace(&mut self.driver_is_woken, true)
            && let Some(driver) = &self.driver
        {
            driver.wake_by_ref();
        }
    }

    /// Gives a caller its outcome, if it is still there.
    pub(super) fn finish(&mut self, number: usize, outcome: Outcome, wakers: &mut Vec<Waker>) {
        match std::mem::replace(&mut self.slots[number], Slot::Done(outcome)) {
            Slot::Waiting { waker, .. } | Slot::Sent { waker, .. } => wakers.extend(waker),
            Slot::Left | Slot::Free | Slot::Done(_) => self.free(number),
        }
    }

    /// Takes in one reply; false if nobody asked for it.
    pub(super) fn take_reply(&mut self, reply: Reply, tally: &mut Tally, wakers: &mut Vec<Waker>) -> bool {
        let Some(first) = self.sent.front_mut() else { return false };
        first.replies = first.replies.saturating_sub(1);
        if first.replies > 0 {
            if first.refusal.is_none() && matches!(reply, Reply::Error(_)) {
                first.refusal = Some(reply);
            }
            return true;
        }
        let Some(first) = self.sent.pop_front() else { return false };
        self.waiting.answered(first.key);
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
        // The last one gets the reply itself, and mostly it is the only one.
        let replies = std::iter::repeat_n(reply, first.members.len());
        for (place, (slot, reply)) in first.members.into_iter().zip(replies).enumerate() {
            let Some(slot) = slot else { continue };
            let waited = match &self.slots[slot] {
                Slot::Sent { waited, .. } => *waited,
                _ => Duration::ZERO,
            };
            self.finish(slot, Outcome::Answered(Answer { reply, place, took, waited }), wakers);
        }
        true
    }

    /// Ends what is due: calls whose turn did not come, those whose callers leave, and all of them if the oldest one is
    /// over its budget though all that is in the socket was read.
    pub(super) fn look_at_the_time(&mut self, turn: &mut Turn<'_>, tally: &mut Tally) {
        self.end_waiting(turn.now, turn.wakers);
        self.end_sent(turn, tally);
        self.ring = self.next_ring(turn.now);
    }

    fn end_waiting(&mut self, now: Instant, wakers: &mut Vec<Waker>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|number| {
            let trouble = match &self.slots[number] {
                Slot::Waiting { leave: Some(leave), .. } if *leave <= now => Trouble::CallerLeft,
                Slot::Waiting { until, .. } if *until <= now => Trouble::TurnTooLate,
                Slot::Waiting { .. } => return true,
                _ => Trouble::CallerLeft,
            };
            self.finish(number, Outcome::NotSent(trouble), wakers);
            false
        });
        self.waiting = waiting;
    }

    fn end_sent(&mut self, turn: &mut Turn<'_>, tally: &mut Tally) {
        let (budget, now) = (self.budget, turn.now);
        let wakers = &mut *turn.wakers;
        self.end_calls_of_those_who_leave(now, wakers);
        let asides = self.sent.iter_mut().filter(|sent| sent.kind == Kind::Aside);
        asides.for_each(|sent| sent.is_over = sent.due(budget) <= now);
        // Those whose time is over already say nothing about when this was looked at.
        let is_due = |sent: &&Sent| sent.kind == Kind::Call && !sent.is_over;
        let Some(oldest) = self.sent.iter().find(is_due) else { return };
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
                let members = std::mem::take(&mut sent.members);
                self.finish_all(members, &Outcome::Unknown(Trouble::Away), wakers);
            }
        }
        for slot in self.waiting.drain() {
            self.finish(slot, Outcome::NotSent(Trouble::Away), wakers);
        }
    }

    fn end_calls_of_those_who_leave(&mut self, now: Instant, wakers: &mut Vec<Waker>) {
        let State { sent, slots, .. } = self;
        let leaves = |slot: usize| matches!(slots[slot], Slot::Sent { leave: Some(leave), .. } if leave <= now);
        let places = sent.iter_mut().flat_map(|sent| &mut sent.members);
        let leaving: Vec<usize> = places.filter_map(|place| place.take_if(|slot| leaves(*slot))).collect();
        for slot in leaving {
            self.finish(slot, Outcome::Unknown(Trouble::CallerLeft), wakers);
        }
    }

    /// When something is due next, or before. An answer that is not there after half its budget, or all of it, is looked for
    /// just then: only so it is known how long it took at least.
    fn next_ring(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.places().filter_map(|number| match &self.slots[number] {
            Slot::Waiting { until, leave, .. } => Some(leave.map_or(*until, |leave| leave.min(*until))),
            _ => None,
        });
        let sent = self.sent.iter().filter(|sent| !sent.is_over).map(|sent| {
            let (half, whole) = (sent.due(self.budget / 2), sent.due(self.budget));
            let due = if half > now { half } else { whole };
            let leaves = sent.members.iter().flatten().filter_map(|slot| match &self.slots[*slot] {
                Slot::Sent { leave, .. } => leave.as_ref().copied(),
                _ => None,
            });
            leaves.min().map_or(due, |leave| leave.min(due))
        });
        waiting.chain(sent).min().map(|due| due.max(now + RING_PAUSE))
    }

    /// Hands out what may be written now.
    pub(super) fn fill(&mut self, turn: &mut Turn<'_>) {
        while let Some(entry) = self.asides.pop(false) {
            self.send(entry, Kind::Aside, turn);
        }
        self.is_behind = false;
        while self.waiting.commands() > 0 {
            if !self.is_away && !self.window.has_room(self.sent.len()) {
                self.window.is_full();
                self.is_behind = true;
                break;
            }
            // Answers of a server that is away may never come, so nothing is held for them.
            if let Some(entry) = self.waiting.pop(!self.is_away) {
                self.send(entry, Kind::Call, turn);
            }
        }
    }

    fn send(&mut self, entry: Entry, kind: Kind, turn: &mut Turn<'_>) {
        let Entry { packed, members, key } = entry;
        let mut soonest: Option<Instant> = None;
        let mut sent_members = SmallVec::new();
        for slot in members {
            let (since, leave, waker) = match std::mem::replace(&mut self.slots[slot], Slot::Free) {
                Slot::Waiting { since, leave, waker, .. } => (since, leave, waker),
                // Its caller left.
                _ => {
                    self.free(slot);
                    continue;
                }
            };
            let waited = turn.now.saturating_duration_since(since);
            self.slots[slot] = Slot::Sent { number: self.next_number, leave, waited, waker };
            soonest = soonest.into_iter().chain(leave).min();
            sent_members.push(Some(slot));
        }
        if sent_members.is_empty() {
            self.waiting.answered(key);
            return;
        }
        let begin = *turn.end;
        packed.write(sent_members.len(), turn.out, turn.end);
        let (number, replies) = (self.next_number, packed.replies);
        self.next_number += 1;
        let (members, at, end) = (sent_members, turn.now, *turn.end);
        let sent = Sent {
            members,
            kind,
            key,
            number,
            at,
            begin,
            end,
            replies,
            refusal: None,
            is_prolonged: false,
            is_over: false,
        };
        let half = sent.due(self.budget / 2);
        self.ring_by(soonest.map_or(half, |leave| leave.min(half)));
        self.sent.push_back(sent);
    }

    /// A caller left while its call is under way, as part of the command of this number.
    pub(super) fn leave(&mut self, slot: usize, number: u64) {
        // Commands are numbered one after the other.
        let first = self.sent.front().map_or(0, |sent| sent.number);
        let command = usize::try_from(number - first).ok().and_then(|at| self.sent.get_mut(at));
        let place = command.and_then(|sent| sent.members.iter_mut().find(|place| **place == Some(slot)));
        if let Some(place) = place {
            *place = None;
        }
        self.free(slot);
    }

    /// Gives all callers of a command this outcome.
    pub(super) fn finish_all(
        &mut self,
        members: impl IntoIterator<Item = Option<usize>>,
        outcome: &Outcome,
        wakers: &mut Vec<Waker>,
    ) {
        members.into_iter().flatten().for_each(|slot| self.finish(slot, outcome.clone(), wakers));
    }

    /// Sees to it that somebody looks at the time by then. Returns whether that is sooner than before.
    pub(super) fn ring_by(&mut self, due: Instant) -> bool {
        let is_sooner = self.ring.is_none_or(|ring| due < ring);
        if is_sooner {
            self.ring = Some(due);
        }
        is_sooner
    }
}

impl Sent {
    fn due(&self, budget: Duration) -> Instant {
        self.at + budget
    }
}
