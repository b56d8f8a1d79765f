//! Lists that mostly have one element.

use smallvec::SmallVec;

/// A list with room for one element in place, as most requests make one charge; more elements go to the heap. What waits for
/// a store holds such lists, and is moved with them.
pub(crate) type Few<T> = SmallVec<[T; 1]>;
