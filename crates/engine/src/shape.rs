//! Shaping: the leaky bucket as a queue. Admitted callers get the time until their turn, so that they go on one after
//! the other; nothing waits here. `spec/leaky_bucket.md` has the arithmetic.

use std::time::Duration;

use tidegate_core::{Algorithm, Decision, KeyError, Limit, Op, Retry};

use crate::bounds::SHAPE_WAIT_MAX;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::RequestError;
use crate::inline::Sourced;
use crate::store::StoreError;

/// The result for a caller that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaped {
    /// The state of the limit afterwards.
    pub decision: Decision,
    /// The time to wait before going on, with the units taken, or when to retry, with nothing taken.
    pub turn: Result<Duration, Retry>,
    /// Whether it was decided in this process because the store did not answer.
    pub local: bool,
}

/// Why a request cannot be queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The key is too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store gave no answer.
    #[error("store: {0}; try again")]
    Store(StoreError),
    /// The limit does not queue.
    #[error("wait: {algorithm} does not queue; use algorithm leaky_bucket, where capacity - 1 requests can wait")]
    Algorithm {
        /// The algorithm of the limit.
        algorithm: Algorithm,
    },
    /// The wait is too long.
    #[error("wait: {value:?} is too long; use at most {} hours", SHAPE_WAIT_MAX.as_secs() / 3600)]
    Wait {
        /// The wait that was given.
        value: Duration,
    },
}

impl ShapeError {
    fn of(error: RequestError) -> ShapeError {
        match error {
            RequestError::Key(error) => ShapeError::Key(error),
            RequestError::Store(error) => ShapeError::Store(error),
            // Nothing else goes wrong with one key under one limit.
            _ => ShapeError::Store(StoreError::Unanswered),
        }
    }
}

impl Engine {
    /// Takes units from a leaky bucket if their turn comes within `wait`, and returns the time until then. Otherwise
    /// nothing is taken.
    ///
    /// The units are taken before it is known how long the wait is, and given back if it is too long: meanwhile others
    /// may have to wait longer than needed, never shorter.
    ///
    /// # Errors
    /// Fails if the key is too long, the limit is no leaky bucket, or `wait` is out of bounds.
    pub async fn shape(
        &self,
        caller: &Caller,
        key: &[u8],
        limit: &Limit,
        units: u64,
        wait: Duration,
    ) -> Result<Shaped, ShapeError> {
        if wait > SHAPE_WAIT_MAX {
            return Err(ShapeError::Wait { value: wait });
        }
        let algorithm = limit.algorithm();
        let (Algorithm::LeakyBucket, Some(interval)) = (algorithm, limit.interval()) else {
            return Err(ShapeError::Algorithm { algorithm });
        };
        let taken = self.decide_for(caller, key, limit, Op::Take(units)).await.map_err(ShapeError::of)?;
        let Sourced { answer: decision, local } = taken;
        let Some(retry) = decision.retry() else {
            // What stood before it in the queue is its wait.
            let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            let taken = Duration::from_nanos(units.saturating_mul(interval));
            let turn = decision.reset_after().saturating_sub(taken);
            if turn <= wait || units == 0 {
                return Ok(Shaped { decision, turn: Ok(turn), local });
            }
            let refund = Op::Refund(units, decision.receipt());
            let decision = self.decide(key, limit, refund).await.map_err(ShapeError::of)?;
            return Ok(Shaped { decision, turn: Err(Retry::After(turn - wait)), local });
        };
        // The queue is full. When it is not, the turn has to come in time as well.
        let in_time = decision.reset_after().saturating_sub(wait);
        let retry = match retry {
            Retry::After(fits) => Retry::After(fits.max(in_time)),
            other => other,
        };
        Ok(Shaped { decision, turn: Err(retry), local })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{FakeClock, Rate};

    use super::*;
    use crate::{Options, at_once};

    const MILLI: Duration = Duration::from_millis(1);

    fn engine() -> (Engine, FakeClock) {
        let clock = FakeClock::new();
        let options = Options { clock: clock.clone().into(), keys: Some(100), ..Options::default() };
        (Engine::new(options).unwrap(), clock)
    }

    /// Ten a second, and so many may wait.
    fn queue(depth: u64) -> Limit {
        Limit::leaky_bucket(Rate::per_second(10).unwrap(), 1 + depth).unwrap()
    }

    #[test]
    fn each_waits_for_those_before_it() {
        let (engine, clock) = engine();
        let shape = |units, millis| {
            at_once(engine.shape(&Caller::default(), b"k", &queue(5), units, millis * MILLI)).unwrap().turn
        };
        assert_eq!(shape(1, 0), Ok(Duration::ZERO));
        assert_eq!(shape(1, 0), Err(Retry::After(100 * MILLI)), "its turn comes too late");
        assert_eq!(shape(1, 99), Err(Retry::After(MILLI)));
        assert_eq!(shape(2, 100), Ok(100 * MILLI));
        assert_eq!(shape(1, 1_000), Ok(300 * MILLI), "behind two units");
        clock.advance(150 * MILLI);
        assert_eq!(shape(1, 1_000), Ok(250 * MILLI));
        assert_eq!(shape(0, 0), Ok(350 * MILLI), "who only looks sees how long it would be");
        assert_eq!(shape(3, 1_000), Err(Retry::After(50 * MILLI)), "there is no place for so many");
        assert_eq!(shape(3, 100), Err(Retry::After(250 * MILLI)), "and not in time either");
        assert_eq!(shape(7, 1_000), Err(Retry::Never));
        assert_eq!(shape(1, 350), Ok(350 * MILLI), "what was denied took nothing");
    }

    /// Whoever asks at whatever instants: departures are as far apart as the rate says, and none is later than promised.
    #[test]
    fn what_leaves_is_smooth() {
        let (engine, clock) = engine();
        let (mut dice, mut now, mut last) = (tidegate_core::Dice::new(7), 0_u64, None::<(u64, u64)>);
        let mut admitted = 0;
        for _ in 0..2_000 {
            let (step, units) = (dice.roll() % 90_000_000, 1 + dice.roll() % 2);
            now += step;
            clock.advance(Duration::from_nanos(step));
            let wait = Duration::from_nanos(dice.roll() % 400_000_000);
            let shaped = at_once(engine.shape(&Caller::default(), b"k", &queue(5), units, wait)).unwrap();
            let Ok(turn) = shaped.turn else { continue };
            admitted += 1;
            assert!(turn <= wait);
            let leaves = now + u64::try_from(turn.as_nanos()).unwrap();
            if let Some((before, units)) = last {
                assert!(leaves >= before + units * 100_000_000, "{leaves} after {before}");
            }
            last = Some((leaves, units));
        }
        assert!(admitted > 500, "{admitted}");
    }

    /// Invariant 3: who waits so long is admitted, a nanosecond earlier not.
    #[test]
    fn who_asks_again_when_told_gets_its_turn() {
        for wait in [0, 37, 100, 450] {
            let (engine, clock) = engine();
            let shape =
                |units| at_once(engine.shape(&Caller::default(), b"k", &queue(5), units, wait * MILLI)).unwrap().turn;
            while shape(1).is_ok() {}
            let Err(Retry::After(retry)) = shape(2) else { panic!("{wait}") };
            clock.advance(retry - Duration::from_nanos(1));
            assert_eq!(shape(2), Err(Retry::After(Duration::from_nanos(1))), "{wait}");
            clock.advance(Duration::from_nanos(1));
            assert!(shape(2).is_ok(), "{wait}");
        }
    }

    #[test]
    fn what_cannot_queue_is_refused() {
        let (engine, _clock) = engine();
        let refused = |limit: &Limit, wait| {
            at_once(engine.shape(&Caller::default(), b"k", limit, 1, wait)).unwrap_err().to_string()
        };
        assert!(refused(&"5/s".parse().unwrap(), MILLI).starts_with("wait: gcra does not queue; "));
        assert!(refused(&queue(1), SHAPE_WAIT_MAX + MILLI).starts_with("wait: 86400.001s is too long; "));
        let long = [b'k'; 4_096];
        let too_long = at_once(engine.shape(&Caller::default(), &long, &queue(1), 1, MILLI));
        assert!(matches!(too_long, Err(ShapeError::Key(_))));
    }
}
