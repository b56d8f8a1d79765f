//! What a client has sent, and how much of it was accepted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Time;
use tidegate_core::shed::{ClientThrottle, WindowCounts};

use crate::lock::lock;
use crate::spare::Spare;

static SPARE: Spare<SentCounter> = Spare::new();

/// Counts for one layer, without a lock as long as nothing leaves the window. In cache lines of its own.
#[repr(align(128))]
pub(super) struct SentCounter {
    /// Who is in progress, what was counted since the throttle was told, and whether the layer is gone: see [`Word`].
    word: AtomicU64,
    /// What counts beside the word, and the instants at which that holds. Written under the lock.
    requests: AtomicU64,
    accepts: AtomicU64,
    from_nanos: AtomicU64,
    until_nanos: AtomicU64,
    /// None while it is spare.
    throttle: Mutex<Option<Box<ClientThrottle>>>,
}

/// 32 bits for those in progress, which are more than there is memory for; 16 for requests, 15 for accepts, and the highest
/// says that the layer is gone.
#[derive(Clone, Copy)]
struct Word(u64);

const IN_PROGRESS: u64 = 1;
const REQUEST: u64 = 1 << 32;
const ACCEPT: u64 = 1 << 48;
const CLOSED: u64 = 1 << 63;

/// From so many on the throttle is told. Each thread can add one more before it waits for the lock, and there are not as
/// many threads as there is room above.
const TOLD_FROM: u64 = 1 << 13;

impl Word {
    fn in_progress(self) -> u64 {
        self.0 & (REQUEST - 1)
    }

    fn requests(self) -> u64 {
        (self.0 & (ACCEPT - 1)) >> 32
    }

    fn accepts(self) -> u64 {
        (self.0 & (CLOSED - 1)) >> 48
    }

    /// The requests and accepts in it, in their places.
    fn counts(self) -> u64 {
        self.0 & (CLOSED - REQUEST)
    }

    fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }
}

impl SentCounter {
    /// One that counts for this throttle.
    pub(super) fn of(throttle: ClientThrottle) -> &'static SentCounter {
        let counter = SPARE.take_or(|| SentCounter {
            word: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            accepts: AtomicU64::new(0),
            from_nanos: AtomicU64::new(0),
            until_nanos: AtomicU64::new(0),
            throttle: Mutex::default(),
        });
        *lock(&counter.throttle) = Some(Box::new(throttle));
        counter.word.store(0, Ordering::Relaxed);
        // Nothing holds yet: the first who counts asks the throttle.
        counter.until_nanos.store(0, Ordering::Relaxed);
        counter
    }

    /// One more is sent, which is not counted.
    #[inline]
    pub(super) fn enter(&'static self) -> InProgress {
        self.word.fetch_add(IN_PROGRESS, Ordering::Relaxed);
        InProgress { counter: self, is_counted: false, adds: 0 }
    }

    /// One more is asked for. Tells how many requests and accepts there were before, with its place: who is held back drops
    /// that. The numbers are read one by one while others change them, so they may be a little off: see
    /// [`SentCounter::counts`].
    #[inline]
    pub(super) fn request(&'static self, now: Time) -> (u64, u64, InProgress) {
        if !self.holds(now) {
            self.tell_throttle(now);
        }
        let (requests, accepts) = (self.requests.load(Ordering::Relaxed), self.accepts.load(Ordering::Relaxed));
        let before = Word(self.word.fetch_add(REQUEST | IN_PROGRESS, Ordering::Relaxed));
        if before.requests() >= TOLD_FROM {
            self.tell_throttle(now);
        }
        let place = InProgress { counter: self, is_counted: true, adds: 0 };
        (requests.saturating_add(before.requests()), accepts.saturating_add(before.accepts()), place)
    }

    /// How many requests and accepts count now, taken together under the lock.
    pub(super) fn counts(&self, now: Time) -> (u64, u64) {
        self.tell_throttle(now)
    }

    #[inline]
    fn holds(&self, now: Time) -> bool {
        let (from, until) = (self.from_nanos.load(Ordering::Relaxed), self.until_nanos.load(Ordering::Relaxed));
        (from..until).contains(&now.as_nanos())
    }

    /// Tells the throttle what was counted since, and asks it what counts now.
    #[cold]
    fn tell_throttle(&self, now: Time) -> (u64, u64) {
        let mut guard = lock(&self.throttle);
        let Some(throttle) = guard.as_mut() else { return (0, 0) };
        let word = Word(self.word.load(Ordering::Relaxed));
        // Others only add to it meanwhile.
        self.word.fetch_sub(word.counts(), Ordering::Relaxed);
        let WindowCounts { requests, accepts, hold } = throttle.catch_up(word.requests(), word.accepts(), now);
        self.requests.store(requests, Ordering::Relaxed);
        self.accepts.store(accepts, Ordering::Relaxed);
        self.from_nanos.store(hold.start.as_nanos(), Ordering::Relaxed);
        self.until_nanos.store(hold.end.as_nanos(), Ordering::Relaxed);
        (requests, accepts)
    }

    /// One is in progress no more.
    #[inline]
    fn leave(&'static self, adds: u64) {
        let before = Word(self.word.fetch_add(adds.wrapping_sub(IN_PROGRESS), Ordering::AcqRel));
        if before.is_closed() && before.in_progress() == 1 {
            self.put_back();
        }
    }

    /// The layer is gone: nobody is sent any more.
    pub(super) fn close(&'static self) {
        // Else what is spare would keep the memory of its last throttle, and those who are still in progress would tell it.
        *lock(&self.throttle) = None;
        if Word(self.word.fetch_or(CLOSED, Ordering::AcqRel)).in_progress() == 0 {
            self.put_back();
        }
    }

    #[cold]
    fn put_back(&'static self) {
        SPARE.put(self);
    }
}

/// A request that is in progress until this is dropped. It owns nothing, as `spare.rs` says.
pub(super) struct InProgress {
    counter: &'static SentCounter,
    is_counted: bool,
    /// What is added to the word when it is dropped.
    adds: u64,
}

impl InProgress {
    /// The server has accepted it. That counts if the request does, and while there is a layer.
    #[inline]
    pub(super) fn accepted(mut self, now: impl FnOnce() -> Time) {
        let (counter, word) = (self.counter, Word(self.counter.word.load(Ordering::Relaxed)));
        if !self.is_counted || word.is_closed() {
            return;
        }
        let now = now();
        if word.accepts() >= TOLD_FROM || !counter.holds(now) {
            counter.tell_throttle(now);
        }
        self.adds = ACCEPT;
    }
}

impl Drop for InProgress {
    #[inline]
    fn drop(&mut self) {
        self.counter.leave(self.adds);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::MutexGuard;
    use std::time::Duration;

    use tidegate_core::Dice;
    use tidegate_core::shed::ClientThrottleConfig;

    use super::*;

    /// What is spare is everybody's: who looks at a counter that has been put back must be alone.
    pub(in crate::shed) static ALONE: Mutex<()> = Mutex::new(());

    const NOW: Time = Time::from_nanos(1_000_000_000_000_000_000);

    fn throttle(window: Duration) -> ClientThrottle {
        ClientThrottle::new(ClientThrottleConfig { window, ..ClientThrottleConfig::default() }).unwrap()
    }

    fn counter() -> &'static SentCounter {
        SentCounter::of(throttle(Duration::from_secs(120)))
    }

    /// Somebody who moves the window, and has just taken what was counted.
    pub(in crate::shed) struct Moving {
        counter: &'static SentCounter,
        taken: u64,
        _lock: MutexGuard<'static, Option<Box<ClientThrottle>>>,
    }

    impl Moving {
        pub(in crate::shed) fn begin(counter: &'static SentCounter) -> Moving {
            let lock = lock(&counter.throttle);
            let taken = Word(counter.word.load(Ordering::Relaxed)).counts();
            counter.word.fetch_sub(taken, Ordering::Relaxed);
            Moving { counter, taken, _lock: lock }
        }

        /// It goes on when so many more have counted themselves.
        pub(in crate::shed) fn end_after_requests(self, requests: u64) {
            while Word(self.counter.word.load(Ordering::Relaxed)).requests() < requests {
                std::thread::yield_now();
            }
            self.counter.word.fetch_add(self.taken, Ordering::Relaxed);
        }
    }

    /// One thread counts, and a throttle that is told of everything at once: both know the same before each request.
    fn check(seed: u64, window: Duration) {
        let config = ClientThrottleConfig { window, ..ClientThrottleConfig::default() };
        let (counter, mut model) = (SentCounter::of(throttle(window)), throttle(window));
        let (mut dice, mut now, mut places) = (Dice::new(seed), NOW, Vec::new());
        for step in 0..2000 {
            let bucket = u64::try_from(window.as_nanos() / 60).unwrap().max(1);
            now = match dice.roll() % 40 {
                0 => now.plus(window),
                1 => Time::from_nanos(now.as_nanos() - dice.roll() % (3 * bucket)),
                2..10 => now.plus(Duration::from_nanos(dice.roll() % (2 * bucket))),
                _ => now,
            };
            if dice.roll().is_multiple_of(3) && !places.is_empty() {
                let place: InProgress = places.swap_remove(step % places.len());
                place.accepted(|| now);
                model.accepted(now);
            } else {
                let (requests, accepts, place) = counter.request(now);
                let expected = model.probability(now);
                assert_eq!(config.probability(requests, accepts), expected, "seed {seed}, step {step}");
                let _ = model.sheds(now, 0);
                places.push(place);
            }
            if step % 50 == 0 {
                let (requests, accepts) = counter.counts(now);
                assert_eq!(config.probability(requests, accepts), model.probability(now), "seed {seed}, step {step}");
            }
        }
        drop(places);
        counter.close();
    }

    #[test]
    fn counts_as_a_throttle_does_that_is_told_of_everything() {
        let _alone = lock(&ALONE);
        for seed in 0..20 {
            check(seed, Duration::from_secs(120));
            check(seed, Duration::from_nanos(1));
            check(seed, Duration::from_secs(86_400));
        }
    }

    #[test]
    fn many_at_once_are_all_counted() {
        let _alone = lock(&ALONE);
        let (counter, each) = (counter(), 5 * TOLD_FROM);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..each {
                        let (_, _, place) = counter.request(NOW);
                        if number % 4 == 0 { drop(place) } else { place.accepted(|| NOW) }
                    }
                });
            }
        });
        assert_eq!(counter.counts(NOW), (4 * each, 3 * each));
        counter.close();
    }

    #[test]
    fn what_is_not_counted_as_a_request_is_not_counted_as_accepted() {
        let _alone = lock(&ALONE);
        let counter = counter();
        counter.enter().accepted(|| NOW);
        assert_eq!(counter.counts(NOW), (0, 0));
        counter.close();
    }

    #[test]
    fn who_stays_longer_than_the_layer_counts_for_nobody() {
        let _alone = lock(&ALONE);
        let counter = counter();
        // More than fit into the word.
        let mut places: Vec<InProgress> = (0..100_000).map(|_| counter.request(NOW).2).collect();
        counter.close();
        let last = places.pop().unwrap();
        places.into_iter().for_each(|place| place.accepted(|| NOW));
        let other = self::counter();
        assert!(!std::ptr::eq(counter, other), "it is still in use");
        last.accepted(|| NOW);
        let again = self::counter();
        assert!(std::ptr::eq(counter, again), "the last who left has left it");
        assert_eq!((again.counts(NOW), other.counts(NOW)), ((0, 0), (0, 0)));
        again.close();
        other.close();
    }
}
