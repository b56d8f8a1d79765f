//! CL.THROTTLE against its formulas, written down once more as literally as can be.

use std::time::Duration;

use crate::Server;

/// A second in nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// The state of one key, and the reply to a command at an instant.
struct Model {
    tat: i128,
}

impl Model {
    fn reply(&mut self, now: i128, [max_burst, count, period, quantity]: [i128; 4]) -> [i128; 5] {
        let interval = up(period * SECOND, count);
        let limit = max_burst + 1;
        let tolerance = interval * limit;
        let new_tat = self.tat.max(now) + interval * quantity;
        let limited = now < new_tat - tolerance;
        let never = interval * quantity > tolerance;
        let retry_after = if limited && !never { up(new_tat - tolerance - now, SECOND) } else { -1 };
        if !limited && quantity > 0 {
            self.tat = new_tat;
        }
        let debt = self.tat.max(now) - now;
        let remaining = ((tolerance - debt) / interval).max(0);
        [limited.into(), limit, remaining, retry_after, up(debt, SECOND)]
    }
}

fn up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn every_reply_follows_the_formulas() {
    let limits: [[i128; 3]; 10] = [
        [0, 1, 1],
        [0, 1, 60],
        [15, 30, 60],
        [99, 1000, 60],
        [2, 7, 3],
        [9, 1, 86_400],
        [1_000_000, 1_000_000, 1],
        [10_000_000, 10_000_000, 1],
        [5, 700_000, 1],
        [0, 10_000_000, 1],
    ];
    let mut random = Random(1);
    for (number, [max_burst, count, period]) in limits.into_iter().enumerate() {
        let server = Server::start(None);
        let mut client = server.connect().await;
        let mut model = Model { tat: 0 };
        let interval = u64::try_from(up(period * SECOND, count)).unwrap();
        for _ in 0..300 {
            let most = u64::try_from(max_burst).unwrap() + 3;
            let quantity = match random.below(4) {
                0 => 0,
                1 => i128::from(random.below(most)),
                _ => 1,
            };
            let now = i128::from(server.clock.now().as_nanos());
            let reply = model.reply(now, [max_burst, count, period, quantity]);
            let text: String = reply.iter().map(|value| format!(":{value}\r\n")).collect();
            let line = format!("CL.THROTTLE key{number} {max_burst} {count} {period} {quantity}");
            client.expect(&line, &format!("*5\r\n{text}")).await;
            let step = match random.below(4) {
                0 => 0,
                1 => random.below(interval * 2),
                2 => interval,
                _ => random.below(interval * most),
            };
            server.clock.advance(Duration::from_nanos(step));
        }
    }
}

#[tokio::test]
async fn who_waits_as_told_passes() {
    let server = Server::start(None);
    let mut client = server.connect().await;
    client.expect("CL.THROTTLE k 0 2 5", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3\r\n").await;
    client.expect("CL.THROTTLE k 0 2 5", "*5\r\n:1\r\n:1\r\n:0\r\n:3\r\n:3\r\n").await;
    // Never 0 for who is limited.
    server.clock.advance(Duration::from_millis(2_499));
    client.expect("CL.THROTTLE k 0 2 5", "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n:1\r\n").await;
    server.clock.advance(Duration::from_millis(1));
    client.expect("CL.THROTTLE k 0 2 5", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3\r\n").await;
}

/// redis-cell would deny for the 100 seconds of the old limit.
#[tokio::test]
async fn debt_fits_the_limit_that_is_asked() {
    let server = Server::start(None);
    let mut client = server.connect().await;
    client.expect("CL.THROTTLE k 99 1 1 100", "*5\r\n:0\r\n:100\r\n:0\r\n:-1\r\n:100\r\n").await;
    client.expect("CL.THROTTLE k 4 1 1", "*5\r\n:1\r\n:5\r\n:0\r\n:5\r\n:9\r\n").await;
}

/// An empty key is a key like any other, as in redis-cell.
#[tokio::test]
async fn a_key_may_be_empty() {
    let server = Server::start(None);
    let mut client = server.connect().await;
    client.expect("CL.THROTTLE \"\" 0 1 60", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n").await;
    client.expect("CL.THROTTLE \"\" 0 1 60", "*5\r\n:1\r\n:1\r\n:0\r\n:60\r\n:60\r\n").await;
    client.expect("CL.THROTTLE other 0 1 60", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n").await;
    client.expect("TTL \"\"", ":60\r\n").await;
    client.expect("DEL \"\"", ":1\r\n").await;
    client.expect("EXISTS \"\"", ":0\r\n").await;
    client.expect("CL.THROTTLE \"\" 0 1 60", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n").await;
}

#[tokio::test]
async fn a_full_store_says_that_it_cannot_delete_a_key() {
    let mut client = Server::start(None).connect().await;
    let take = |key: usize| format!("CL.THROTTLE key{key} 4 5 86400 5\r\n");
    // Three times as many as there is room for. A client that already has its share of approximate counts is denied, and
    // nothing is counted for such a key.
    let mut taken = Vec::new();
    for key in 0..3_000 {
        client.send(take(key)).await;
        if client.reply().await.starts_with("*5\r\n:0\r\n") {
            taken.push(key);
        }
    }
    assert!(taken.len() > 1_500, "{} taken", taken.len());
    let (mut deleted, mut kept) = (0, 0);
    for key in taken.into_iter().step_by(20) {
        client.expect(&format!("EXISTS key{key}"), ":1\r\n").await;
        client.send(format!("TTL key{key}\r\n")).await;
        let left = client.reply().await;
        assert!(left.trim_start_matches(':').trim_end().parse::<u64>().is_ok_and(|left| left > 0), "{left}");
        client.send(format!("DEL key{key} never-seen{key}\r\n")).await;
        match &*client.reply().await {
            ":1\r\n" => {
                deleted += 1;
                client.send(take(key)).await;
                assert!(client.reply().await.starts_with("*5\r\n:0\r\n"), "key{key} is still limited");
            }
            reply => {
                kept += 1;
                let expected =
                    "of the keys not deleted, since the store in memory is full and counts them approximately";
                assert!(reply.starts_with("-ERR ") && reply.contains(expected), "{reply}");
            }
        }
    }
    assert!(deleted > 0 && kept > 0, "{deleted} deleted, {kept} kept");
}
