//! Limits how many wrong secrets an address may try: nobody guesses the admin token or the password of Redis clients by
//! trying all of them.

use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::{Clock, Key, Limit, Limiter, Op, Rate};

use crate::bounds::{GUESSES_MAX, GUESSES_PERIOD, GUESSING_ADDRESSES};

/// Wrong attempts at one secret, counted by address.
#[derive(Debug)]
pub(crate) struct Guesses {
    /// None if the system has no memory for it: then no attempt is let through.
    limiter: Option<Limiter>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The secret is right.
    Right,
    /// It is wrong, and counts.
    Wrong,
    /// The address has tried too many. It may try again after this long; the secret was not looked at.
    TooMany(Duration),
}

impl Guesses {
    /// No address has tried anything yet.
    pub(crate) fn new(clock: &Clock) -> Guesses {
        let limit = Rate::new(GUESSES_MAX, GUESSES_PERIOD).and_then(|rate| Limit::gcra(rate, GUESSES_MAX)).ok();
        let build = |limit| Limiter::builder(limit).keys(GUESSING_ADDRESSES).clock(clock.clone()).build().ok();
        Guesses { limiter: limit.and_then(build) }
    }

    /// Lets an address try a secret, if it has not tried too many wrong ones. A right one costs nothing.
    pub(crate) fn attempt(&self, address: IpAddr, is_right: impl FnOnce() -> bool) -> Attempt {
        let network = network(address);
        let (Some(limiter), Ok(key)) = (&self.limiter, Key::new(network.as_slice())) else {
            return Attempt::TooMany(GUESSES_PERIOD);
        };
        let next = limiter.store().decide(key, limiter.limit(), Op::Ask(1));
        if !next.is_allowed() {
            return Attempt::TooMany(next.retry_after().unwrap_or(GUESSES_PERIOD));
        }
        if is_right() {
            return Attempt::Right;
        }
        limiter.check(key);
        Attempt::Wrong
    }
}

/// The part of an address that its owner cannot choose: all of IPv4, and a /64 of IPv6.
fn network(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().into_iter().take(8).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::FakeClock;

    #[test]
    fn an_address_has_few_guesses() {
        let clock = FakeClock::new();
        let guesses = Guesses::new(&clock.clone().into());
        let attempt = |address: &str, is_right: bool| guesses.attempt(address.parse().unwrap(), || is_right);
        for _ in 0..100 {
            assert_eq!(attempt("192.0.2.1", true), Attempt::Right, "what is right costs nothing");
        }
        for _ in 0..GUESSES_MAX {
            assert_eq!(attempt("192.0.2.1", false), Attempt::Wrong);
        }
        let wait = GUESSES_PERIOD / u32::try_from(GUESSES_MAX).unwrap();
        assert_eq!(attempt("192.0.2.1", false), Attempt::TooMany(wait));
        assert_eq!(attempt("::ffff:192.0.2.1", true), Attempt::TooMany(wait), "else a guess would not have to wait");
        assert_eq!(attempt("192.0.2.2", true), Attempt::Right, "others are not concerned");
        clock.advance(wait);
        assert_eq!(attempt("192.0.2.1", false), Attempt::Wrong);
        assert_eq!(attempt("192.0.2.1", true), Attempt::TooMany(wait));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let guesses = Guesses::new(&FakeClock::new().into());
        let attempt = |host: u16| {
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host);
            guesses.attempt(address.into(), || false)
        };
        let wrong = (0..100).filter(|host| attempt(*host) == Attempt::Wrong).count();
        assert_eq!(u64::try_from(wrong).unwrap(), GUESSES_MAX);
        assert_eq!(guesses.attempt("2001:db8:0:1::".parse().unwrap(), || false), Attempt::Wrong);
    }
}
