//! The store's concurrent parts under every interleaving that a random scheduler finds.
//!
//! Run with `make test`, which sets `--cfg shuttle`; without it this file is empty. Waiting yields to the scheduler, so
//! a deadlock shows as a run that exceeds its steps.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod shapes;

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;
use tidegate_core::{
    Charge, DirectLimiter, FakeClock, Key, Limit, MemoryStore, Op, PermitCounter, Rate, Released, Semaphore, Time,
};

use shapes::every_shape;

/// Schedules tried for each test.
const SCHEDULES: usize = 3_000;

/// Runs a scenario under many schedules: half of them switch threads at random, half let one run for long and hold
/// another up at a few points, which finds what a thread that sleeps at the wrong moment can do.
fn check(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let scenario = Arc::new(scenario);
    let again = Arc::clone(&scenario);
    let random = shuttle::scheduler::RandomScheduler::new(schedules / 2);
    shuttle::Runner::new(random, config.clone()).run(move || scenario());
    let held_up = shuttle::scheduler::PctScheduler::new(3, schedules / 2);
    shuttle::Runner::new(held_up, config).run(move || again());
}

/// Keys for which a table has one bucket; two, of which one is its front; and three, of which the front is one as well.
const ONE_BUCKET: usize = 1;
const WITH_FRONT: usize = 5;
const WITH_LARGER_REST: usize = 9;

/// Keys beside "a".
const OTHERS: [&str; 16] = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"];

/// So many of them fill the front of a table with a larger rest, and are one less than it takes until the front does not
/// lead any more.
const ALMOST_AHEAD: usize = 9;

type Task = Box<dyn FnOnce() -> u64 + Send>;

fn store(clock: &FakeClock, keys: usize) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::builder().keys(keys).log_entries(21).clock(clock.clone()).build().unwrap())
}

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

/// Runs each task in a thread of its own and sums what they answer.
fn sum_of(tasks: Vec<Task>) -> u64 {
    let running: Vec<_> = tasks.into_iter().map(thread::spawn).collect();
    running.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// A task that tries `tries` times to take one unit of `name`, and answers how often it could.
fn taking(store: &Arc<MemoryStore>, limit: Limit, name: &'static str, tries: u64) -> Task {
    let store = Arc::clone(store);
    Box::new(move || (0..tries).filter(|_| store.decide(key(name), &limit, Op::Take(1)).is_allowed()).count() as u64)
}

/// Every shape of state in tables with a front and without.
fn shapes_and_sizes(units: u64) -> impl Iterator<Item = (Limit, usize)> {
    let shapes = every_shape(units, Duration::from_secs(1));
    shapes.into_iter().flat_map(|limit| [(limit, ONE_BUCKET), (limit, WITH_FRONT)])
}

#[test]
fn a_new_key_is_inserted_once_and_admits_its_limit() {
    for (limit, keys) in shapes_and_sizes(3) {
        check(SCHEDULES, move || {
            let store = store(&FakeClock::new(), keys);
            let tasks = (0..3).map(|_| taking(&store, limit, "a", 2)).collect();
            assert_eq!(sum_of(tasks), 3, "{}", limit.algorithm());
        });
    }
}

#[test]
fn single_charges_and_transactions_do_not_race() {
    for (limit, keys) in shapes_and_sizes(3) {
        check(SCHEDULES, move || {
            let store = store(&FakeClock::new(), keys);
            let pairs = |first: &'static str, second: &'static str| -> Task {
                let store = Arc::clone(&store);
                Box::new(move || {
                    let charges = [Charge::take(key(first), &limit, 1), Charge::take(key(second), &limit, 1)];
                    (0..2).filter(|_| store.charge(&charges).unwrap().is_allowed()).count() as u64
                })
            };
            let singles = taking(&store, limit, "a", 2);
            let hundreds: Task = Box::new(|| 100 * singles());
            let sum = sum_of(vec![pairs("a", "b"), pairs("b", "a"), hundreds]);
            let (singles, pairs) = (sum / 100, sum % 100);
            let taken = |name| 3 - store.decide(key(name), &limit, Op::Peek).remaining();
            assert_eq!((singles + pairs, taken("a"), taken("b")), (3, 3, pairs), "{}", limit.algorithm());
        });
    }
}

#[test]
fn transactions_over_the_same_keys_in_any_order_finish_and_stay_whole() {
    let limits = every_shape(2, Duration::from_secs(1));
    check(SCHEDULES, move || {
        let store = store(&FakeClock::new(), 8);
        let run = |order: [usize; 5]| -> Task {
            let store = Arc::clone(&store);
            Box::new(move || {
                let charges = order.map(|number| Charge::take(key("a"), &limits[number], 1));
                u64::from(store.charge(&charges).unwrap().is_allowed())
            })
        };
        assert_eq!(sum_of(vec![run([0, 1, 2, 3, 4]), run([4, 3, 2, 1, 0]), run([2, 0, 4, 1, 3])]), 2);
        for limit in &limits {
            assert_eq!(store.decide(key("a"), limit, Op::Peek).remaining(), 0, "{}", limit.algorithm());
        }
    });
}

/// Keys come and go through a table of few places while time passes; whoever slept with an old instant must not find a
/// key fresh that was not so at that instant.
#[test]
fn reclaiming_never_lets_a_key_exceed_its_rate() {
    let limit = Limit::gcra(Rate::from_nanos(1, 100).unwrap(), 1).unwrap();
    for (keys, others, nanos_between) in [(ONE_BUCKET, 8, 24), (WITH_FRONT, 16, 12)] {
        check(10 * SCHEDULES, move || {
            let clock = FakeClock::at(Time::from_nanos(1_000));
            let store = store(&clock, keys);
            let coming: Task = {
                let (store, clock) = (Arc::clone(&store), clock.clone());
                Box::new(move || {
                    for name in &OTHERS[..others] {
                        clock.advance(Duration::from_nanos(nanos_between));
                        thread::yield_now();
                        store.decide(key(name), &limit, Op::Take(1));
                    }
                    0
                })
            };
            let passed = sum_of(vec![taking(&store, limit, "a", 3), taking(&store, limit, "a", 3), coming]);
            // From 1,000 to 1,192 ns one unit passes at once and one after 100 ns.
            assert!(passed <= 2, "{passed} units passed");
        });
    }
}

/// One thread reads the clock a nanosecond before a key's unit is back, sleeps, and wakes when the key's only slot was
/// given away: a nanosecond too early it must not start the key anew.
#[test]
fn a_stale_instant_does_not_revive_a_reclaimed_key() {
    let limit = Limit::gcra(Rate::from_nanos(1, 100).unwrap(), 1).unwrap();
    let long = Limit::gcra(Rate::per_second(1).unwrap(), 1).unwrap();
    check(10 * SCHEDULES, move || {
        let clock = FakeClock::at(Time::from_nanos(940));
        let store = store(&clock, 1);
        for name in ["b", "c", "d"] {
            store.decide(key(name), &long, Op::Take(1));
        }
        // A place that is free again before the instants below.
        store.decide(key("e"), &limit, Op::Take(1));
        clock.set(Time::from_nanos(1_000));
        assert!(store.decide(key("a"), &limit, Op::Take(1)).is_allowed());
        let newcomer: Task = {
            let (store, clock) = (Arc::clone(&store), clock.clone());
            Box::new(move || {
                clock.set(Time::from_nanos(1_099));
                thread::yield_now();
                clock.set(Time::from_nanos(1_101));
                // The first takes the place that was free for longest, the second that of the key.
                store.decide(key("y"), &long, Op::Take(1));
                store.decide(key("z"), &limit, Op::Take(1));
                store.decide(key("z"), &limit, Op::Reset);
                0
            })
        };
        let passed = sum_of(vec![taking(&store, limit, "a", 1), newcomer]);
        clock.set(Time::from_nanos(1_199));
        let last = store.decide(key("a"), &limit, Op::Take(1)).is_allowed();
        assert!(1 + passed + u64::from(last) <= 2, "three units passed in 199 ns");
    });
}

/// One thread found a key's slot and sleeps while that is given to another key, which takes, refunds and resets
/// at the very same instants: the charge must not land on the other key.
#[test]
fn a_charge_never_lands_on_another_key() {
    let limit = Limit::gcra(Rate::from_nanos(1, 100).unwrap(), 50).unwrap();
    let long = Limit::gcra(Rate::per_second(1).unwrap(), 1).unwrap();
    check(10 * SCHEDULES, move || {
        let clock = FakeClock::at(Time::from_nanos(1_000));
        let store = store(&clock, 1);
        for name in ["b", "c", "d", "e"] {
            store.decide(key(name), &long, Op::Take(1));
        }
        assert!(store.decide(key("a"), &limit, Op::Take(1)).is_allowed());
        let newcomer: Task = {
            let (store, clock) = (Arc::clone(&store), clock.clone());
            Box::new(move || {
                clock.set(Time::from_nanos(1_101));
                let taken = store.decide(key("z"), &limit, Op::Take(1));
                store.decide(key("z"), &limit, Op::Refund(1, taken.receipt()));
                store.decide(key("z"), &limit, Op::Reset);
                store.decide(key("z"), &limit, Op::Take(2));
                0
            })
        };
        let charged: Task = {
            let store = Arc::clone(&store);
            Box::new(move || (0..2).map(|_| store.decide(key("a"), &limit, Op::Take(20)).remaining()).sum())
        };
        sum_of(vec![charged, newcomer]);
        // Two units, and in the sketch, which takes nothing back, three.
        let left = store.decide(key("z"), &limit, Op::Peek).remaining();
        assert!(left == 48 || left == 47, "z has {left} left: it was charged for another key");
    });
}

#[test]
fn a_full_table_counts_newcomers_once() {
    let limit = Limit::gcra(Rate::per_second(1).unwrap(), 2).unwrap();
    for (keys, others) in [(ONE_BUCKET, 5), (WITH_FRONT, 10)] {
        check(SCHEDULES, move || {
            let store = store(&FakeClock::new(), keys);
            for name in &OTHERS[..others] {
                store.decide(key(name), &limit, Op::Take(1));
            }
            let tasks = (0..3).map(|_| taking(&store, limit, "a", 1)).collect();
            assert_eq!(sum_of(tasks), 2);
        });
    }
}

/// Newcomers beyond a full table drive each other from place to place while one of them is charged.
#[test]
fn a_flood_never_lets_a_key_exceed_its_limit() {
    let limit = Limit::gcra(Rate::per_second(1).unwrap(), 2).unwrap();
    check(SCHEDULES, move || {
        let store = store(&FakeClock::new(), 1);
        for name in ["b", "c", "d", "e", "f"] {
            store.decide(key(name), &limit, Op::Take(1));
        }
        let flood: Task = {
            let store = Arc::clone(&store);
            Box::new(move || {
                for name in ["g", "h", "i", "j", "k", "l", "m"] {
                    store.decide(key(name), &limit, Op::Take(1));
                }
                0
            })
        };
        let passed = sum_of(vec![taking(&store, limit, "a", 2), flood, taking(&store, limit, "a", 2)]);
        assert!(passed <= 2, "{passed} units passed");
    });
}

#[test]
fn logs_share_a_pool_without_losing_a_block() {
    let limit = Limit::sliding_log(9, Duration::from_nanos(1_000)).unwrap();
    check(SCHEDULES, move || {
        let clock = FakeClock::new();
        let store = store(&clock, 4);
        let fill = |name: &'static str| -> Task {
            let (store, clock) = (Arc::clone(&store), clock.clone());
            Box::new(move || {
                for _ in 0..9 {
                    store.decide(key(name), &limit, Op::Take(1));
                    clock.advance(Duration::from_nanos(1));
                }
                store.decide(key(name), &limit, Op::Reset);
                0
            })
        };
        sum_of(vec![fill("a"), fill("b")]);
        clock.advance(Duration::from_secs(1));
        // All three blocks are back: a log of two and one of one find room, exactly.
        let take = |name| store.decide(key(name), &limit, Op::Take(1));
        for taken in 1..=9 {
            clock.advance(Duration::from_nanos(1));
            assert_eq!(take("c").remaining(), 9 - taken);
        }
        assert!(take("d").is_allowed());
        clock.advance(Duration::from_nanos(992));
        assert_eq!(store.decide(key("c"), &limit, Op::Peek).remaining(), 1, "the oldest entry is out on time");
    });
}

#[test]
fn a_direct_limiter_admits_its_limit() {
    for limit in every_shape(3, Duration::from_secs(1)) {
        check(SCHEDULES, move || {
            let limiter = Arc::new(DirectLimiter::with_clock(limit, FakeClock::new()).unwrap());
            let take = |_| -> Task {
                let limiter = Arc::clone(&limiter);
                Box::new(move || (0..2).filter(|_| limiter.check().is_allowed()).count() as u64)
            };
            assert_eq!(sum_of((0..3).map(take).collect()), 3);
        });
    }
}

/// Permits of two keys for which there is one place, so that one takes that which the other has just left.
#[test]
fn permits_are_never_exceeded_and_all_come_back() {
    use std::sync::atomic::{AtomicU64, Ordering};
    for (keys, others) in [(ONE_BUCKET, 4), (WITH_FRONT, 9)] {
        check(SCHEDULES, move || {
            let semaphore = Semaphore::with_capacity(2, keys).unwrap();
            let _held: Vec<_> = OTHERS[..others].iter().map(|name| semaphore.try_acquire(key(name)).unwrap()).collect();
            let inside = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let enter = |pools: [usize; 2]| -> Task {
                let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
                Box::new(move || {
                    for pool in pools {
                        if let Ok(_permit) = semaphore.try_acquire(key(["first", "second"][pool])) {
                            assert!(inside[pool].fetch_add(1, Ordering::SeqCst) < 2, "three are inside");
                            thread::yield_now();
                            inside[pool].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                    0
                })
            };
            sum_of(vec![enter([0, 0]), enter([0, 1]), enter([1, 0])]);
            assert_eq!((semaphore.in_use(key("first")), semaphore.in_use(key("second"))), (0, 0));
        });
    }
}

/// Where keys are looked for first changes while one of them is new and another is in the front.
#[test]
fn keys_are_found_while_the_front_loses_its_lead() {
    // Without logs: so many would not find room for their entries.
    for limit in &every_shape(3, Duration::from_secs(1))[..3] {
        let limit = *limit;
        check(SCHEDULES, move || {
            let store = store(&FakeClock::new(), WITH_LARGER_REST);
            for name in &OTHERS[..ALMOST_AHEAD] {
                assert!(store.decide(key(name), &limit, Op::Take(1)).is_allowed());
            }
            let in_front = taking(&store, limit, "b", 3);
            let hundreds: Task = Box::new(|| 100 * in_front());
            let tasks = vec![taking(&store, limit, "a", 2), hundreds, taking(&store, limit, "a", 2)];
            assert_eq!(sum_of(tasks), 203, "{}", limit.algorithm());
        });
    }
}

/// A permit that is given back looks for its key once: it must be found even if the order changes in between.
#[test]
fn permits_come_back_while_the_front_loses_its_lead() {
    check(SCHEDULES, || {
        let semaphore = Semaphore::with_capacity(1, WITH_LARGER_REST).unwrap();
        let acquire = |name: &&str| semaphore.try_acquire(key(name)).unwrap();
        let mut permits: Vec<_> = OTHERS[..ALMOST_AHEAD].iter().map(acquire).collect();
        let (in_rest, in_front) = (permits.remove(5), permits.remove(0));
        let enter = || -> Task {
            let semaphore = semaphore.clone();
            Box::new(move || u64::from(semaphore.try_acquire(key("a")).is_ok()))
        };
        let leave: Task = Box::new(move || {
            drop(in_rest);
            drop(in_front);
            0
        });
        assert!(sum_of(vec![enter(), leave, enter()]) > 0);
        assert_eq!(["a", "b", "c", "g"].map(|name| semaphore.in_use(key(name))), [0, 0, 1, 0]);
    });
}

/// A queue before a counter, as the layers have it: those who wait are kept under a lock, and told through a channel.
struct Queue {
    permits: PermitCounter,
    waiting: shuttle::sync::Mutex<std::collections::VecDeque<shuttle::sync::mpsc::Sender<()>>>,
}

impl Queue {
    fn acquire(&self) {
        if self.permits.try_acquire().is_some() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap();
        if self.permits.acquire_or_wait().is_some() {
            return;
        }
        let (told, tell) = shuttle::sync::mpsc::channel();
        waiting.push_back(told);
        drop(waiting);
        tell.recv().unwrap();
    }

    fn serve(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        while !waiting.is_empty() && self.permits.try_acquire_for_waiting().is_some() {
            waiting.pop_front().unwrap().send(()).unwrap();
        }
        if waiting.is_empty() {
            self.permits.nobody_waits();
        }
    }

    fn release(&self) {
        if self.permits.release() == Released::Waited {
            self.serve();
        }
    }

    fn set_limit(&self, limit: u64) {
        if self.permits.set_limit(limit) {
            self.serve();
        }
    }
}

/// A wake-up that is lost shows as a deadlock, a count that is lost as a place that is taken in the end.
#[test]
fn a_resized_counter_forgets_nobody_who_waits() {
    use std::sync::atomic::{AtomicU64, Ordering};
    check(SCHEDULES, || {
        let waiting = shuttle::sync::Mutex::new(std::collections::VecDeque::new());
        let queue = Arc::new(Queue { permits: PermitCounter::new(2).unwrap(), waiting });
        let inside = Arc::new(AtomicU64::new(0));
        let work = |_| -> Task {
            let (queue, inside) = (Arc::clone(&queue), Arc::clone(&inside));
            Box::new(move || {
                for _ in 0..2 {
                    queue.acquire();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "more are inside than any limit allowed");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    queue.release();
                }
                0
            })
        };
        let mut tasks: Vec<Task> = (0..4).map(work).collect();
        let resized = Arc::clone(&queue);
        tasks.push(Box::new(move || {
            for limit in [1, 3, 1, 2] {
                resized.set_limit(limit);
                thread::yield_now();
            }
            0
        }));
        sum_of(tasks);
        assert_eq!((queue.permits.in_use(), queue.permits.limit()), (0, 2));
        assert!(queue.permits.try_acquire().is_some(), "somebody is still marked as waiting");
    });
}

/// With a limit of one throughout, two are never inside together, whatever else is resized to the same.
#[test]
fn a_counter_never_admits_more_than_its_limit() {
    use std::sync::atomic::{AtomicU64, Ordering};
    check(SCHEDULES, || {
        let permits = Arc::new(PermitCounter::new(1).unwrap());
        let inside = Arc::new(AtomicU64::new(0));
        let enter = |number: u64| -> Task {
            let (permits, inside) = (Arc::clone(&permits), Arc::clone(&inside));
            Box::new(move || {
                for _ in 0..2 {
                    if permits.try_acquire().is_some() {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(permits.release(), Released::Done);
                    } else if number == 0 {
                        assert!(!permits.set_limit(1));
                    }
                }
                0
            })
        };
        sum_of((0..3).map(enter).collect());
        assert_eq!(permits.in_use(), 0);
    });
}

#[test]
fn exactly_one_gives_the_last_permit_of_a_closed_counter_back() {
    check(SCHEDULES, || {
        let permits = Arc::new(PermitCounter::new(2).unwrap());
        assert!(permits.try_acquire().is_some());
        let holders: Vec<Task> = vec![
            {
                let permits = Arc::clone(&permits);
                Box::new(move || u64::from(permits.release() == Released::Last))
            },
            {
                let permits = Arc::clone(&permits);
                Box::new(move || u64::from(permits.try_acquire().is_some() && permits.release() == Released::Last))
            },
            Box::new(move || u64::from(permits.close())),
        ];
        assert_eq!(sum_of(holders), 1);
    });
}
