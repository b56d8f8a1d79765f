//! File descriptors: how many connections the system lets the server have. One that runs out of them can neither read its
//! rules again nor answer those who ask what is wrong, so that connections get what is left over.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bounds::{CONNECTIONS_MAX, CONNECTIONS_MIN, FILES_KEPT, FILES_KEPT_A_THREAD, SPARE_CONNECTIONS};

/// Listeners that share what there is.
const LISTENERS: u64 = 3;

/// Raises the open file limit as far as allowed and useful, and returns how many connections a listener may have.
pub(crate) fn connections(threads: usize) -> usize {
    let own = own(threads);
    let enough = own.saturating_add(LISTENERS * CONNECTIONS_MAX as u64);
    let limit = raise(enough);
    let connections = share(limit, own);
    if connections < CONNECTIONS_MAX {
        tracing::warn!(
            open_files = limit,
            connections,
            "fewer than {CONNECTIONS_MAX} connections per listener: raise the open file limit to {enough} (ulimit -n)"
        );
    }
    connections
}

/// Returns how many files the server needs besides connections of listeners.
fn own(threads: usize) -> u64 {
    let threads = u64::try_from(threads).unwrap_or(u64::MAX).saturating_mul(FILES_KEPT_A_THREAD);
    threads.saturating_add(FILES_KEPT + SPARE_CONNECTIONS as u64)
}

/// Returns each listener's share of the open files that are left.
fn share(limit: u64, own: u64) -> usize {
    let share = usize::try_from(limit.saturating_sub(own) / LISTENERS).unwrap_or(usize::MAX);
    share.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// The bound on open files, once it was raised to `enough` or to what the system allows.
fn raise(enough: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    let allowed = limit.maximum.unwrap_or(u64::MAX).min(enough);
    if now >= allowed {
        return now;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: limit.maximum }) {
        Ok(()) => allowed,
        Err(error) => {
            tracing::warn!(open_files = now, %error, "cannot raise the open file limit");
            now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_a_share() {
        let check = |limit: u64, expected: usize| assert_eq!(share(limit, own(2)), expected, "{limit}");
        check(u64::MAX, CONNECTIONS_MAX);
        check(own(2) + 30_000, CONNECTIONS_MAX);
        check(own(2) + 3_000, 1_000);
        check(own(2), CONNECTIONS_MIN);
        check(0, CONNECTIONS_MIN);
        assert_eq!(share(1024, own(usize::MAX)), CONNECTIONS_MIN);
    }
}
