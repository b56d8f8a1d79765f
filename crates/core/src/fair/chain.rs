//! Values in numbered places, each in at most one chain, from which any can be removed in constant time.

/// Values in numbered places. A place is reused when its value was removed, under a new generation.
#[derive(Debug)]
pub(super) struct Slab<V> {
    slots: Vec<Slot<V>>,
    /// The first empty place; each leads to the next.
    empty: Option<usize>,
    len: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: Option<V>,
    /// Counts removals: an older generation refers to a value that is gone.
    generation: u64,
    previous: Option<usize>,
    next: Option<usize>,
}

/// The ends of a chain of places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    first: Option<usize>,
    last: Option<usize>,
}

impl Chain {
    pub(super) fn first(&self) -> Option<usize> {
        self.first
    }
}

impl<V> Slab<V> {
    pub(super) fn new() -> Slab<V> {
        Slab { slots: Vec::new(), empty: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, place: usize) -> Option<&V> {
        self.slots.get(place)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut V> {
        self.slots.get_mut(place)?.value.as_mut()
    }

    /// The generation of a place; 0 for one that never was, which no value has.
    pub(super) fn generation(&self, place: usize) -> u64 {
        self.slots.get(place).map_or(0, |slot| slot.generation)
    }

    /// Puts a value into an empty place, outside of any chain.
    pub(super) fn insert(&mut self, value: V) -> usize {
        self.len += 1;
        if let Some(place) = self.empty
            && let Some(slot) = self.slots.get_mut(place)
        {
            self.empty = slot.next.take();
            slot.value = Some(value);
            return place;
        }
        self.slots.push(Slot { value: Some(value), generation: 1, previous: None, next: None });
        self.slots.len() - 1
    }

    /// Removes a value that is no longer in a chain from its place.
    pub(super) fn remove(&mut self, place: usize) -> Option<V> {
        let slot = self.slots.get_mut(place)?;
        let value = slot.value.take()?;
        slot.generation += 1;
        slot.next = self.empty.replace(place);
        self.len -= 1;
        Some(value)
    }

    /// Appends a place that is in no chain to one.
    pub(super) fn link_back(&mut self, chain: &mut Chain, place: usize) {
        let last = chain.last.replace(place);
        self.set_next(last, Some(place));
        self.set_previous(Some(place), last);
        self.set_next(Some(place), None);
        if last.is_none() {
            chain.first = Some(place);
        }
    }

    /// Removes a place from its chain.
    pub(super) fn unlink(&mut self, chain: &mut Chain, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let (previous, next) = (slot.previous.take(), slot.next.take());
        self.set_next(previous, next);
        self.set_previous(next, previous);
        if chain.first == Some(place) {
            chain.first = next;
        }
        if chain.last == Some(place) {
            chain.last = previous;
        }
    }

    fn set_next(&mut self, place: Option<usize>, next: Option<usize>) {
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) {
            slot.next = next;
        }
    }

    fn set_previous(&mut self, place: Option<usize>, previous: Option<usize>) {
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) {
            slot.previous = previous;
        }
    }
}
