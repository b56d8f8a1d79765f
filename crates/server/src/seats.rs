//! Places of connections: how many may be open, and which of them gives way when all are taken.
//!
//! A connection that was accepted has a seat until it ends. Once all are taken, the network that holds most of them loses the
//! connection that has been idle for longest, if that is long enough. Where no such connection is left, a listener may have
//! spare seats, each for one request; there the newest always gets in, and the oldest gives way.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::bounds::{EVICT_IDLE, EVICT_PAUSE, SEATS_LOOK};

/// Whether a connection was used since somebody looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<AtomicBool>);

impl Activity {
    /// Notes that the connection is used. It reads no clock: that is done where somebody looks.
    #[inline]
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// The seats of a listener.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: Mutex<Taken>,
    counts: SeatCounts,
}

/// What is counted of the seats of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeatCounts {
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
    /// Connections that were closed unserved because there were too many.
    pub(crate) refused: Arc<AtomicUsize>,
    /// Connections that were closed because they were idle and others came.
    pub(crate) evicted: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// How many there are, without spare ones.
    count: usize,
    networks: HashMap<IpAddr, BTreeMap<u64, Sitting>>,
    /// Those beyond the bound, the oldest first.
    spare: BTreeMap<u64, Sitting>,
    /// When it was last looked which are in use.
    looked: Option<Instant>,
    /// When it was last found that nobody can be evicted.
    in_vain: Option<Instant>,
}

/// A connection that has a seat.
#[derive(Debug)]
struct Sitting {
    activity: Activity,
    /// It has not been used since then.
    idle_since: Instant,
    /// What serves it, once something does.
    task: Option<AbortHandle>,
}

/// Which seat it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatNumber {
    number: u64,
    network: IpAddr,
    is_spare: bool,
}

/// The seat of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) number: SeatNumber,
    pub(crate) activity: Activity,
    seats: Arc<Seats>,
}

impl Seat {
    /// Whether it is one of those beyond the bound.
    pub(crate) fn is_spare(&self) -> bool {
        self.number.is_spare
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.counts.open.fetch_sub(1, Ordering::Relaxed);
        // Nobody sits there if it was evicted.
        let _ = self.seats.lock().remove(self.number);
    }
}

impl Seats {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> &SeatCounts {
        &self.counts
    }

    /// Finds a seat for a client, of which there are `max`, and `spare` beyond them. Another connection may have to go.
    pub(crate) fn take(self: &Arc<Seats>, client: IpAddr, max: usize, spare: usize) -> Option<Seat> {
        let (seat, gives_way) = self.find(client, max, spare);
        // What serves it may end at once and give its seat back, for which it needs all of them.
        if let Some(task) = gives_way.and_then(|sitting| sitting.task) {
            task.abort();
        }
        seat
    }

    /// Finds a seat, and what has to give way for it.
    fn find(self: &Arc<Seats>, client: IpAddr, max: usize, spare: usize) -> (Option<Seat>, Option<Sitting>) {
        let now = Instant::now();
        let (mut taken, mut gives_way) = (self.lock(), None);
        let mut is_spare = taken.count >= max;
        if is_spare && let Some(idle) = taken.evict_idle(now) {
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            (is_spare, gives_way) = (false, Some(idle));
        }
        if is_spare && taken.spare.len() >= spare {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            let Some((_, oldest)) = taken.spare.pop_first() else { return (None, None) };
            gives_way = Some(oldest);
        }
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        let number = SeatNumber { number: taken.next, network: network(client), is_spare };
        taken.next += 1;
        let activity = Activity::default();
        taken.insert(number, Sitting { activity: activity.clone(), idle_since: now, task: None });
        (Some(Seat { number, activity, seats: Arc::clone(self) }), gives_way)
    }

    /// Notes what serves the connection of a seat, and ends that if the seat was lost meanwhile.
    pub(crate) fn serve(&self, seat: SeatNumber, task: AbortHandle) {
        let mut taken = self.lock();
        if let Some(sitting) = taken.get(seat) {
            sitting.task = Some(task);
            return;
        }
        drop(taken);
        task.abort();
    }

    /// Looks which connections were used. It has to be called every [`SEATS_LOOK`], by any number of threads.
    pub(crate) fn look(&self) {
        let now = Instant::now();
        let mut taken = self.lock();
        if taken.looked.is_some_and(|looked| now - looked < SEATS_LOOK / 2) {
            return;
        }
        taken.looked = Some(now);
        for sitting in taken.networks.values_mut().flat_map(BTreeMap::values_mut) {
            if sitting.activity.take() {
                sitting.idle_since = now;
            }
        }
    }
}

impl Taken {
    fn insert(&mut self, seat: SeatNumber, sitting: Sitting) {
        if seat.is_spare {
            self.spare.insert(seat.number, sitting);
        } else {
            self.count += 1;
            self.networks.entry(seat.network).or_default().insert(seat.number, sitting);
        }
    }

    fn get(&mut self, seat: SeatNumber) -> Option<&mut Sitting> {
        if seat.is_spare {
            return self.spare.get_mut(&seat.number);
        }
        self.networks.get_mut(&seat.network)?.get_mut(&seat.number)
    }

    fn remove(&mut self, seat: SeatNumber) -> Option<Sitting> {
        if seat.is_spare {
            return self.spare.remove(&seat.number);
        }
        let network = self.networks.get_mut(&seat.network)?;
        let removed = network.remove(&seat.number)?;
        self.count -= 1;
        if network.is_empty() {
            self.networks.remove(&seat.network);
        }
        Some(removed)
    }

    /// Takes the seat of the connection that has been idle for longest, of the networks that hold most. Returns `None` if these
    /// have no connection that was idle for [`EVICT_IDLE`].
    fn evict_idle(&mut self, now: Instant) -> Option<Sitting> {
        if self.in_vain.is_some_and(|in_vain| now - in_vain < EVICT_PAUSE) {
            return None;
        }
        let most = self.networks.values().map(BTreeMap::len).max().unwrap_or_default();
        let crowded = self.networks.iter().filter(|(_, sitting)| sitting.len() == most);
        let of_all = crowded.flat_map(|(network, sitting)| sitting.iter().map(move |one| (network, one)));
        let unused = of_all.filter(|(_, (_, sitting))| !sitting.activity.0.load(Ordering::Relaxed));
        let longest = unused.min_by_key(|(_, (_, sitting))| sitting.idle_since).and_then(|(network, (number, one))| {
            let seat = SeatNumber { number: *number, network: *network, is_spare: false };
            (now - one.idle_since >= EVICT_IDLE).then_some(seat)
        });
        self.in_vain = if longest.is_some() { None } else { Some(now) };
        self.remove(longest?)
    }
}

/// The network of a client: of IPv6 all that one customer of a provider has, which is the same person.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;

    const MANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const FEW: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// A connection that lasts for ever, and tells whether it was ended.
    fn sit(seats: &Arc<Seats>, client: IpAddr, spare: usize) -> Option<(tokio::task::JoinHandle<()>, Activity)> {
        let seat = seats.take(client, 4, spare)?;
        let (number, activity) = (seat.number, seat.activity.clone());
        let task = tokio::spawn(async move {
            let _seat = seat;
            std::future::pending().await
        });
        seats.serve(number, task.abort_handle());
        Some((task, activity))
    }

    fn look_for(seats: &Arc<Seats>, seconds: u64) -> impl Future<Output = ()> {
        let seats = Arc::clone(seats);
        async move {
            for _ in 0..seconds / SEATS_LOOK.as_secs() {
                advance(SEATS_LOOK).await;
                seats.look();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_most_loses_what_was_idle_for_longest() {
        let seats = Arc::new(Seats::default());
        let few = sit(&seats, FEW, 0).unwrap();
        let oldest = sit(&seats, MANY, 0).unwrap();
        let second = sit(&seats, MANY, 0).unwrap();
        let third = sit(&seats, MANY, 0).unwrap();
        look_for(&seats, 30).await;
        oldest.1.note();
        look_for(&seats, 25).await;
        assert!(sit(&seats, FEW, 0).is_none(), "nobody was idle for a minute");
        look_for(&seats, 5).await;
        third.1.note();
        let newcomer = sit(&seats, FEW, 0).unwrap();
        sleep(Duration::from_millis(1)).await;
        assert!(second.0.is_finished(), "idle for a minute, and of those who hold most");
        assert!(!few.0.is_finished() && !oldest.0.is_finished() && !third.0.is_finished() && !newcomer.0.is_finished());
        assert_eq!(seats.counts.evicted.load(Ordering::Relaxed), 1);
        assert_eq!(seats.counts.open.load(Ordering::Relaxed), 4);
        // Both hold as many now, and all are in use.
        few.1.note();
        assert!(sit(&seats, FEW, 0).is_none());
        assert_eq!(seats.counts.refused.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn of_networks_that_hold_as_much_the_longest_idle_connection_goes() {
        let seats = Arc::new(Seats::default());
        let client = |host: u8| IpAddr::from([192, 0, 2, host]);
        let held: Vec<_> = (0..4).map(|host| sit(&seats, client(host), 0).unwrap()).collect();
        for _ in 0..2 {
            look_for(&seats, 30).await;
            // All are in use but one.
            [0, 1, 3].iter().for_each(|place: &usize| held[*place].1.note());
        }
        look_for(&seats, 5).await;
        [0, 1, 3].iter().for_each(|place: &usize| held[*place].1.note());
        assert!(sit(&seats, client(9), 0).is_some(), "one was idle for a minute");
        sleep(Duration::from_millis(1)).await;
        let ended: Vec<bool> = held.iter().map(|(task, _)| task.is_finished()).collect();
        assert_eq!(ended, [false, false, true, false]);
    }

    #[tokio::test]
    async fn the_newest_gets_a_spare_seat() {
        let seats = Arc::new(Seats::default());
        let _held: Vec<_> = (0..4).map(|_| sit(&seats, MANY, 2).unwrap()).collect();
        let spare: Vec<_> = (0..5).map(|_| sit(&seats, MANY, 2).unwrap()).collect();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(
            spare.iter().map(|(task, _)| task.is_finished()).collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
        assert_eq!(seats.counts.refused.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn seats_come_back() {
        let seats = Arc::new(Seats::default());
        for _ in 0..3 {
            let all: Vec<_> = (0..6).map(|_| seats.take(FEW, 4, 2).unwrap()).collect();
            assert_eq!(all.iter().filter(|seat| seat.is_spare()).count(), 2);
        }
        let taken = seats.lock();
        assert!(taken.count == 0 && taken.networks.is_empty() && taken.spare.is_empty());
        assert_eq!(seats.counts.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn networks() {
        let check = |client: &str, expected: &str| assert_eq!(network(client.parse().unwrap()).to_string(), expected);
        check("192.0.2.7", "192.0.2.7");
        check("::ffff:192.0.2.7", "192.0.2.7");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
    }
}
