//! The events of a simulated server: requests arrive, wait, are worked on, and end or are late.
//!
//! A request over the limit is refused at once and costs nothing. One that is let in counts as in flight until its end,
//! waits in line for a worker, and holds it for its whole work, even if its deadline passes meanwhile: then the work was
//! in vain. One whose deadline passes while it waits leaves the line, or stays, as the scenario says. Either is a drop,
//! and the gate hears of it when the request ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_core::Dice;
use tidegate_core::adaptive::Sample;

use crate::Gate;
use crate::run::{Done, Run};
use crate::scenario::{Late, Scenario};

/// Runs a scenario behind a gate.
#[must_use]
pub fn simulate(scenario: &Scenario, gate: Gate) -> Run {
    let mut server = Server {
        scenario,
        gate,
        waiting: VecDeque::new(),
        working: BinaryHeap::new(),
        service_dice: Dice::new(scenario.seed.wrapping_add(1)),
        run: Run::new(scenario.clone()),
    };
    let mut arrival_dice = Dice::new(scenario.seed);
    let (mut arrival, end) = (Duration::ZERO, scenario.length());
    loop {
        arrival += gap(scenario.offered_per_second, &mut arrival_dice);
        server.advance(arrival.min(end));
        if arrival >= end {
            return server.run;
        }
        server.arrive(arrival);
    }
}

/// The time to the next arrival: exponential, so that arrivals do not depend on each other.
fn gap(per_second: f64, dice: &mut Dice) -> Duration {
    Duration::from_secs_f64(-(1.0 - dice.fraction()).ln() / per_second)
}

/// A request that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    arrived: Duration,
    in_flight: u64,
}

struct Server<'a> {
    scenario: &'a Scenario,
    gate: Gate,
    waiting: VecDeque<Request>,
    /// Those that are worked on, the next to be done on top.
    working: BinaryHeap<Reverse<(Duration, Request)>>,
    service_dice: Dice,
    run: Run,
}

impl Server<'_> {
    fn arrive(&mut self, now: Duration) {
        let in_flight = (self.waiting.len() + self.working.len()) as u64;
        let admitted = self.gate.admits(in_flight);
        self.run.offered(now, admitted);
        if !admitted {
            return;
        }
        let request = Request { arrived: now, in_flight: in_flight + 1 };
        if self.working.len() < self.scenario.workers {
            self.begin(now, request);
        } else {
            self.waiting.push_back(request);
        }
    }

    /// Lets everything happen that is due before `until`, in its order.
    fn advance(&mut self, until: Duration) {
        loop {
            let done = self.working.peek().map(|Reverse((done, _))| *done);
            let late = match self.scenario.late {
                // All have the same deadline, so the first in line is the first to be late.
                Late::Leaves => self.waiting.front().map(|request| request.arrived + self.scenario.deadline),
                Late::Stays => None,
            };
            match (done, late) {
                (_, Some(late)) if late < until && done.is_none_or(|done| late < done) => {
                    if let Some(request) = self.waiting.pop_front() {
                        self.end(late, request, true);
                    }
                }
                (Some(done), _) if done < until => self.finish(done),
                _ => return,
            }
        }
    }

    fn begin(&mut self, now: Duration, request: Request) {
        let noise = 1.0 + self.scenario.noise * (2.0 * self.service_dice.fraction() - 1.0);
        let done = now + self.scenario.service_at(now).mul_f64(noise);
        self.working.push(Reverse((done, request)));
    }

    fn finish(&mut self, now: Duration) {
        if let Some(Reverse((_, request))) = self.working.pop() {
            let late = now - request.arrived > self.scenario.deadline;
            self.end(now, request, late);
        }
        if let Some(next) = self.waiting.pop_front() {
            self.begin(now, next);
        }
    }

    fn end(&mut self, now: Duration, request: Request, late: bool) {
        let latency = now - request.arrived;
        self.run.ended(Done { at: now, latency, late });
        self.gate.learn(now, Sample { rtt: latency, in_flight: request.in_flight, dropped: late });
        self.run.limit_is(now, self.gate.limit());
    }
}
