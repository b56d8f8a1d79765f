//! Charges with the names of their keys: those of one slot are decided by one call of a script.

use smallvec::SmallVec;
use tidegate_core::{Charge, Decisions, Op, Time};

use super::decode::{self, ReplyError};
use super::link::Term;
use super::script::SCRIPTS;
use super::store::{RedisError, RedisStore};
use super::{encode, key};
use crate::Call;

/// The names of keys: mostly of one.
pub(super) type Names = SmallVec<[Vec<u8>; 1]>;

/// Charges on their way to a store. All that is needed to put them there is in one place, so that futures which do that hold
/// little beside it.
pub(super) struct NamedCharges<'a> {
    pub(super) store: &'a RedisStore,
    pub(super) term: Term,
    pub(super) names: Names,
    pub(super) charges: &'a [Charge<'a>],
}

impl<'a> NamedCharges<'a> {
    pub(super) fn new(store: &'a RedisStore, call: &'a Call, charges: &'a [Charge<'a>]) -> NamedCharges<'a> {
        let names = charges.iter().map(|charge| key::name(&store.prefix, charge)).collect();
        NamedCharges { store, term: store.term(call), names, charges }
    }

    /// Decides them at one instant. They are of this slot.
    pub(super) async fn decide(&self, slot: u16) -> Result<Decisions, RedisError> {
        let mut around = self.store.clock.about_now();
        // Once more if the windows of a calendar were not those of the store's time.
        let mut asked_again = false;
        loop {
            let decided = match self.charges {
                [] => return Ok(Decisions::default()),
                [charge] => self.one(slot, charge, around).await?,
                _ => self.several(slot, around).await?,
            };
            match decided {
                // Nothing was changed.
                Err(ReplyError::OtherTime(now)) if !asked_again && self.store.clock.learn(around, now) => {
                    (around, asked_again) = (now, true);
                }
                decided => return decided.map_err(|error| self.store.unreadable(error)),
            }
        }
    }

    /// Decides one charge. Takes that wait on a connection are joined with equal ones: the script takes as many of them as
    /// fit.
    async fn one(
        &self,
        slot: u16,
        charge: &Charge<'_>,
        around: Time,
    ) -> Result<Result<Decisions, ReplyError>, RedisError> {
        let (redis, name, term) = (&self.store.redis, &self.names[0], self.term);
        let (script, args) = (SCRIPTS.one(charge.limit), encode::one(charge, around));
        let (reply, place) = match (charge.op, &args[..]) {
            (Op::Take(1..), [_once, rest @ ..]) => redis.call_joined(slot, script, name, rest, term).await?,
            _ => (redis.call_at(slot, script, &[name], &args, term).await?, 0),
        };
        Ok(decode::one(charge, &reply, place))
    }

    /// Decides several charges together.
    async fn several(&self, slot: u16, around: Time) -> Result<Result<Decisions, ReplyError>, RedisError> {
        let keys: Vec<&[u8]> = self.names.iter().map(Vec::as_slice).collect();
        let args = encode::several(self.charges, around);
        let reply = self.store.redis.call_at(slot, &SCRIPTS.several, &keys, &args, self.term).await?;
        Ok(decode::decisions(self.charges, &reply))
    }
}
