//! What is said of a node in the log: each kind of message once in a while at most, and the last state always.
//!
//! A message that came too soon after another of its kind is left out. Where it told of a change, it is written when its
//! time has come, unless the node is by then as it was last said to be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::bounds::MESSAGE_PAUSE;
use super::dial::{DialError, Endpoint};
use super::node::Node;

/// Says what changed about a node.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<Ledger>);

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connected,
    Lost,
    Unreachable,
    AccessDenied,
    BreakerOpened,
    BreakerClosed,
}

/// One more than the last: whatever comes after it has to take its place here.
const KINDS: usize = Kind::BreakerClosed as usize + 1;

/// What the kinds are about. Those of one subject take each other's place, those of two do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Connections,
    Breaker,
}

/// One more than the last, as above.
const SUBJECTS: usize = Subject::Breaker as usize + 1;

impl Kind {
    fn subject(self) -> Subject {
        match self {
            Kind::Connected | Kind::Lost | Kind::Unreachable | Kind::AccessDenied => Subject::Connections,
            Kind::BreakerOpened | Kind::BreakerClosed => Subject::Breaker,
        }
    }
}

/// When messages were written. Instants are milliseconds of the node's age.
#[derive(Debug, Default)]
struct Ledger {
    paces: [Pace; KINDS],
    subjects: [OfSubject; SUBJECTS],
}

/// When a message of a kind may be written next, and how many were not since the last.
#[derive(Debug, Default)]
struct Pace {
    next_millis: u64,
    left_out: u64,
}

/// What was written of a subject, and what was not.
#[derive(Debug, Default)]
struct OfSubject {
    written: Option<Kind>,
    /// What would have to be said now, if that is something else.
    withheld: Option<(Kind, String)>,
    /// Whether somebody waits to write it.
    is_watched: bool,
}

/// A message that is to be written now.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: Kind,
    detail: String,
    left_out: u64,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
enum Noted {
    Write(Message),
    /// It is to be looked at again at that age.
    Wait(u64),
    LeftOut,
}

impl Ledger {
    /// Something is to be said.
    fn note(&mut self, kind: Kind, detail: String, age_millis: u64) -> Noted {
        let (pace, of_subject) = (&mut self.paces[kind as usize], &mut self.subjects[kind.subject() as usize]);
        if age_millis >= pace.next_millis {
            return Noted::Write(due(pace, of_subject, (kind, detail), age_millis));
        }
        pace.left_out += 1;
        of_subject.withheld = (of_subject.written != Some(kind)).then_some((kind, detail));
        if of_subject.withheld.is_none() || of_subject.is_watched {
            return Noted::LeftOut;
        }
        of_subject.is_watched = true;
        Noted::Wait(pace.next_millis)
    }

    /// Somebody waited to write what was withheld.
    fn look_again(&mut self, subject: Subject, age_millis: u64) -> Noted {
        let of_subject = &mut self.subjects[subject as usize];
        // Whoever withholds something from now on finds nobody who waits for it.
        of_subject.is_watched = false;
        let Some((kind, detail)) = of_subject.withheld.take() else { return Noted::LeftOut };
        let pace = &mut self.paces[kind as usize];
        if age_millis < pace.next_millis {
            (of_subject.withheld, of_subject.is_watched) = (Some((kind, detail)), true);
            return Noted::Wait(pace.next_millis);
        }
        // It was counted among those that were left out.
        pace.left_out = pace.left_out.saturating_sub(1);
        Noted::Write(due(pace, of_subject, (kind, detail), age_millis))
    }
}

/// The message, of which is noted that it is written now.
fn due(pace: &mut Pace, of_subject: &mut OfSubject, (kind, detail): (Kind, String), age_millis: u64) -> Message {
    pace.next_millis = age_millis.saturating_add(u64::try_from(MESSAGE_PAUSE.as_millis()).unwrap_or(u64::MAX));
    (of_subject.written, of_subject.withheld) = (Some(kind), None);
    Message { kind, detail, left_out: std::mem::take(&mut pace.left_out) }
}

impl Journal {
    pub(super) fn connected(&self, node: &Arc<Node>, endpoint: &Endpoint) {
        self.say(node, Kind::Connected, endpoint.to_string());
    }

    pub(super) fn lost(&self, node: &Arc<Node>, endpoint: &Endpoint) {
        self.say(node, Kind::Lost, endpoint.to_string());
    }

    pub(super) fn unreachable(&self, node: &Arc<Node>, error: &DialError) {
        let kind = if error.is_access_denied { Kind::AccessDenied } else { Kind::Unreachable };
        self.say(node, kind, error.reason.clone());
    }

    pub(super) fn breaker_opened(&self, node: &Arc<Node>) {
        self.say(node, Kind::BreakerOpened, String::new());
    }

    pub(super) fn breaker_closed(&self, node: &Arc<Node>) {
        self.say(node, Kind::BreakerClosed, String::new());
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages are written under the lock, or the log could end with another than the last.
    fn say(&self, node: &Arc<Node>, kind: Kind, detail: String) {
        let mut ledger = self.ledger();
        match ledger.note(kind, detail, age_millis(node)) {
            Noted::Write(message) => tell(node, &message),
            Noted::Wait(until) => {
                // It is let go of here, should there be nobody to run it.
                drop(ledger);
                let watch = Watch { node: Arc::downgrade(node), subject: kind.subject() };
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(watch.run(until));
                }
            }
            Noted::LeftOut => {}
        }
    }
}

/// The task that writes what was withheld. It keeps no node.
struct Watch {
    node: Weak<Node>,
    subject: Subject,
}

/// Also when the runtime drops the task.
impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.journal.ledger().subjects[self.subject as usize].is_watched = false;
        }
    }
}

impl Watch {
    async fn run(self, mut until: u64) {
        while let Some(node) = self.node.upgrade() {
            let left = until.saturating_sub(age_millis(&node));
            drop(node);
            sleep(Duration::from_millis(left)).await;
            let Some(node) = self.node.upgrade().filter(|node| !node.is_closed()) else { return };
            let mut ledger = node.journal.ledger();
            match ledger.look_again(self.subject, age_millis(&node)) {
                Noted::Wait(again) => until = again,
                Noted::Write(message) => return tell(&node, &message),
                Noted::LeftOut => return,
            }
        }
    }
}

fn age_millis(node: &Node) -> u64 {
    u64::try_from(node.age().as_millis()).unwrap_or(u64::MAX)
}

/// Writes it. What heals by itself is a warning, and what needs somebody an error.
fn tell(node: &Node, Message { kind, detail, left_out }: &Message) {
    macro_rules! log {
        ($level:ident, $($rest:tt)*) => {
            tracing::$level!(url = %node.shared.store, node = %node.name, left_out, $($rest)*)
        };
    }
    match kind {
        Kind::Connected => log!(info, endpoint = %detail, "connected to the store"),
        Kind::Lost => log!(warn, endpoint = %detail, "lost a connection to the store"),
        Kind::Unreachable => log!(warn, why = detail, "cannot connect to the store"),
        Kind::AccessDenied => {
            log!(error, why = detail, "cannot connect to the store: correct the login or the permissions of the user");
        }
        Kind::BreakerOpened => {
            log!(warn, "the store does not answer in time: calls are held back until a probe succeeds");
        }
        Kind::BreakerClosed => log!(info, "the store answers in time again"),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::logs;

    use super::super::super::url::Login;
    use super::super::dial::Dialer;
    use super::super::node::{Shared, Whereabouts};
    use super::*;

    fn node(endpoint: &Endpoint) -> Arc<Node> {
        let shared = Arc::new(Shared {
            store: "redis://db".into(),
            dialer: Dialer::new(None, &Login::default(), 0),
            counters: Default::default(),
            stopwatch: Default::default(),
            waits: Default::default(),
            budget: Duration::from_millis(10),
            links: 1,
            trouble: Default::default(),
        });
        Node::new("db:1".to_owned(), Whereabouts::Fixed(endpoint.clone()), &shared)
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_ends_with_how_it_is() {
        let log = logs::capture();
        let ours = || log.lines_with(&["url=redis://db "]);
        let endpoint = Endpoint::Unix("/db".into());
        let node = node(&endpoint);
        node.journal.connected(&node, &endpoint);
        node.journal.lost(&node, &endpoint);
        let refused = DialError { reason: "/db: login refused: WRONGPASS".to_owned(), is_access_denied: true };
        node.journal.unreachable(&node, &"/db: connection refused".to_owned().into());
        node.journal.unreachable(&node, &refused);
        sleep(Duration::from_secs(1)).await;
        node.journal.connected(&node, &endpoint);
        let mut lines = vec![
            "INFO connected to the store url=redis://db node=db:1 left_out=0 endpoint=/db",
            "WARN lost a connection to the store url=redis://db node=db:1 left_out=0 endpoint=/db",
            "WARN cannot connect to the store url=redis://db node=db:1 left_out=0 why=\"/db: connection refused\"",
            "ERROR cannot connect to the store: correct the login or the permissions of the user url=redis://db node=db:1 \
             left_out=0 why=\"/db: login refused: WRONGPASS\"",
        ];
        assert_eq!(ours(), lines);
        sleep(Duration::from_secs(5)).await;
        lines.push(lines[0]);
        assert_eq!(ours(), lines);
        // Again, for the node and for one that is closed before its time has come.
        node.journal.lost(&node, &endpoint);
        node.journal.connected(&node, &endpoint);
        sleep(Duration::from_secs(5)).await;
        lines.extend([lines[1], lines[0]]);
        assert_eq!(ours(), lines);
        sleep(Duration::from_secs(1)).await;
        node.journal.lost(&node, &endpoint);
        node.journal.connected(&node, &endpoint);
        node.close();
        sleep(Duration::from_secs(60)).await;
        lines.push(lines[1]);
        assert_eq!(ours(), lines);
    }

    /// Notes these, each at its age in tenths of a second, looks again whenever the ledger wants to, and says what is
    /// written and when.
    fn written(notes: &[(u64, Kind)]) -> Vec<String> {
        let (mut ledger, mut written, mut watch) = (Ledger::default(), Vec::new(), None);
        let mut take = |noted: Noted, age: u64| match noted {
            Noted::Write(Message { kind, left_out, .. }) => {
                written.push(format!("{}.{} {kind:?} {left_out}", age / 1_000, age % 1_000 / 100));
                None
            }
            Noted::Wait(until) => Some(until),
            Noted::LeftOut => None,
        };
        let mut notes = notes.iter().peekable();
        // A tenth of a second at a time, for as long as anything can come of it.
        for age in (0..60_000).step_by(100) {
            if watch == Some(age) {
                watch = take(ledger.look_again(Subject::Connections, age), age);
            }
            while let Some((_, kind)) = notes.next_if(|(tenths, _)| *tenths * 100 == age) {
                watch = take(ledger.note(*kind, String::new(), age), age).or(watch);
            }
        }
        written
    }

    #[test]
    fn messages_are_rare_and_say_how_many_were_left_out() {
        let lost = |tenths| (tenths, Kind::Lost);
        assert_eq!(written(&[lost(0), lost(1), lost(49), lost(50), lost(99)]), ["0.0 Lost 0", "5.0 Lost 2"]);
    }

    #[test]
    fn a_change_that_came_too_soon_is_written_when_its_time_has_come() {
        let (up, lost, away) = (Kind::Connected, Kind::Lost, Kind::Unreachable);
        assert_eq!(
            written(&[(0, up), (10, lost), (11, away), (21, away), (30, up)]),
            ["0.0 Connected 0", "1.0 Lost 0", "1.1 Unreachable 0", "5.0 Connected 0"]
        );
        assert_eq!(
            written(&[(0, up), (0, up), (10, lost), (20, up), (21, lost), (22, up)]),
            ["0.0 Connected 0", "1.0 Lost 0", "5.0 Connected 2"],
            "those before it were left out"
        );
        assert_eq!(
            written(&[(0, up), (10, lost), (30, up), (35, lost)]),
            ["0.0 Connected 0", "1.0 Lost 0"],
            "it is as it was last said to be"
        );
        assert_eq!(
            written(&[(0, up), (10, lost), (30, up), (45, away)]),
            ["0.0 Connected 0", "1.0 Lost 0", "4.5 Unreachable 0"],
            "something else was said meanwhile"
        );
        assert_eq!(
            written(&[(0, up), (10, away), (20, up), (30, lost), (40, away), (55, up), (70, away)]),
            ["0.0 Connected 0", "1.0 Unreachable 0", "3.0 Lost 0", "5.5 Connected 1", "7.0 Unreachable 1"],
            "what is withheld last may have longer to wait than what was before it"
        );
    }

    #[test]
    fn connections_and_the_breaker_are_two_matters() {
        let mut ledger = Ledger::default();
        let mut note = |kind, age| ledger.note(kind, String::new(), age);
        assert!(matches!(note(Kind::BreakerClosed, 0), Noted::Write(_)));
        assert!(matches!(note(Kind::BreakerOpened, 1_000), Noted::Write(_)));
        assert!(matches!(note(Kind::Connected, 1_000), Noted::Write(_)));
        assert_eq!(note(Kind::BreakerClosed, 2_000), Noted::Wait(5_000));
        assert!(matches!(note(Kind::Lost, 3_000), Noted::Write(_)));
        let closed = Message { kind: Kind::BreakerClosed, detail: String::new(), left_out: 0 };
        assert_eq!(ledger.look_again(Subject::Breaker, 5_000), Noted::Write(closed));
        assert_eq!(ledger.look_again(Subject::Connections, 5_000), Noted::LeftOut);
    }
}
