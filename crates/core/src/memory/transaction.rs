//! Several charges on states in memory, which are held meanwhile.

use arrayvec::ArrayVec;

use super::cell::Held;
use super::pool::PooledLog;
use super::table::{Gate, Table};
use super::{Ask, Fingerprint, MemoryStore, approximate, crowded};
use crate::algorithm::Words;
use crate::bounds::CHARGES_MAX;
use crate::decision::Answer;
use crate::limit::Shape;
use crate::transaction::{Place, PlaceOf, Trial, transact};
use crate::{Charge, ChargeError, Decision, Decisions, Limit, Namespace, Op, Time};

impl MemoryStore {
    /// Decides several charges at one instant; takes all that fit if no charge with a veto is denied, else none.
    ///
    /// Charges to the same key and limit are composed in order, and the retry of a denial states when they all fit
    /// together. A refund or reset of a log, or of a key without a slot of its own, makes no room for a later charge of
    /// the same call.
    ///
    /// # Errors
    /// Fails if there are more than 16 charges, or two limits of one algorithm and window length but different numbers
    /// count on one key: they would share a state and undo each other's debts.
    pub fn charge(&self, charges: &[Charge<'_>]) -> Result<Decisions, ChargeError> {
        if charges.len() > CHARGES_MAX {
            return Err(ChargeError::TooMany { count: charges.len() });
        }
        if let [charge] = charges {
            let decision = self.decide_in(charge.namespace, charge.key, charge.limit, charge.op);
            return Ok([(decision, charge.veto)].into_iter().collect());
        }
        let prints: ArrayVec<Fingerprint, CHARGES_MAX> = charges.iter().map(|charge| self.print(charge)).collect();
        if let Some(number) = shares_state(charges, &prints) {
            return Err(ChargeError::shared_state(number, &charges[number]));
        }
        let _gates = self.gates(charges, &prints);
        let now = self.clock.now();
        let mut places: ArrayVec<Place<Kept<'_>>, CHARGES_MAX> = ArrayVec::new();
        let mut place_of = PlaceOf::new();
        for (charge, print) in charges.iter().zip(&prints) {
            let number = places.iter().position(|place| place.trial.print == *print).unwrap_or_else(|| {
                places.push(Place::new(self.keep(charge, *print, now)));
                places.len() - 1
            });
            place_of.push(number);
        }
        let (decisions, allowed) = transact(charges, &mut places, &place_of);
        for place in places {
            place.trial.release(allowed);
        }
        Ok(decisions)
    }

    fn print(&self, charge: &Charge<'_>) -> Fingerprint {
        self.seeds.fingerprint(charge.namespace, charge.limit, charge.key)
    }

    /// Locks the home buckets of all charges, in ascending order of tables and homes, so that no two transactions wait
    /// for each other.
    fn gates(&self, charges: &[Charge<'_>], prints: &[Fingerprint]) -> ArrayVec<Gate<'_>, CHARGES_MAX> {
        let mut homes: ArrayVec<(u8, usize), CHARGES_MAX> = charges
            .iter()
            .zip(prints)
            .map(|(charge, print)| match charge.limit.shape() {
                Shape::Bucket(_) => (0, self.buckets.home(*print)),
                Shape::Window(_) | Shape::Calendar(_) => (1, self.windows.home(*print)),
                Shape::Counter(_) => (2, self.counters.home(*print)),
                Shape::Log(_) => (3, self.logs.home(*print)),
            })
            .collect();
        homes.sort_unstable();
        let mut last = None;
        homes.retain(|home| last.replace(*home) != Some(*home));
        homes
            .iter()
            .map(|(table, home)| match table {
                0 => self.buckets.gate(*home),
                1 => self.windows.gate(*home),
                2 => self.counters.gate(*home),
                _ => self.logs.gate(*home),
            })
            .collect()
    }

    /// Holds the state of a charge's key.
    fn keep<'a>(&'a self, charge: &Charge<'a>, print: Fingerprint, now: Time) -> Kept<'a> {
        let ask = Ask { namespace: charge.namespace, limit: charge.limit, print, now, op: charge.op };
        let state = match charge.limit.shape() {
            Shape::Bucket(bucket) => self.taken(&self.buckets, bucket, ask).map(Trying::Bucket),
            Shape::Window(window) => {
                self.taken(&self.windows, &window.for_key(charge.namespace, charge.key), ask).map(Trying::Window)
            }
            Shape::Calendar(window) => self.taken(&self.windows, window, ask).map(Trying::Window),
            Shape::Counter(counter) => self.taken(&self.counters, counter, ask).map(Trying::Counter),
            Shape::Log(log) => {
                let log = self.pooled(log, now);
                self.taken(&self.logs, &log, ask).map(|taken| Trying::Log(taken, 0))
            }
        };
        let overflow = |now| {
            let part = self.overflow.part(charge.namespace, charge.limit);
            let (arrival, crowded_for) = (part.arrival(print), part.crowded_for(print, now));
            Trying::Overflow { now, arrival, crowded_for, scratch: [arrival] }
        };
        let state = state.unwrap_or_else(overflow);
        Kept { store: self, namespace: charge.namespace, print, limit: *charge.limit, state }
    }

    /// The place of a key in its table, or the instant to decide at in the sketch.
    fn taken<'a, const WORDS: usize>(
        &'a self,
        table: &'a Table<WORDS>,
        algorithm: &impl Words<WORDS>,
        ask: Ask<'_>,
    ) -> Result<Taken<'a, WORDS>, Time> {
        let kept = table.lock(ask.print).filter(|held| algorithm.is_ready(&held.state()));
        let Some(mut held) = kept else {
            let (held, now) = self.start(table, algorithm, ask)?;
            return Ok(Taken { scratch: held.state(), held, now });
        };
        let now = self.clock.again_if(algorithm.is_ahead(&held.state(), ask.now), ask.now);
        if algorithm.is_ahead(&held.state(), now) {
            // The clock did jump back. That is repaired whether the charges pass or not.
            algorithm.decide(held.state_mut(), now, Op::Debit(0));
        }
        Ok(Taken { scratch: held.state(), held, now })
    }
}

/// The first charge that would count in the state of an earlier one, under other numbers.
fn shares_state(charges: &[Charge<'_>], prints: &[Fingerprint]) -> Option<usize> {
    (1..charges.len()).find(|later| {
        let differs =
            |earlier: usize| prints[earlier] == prints[*later] && charges[earlier].limit != charges[*later].limit;
        (0..*later).any(differs)
    })
}

/// The state of one key, held for the length of a transaction.
struct Kept<'a> {
    store: &'a MemoryStore,
    namespace: &'a Namespace,
    print: Fingerprint,
    limit: Limit,
    state: Trying<'a>,
}

enum Trying<'a> {
    Bucket(Taken<'a, 1>),
    Window(Taken<'a, 2>),
    Counter(Taken<'a, 3>),
    /// A log is too large to try a charge on a copy: units that would be in it are only counted.
    Log(Taken<'a, 3>, u64),
    Overflow {
        now: Time,
        arrival: u64,
        /// How long there is no room for the key, if there is none.
        crowded_for: Option<u64>,
        scratch: [u64; 1],
    },
}

struct Taken<'a, const WORDS: usize> {
    held: Held<'a, WORDS>,
    now: Time,
    /// The state as it would be with all charges so far.
    scratch: [u64; WORDS],
}

impl Trial for Kept<'_> {
    fn try_next(&mut self, _number: usize, charge: &Charge<'_>) -> Decision {
        match (&mut self.state, charge.limit.shape()) {
            (Trying::Bucket(taken), Shape::Bucket(bucket)) => taken.try_on_copy(bucket, charge.op),
            (Trying::Window(taken), Shape::Window(window)) => {
                taken.try_on_copy(&window.for_key(charge.namespace, charge.key), charge.op)
            }
            (Trying::Window(taken), Shape::Calendar(window)) => taken.try_on_copy(window, charge.op),
            (Trying::Counter(taken), Shape::Counter(counter)) => taken.try_on_copy(counter, charge.op),
            (Trying::Log(taken, pending), Shape::Log(log)) => {
                let chain = PooledLog { log, pool: &self.store.pool }.chain(taken.held.state());
                let decision = log.foresee(&chain, taken.now, charge.op, *pending);
                if let Op::Take(units) | Op::Debit(units) = charge.op
                    && decision.is_allowed()
                {
                    *pending = pending.saturating_add(units).min(2 * log.limit).max(*pending);
                }
                decision
            }
            (Trying::Overflow { crowded_for: Some(nanos), .. }, _) if matches!(charge.op, Op::Take(1..)) => {
                crowded(charge.limit, *nanos)
            }
            (Trying::Overflow { now, scratch, .. }, _) => {
                // The sketch takes nothing back, so nothing may fit because of that.
                let op = if charge.op.may_shrink() { Op::Peek } else { charge.op };
                approximate(charge.limit, op, charge.limit.as_bucket().decide(scratch, *now, op))
            }
            _ => mismatched(charge),
        }
    }

    fn untouched(&self, _number: usize, charge: &Charge<'_>, op: Op) -> Decision {
        match (&self.state, charge.limit.shape()) {
            (Trying::Bucket(taken), Shape::Bucket(bucket)) => taken.untouched(bucket, op),
            (Trying::Window(taken), Shape::Window(window)) => {
                taken.untouched(&window.for_key(charge.namespace, charge.key), op)
            }
            (Trying::Window(taken), Shape::Calendar(window)) => taken.untouched(window, op),
            (Trying::Counter(taken), Shape::Counter(counter)) => taken.untouched(counter, op),
            (Trying::Log(taken, _), Shape::Log(log)) => {
                let chain = PooledLog { log, pool: &self.store.pool }.chain(taken.held.state());
                log.foresee(&chain, taken.now, op, 0)
            }
            (Trying::Overflow { now, arrival, .. }, _) => {
                approximate(charge.limit, op, charge.limit.as_bucket().decide(&mut [*arrival], *now, op))
            }
            _ => mismatched(charge),
        }
    }

    /// Only logs were not changed yet.
    fn take(&mut self, charge: &Charge<'_>, foreseen: Decision) -> Decision {
        let (Trying::Log(taken, _), Shape::Log(log)) = (&mut self.state, charge.limit.shape()) else { return foreseen };
        let pooled = PooledLog { log, pool: &self.store.pool };
        if foreseen.is_allowed() {
            return pooled.decide(taken.held.state_mut(), taken.now, charge.op);
        }
        // What did not fit is not taken either if a refund or reset of the call made room: a charge after it may have been
        // promised that room.
        let looked = log.foresee(&pooled.chain(taken.held.state()), taken.now, Op::Peek, 0);
        Decision { answer: foreseen.answer, ..looked }
    }
}

impl Kept<'_> {
    fn release(self, allowed: bool) {
        match self.state {
            Trying::Bucket(taken) => taken.release(allowed),
            Trying::Window(taken) => taken.release(allowed),
            Trying::Counter(taken) => taken.release(allowed),
            Trying::Log(mut taken, _) => self.store.pool.settle(taken.held.state_mut()),
            Trying::Overflow { now, arrival, scratch: [raised], .. } => {
                if allowed && raised > arrival {
                    self.store.overflow.part(self.namespace, &self.limit).raise(self.print, raised, now);
                }
            }
        }
    }
}

impl<const WORDS: usize> Taken<'_, WORDS> {
    fn try_on_copy(&mut self, algorithm: &impl Words<WORDS>, op: Op) -> Decision {
        algorithm.decide(&mut self.scratch, self.now, op)
    }

    fn untouched(&self, algorithm: &impl Words<WORDS>, op: Op) -> Decision {
        algorithm.decide(&mut self.held.state(), self.now, op)
    }

    fn release(self, allowed: bool) {
        if allowed {
            self.held.release(self.scratch);
        }
    }
}

/// The fingerprint covers the algorithm, so a place never meets a limit of another shape. If it did, this denies.
fn mismatched(charge: &Charge<'_>) -> Decision {
    Decision { answer: Answer::DenyAlways, limit: charge.limit.units(), ..Decision::BLANK }
}
