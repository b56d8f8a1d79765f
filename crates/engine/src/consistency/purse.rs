//! This node's share of one key's budget: leased units, and the store's decision when it granted none.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::{Decision, Limit, Op, Receipt, Retry, Time};
use tidegate_stores::{Leased, StoreError};
use tokio::sync::watch;

use super::slice::{Ask, Known, Pace, Terms};
use super::{nanos, since};
use crate::bounds::DENIAL_KNOWN_MAX;

/// Leases held at a time: what is left of the one before can be less than the next request asks for.
const HELD_MAX: usize = 2;

/// A call for a lease, and what became of it.
pub(super) type Flight = watch::Receiver<Option<Result<(), StoreError>>>;

/// What to do for a request.
#[derive(Debug)]
pub(super) enum Step {
    /// It is decided here.
    Answer(Decision),
    /// Somebody is asking the store.
    Wait(Flight),
    /// The store is to be asked for a lease.
    Lease(Ask),
    /// The store is to be asked for this request alone.
    Alone,
    /// It is too large for leases.
    TooLarge,
}

/// Units that were leased and are to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remainder {
    pub(super) limit: Limit,
    pub(super) units: u64,
    pub(super) receipt: Receipt,
}

pub(super) type Remainders = ArrayVec<Remainder, HELD_MAX>;

/// What this node knows of one key. There is one for each of many keys, most of which are rarely asked for: what they mostly
/// lack is boxed.
#[derive(Debug)]
pub(super) struct Purse {
    limit: Limit,
    terms: Terms,
    pace: Pace,
    /// The oldest first.
    held: ArrayVec<Box<Held>, HELD_MAX>,
    denied: Option<Box<Denied>>,
    flight: Option<Flight>,
    /// The numbers that the call under way was made with, if there are others now.
    flight_under: Option<Box<(Limit, Terms)>>,
    /// Units that requests wait for.
    waiting: u64,
    /// Until when the bucket has a debt at least.
    debt_until: Time,
    /// Whether at least half of the limit was left in the store.
    free: bool,
    used: Time,
    /// When it is looked after next.
    pub(super) due: Option<Time>,
}

#[derive(Debug)]
struct Held {
    left: u64,
    units: u64,
    sent: Time,
    ends: Time,
    /// When giving back is in vain: the window is over, or the units have come back.
    void: Time,
    free: bool,
    /// The answer of the store to the lease.
    decision: Decision,
}

#[derive(Debug)]
struct Denied {
    /// What did not fit.
    units: u64,
    learned: Time,
    until: Time,
    decision: Decision,
}

impl Purse {
    pub(super) fn new(limit: Limit, terms: Terms, now: Time) -> Purse {
        Purse {
            limit,
            terms,
            pace: Pace::default(),
            held: ArrayVec::new(),
            denied: None,
            flight: None,
            flight_under: None,
            waiting: 0,
            debt_until: now,
            free: true,
            used: now,
            due: None,
        }
    }

    /// Takes over other numbers of the limit. What was leased under the old ones goes back, as the least that its units
    /// are worth under either.
    pub(super) fn adopt(&mut self, limit: &Limit, terms: Terms) -> Remainders {
        if self.limit == *limit {
            return Remainders::new();
        }
        let old = std::mem::replace(&mut self.limit, *limit);
        let old_terms = std::mem::replace(&mut self.terms, terms);
        self.denied = None;
        if self.flight.is_some() {
            let under = (old, old_terms);
            let under = self.flight_under.take().map_or(under, |first| Terms::to_return(*first, under));
            self.flight_under = Some(Box::new(under));
        }
        let (under, terms) = Terms::to_return((old, old_terms), (self.limit, self.terms));
        self.held.drain(..).filter_map(|held| held.remainder(under, &terms)).collect()
    }

    /// Takes units that are held; else says what to do.
    pub(super) fn take(&mut self, now: Time, units: u64) -> Step {
        self.used = now;
        if let Some(decision) = self.spend(now, units) {
            return Step::Answer(decision);
        }
        if let Some(decision) = self.known_denial(now, units) {
            return Step::Answer(decision);
        }
        if units > self.terms.most {
            return Step::TooLarge;
        }
        if let Some(flight) = &self.flight {
            self.waiting = self.waiting.saturating_add(units);
            return Step::Wait(flight.clone());
        }
        let waiting = std::mem::take(&mut self.waiting).max(units);
        let known = Known { debt: nanos(since(now, self.debt_until)), free: self.free };
        let ask = self.pace.ask(&self.terms, now, units, waiting, known);
        // For a single request a lease is no better than asking, and takes some of the burst away.
        if ask.sizes.first() == Some(&units) { Step::Alone } else { Step::Lease(ask) }
    }

    /// Whether so many units would pass, if that is known here.
    pub(super) fn ask(&self, now: Time, units: u64) -> Option<Decision> {
        let left = self.left(now);
        if left >= units {
            let newest = self.live(now).last()?;
            return Some(newest.decision.withdrawn().with_remaining(left + newest.decision.remaining()));
        }
        self.known_denial(now, units)
    }

    /// Units that can be spent without asking.
    pub(super) fn left(&self, now: Time) -> u64 {
        self.live(now).map(|held| held.left).sum()
    }

    fn live(&self, now: Time) -> impl Iterator<Item = &Held> {
        self.held.iter().map(|held| &**held).filter(move |held| now < held.ends)
    }

    /// Spends units, of the oldest lease first. The receipt is that of the first of them: given back, all of them end as
    /// early as those do.
    fn spend(&mut self, now: Time, units: u64) -> Option<Decision> {
        let left = self.left(now).checked_sub(units)?;
        let store_left = self.live(now).last().map_or(0, |held| held.decision.remaining());
        let mut missing = units;
        let mut first: Option<Decision> = None;
        for held in self.held.iter_mut().filter(|held| now < held.ends && held.left > 0) {
            let spent = missing.min(held.left);
            if spent > 0 {
                held.left -= spent;
                missing -= spent;
                first = first.or(Some(held.decision.with_reset_nearer(since(held.sent, now))));
            }
        }
        self.pace.spend(units);
        Some(first?.with_remaining(left.saturating_add(store_left)))
    }

    fn known_denial(&self, now: Time, units: u64) -> Option<Decision> {
        let denied = self.denied.as_ref()?;
        // Less than the least slice is not asked for.
        if now >= denied.until || units.max(self.terms.least) < denied.units {
            return None;
        }
        let told = denied.decision.aged(since(denied.learned, now))?;
        Some(told.with_remaining(self.left(now).saturating_add(told.remaining()).min(units.saturating_sub(1))))
    }

    /// Puts units back that a request took and did not need. False if their lease is gone.
    pub(super) fn give_back(&mut self, now: Time, units: u64, receipt: Receipt) -> bool {
        let its = |held: &&mut Box<Held>| now < held.ends && held.decision.receipt() == Some(receipt);
        let Some(held) = self.held.iter_mut().find(its) else { return false };
        held.left = held.left.saturating_add(units).min(held.units);
        self.pace.give_back(units);
        true
    }

    pub(super) fn fly(&mut self, flight: Flight) {
        self.flight = Some(flight);
        self.flight_under = None;
    }

    /// A call has ended.
    pub(super) fn land(&mut self) {
        self.flight = None;
    }

    /// Nobody will tell what became of this call.
    pub(super) fn lose(&mut self, flight: &Flight) {
        self.flight.take_if(|own| own.same_channel(flight));
    }

    /// The call failed: those who waited have gone, and that nobody spent says nothing of the pace.
    pub(super) fn fail(&mut self) {
        self.waiting = 0;
        self.pace = Pace::default();
    }

    /// Takes in what the store said to a lease that was sent then. What must make room goes back, and all of it if the
    /// numbers of the limit have changed meanwhile.
    pub(super) fn receive(&mut self, ask: &Ask, leased: &Leased, sent: Time, learned: Time) -> Remainders {
        if let Some(under) = self.flight_under.take() {
            self.waiting = 0;
            let (limit, terms) = Terms::to_return(*under, (self.limit, self.terms));
            let receipt = leased.decision.receipt().map(|receipt| terms.receipt(&limit, receipt));
            return receipt.map(|receipt| Remainder { limit, units: leased.units, receipt }).into_iter().collect();
        }
        self.learn(&leased.decision, sent);
        // Those who waited take their share now.
        self.waiting = if leased.units > 0 { self.waiting.saturating_sub(leased.units) } else { 0 };
        let Some(least) = ask.sizes.last() else { return Remainders::new() };
        if leased.units == 0 {
            self.deny(*least, &leased.decision, sent, learned);
            return Remainders::new();
        }
        self.denied = None;
        let mut gone = self.drop_ended(learned);
        if self.held.is_full() {
            gone.extend(self.held.pop_at(0).and_then(|held| held.remainder(self.limit, &self.terms)));
        }
        // A thousandth less: clocks do not run alike.
        let length = ask.length - ask.length / 1024;
        let reset = sent.plus(leased.decision.reset_after());
        let (end_of_window, void) = match self.is_bucket() {
            // Later leases may stand on the debt of this one.
            true => (Time::MAX, Time::from_nanos(reset.as_nanos().saturating_sub(self.terms.longest))),
            false => (reset, reset),
        };
        self.held.push(Box::new(Held {
            left: leased.units,
            units: leased.units,
            sent,
            ends: sent.plus(length).min(end_of_window),
            void,
            free: self.free,
            decision: leased.decision,
        }));
        gone
    }

    /// Takes in what the store said to a request that was asked for alone.
    pub(super) fn receive_alone(&mut self, units: u64, decision: &Decision, sent: Time, learned: Time) {
        if self.flight_under.take().is_some() {
            return;
        }
        self.learn(decision, sent);
        match decision.is_allowed() {
            true => self.pace.spend(units),
            false => self.deny(units, decision, sent, learned),
        }
    }

    fn deny(&mut self, units: u64, decision: &Decision, sent: Time, learned: Time) {
        let until = learned.plus(DENIAL_KNOWN_MAX);
        let until = match decision.retry() {
            Some(Retry::After(wait)) => until.min(sent.plus(wait)),
            Some(Retry::Never) => until,
            Some(Retry::Unknown(_)) | None => return,
        };
        self.denied = Some(Box::new(Denied { units, learned, until, decision: *decision }));
    }

    fn learn(&mut self, decision: &Decision, sent: Time) {
        self.free = decision.remaining() >= decision.limit() / 2;
        if self.is_bucket() {
            self.debt_until = sent.plus(decision.reset_after());
        }
    }

    fn is_bucket(&self) -> bool {
        self.limit.algorithm().is_bucket()
    }

    /// Forgets that it is denied: somebody gave something back.
    pub(super) fn forget_denial(&mut self) {
        self.denied = None;
    }

    /// Forgets all that is held: the state that it was taken from is no more.
    pub(super) fn forget(&mut self) {
        self.denied = None;
        self.held.clear();
    }

    /// What is not spent, all of it.
    pub(super) fn empty(&mut self, now: Time) -> Remainders {
        let (limit, terms) = (self.limit, self.terms);
        self.held.drain(..).filter(|held| now < held.void).filter_map(|held| held.remainder(limit, &terms)).collect()
    }

    /// Takes out leases that have ended, and those that nobody spends of. Tells what is worth giving back, and when to look
    /// again; never if nobody has asked for long.
    pub(super) fn look_after(&mut self, now: Time) -> (Remainders, Option<Time>) {
        let mut gone = self.drop_ended(now);
        let (used, terms, limit) = (self.used, self.terms, self.limit);
        self.held.retain(|held| {
            let quiet = now >= held.half() && since(used, now) * 4 >= since(held.sent, held.ends);
            let back = quiet && held.is_worth(&terms, now);
            if back {
                gone.extend(held.remainder(limit, &terms));
            }
            !back
        });
        let next = self.held.iter().map(|held| if now < held.half() { held.half() } else { held.ends }).min();
        let idle = Duration::from_nanos(2 * self.terms.longest);
        let kept = self.flight.is_some() || since(self.used, now) < idle;
        let next = next.or_else(|| kept.then(|| self.used.plus(idle).max(now.plus(idle / 8))));
        (gone, next)
    }

    fn drop_ended(&mut self, now: Time) -> Remainders {
        let (terms, limit) = (self.terms, self.limit);
        let mut gone = Remainders::new();
        self.held.retain(|held| {
            if now >= held.ends && held.is_worth(&terms, now) {
                gone.extend(held.remainder(limit, &terms));
            }
            now < held.ends
        });
        gone
    }

    /// Whether nothing is lost without it.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.flight.is_none() && self.left(now) == 0
    }
}

impl Held {
    fn half(&self) -> Time {
        self.sent.plus(since(self.sent, self.ends) / 2)
    }

    fn is_worth(&self, terms: &Terms, now: Time) -> bool {
        now < self.void && terms.worth_returning(self.left, self.free)
    }

    fn remainder(&self, limit: Limit, terms: &Terms) -> Option<Remainder> {
        let receipt = terms.receipt(&limit, self.decision.receipt()?);
        (self.left > 0).then_some(Remainder { limit, units: self.left, receipt })
    }
}

impl Remainder {
    pub(super) fn op(&self) -> Op {
        Op::Refund(self.units, Some(self.receipt))
    }
}
