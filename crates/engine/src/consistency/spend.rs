//! Spends leased units, and renews the leases in time.
//!
//! At most one call for a lease is in progress for each key. Other requests for units of that key wait for it, unless
//! enough units are left. If it fails they fail with it, and no request waits longer in all than one call may take.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_core::{Charge, Decision, Limit, Op};
use tidegate_stores::{Call, Certainty, Lease, Leased, StoreError};
use tokio::time::{Instant, timeout_at};

use super::leases::{Landing, Turn};
use super::name::Name;
use super::purse::Flight;
use super::slice::{Ask, Terms};
use super::{Consistent, Failure, Inner, keeper};
use crate::bounds::{LANDING_TIME_MAX, LEASE_ROUNDS_MAX};

impl Consistent {
    /// Decides a charge to a key that units are leased of.
    pub(super) async fn on_lease(
        &self,
        call: &Call,
        name: &[u8],
        terms: Terms,
        charge: &Charge<'_>,
    ) -> Result<Decision, StoreError> {
        let inner = &self.inner;
        let now = inner.clock.now();
        match charge.op {
            Op::Take(units @ 1..) => self.take_leased(call, name, terms, charge, units).await,
            Op::Take(0) | Op::Peek => {
                let decision = inner.ask_one(call, charge).await?;
                let left = inner.leases.left(name, inner.clock.now());
                Ok(decision.with_remaining(decision.remaining().saturating_add(left)))
            }
            Op::Ask(units) => match inner.leases.ask(name, units, now) {
                Some(decision) => Ok(inner.count_leased(decision)),
                None => inner.ask_one(call, charge).await,
            },
            Op::Debit(_) => inner.ask_one(call, charge).await,
            Op::Refund(units, Some(receipt)) if inner.leases.give_back(name, units, receipt, now) => {
                inner.denials.forget(charge);
                match inner.leases.ask(name, 0, now) {
                    Some(decision) => Ok(inner.count_leased(decision)),
                    None => inner.ask_one(call, &Charge { op: Op::Peek, ..*charge }).await,
                }
            }
            Op::Refund(..) | Op::Reset => {
                let mut charge = *charge;
                match &mut charge.op {
                    Op::Refund(_, Some(receipt)) => *receipt = terms.receipt(charge.limit, *receipt),
                    // What is held here would come on top of what is given.
                    Op::Refund(_, None) => {
                        for remainder in inner.leases.take_out(name, now) {
                            Box::pin(keeper::give_back(inner, name, &remainder)).await;
                        }
                    }
                    Op::Reset => inner.leases.forget(name),
                    _ => {}
                }
                let decision = inner.ask_one(call, &charge).await;
                inner.leases.forget_denial(name);
                decision
            }
        }
    }

    async fn take_leased(
        &self,
        call: &Call,
        name: &[u8],
        terms: Terms,
        charge: &Charge<'_>,
        units: u64,
    ) -> Result<Decision, StoreError> {
        let inner = &self.inner;
        // What is taken alone, too, may have to go back, and what is known of the key is looked after.
        keeper::start(inner);
        let mut deadline = None;
        for _ in 0..LEASE_ROUNDS_MAX {
            match inner.leases.take(name, charge.limit, terms, units, inner.clock.now()) {
                Turn::Answer(decision) => return Ok(inner.count_leased(decision)),
                Turn::Wait(flight) => inner.wait(call, name, flight, &mut deadline).await?,
                Turn::Lease(ask, landing) => {
                    let flight = landing.subscribe();
                    self.lease(Name::of(name), *charge.limit, ask, landing);
                    inner.wait(call, name, flight, &mut deadline).await?;
                }
                Turn::Alone(landing) => return inner.alone(call, name, charge, units, landing).await,
                Turn::Exact => break,
            }
        }
        inner.ask_one(call, charge).await
    }

    /// Asks for a lease. A task does, so that what was leased is not lost if the request goes away.
    fn lease(&self, name: Name, limit: Limit, ask: Ask, landing: Landing) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let Some(parts) = name.parts() else { return };
            let sent = inner.clock.now();
            inner.calls.fetch_add(1, Relaxed);
            let (namespace, sizes) = (&parts.namespace, &ask.sizes[..]);
            let lease = Lease { namespace, key: parts.key, limit: &limit, tag: parts.tag, sizes, length: ask.length };
            let result = inner.store.lease(&Call::default(), &lease).await;
            let learned = inner.clock.now();
            if let Ok(Leased { decision, report: Some(report), .. }) = &result {
                inner.last.learn_one(&lease.charge(0), report, decision, sent, learned);
            }
            inner.leases.receive(&name, &ask, result.as_ref(), sent, learned);
            landing.send_replace(Some(result.map(|_| ())));
        });
    }
}

impl Inner {
    /// Takes units for one request, while others wait for what that tells.
    async fn alone(
        &self,
        call: &Call,
        name: &[u8],
        charge: &Charge<'_>,
        units: u64,
        landing: Landing,
    ) -> Result<Decision, StoreError> {
        let land = Land { inner: self, name };
        let sent = self.clock.now();
        let result = self.ask_one(call, charge).await;
        if let Ok(decision) = &result {
            self.leases.receive_alone(name, units, decision, sent, self.clock.now());
        }
        drop(land);
        landing.send_replace(Some(result.as_ref().map(|_| ()).map_err(StoreError::clone)));
        result
    }

    /// Waits for a call, for no longer in all than a call may take.
    async fn wait(
        &self,
        call: &Call,
        name: &[u8],
        mut flight: Flight,
        deadline: &mut Option<Instant>,
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        let deadline = *deadline.get_or_insert_with(|| {
            let ours = started + self.nature.call_time_max.unwrap_or(LANDING_TIME_MAX);
            call.deadline.map(Instant::from_std).map_or(ours, |deadline| deadline.min(ours))
        });
        let landed = match timeout_at(deadline, flight.wait_for(Option::is_some)).await {
            // That the other caller left says nothing to this one, which asks again.
            Ok(Ok(landed)) => match &*landed {
                Some(Err(error)) if error.certainty() != Some(Certainty::CallerLeft) => Err(error.clone()),
                _ => Ok(()),
            },
            Ok(Err(_)) => Ok(()),
            // A store that fails says so in time: this node was too busy to hear of it, or the caller's deadline came first. The
            // call may be the second or third that it waits for.
            Err(_) => Err(self.failed(Certainty::Overloaded, Failure::TimedOut(started.elapsed()))),
        };
        if flight.has_changed().is_err() {
            self.leases.lose(name, &flight);
        }
        landed
    }

    fn count_leased(&self, decision: Decision) -> Decision {
        self.from_leases.fetch_add(1, Relaxed);
        decision
    }
}

/// Lets the next one ask when a call has ended, also if nobody waited for it to end.
struct Land<'a> {
    inner: &'a Inner,
    name: &'a [u8],
}

impl Drop for Land<'_> {
    fn drop(&mut self) {
        self.inner.leases.land(self.name, self.inner.clock.now());
    }
}
