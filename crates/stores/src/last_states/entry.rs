//! The last state of one key: what the store reported, and what was decided on it since.

use tidegate_core::{
    Charge, Decision, Key, Limit, LimitExt, Namespace, Op, Placement, Report, State, StateExt, Time, decide,
};

use crate::clock_offset::{ClockOffset, since};

use super::{LOG_SLICES, STALE_REPORT_MAX};

/// What is remembered of a key.
#[derive(Debug)]
pub(super) struct Entry {
    state: State,
    clock: ClockOffset,
    /// The store's instant of its last report.
    reported_at: Time,
    /// Into how many parts limit and state are divided. A report is of the whole.
    parts: u64,
    /// Whether something was decided here since the last report.
    pub(super) is_ahead: bool,
    /// How much of the limit was used, of 255: keys that are nearly free are forgotten first.
    pub(super) heat: u8,
    pub(super) owed: Option<Box<Owed>>,
}

/// Units that were admitted here and that the store does not know of.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) key: OwnedKey,
    units: u64,
    /// Those of a debit that is under way.
    pushing: u64,
    /// Whether the key is decided here until a debit is answered.
    pub(super) is_held: bool,
    /// Whether it is on the list of keys that owe.
    pub(super) is_listed: bool,
}

/// A key with all that a charge to it needs.
#[derive(Clone, Debug)]
pub(super) struct OwnedKey {
    namespace: Namespace,
    tag: Box<[u8]>,
    key: Box<[u8]>,
    pub(super) limit: Limit,
}

impl OwnedKey {
    fn of(charge: &Charge<'_>) -> OwnedKey {
        OwnedKey {
            namespace: charge.namespace.clone(),
            tag: charge.placement.tag.into(),
            key: charge.key.as_bytes().into(),
            limit: *charge.limit,
        }
    }

    /// A charge to the key that stops nothing.
    pub(super) fn charge(&self, op: Op) -> Charge<'_> {
        let key = Key::new(&*self.key).unwrap_or(Key::ALL);
        let placement = Placement { tag: &self.tag, ..Placement::default() };
        Charge::new(key, &self.limit, op).within(&self.namespace).placed(placement).shadow()
    }
}

impl Entry {
    /// An entry of a key that nothing is known of.
    pub(super) fn unknown(limit: &Limit, clock: ClockOffset) -> Entry {
        let (state, reported_at) = (State::fresh(limit), Time::default());
        Entry { state, clock, reported_at, parts: 1, is_ahead: false, heat: 0, owed: None }
    }

    /// An entry that goes on from a state whose clock is known.
    pub(super) fn copied(state: State, clock: ClockOffset) -> Entry {
        Entry { state, clock, reported_at: Time::default(), parts: 1, is_ahead: false, heat: u8::MAX, owed: None }
    }

    pub(super) fn new(report: &Report, sent: Time, learned: Time, decision: &Decision) -> Entry {
        let clock = ClockOffset::new(report.at, sent, learned);
        let mut entry = Entry::copied(report.state.clone(), clock);
        (entry.reported_at, entry.heat) = (report.at, heat(decision));
        entry
    }

    /// Whether nothing is lost without it at `now`, an instant of this process.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.owed.is_none() && self.state.is_fresh(self.clock.at(now))
    }

    /// Goes on from what the store reports. Units that it does not know of are counted again.
    pub(super) fn learn(
        &mut self,
        charge: &Charge<'_>,
        report: &Report,
        decision: &Decision,
        (sent, learned): (Time, Time),
    ) {
        self.clock = self.clock.or_newer(ClockOffset::new(report.at, sent, learned));
        // Answers may overtake each other; one that is much older is of a clock that jumped back.
        if report.at < self.reported_at && since(report.at, self.reported_at) < STALE_REPORT_MAX {
            return;
        }
        self.reported_at = report.at;
        self.state = report.state.clone();
        (self.parts, self.is_ahead, self.heat) = (1, false, heat(decision));
        if let Some(owed) = &self.owed {
            let limit = charge.limit.for_key(charge.namespace, charge.key);
            let unknown = owed.units.saturating_add(owed.pushing);
            decide(&limit, &mut self.state, self.clock.at(learned).max(report.at), Op::Debit(unknown));
        }
    }

    /// Decides without the store, under one of `parts` equal parts of the limit. With `owes`, what is admitted is owed to the
    /// store: it does not know of it, and will not.
    pub(super) fn decide(&mut self, charge: &Charge<'_>, parts: u64, owes: bool, now: Time) -> Decision {
        if parts != self.parts {
            self.state = self.state.scaled(self.parts, parts);
            self.parts = parts;
        }
        let limit = bounded(charge.limit).divided(parts).for_key(charge.namespace, charge.key);
        let at = self.clock.at(now);
        let decision = decide(&limit, &mut self.state, at, charge.op);
        self.is_ahead |= charge.op.looking() != charge.op;
        self.heat = heat(&decision);
        match charge.op {
            Op::Take(units @ 1..) | Op::Debit(units @ 1..) if owes && decision.is_allowed() => {
                let counted = self.state.counted(&limit, at);
                let owed = self.owed.get_or_insert_with(|| Box::new(Owed::none(charge)));
                // What a window before this one admitted cannot be debited any more.
                owed.units = owed.units.saturating_add(units).min(counted);
                (owed.key.limit, owed.is_held) = (*charge.limit, true);
            }
            Op::Refund(units, _) => {
                if let Some(owed) = &mut self.owed {
                    owed.units = owed.units.saturating_sub(units);
                }
            }
            _ => {}
        }
        decision
    }

    /// Takes out the units to debit now; nothing if none of them counts any more, or a debit is under way.
    pub(super) fn push(&mut self, now: Time) -> Option<(OwnedKey, u64)> {
        let owed = self.owed.as_mut()?;
        if owed.pushing > 0 {
            return None;
        }
        let limit = bounded(&owed.key.limit).divided(self.parts);
        let units = owed.units.min(self.state.counted(&limit, self.clock.at(now)));
        (owed.units, owed.pushing) = (0, units);
        (units > 0).then(|| (owed.key.clone(), units))
    }

    /// A debit has ended. If it was not applied, it is owed as before.
    pub(super) fn pushed(&mut self, was_applied: bool) {
        if let Some(owed) = &mut self.owed {
            let units = std::mem::take(&mut owed.pushing);
            if was_applied {
                owed.is_held = false;
            } else {
                owed.units = owed.units.saturating_add(units);
            }
        }
    }

    /// Whether units are owed or a debit of some is under way.
    pub(super) fn owes(&self) -> bool {
        self.owed.as_ref().is_some_and(|owed| owed.units > 0 || owed.pushing > 0)
    }

    pub(super) fn is_held(&self) -> bool {
        self.owed.as_ref().is_some_and(|owed| owed.is_held)
    }
}

impl Owed {
    fn none(charge: &Charge<'_>) -> Owed {
        Owed { key: OwnedKey::of(charge), units: 0, pushing: 0, is_held: false, is_listed: false }
    }
}

/// The limit that decides here: a log keeps few entries, and units of it come back up to a slice late.
fn bounded(limit: &Limit) -> Limit {
    if limit.log_entries_max() <= LOG_SLICES {
        return *limit;
    }
    Limit::sliced_window_of(limit.units(), limit.period(), LOG_SLICES).unwrap_or(*limit)
}

fn heat(decision: &Decision) -> u8 {
    let used = decision.limit().saturating_sub(decision.remaining());
    let share = u128::from(used) * u128::from(u8::MAX) / u128::from(decision.limit().max(1));
    u8::try_from(share).unwrap_or(u8::MAX)
}
