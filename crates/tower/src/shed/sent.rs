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

/// What counts of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) accepts: u64,
}

/// From the lowest bit on: 30 bits for those in progress, of whom a billion have no room in any memory, with the connections
/// that they wait for; 17 for requests; 16 for accepts; and the highest says that the layer is gone.
#[derive(Clone, Copy)]
struct Word(u64);

const REQUEST_SHIFT: u32 = 30;
const ACCEPT_SHIFT: u32 = 47;

const IN_PROGRESS: u64 = 1;
const REQUEST: u64 = 1 << REQUEST_SHIFT;
const ACCEPT: u64 = 1 << ACCEPT_SHIFT;
const CLOSED: u64 = 1 << 63;

/// From so many on the throttle is told. Each thread can add one more before it waits for the lock, and there is room for
/// 64,000 threads that do so at once.
const TOLD_FROM: u64 = 1 << 10;

impl Word {
    fn in_progress(self) -> u64 {
        self.0 & (REQUEST - 1)
    }

    fn counts(self) -> Counts {
        let (requests, accepts) = ((self.0 & (ACCEPT - 1)) >> REQUEST_SHIFT, (self.0 & (CLOSED - 1)) >> ACCEPT_SHIFT);
        Counts { requests, accepts }
    }

    /// The same, in their places.
    fn counts_in_place(self) -> u64 {
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

    /// One more is asked for. Tells what counted before, with its place: who is held back drops that. The numbers are read
    /// one by one while others change them, so they need not belong together: [`SentCounter::catch_up`] tells what does.
    #[inline]
    pub(super) fn request(&'static self, clock: impl Fn() -> Time) -> (Counts, InProgress) {
        if !self.holds(clock()) {
            self.catch_up(&clock);
        }
        let (requests, accepts) = (self.requests.load(Ordering::Relaxed), self.accepts.load(Ordering::Relaxed));
        let before = Word(self.word.fetch_add(REQUEST | IN_PROGRESS, Ordering::Relaxed)).counts();
        if before.requests >= TOLD_FROM {
            self.catch_up(&clock);
        }
        let requests = requests.saturating_add(before.requests);
        let accepts = accepts.saturating_add(before.accepts);
        (Counts { requests, accepts }, InProgress { counter: self, is_counted: true, adds: 0 })
    }

    #[inline]
    fn holds(&self, now: Time) -> bool {
        // With what is stored last, all that was stored before it is seen.
        let (until, from) = (self.until_nanos.load(Ordering::Acquire), self.from_nanos.load(Ordering::Relaxed));
        (from..until).contains(&now.as_nanos())
    }

    /// Tells the throttle what was counted since it was told, and asks it what counts now.
    #[cold]
    pub(super) fn catch_up(&self, clock: impl Fn() -> Time) -> Counts {
        let mut guard = lock(&self.throttle);
        // Nothing counts for a layer that is gone.
        let Some(throttle) = guard.as_mut() else { return Counts::default() };
        let word = Word(self.word.load(Ordering::Relaxed));
        let more = word.counts();
        // Only now, under the lock: a thread that was suspended after it had read the clock would take the throttle's window
        // for one of a clock that was set back, and all would be forgotten.
        let WindowCounts { requests, accepts, hold } = throttle.catch_up(more.requests, more.accepts, clock());
        self.requests.store(requests, Ordering::Relaxed);
        self.accepts.store(accepts, Ordering::Relaxed);
        self.from_nanos.store(hold.start.as_nanos(), Ordering::Relaxed);
        self.until_nanos.store(hold.end.as_nanos(), Ordering::Release);
        // Others only added to it meanwhile. It comes last, and is seen last. Until then others count this part twice, which
        // moves the probability a little, and who would be held back by that is judged again. The other way round it would
        // count nowhere, and all would pass for as long as this thread is suspended here.
        self.word.fetch_sub(word.counts_in_place(), Ordering::Release);
        Counts { requests, accepts }
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
    /// The server has answered. Whether it has accepted the request is asked only if that counts: if the request does, and
    /// while there is a layer.
    #[inline]
    pub(super) fn answered(mut self, is_accepted: impl FnOnce() -> bool, clock: impl Fn() -> Time) {
        let (counter, word) = (self.counter, Word(self.counter.word.load(Ordering::Relaxed)));
        if !self.is_counted || word.is_closed() || !is_accepted() {
            return;
        }
        if word.counts().accepts >= TOLD_FROM || !counter.holds(clock()) {
            counter.catch_up(clock);
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
    use std::time::Duration;

    use tidegate_core::Dice;
    use tidegate_core::shed::ClientThrottleConfig;

    use super::*;

    /// What is spare is everybody's: who looks at a counter that has been put back must be alone.
    pub(in crate::shed) static ALONE: Mutex<()> = Mutex::new(());

    const NOW: Time = Time::from_nanos(1_000_000_000_000_000_000);
    const WINDOW: Duration = Duration::from_secs(120);

    /// Has a counter take requests for refused that the throttle does not know of, as who reads it while it changes may.
    pub(in crate::shed) fn mistake(counter: &SentCounter) {
        counter.requests.fetch_add(1_000, Ordering::Relaxed);
    }

    fn throttle(window: Duration) -> ClientThrottle {
        ClientThrottle::new(ClientThrottleConfig { window, ..ClientThrottleConfig::default() }).unwrap()
    }

    fn counter() -> &'static SentCounter {
        SentCounter::of(throttle(WINDOW))
    }

    fn accept(place: InProgress) {
        place.answered(|| true, || NOW);
    }

    fn counts(requests: u64, accepts: u64) -> Counts {
        Counts { requests, accepts }
    }

    /// One thread counts, and a throttle that is told of everything at once: both know the same before each request.
    fn check(seed: u64, window: Duration) {
        let (counter, mut model) = (SentCounter::of(throttle(window)), throttle(window));
        let (mut dice, mut now, mut places) = (Dice::new(seed), NOW, Vec::new());
        for step in 0..2000 {
            let window_nanos = u64::try_from(window.as_nanos()).unwrap();
            let bucket = (window_nanos / 60).max(1);
            now = match dice.roll() % 40 {
                0 => now.plus(window),
                1 => Time::from_nanos(now.as_nanos() - dice.roll() % (3 * bucket)),
                2 => Time::from_nanos(now.as_nanos() - dice.roll() % (3 * window_nanos)),
                3..10 => now.plus(Duration::from_nanos(dice.roll() % (2 * bucket))),
                _ => now,
            };
            let expected = model.catch_up(0, 0, now);
            let expected = counts(expected.requests, expected.accepts);
            if step % 50 == 0 {
                assert_eq!(counter.catch_up(|| now), expected, "seed {seed}, step {step}");
            }
            if dice.roll().is_multiple_of(3) && !places.is_empty() {
                let place: InProgress = places.swap_remove(step % places.len());
                place.answered(|| true, || now);
                model.accepted(now);
            } else {
                let (before, place) = counter.request(|| now);
                assert_eq!(before, expected, "seed {seed}, step {step}");
                let _ = model.sheds(now, 0);
                places.push(place);
            }
        }
        drop(places);
        counter.close();
    }

    #[test]
    fn counts_as_a_throttle_does_that_is_told_of_everything() {
        let _alone = lock(&ALONE);
        for seed in 0..20 {
            check(seed, WINDOW);
            check(seed, Duration::from_nanos(1));
            check(seed, Duration::from_secs(86_400));
        }
    }

    #[test]
    fn many_at_once_are_all_counted() {
        let _alone = lock(&ALONE);
        let (counter, each) = (counter(), 40 * TOLD_FROM);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..each {
                        let place = counter.request(|| NOW).1;
                        if number % 4 == 0 { drop(place) } else { accept(place) }
                    }
                });
            }
        });
        assert_eq!(counter.catch_up(|| NOW), counts(4 * each, 3 * each));
        counter.close();
    }

    /// More than fit into the word.
    const MANY: u64 = 2 << (ACCEPT_SHIFT - REQUEST_SHIFT);

    #[test]
    fn requests_that_nobody_answers_are_all_counted() {
        let _alone = lock(&ALONE);
        let counter = counter();
        (0..MANY).for_each(|_| drop(counter.request(|| NOW)));
        assert_eq!(counter.catch_up(|| NOW), counts(MANY, 0));
        counter.close();
    }

    #[test]
    fn answers_that_come_all_together_are_all_counted() {
        let _alone = lock(&ALONE);
        let counter = counter();
        let places: Vec<InProgress> = (0..MANY).map(|_| counter.request(|| NOW).1).collect();
        places.into_iter().for_each(accept);
        assert_eq!(counter.catch_up(|| NOW), counts(MANY, MANY));
        counter.close();
    }

    #[test]
    fn what_does_not_count_as_a_request_is_not_asked_for_its_answer() {
        let _alone = lock(&ALONE);
        let counter = counter();
        counter.enter().answered(|| panic!("it is not counted"), || NOW);
        assert_eq!(counter.catch_up(|| NOW), counts(0, 0));
        counter.close();
    }

    /// By a whole window: the reading of the clock that brought it to the lock is older than all that counts.
    #[test]
    fn who_was_suspended_has_nothing_forgotten() {
        let _alone = lock(&ALONE);
        let counter = counter();
        let later = NOW.plus(WINDOW);
        (0..10).for_each(|_| drop(counter.request(|| later)));
        let readings = std::cell::Cell::new(0);
        let clock = || {
            readings.set(readings.get() + 1);
            if readings.get() == 1 { NOW } else { later }
        };
        let (before, place) = counter.request(clock);
        assert_eq!(before, counts(10, 0));
        readings.set(0);
        place.answered(|| true, clock);
        assert_eq!(counter.catch_up(|| later), counts(11, 1));
        counter.close();
    }

    /// The clock is read when the word has been read, and before anything is taken out of it. Who reads it before may wait for
    /// the lock for any time.
    #[test]
    fn what_is_being_told_to_the_throttle_still_counts() {
        let _alone = lock(&ALONE);
        let counter = counter();
        (0..10).for_each(|_| drop(counter.request(|| NOW)));
        let seen = std::cell::Cell::new(Counts::default());
        counter.catch_up(|| {
            assert!(counter.throttle.try_lock().is_err(), "the lock is held");
            let (before, place) = counter.request(|| NOW);
            seen.set(before);
            accept(place);
            NOW
        });
        assert_eq!(seen.get(), counts(10, 0));
        assert_eq!(counter.catch_up(|| NOW), counts(11, 1), "what came meanwhile is not lost");
        counter.close();
    }

    #[test]
    fn a_clock_set_back_by_a_window_begins_anew() {
        let _alone = lock(&ALONE);
        let counter = counter();
        drop(counter.request(|| NOW.plus(WINDOW)));
        assert_eq!(counter.request(|| NOW).0, counts(0, 0));
        counter.close();
    }

    #[test]
    fn a_counter_that_is_used_again_knows_nothing() {
        let _alone = lock(&ALONE);
        let first = counter();
        drop(first.request(|| NOW));
        first.catch_up(|| NOW);
        let place = first.enter();
        first.close();
        assert!(lock(&first.throttle).is_none(), "nobody has the memory of a throttle that is gone");
        drop(place);
        let again = counter();
        assert!(std::ptr::eq(first, again), "nobody is in progress");
        assert_eq!(again.request(|| NOW).0, counts(0, 0));
        again.close();
        let again = counter();
        assert!(std::ptr::eq(first, again), "who was never entered is spare at once");
        again.close();
    }

    #[test]
    fn who_stays_longer_than_the_layer_counts_for_nobody() {
        let _alone = lock(&ALONE);
        let counter = counter();
        let mut places: Vec<InProgress> = (0..MANY).map(|_| counter.request(|| NOW).1).collect();
        counter.close();
        let last = places.pop().unwrap();
        places.into_iter().for_each(accept);
        let other = self::counter();
        assert!(!std::ptr::eq(counter, other), "it is still in use");
        accept(last);
        let again = self::counter();
        assert!(std::ptr::eq(counter, again), "the last who left has left it");
        assert_eq!((again.catch_up(|| NOW), other.catch_up(|| NOW)), (counts(0, 0), counts(0, 0)));
        again.close();
        other.close();
    }
}
