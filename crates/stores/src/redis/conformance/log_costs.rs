//! What a long log costs: how many of its entries a call looks at.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Limit, Op, State, Time, decide as decide_in_rust};
use tidegate_testkit::conformance::history::Choices;

use super::decide;
use super::in_process::InProcess;

const START: u64 = 1_700_000_000_000_000_000;

/// A log on an instant of its own, beside the arithmetic in Rust.
struct Costs {
    subject: InProcess,
    limit: Limit,
    state: State,
    now: u64,
}

impl Costs {
    /// A log with so many entries of one unit each, a microsecond apart.
    fn with_entries(limit: u64, entries: usize) -> Costs {
        let limit = Limit::sliding_log(limit, Duration::from_secs(3600)).unwrap();
        let mut costs = Costs { subject: InProcess::new(), limit, state: State::fresh(&limit), now: START };
        for _ in 0..entries {
            costs.call(Op::Take(1));
        }
        costs
    }

    /// Decides an op a microsecond later, as Rust does, and answers its receipt and how many fields were fetched.
    fn call(&mut self, op: Op) -> (Option<tidegate_core::Receipt>, usize) {
        self.now += 1_000;
        let (now, before) = (Time::from_nanos(self.now), self.subject.fetched());
        let decision = decide(&mut self.subject, "key", &self.limit, now, op);
        assert_eq!(decision, decide_in_rust(&self.limit, &mut self.state, now, op), "{op:?}");
        (decision.receipt(), self.subject.fetched() - before)
    }
}

#[test]
fn a_refund_by_receipt_looks_at_the_newest_entries_only() {
    let mut costs = Costs::with_entries(10_000, 5_000);
    for _ in 0..3 {
        let (receipt, of_take) = costs.call(Op::Take(1));
        let (_, of_refund) = costs.call(Op::Refund(1, receipt));
        let (_, of_peek) = costs.call(Op::Peek);
        let all = [of_take, of_refund, of_peek];
        assert!(all.iter().all(|fetched| *fetched < 100), "of 5,000 entries it fetched {all:?}");
    }
}

#[test]
fn what_was_given_back_leaves_no_numbers_to_walk_over() {
    // The oldest entry stays, and each pair of take and refund overlaps the next.
    let mut costs = Costs::with_entries(100, 1);
    let mut held = costs.call(Op::Take(1)).0;
    for _ in 0..2_000 {
        let next = costs.call(Op::Take(1)).0;
        costs.call(Op::Refund(1, held));
        held = next;
    }
    let (_, of_denial) = costs.call(Op::Take(100));
    assert!(of_denial < 100, "of 2 entries it fetched {of_denial}");
}

#[test]
fn many_refunds_in_the_order_of_their_takes_leave_the_end_near() {
    let mut costs = Costs::with_entries(10_000, 1_000);
    let receipts: Vec<_> = (0..900).map(|_| costs.call(Op::Take(1)).0).collect();
    for receipt in receipts {
        costs.call(Op::Refund(1, receipt));
    }
    let (_, of_peek) = costs.call(Op::Peek);
    assert!(of_peek < 100, "behind 900 missing ones it fetched {of_peek}");
}

#[test]
fn a_denial_walks_from_the_nearer_end() {
    let mut costs = Costs::with_entries(2_000, 2_000);
    for (units, most) in [(1, 50), (2_000, 50), (1_999, 50), (1_000, 1_600), (1_001, 1_600)] {
        let (_, of_denial) = costs.call(Op::Take(units));
        assert!(of_denial <= most, "a denial of {units} fetched {of_denial} of 2,000");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]
    /// Long logs with holes everywhere, which lose entries at both ends, answer as Rust does.
    #[test]
    fn long_histories_in_process(words in prop::collection::vec(any::<u64>(), 300..900), hold in 1_u64..60) {
        let mut costs = Costs::with_entries(200, 0);
        let mut held = Vec::new();
        for word in words {
            let mut choices = Choices(word);
            costs.now += [0, 0, 1_000_000_000, 30_000_000_000][choices.below(4) as usize];
            let op = match choices.below(16) {
                0 => Op::Refund(1 + choices.below(5), None),
                1 => Op::Take(1 + choices.below(200)),
                2 => Op::Ask(1 + choices.below(200)),
                3 => Op::Debit(choices.below(3)),
                _ if held.len() as u64 > hold => {
                    Op::Refund(1 + choices.below(2), held.swap_remove(choices.below(held.len() as u64) as usize))
                }
                _ => Op::Take(1),
            };
            let (receipt, _) = costs.call(op);
            if matches!(op, Op::Take(1)) && receipt.is_some() {
                held.push(receipt);
            }
        }
    }
}
