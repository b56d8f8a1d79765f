//! Zeroed memory for large tables: taken from the system page by page as it is touched, in huge pages where large.

#[cfg(not(any(shuttle, miri)))]
mod mapped {
    #![allow(unsafe_code)]

    use std::marker::PhantomData;
    use std::ops::Deref;

    use memmap2::MmapMut;

    use super::Zeroed;

    /// From here on huge pages are asked for: smaller tables fit the translation caches without them, and would only
    /// make more memory resident.
    #[cfg(target_os = "linux")]
    const HUGE_FROM_BYTES: usize = 16 << 20;

    /// A slice of `T` in pages of its own, aligned to a page.
    pub(crate) struct Pages<T> {
        map: MmapMut,
        length: usize,
        holds: PhantomData<T>,
    }

    impl<T: Zeroed> Pages<T> {
        pub(crate) fn zeroed(length: usize) -> std::io::Result<Pages<T>> {
            let bytes = length.checked_mul(size_of::<T>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
            let map = MmapMut::map_anon(bytes.max(1))?;
            #[cfg(target_os = "linux")]
            if bytes >= HUGE_FROM_BYTES {
                // Only advice: without huge pages the table is slower, not wrong.
                let _ = map.advise(memmap2::Advice::HugePage);
            }
            Ok(Pages { map, length, holds: PhantomData })
        }
    }

    impl<T> Deref for Pages<T> {
        type Target = [T];

        #[inline]
        fn deref(&self) -> &[T] {
            // SAFETY: the map holds `length` values of `T`, is aligned to a page (more than any `T` here needs), was
            // zeroed by the system, which is a valid `T` by the contract of `Zeroed`, and lives as long as `self`;
            // after that it is only changed through the atomics that `T` is made of.
            unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<T>(), self.length) }
        }
    }
}

#[cfg(any(shuttle, miri))]
mod boxed {
    use std::ops::Deref;

    use super::Zeroed;

    /// Stands in for the mapped pages under checkers that do not support maps.
    pub(crate) struct Pages<T>(Box<[T]>);

    impl<T: Zeroed> Pages<T> {
        pub(crate) fn zeroed(length: usize) -> std::io::Result<Pages<T>> {
            Ok(Pages((0..length).map(|_| T::zero()).collect()))
        }
    }

    impl<T> Deref for Pages<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }
}

#[cfg(any(shuttle, miri))]
pub(crate) use boxed::Pages;
#[cfg(not(any(shuttle, miri)))]
pub(crate) use mapped::Pages;

/// Types made of 64-bit atomics alone.
///
/// # Safety
/// All bytes zero must be a valid value of the type, and it must not need more alignment than a page has.
#[allow(unsafe_code)]
#[cfg_attr(not(any(shuttle, miri)), allow(dead_code, reason = "a promise to the bound above, without methods"))]
pub(crate) unsafe trait Zeroed {
    /// The zero value, made field by field.
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self;
}

// SAFETY: an `AtomicU64` of zeros is `AtomicU64::new(0)`.
#[allow(unsafe_code)]
unsafe impl Zeroed for crate::sync::AtomicU64 {
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self {
        crate::sync::AtomicU64::new(0)
    }
}

/// Asks the processor to fetch the cache lines of a value that is needed soon.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(shuttle, miri))))]
    #[allow(unsafe_code)]
    for line in (0..size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address lies inside `value`; and a prefetch has no effect but on the cache.
        unsafe { _mm_prefetch(std::ptr::from_ref(value).cast::<i8>().add(line), _MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(shuttle, miri)))))]
    let _ = value;
}
