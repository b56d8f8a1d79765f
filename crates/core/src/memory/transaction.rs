//! Several charges decided at one instant: all are taken, or none.

use arrayvec::ArrayVec;

use super::cell::Held;
use super::pool::PooledLog;
use super::table::{Gate, Table};
use super::{Ask, Fingerprint, MemoryStore, approximate};
use crate::algorithm::Words;
use crate::bounds::CHARGES_MAX;
use crate::decision::Answer;
use crate::limit::Shape;
use crate::{Decision, Key, Limit, Op, Retry, Time};

/// What is asked of a store for one limit.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Whom it counts.
    pub key: Key<'a>,
    /// The limit to charge.
    pub limit: &'a Limit,
    /// What to do.
    pub op: Op,
    /// Whether its denial stops the other charges too; a shadow charge's does not.
    pub veto: bool,
}

impl<'a> Charge<'a> {
    /// Takes `units`, and stops the whole if they do not fit.
    #[must_use]
    pub fn take(key: Key<'a>, limit: &'a Limit, units: u64) -> Charge<'a> {
        Charge { key, limit, op: Op::Take(units), veto: true }
    }

    /// The same charge, but its denial stops nothing.
    #[must_use]
    pub fn shadow(self) -> Charge<'a> {
        Charge { veto: false, ..self }
    }
}

/// The answers to several charges, in their order.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    each: ArrayVec<(Decision, bool), CHARGES_MAX>,
}

impl Decisions {
    /// Whether every charge that may veto was allowed, so that all that fit were taken.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.vetoing().all(Decision::is_allowed)
    }

    /// The answer to each charge: whether it alone would pass. If the whole was denied, nothing was taken for any of
    /// them, and none has a receipt.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.each.iter().map(|(decision, _)| decision)
    }

    /// The strictest answer among those that may veto. Nothing if no charge may veto.
    #[must_use]
    pub fn strictest(&self) -> Option<&Decision> {
        self.vetoing().min_by_key(|decision| decision.strictness())
    }

    /// When to ask again: the longest of the denials. Nothing if it is allowed.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        Retry::longest(self.vetoing().filter_map(Decision::retry))
    }

    fn vetoing(&self) -> impl Iterator<Item = &Decision> {
        self.each.iter().filter(|(_, veto)| *veto).map(|(decision, _)| decision)
    }
}

/// Each answer with whether it may veto, for stores and the engine, which join answers of several calls. Those beyond
/// the most charges of a transaction are left out.
#[doc(hidden)]
impl FromIterator<(Decision, bool)> for Decisions {
    fn from_iter<I: IntoIterator<Item = (Decision, bool)>>(each: I) -> Decisions {
        Decisions { each: each.into_iter().take(CHARGES_MAX).collect() }
    }
}

/// Why charges were not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// More charges than one transaction takes.
    #[error("charges: {count} are too many for one request; use at most {CHARGES_MAX}")]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// Two limits would count in one state: they have the same algorithm, window length and key, but other numbers.
    #[error("charges[{charge}]: another {algorithm} limit counts on the same key; give each its own, like a prefix")]
    SharedState {
        /// The number of the later charge, from 0.
        charge: usize,
        /// The algorithm they share.
        algorithm: &'static str,
    },
}

impl MemoryStore {
    /// Decides several charges at one instant; takes all that fit if no vetoing charge is denied, else none.
    ///
    /// Charges to the same key and limit are composed in order, and the retry of a denial says when they all fit
    /// together. A refund or reset of a log, or of a key without a place of its own, does not make room for a later
    /// charge of the same call.
    ///
    /// # Errors
    /// If there are more than 16 charges, or two limits of one algorithm and window length but other numbers count on
    /// one key: they would share a state and undo each other's debts.
    pub fn charge(&self, charges: &[Charge<'_>]) -> Result<Decisions, ChargeError> {
        if charges.len() > CHARGES_MAX {
            return Err(ChargeError::TooMany { count: charges.len() });
        }
        if let [charge] = charges {
            let decision = self.decide(charge.key, charge.limit, charge.op);
            return Ok(Decisions { each: ArrayVec::from_iter([(decision, charge.veto)]) });
        }
        let prints: ArrayVec<Fingerprint, CHARGES_MAX> =
            charges.iter().map(|charge| self.seeds.fingerprint(charge.limit.identity(), charge.key)).collect();
        if let Some(number) = shares_state(charges, &prints) {
            let algorithm = charges[number].limit.algorithm().name();
            return Err(ChargeError::SharedState { charge: number, algorithm });
        }
        let _gates = self.gates(charges, &prints);
        let now = self.clock.now();
        let mut places: ArrayVec<Place<'_>, CHARGES_MAX> = ArrayVec::new();
        let mut place_of: ArrayVec<usize, CHARGES_MAX> = ArrayVec::new();
        for (charge, print) in charges.iter().zip(&prints) {
            let number = places.iter().position(|place| place.print == *print).unwrap_or_else(|| {
                places.push(self.place(charge, *print, now));
                places.len() - 1
            });
            place_of.push(number);
        }
        let foreseen: ArrayVec<Decision, CHARGES_MAX> =
            charges.iter().zip(&place_of).map(|(charge, number)| places[*number].foresee(self, charge)).collect();
        let allowed = charges.iter().zip(&foreseen).all(|(charge, decision)| decision.is_allowed() || !charge.veto);
        let settle = |(charge, (decision, number)): (&Charge<'_>, (Decision, usize))| {
            let place = &mut places[number];
            let settled =
                if allowed { place.take(self, charge, decision) } else { place.refuse(self, charge, decision) };
            (settled, charge.veto)
        };
        let each = charges.iter().zip(foreseen.into_iter().zip(place_of)).map(settle).collect();
        for place in places {
            place.release(self, allowed);
        }
        Ok(Decisions { each })
    }

    /// Locks the home buckets of all charges, in ascending order of tables and homes, so that no two transactions wait
    /// for each other.
    fn gates(&self, charges: &[Charge<'_>], prints: &[Fingerprint]) -> ArrayVec<Gate<'_>, CHARGES_MAX> {
        let mut homes: ArrayVec<(u8, usize), CHARGES_MAX> = charges
            .iter()
            .zip(prints)
            .map(|(charge, print)| match charge.limit.shape() {
                Shape::Bucket(_) => (0, self.buckets.home(*print)),
                Shape::Window(_) => (1, self.windows.home(*print)),
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

    /// Takes the place of a charge's key.
    fn place(&self, charge: &Charge<'_>, print: Fingerprint, now: Time) -> Place<'_> {
        let ask = Ask { limit: charge.limit, print, now, op: charge.op };
        let kept = match charge.limit.shape() {
            Shape::Bucket(bucket) => self.taken(&self.buckets, bucket, ask).map(Kept::Bucket),
            Shape::Window(window) => self.taken(&self.windows, &window.for_key(charge.key), ask).map(Kept::Window),
            Shape::Counter(counter) => self.taken(&self.counters, counter, ask).map(Kept::Counter),
            Shape::Log(log) => {
                let log = self.pooled(log, now);
                self.taken(&self.logs, &log, ask).map(|taken| Kept::Log(taken, 0))
            }
        };
        let overflow = |now| {
            let arrival = self.overflow.part(charge.limit).arrival(print);
            Kept::Overflow { now, arrival, scratch: [arrival] }
        };
        Place { print, limit: *charge.limit, kept: kept.unwrap_or_else(overflow), asked: 0, denied: false }
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

/// One key's place, held for the length of a transaction.
struct Place<'a> {
    print: Fingerprint,
    limit: Limit,
    kept: Kept<'a>,
    /// Units that charges before want of it, and whether one of them was denied.
    asked: u64,
    denied: bool,
}

enum Kept<'a> {
    Bucket(Taken<'a, 1>),
    Window(Taken<'a, 2>),
    Counter(Taken<'a, 3>),
    /// A log is too large to try a charge on a copy: units that would be in it are only counted.
    Log(Taken<'a, 3>, u64),
    Overflow {
        now: Time,
        arrival: u64,
        scratch: [u64; 1],
    },
}

struct Taken<'a, const WORDS: usize> {
    held: Held<'a, WORDS>,
    now: Time,
    /// The state as it would be with all charges so far.
    scratch: [u64; WORDS],
}

impl Place<'_> {
    /// What the charge would be answered, after those before it.
    fn foresee(&mut self, store: &MemoryStore, charge: &Charge<'_>) -> Decision {
        let decision = self.try_on_copy(store, charge);
        let (Op::Take(units @ 1..) | Op::Debit(units @ 1..)) = charge.op else { return decision };
        let whole = self.asked.saturating_add(units);
        let is_debit = matches!(charge.op, Op::Debit(_));
        let fits = is_debit || decision.is_allowed() && !self.denied;
        if fits || charge.veto {
            self.asked = whole;
            self.denied |= !fits;
        }
        if fits {
            return decision;
        }
        // Those before it would be asked for again too: what counts is when all fit.
        let together = self.untouched(store, charge, Op::Take(whole)).answer;
        let answer = if whole == units || together == Answer::Allow { decision.answer } else { together };
        Decision { answer, ..decision }
    }

    fn try_on_copy(&mut self, store: &MemoryStore, charge: &Charge<'_>) -> Decision {
        match (&mut self.kept, charge.limit.shape()) {
            (Kept::Bucket(taken), Shape::Bucket(bucket)) => taken.try_on_copy(bucket, charge.op),
            (Kept::Window(taken), Shape::Window(window)) => taken.try_on_copy(&window.for_key(charge.key), charge.op),
            (Kept::Counter(taken), Shape::Counter(counter)) => taken.try_on_copy(counter, charge.op),
            (Kept::Log(taken, pending), Shape::Log(log)) => {
                let chain = PooledLog { log, pool: &store.pool }.chain(taken.held.state());
                let decision = log.foresee(&chain, taken.now, charge.op, *pending);
                if let Op::Take(units) | Op::Debit(units) = charge.op
                    && decision.is_allowed()
                {
                    *pending = pending.saturating_add(units).min(2 * log.limit).max(*pending);
                }
                decision
            }
            (Kept::Overflow { now, scratch, .. }, _) => {
                // The sketch takes nothing back, so nothing may fit because of that.
                let op = if charge.op.may_shrink() { Op::Peek } else { charge.op };
                approximate(charge.limit, op, charge.limit.as_bucket().decide(scratch, *now, op))
            }
            _ => mismatched(charge),
        }
    }

    /// What `op` would be answered alone.
    fn untouched(&self, store: &MemoryStore, charge: &Charge<'_>, op: Op) -> Decision {
        match (&self.kept, charge.limit.shape()) {
            (Kept::Bucket(taken), Shape::Bucket(bucket)) => taken.untouched(bucket, op),
            (Kept::Window(taken), Shape::Window(window)) => taken.untouched(&window.for_key(charge.key), op),
            (Kept::Counter(taken), Shape::Counter(counter)) => taken.untouched(counter, op),
            (Kept::Log(taken, _), Shape::Log(log)) => {
                log.foresee(&PooledLog { log, pool: &store.pool }.chain(taken.held.state()), taken.now, op, 0)
            }
            (Kept::Overflow { now, arrival, .. }, _) => {
                approximate(charge.limit, op, charge.limit.as_bucket().decide(&mut [*arrival], *now, op))
            }
            _ => mismatched(charge),
        }
    }

    /// Takes a charge for good. Only logs were not changed yet.
    fn take(&mut self, store: &MemoryStore, charge: &Charge<'_>, foreseen: Decision) -> Decision {
        match (&mut self.kept, charge.limit.shape()) {
            (Kept::Log(taken, _), Shape::Log(log)) => {
                let pooled = PooledLog { log, pool: &store.pool };
                if foreseen.is_allowed() {
                    return pooled.decide(taken.held.state_mut(), taken.now, charge.op);
                }
                // What did not fit is not taken either if a refund or reset of the call made room: a charge after it
                // may have been promised that room.
                let looked = log.foresee(&pooled.chain(taken.held.state()), taken.now, Op::Peek, 0);
                Decision { answer: foreseen.answer, ..looked }
            }
            _ => foreseen,
        }
    }

    /// The answer to a charge that was not taken: its verdict, and the numbers of the untouched state.
    fn refuse(&self, store: &MemoryStore, charge: &Charge<'_>, foreseen: Decision) -> Decision {
        let answer = if foreseen.is_allowed() { Answer::AllowAlone } else { foreseen.answer };
        Decision { answer, ..self.untouched(store, charge, Op::Peek) }
    }

    fn release(self, store: &MemoryStore, allowed: bool) {
        match self.kept {
            Kept::Bucket(taken) => taken.release(allowed),
            Kept::Window(taken) => taken.release(allowed),
            Kept::Counter(taken) => taken.release(allowed),
            Kept::Log(mut taken, _) => store.pool.settle(taken.held.state_mut()),
            Kept::Overflow { now, arrival, scratch: [raised] } => {
                if allowed && raised > arrival {
                    store.overflow.part(&self.limit).raise(self.print, raised, now);
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
