//! The limit in force and the state of every key under it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tidegate::{Identity, Key, Limit, Namespace, Op, State, Time};
use tidegate_policy::json::quote;

use super::request::Charge;
use super::{Complaint, Reply, Request};

/// The limit in force, and the states by the limit's identity and key.
pub(super) struct Ledger {
    limit: Option<Limit>,
    states: HashMap<(Identity, String), State>,
    keys_max: usize,
    /// Decisions since the last search for keys whose state equals that of a new key.
    since_search: usize,
}

impl Ledger {
    pub(super) fn new(keys_max: usize) -> Ledger {
        Ledger { limit: None, states: HashMap::new(), keys_max, since_search: 0 }
    }

    pub(super) fn answer(&mut self, request: Request) -> Result<Reply, Complaint> {
        match request {
            Request::New(limit) => {
                self.limit = Some(limit);
                self.states = HashMap::new();
                Ok(Reply::done())
            }
            Request::Change(limit) => {
                self.limit()?;
                self.limit = Some(limit);
                Ok(Reply::done())
            }
            Request::Decide(charge) => self.decide(charge),
        }
    }

    fn limit(&self) -> Result<Limit, Complaint> {
        self.limit
            .ok_or_else(|| Complaint::new("op", "no limit is set", r#"send {"op":"new","limit":"5/second"} first"#))
    }

    fn decide(&mut self, charge: Charge) -> Result<Reply, Complaint> {
        let limit = self.limit()?.for_key(Namespace::root(), Key::new(&charge.key)?);
        self.since_search += 1;
        // A search of all keys this seldom costs each decision a few keys.
        if self.states.len() >= self.keys_max && self.since_search > self.keys_max / 16 {
            self.forget(&limit, charge.at);
        }
        let keys = self.states.len();
        let mut state = match self.states.entry((limit.identity(), charge.key)) {
            Entry::Occupied(state) => state,
            Entry::Vacant(place) if keys < self.keys_max => place.insert_entry(State::fresh(&limit)),
            Entry::Vacant(place) => {
                let problem = format_args!("no room for {}: there are {keys} keys", quote(&place.key().1));
                return Err(Complaint::new("key", problem, "use fewer keys, reset some, or start again with op new"));
            }
        };
        let decision = tidegate::decide(&limit, state.get_mut(), charge.at, charge.op);
        if charge.op == Op::Reset {
            // The next search finds at least this key.
            self.since_search = self.keys_max;
        }
        // A peek does not need to keep its key.
        if *state.get() == State::fresh(&limit) {
            state.remove();
        }
        Ok(Reply::to(&decision, charge.want_receipt))
    }

    /// Drops the keys whose state at `now` equals that of a new key.
    fn forget(&mut self, limit: &Limit, now: Time) {
        self.since_search = 0;
        self.states.retain(|(identity, _), state| {
            *identity != limit.identity() || !tidegate::decide(limit, state, now, Op::Peek).reset_after().is_zero()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ledger: &mut Ledger, line: &str) -> String {
        let reply = Request::parse(line).and_then(|request| ledger.answer(request)).unwrap_or_else(Reply::from);
        let mut bytes = Vec::new();
        reply.write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn keys_are_bounded_and_those_that_equal_never_seen_do_not_count() {
        let mut ledger = Ledger::new(2);
        let allowed = |answer: String| answer.starts_with(r#"{"allowed":true"#);
        assert_eq!(answer(&mut ledger, r#"{"op":"new","limit":"5/second"}"#), "{\"ok\":true}\n");
        assert!(allowed(answer(&mut ledger, r#"{"op":"charge","at_ns":0,"key":"a"}"#)));
        assert!(allowed(answer(&mut ledger, r#"{"op":"peek","at_ns":0,"key":"b"}"#)));
        assert!(allowed(answer(&mut ledger, r#"{"op":"charge","at_ns":0,"key":"c"}"#)));
        assert_eq!(
            answer(&mut ledger, r#"{"op":"charge","at_ns":0,"key":"d"}"#),
            "{\"error\":\"key: no room for d: there are 2 keys; use fewer keys, reset some, or start again with op new\"}\n"
        );
        assert!(allowed(answer(&mut ledger, r#"{"op":"reset","at_ns":7,"key":"a"}"#)));
        assert!(allowed(answer(&mut ledger, r#"{"op":"charge","at_ns":7,"key":"d"}"#)));
    }
}
