//! Connections dealt out evenly to the threads that accept them.
//!
//! A thread that is woken by a burst of connections could take all of them before another runs, and would serve them
//! alone for as long as they live. So it hands each to the thread that has fewest.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::seats::Seat;

/// A connection that was accepted, with its seat and its lane. Seats are bounded, and so is what waits.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) seat: Seat,
    pub(crate) place: Place,
}

/// A connection's place among those of a thread.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All threads that accept from a socket.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    open: Arc<AtomicUsize>,
    hand: UnboundedSender<Arrived>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    open: Arc<AtomicUsize>,
    handed: UnboundedReceiver<Arrived>,
}

/// Whose a connection is.
pub(crate) enum Owner {
    /// The thread's that accepted it.
    Own(Place),
    /// Another's.
    Other(Place, UnboundedSender<Arrived>),
}

impl Lanes {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many take part.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.entries().len()
    }

    pub(crate) fn join(&self) -> Lane<'_> {
        let (open, (hand, handed)) = (Arc::default(), unbounded_channel());
        self.entries().push(Entry { open: Arc::clone(&open), hand });
        Lane { lanes: self, open, handed }
    }
}

impl Lane<'_> {
    /// Finds who serves a connection that was accepted here.
    pub(crate) fn deal(&self) -> Owner {
        let count = |open: &AtomicUsize| open.load(Ordering::Relaxed);
        let entries = self.lanes.entries();
        let emptiest = entries.iter().min_by_key(|entry| count(&entry.open));
        let other = emptiest.filter(|entry| count(&entry.open) < count(&self.open));
        let of_lane = Arc::clone(other.map_or(&self.open, |entry| &entry.open));
        of_lane.fetch_add(1, Ordering::Relaxed);
        match other {
            Some(entry) => Owner::Other(Place(of_lane), entry.hand.clone()),
            None => Owner::Own(Place(of_lane)),
        }
    }

    /// The next connection that another thread hands to this one.
    pub(crate) async fn next(&mut self) -> Option<Arrived> {
        self.handed.recv().await
    }

    /// Takes no more; `next` still gives what was handed over before, and then nothing. Who hands over another finds
    /// nobody, and serves it where it was accepted.
    pub(crate) fn close(&mut self) {
        self.handed.close();
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.lanes.entries().retain(|entry| !Arc::ptr_eq(&entry.open, &self.open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seats::Seats;

    fn deal(lane: &Lane<'_>) -> (bool, Place) {
        match lane.deal() {
            Owner::Own(place) => (true, place),
            Owner::Other(place, _) => (false, place),
        }
    }

    #[test]
    fn each_goes_to_who_has_fewest() {
        let lanes = Lanes::default();
        let [ann, bob, cid] = [lanes.join(), lanes.join(), lanes.join()];
        let mut places: Vec<_> = (0..7).map(|_| deal(&ann).1).collect();
        let open = || [&ann, &bob, &cid].map(|lane| lane.open.load(Ordering::Relaxed));
        assert_eq!(open(), [3, 2, 2]);
        places.truncate(1);
        assert_eq!(open(), [1, 0, 0], "the first stayed where it came");
        drop(cid);
        let (is_own, _kept) = deal(&bob);
        assert!(is_own, "nobody has fewer");
        let (is_own, _kept) = deal(&bob);
        assert!(is_own, "as many as the other");
        let (is_own, _kept) = deal(&bob);
        assert!(!is_own);
    }

    #[tokio::test]
    async fn what_was_handed_over_is_not_lost() {
        let (lanes, seats) = (Lanes::default(), Arc::new(Seats::default()));
        let (ann, mut bob) = (lanes.join(), lanes.join());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _own = ann.deal();
        // Each is dropped when it was looked at, so the other always has fewer.
        let hand = || {
            let Owner::Other(place, hand) = ann.deal() else { panic!("the other has fewer") };
            let (stream, peer) = (TcpStream::connect(socket.local_addr().unwrap()).unwrap(), ([127, 0, 0, 1], 1));
            let seat = seats.take([127, 0, 0, 1].into(), 100, 0).unwrap();
            hand.send(Arrived { stream, peer: peer.into(), seat, place })
        };
        assert!(hand().is_ok() && bob.next().await.is_some());
        assert!(hand().is_ok());
        bob.close();
        assert!(bob.next().await.is_some(), "it came before nobody could");
        assert!(bob.next().await.is_none());
        assert!(hand().is_err(), "who hands it over keeps it");
        assert_eq!(seats.counts().open.load(Ordering::Relaxed), 0);
    }
}
