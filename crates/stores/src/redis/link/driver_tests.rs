//! Drivers on paused time, with a server that takes its time for each command.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::bounds::{HOT_UNANSWERED_MIN, REPLIES_MAX, TURN_TIME_MIN, UNANSWERED_FIRST};
use super::command::{Arg, Packed, Script, run_joined};
use super::dial::{Io, Wire};
use super::driver;
use super::pipe::{Kind, Outcome, Patience, Pending, Pipe, Trouble};
use super::reply::Inbox;

const BUDGET: Duration = Duration::from_millis(20);
const AMPLE: Duration = Duration::from_secs(5);

impl Io for DuplexStream {
    fn has_input(&self) -> bool {
        false
    }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A call for a key that can be joined.
fn charge(key: &str) -> Packed {
    run_joined(&Script::new("return 1"), key.as_bytes(), &[Arg::from("t")])
}

fn drive(stream: impl Io) -> (Arc<Pipe>, JoinHandle<()>) {
    let pipe = Pipe::new(BUDGET);
    let wire = Wire { stream: Box::pin(stream), inbox: Inbox::default() };
    (Arc::clone(&pipe), tokio::spawn(driver::drive(pipe, wire, |_| ())))
}

/// A connection to a server that answers so many commands at most each time that this span is over, and counts them.
fn serve(span: Duration, most: usize) -> (Arc<Pipe>, Arc<AtomicUsize>) {
    let (ours, theirs) = duplex(1 << 20);
    let (commands, counter) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (came, (mut reader, mut writer)) = (Arc::clone(&commands), tokio::io::split(theirs));
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            came.fetch_add(String::from_utf8_lossy(&buffer[..count]).matches("EVALSHA").count(), Relaxed);
        }
    });
    let (came, answered) = (Arc::clone(&commands), Arc::clone(&counter));
    tokio::spawn(async move {
        loop {
            sleep(span).await;
            let count = (came.load(Relaxed) - answered.load(Relaxed)).min(most);
            answered.fetch_add(count, Relaxed);
            writer.write_all(":1\r\n".repeat(count).as_bytes()).await.unwrap();
        }
    });
    (drive(ours).0, counter)
}

fn patience(wait: Duration, leave: Option<Duration>) -> Patience {
    let now = Instant::now();
    Patience { until: now + wait, leave: leave.map(|leave| now + leave) }
}

fn call(pipe: &Arc<Pipe>, key: &str) -> Pending {
    pipe.call(charge(key), Kind::Call, &patience(AMPLE, None)).unwrap()
}

async fn answered(pending: Pending) -> usize {
    match pending.await {
        Outcome::Answered(answer) => answer.place,
        other => panic!("{other:?}"),
    }
}

/// Lets all tasks do what they can without time.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// As many calls for a key as make it hot, each a command of its own.
async fn heat(pipe: &Arc<Pipe>, key: &str) -> Vec<Pending> {
    let mut calls = Vec::new();
    for _ in 0..HOT_UNANSWERED_MIN {
        calls.push(call(pipe, key));
        settle().await;
    }
    calls
}

#[tokio::test(start_paused = true)]
async fn calls_for_a_hot_key_wait_for_an_answer_and_become_one() {
    let (pipe, commands) = serve(millis(1), 1);
    let start = Instant::now();
    let first = heat(&pipe, "hot").await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(call(&pipe, "hot"));
        settle().await;
    }
    let cold = call(&pipe, "cold");
    for (place, pending) in held.into_iter().enumerate() {
        assert_eq!(answered(pending).await, place);
    }
    assert_eq!(answered(cold).await, 0);
    for pending in first {
        assert_eq!(answered(pending).await, 0);
    }
    // The cold key went before what was held, which went when the fourth was answered.
    assert_eq!((commands.load(Relaxed), start.elapsed()), (HOT_UNANSWERED_MIN + 2, millis(6)));
}

#[tokio::test(start_paused = true)]
async fn cold_keys_are_not_held() {
    let (pipe, commands) = serve(millis(1), UNANSWERED_FIRST);
    let mut calls = Vec::new();
    for number in 0..UNANSWERED_FIRST {
        calls.push(call(&pipe, &format!("k{}", number / HOT_UNANSWERED_MIN)));
        settle().await;
    }
    for pending in calls {
        let Outcome::Answered(answer) = pending.await else { panic!("no answer") };
        assert_eq!((answer.place, answer.waited), (0, Duration::ZERO));
    }
    assert_eq!(commands.load(Relaxed), UNANSWERED_FIRST);
}

#[tokio::test(start_paused = true)]
async fn callers_that_leave_do_not_block_their_key() {
    let (pipe, commands) = serve(millis(1), 1);
    let first = heat(&pipe, "hot").await;
    drop(call(&pipe, "hot"));
    settle().await;
    let held = call(&pipe, "hot");
    drop(first);
    assert_eq!(answered(held).await, 0);
    // Nobody is left of what is held.
    let first = heat(&pipe, "hot").await;
    drop(call(&pipe, "hot"));
    for pending in first {
        answered(pending).await;
    }
    settle().await;
    assert_eq!(commands.load(Relaxed), 2 * HOT_UNANSWERED_MIN + 1, "what is left is never sent");
    for pending in heat(&pipe, "hot").await {
        assert_eq!(answered(pending).await, 0, "and does not count as unanswered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_call_is_held_waits_no_longer_than_it_said() {
    let (pipe, commands) = serve(millis(15), 1);
    let first = heat(&pipe, "hot").await;
    let start = Instant::now();
    let ask = |wait, leave| pipe.call(charge("hot"), Kind::Call, &patience(millis(wait), leave)).unwrap();
    let (waits, leaves, stays) = (ask(5, None), ask(100, Some(millis(7))), ask(100, None));
    assert!(matches!(waits.await, Outcome::NotSent(Trouble::TurnTooLate)));
    assert_eq!(start.elapsed(), millis(5));
    assert!(matches!(leaves.await, Outcome::NotSent(Trouble::CallerLeft)));
    assert_eq!(start.elapsed(), millis(7));
    drop((first, stays));
    sleep(millis(200)).await;
    assert_eq!(commands.load(Relaxed), HOT_UNANSWERED_MIN);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_calls_are_lost_is_released() {
    let (pipe, commands) = serve(millis(100), 100);
    let start = Instant::now();
    let mut calls = heat(&pipe, "hot").await;
    let held = call(&pipe, "hot");
    sleep(millis(1)).await;
    assert!(matches!(held.await, Outcome::NotSent(Trouble::Away)), "with those that it waits for");
    assert_eq!(start.elapsed(), BUDGET);
    // Each goes at once, as long as nothing is answered.
    for _ in 0..3 {
        calls.push(call(&pipe, "hot"));
        settle().await;
    }
    for pending in calls {
        assert!(matches!(pending.await, Outcome::Unknown(Trouble::Away)));
    }
    assert_eq!(start.elapsed(), BUDGET * 2, "each within its budget");
    sleep(millis(1_000)).await;
    assert_eq!(commands.load(Relaxed), HOT_UNANSWERED_MIN + 3);
    let (pipe, commands) = serve(millis(1), 1);
    drop(heat(&pipe, "hot").await);
    sleep(millis(100)).await;
    assert_eq!(answered(call(&pipe, "hot")).await, 0);
    assert_eq!(commands.load(Relaxed), HOT_UNANSWERED_MIN + 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_server_that_is_away_waits_for_one_budget() {
    let (pipe, _) = serve(AMPLE, 1);
    for key in ["first", "second", "third"] {
        let start = Instant::now();
        assert!(matches!(call(&pipe, key).await, Outcome::Unknown(Trouble::Away)));
        assert_eq!(start.elapsed(), BUDGET, "{key}");
        sleep(millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_comes_after_its_callers_deadline_is_refused_at_once() {
    let (pipe, _) = serve(millis(1), 8);
    let calls: Vec<Pending> = (0..800).map(|number| call(&pipe, &number.to_string())).collect();
    sleep(millis(40)).await;
    // Some 400 commands wait, which takes 50 ms.
    let ask = |wait, leave: Option<u64>| {
        let pending = pipe.call(charge("late"), Kind::Call, &patience(millis(wait), leave.map(millis)));
        pending.map(drop)
    };
    assert_eq!(ask(1_000, Some(20)), Err(Trouble::TurnTooLate));
    assert_eq!(ask(20, None), Err(Trouble::TurnTooLate));
    assert_eq!((ask(1_000, Some(100)), ask(100, None)), (Ok(()), Ok(())));
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn the_pace_of_a_server_is_not_that_of_calls_that_come_slowly() {
    let (pipe, _) = serve(millis(1), 64);
    // A call each millisecond, which always finds room.
    for number in 0..100 {
        let asked = call(&pipe, &number.to_string());
        sleep(millis(1)).await;
        drop(asked);
    }
    let calls: Vec<Pending> = (0..2 * UNANSWERED_FIRST).map(|number| call(&pipe, &number.to_string())).collect();
    settle().await;
    let asked = pipe.call(charge("next"), Kind::Call, &patience(millis(20), None));
    assert!(asked.is_ok(), "it takes a few milliseconds");
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_wait_is_used_up_goes_where_there_is_room() {
    let (pipe, commands) = serve(millis(1), 1);
    let used_up = patience(Duration::ZERO, None);
    sleep(millis(10)).await;
    answered(pipe.call(charge("k"), Kind::Call, &used_up).unwrap()).await;
    let calls: Vec<Pending> = (0..2 * UNANSWERED_FIRST).map(|number| call(&pipe, &number.to_string())).collect();
    let start = Instant::now();
    let refused = pipe.call(charge("k"), Kind::Call, &used_up).unwrap().await;
    assert!(matches!(refused, Outcome::NotSent(Trouble::TurnTooLate)), "{refused:?}");
    assert_eq!((start.elapsed(), commands.load(Relaxed)), (TURN_TIME_MIN, 2));
    drop(calls);
}

/// A stream that keeps what it takes until its flush was asked for a second time, as one with TLS may.
struct Keeping {
    inner: DuplexStream,
    kept: Vec<u8>,
    is_ready: bool,
}

impl Io for Keeping {
    fn has_input(&self) -> bool {
        false
    }
}

impl AsyncRead for Keeping {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Keeping {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_ready, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_ready = false;
        let kept = std::mem::take(&mut self.kept);
        Pin::new(&mut self.inner).poll_write(context, &kept).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_keeps_is_flushed_without_another_call() {
    let (ours, mut theirs) = duplex(1 << 20);
    let (pipe, _) = drive(Keeping { inner: ours, kept: Vec::new(), is_ready: false });
    let pending = call(&pipe, "k");
    settle().await;
    theirs.write_all(b":1\r\n").await.unwrap();
    assert!(theirs.read(&mut [0; 64]).now_or_never().is_some(), "nothing was written");
    answered(pending).await;
}

/// A stream that always has another reply, up to many more than anybody asks for.
struct Endless(Arc<AtomicUsize>);

const ANSWERS_MAX: usize = 8 * REPLIES_MAX;

impl Io for Endless {
    fn has_input(&self) -> bool {
        true
    }
}

impl AsyncRead for Endless {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let reply = b":1\r\n";
        while buffer.remaining() >= reply.len() && self.0.fetch_add(1, Relaxed) < ANSWERS_MAX {
            buffer.put_slice(reply);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_answering_is_left() {
    let answers = Arc::new(AtomicUsize::new(0));
    let (pipe, driver) = drive(Endless(Arc::clone(&answers)));
    driver.await.unwrap();
    assert!(answers.load(Relaxed) <= 2 * REPLIES_MAX, "{answers:?}");
    let over = pipe.call(charge("k"), Kind::Call, &patience(AMPLE, None)).unwrap_err();
    assert_eq!(over, Trouble::Broken("the server sent a reply without a request".into()), "and not what came later");
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_connection_that_ends_are_over_with_it() {
    let (ours, theirs) = duplex(1 << 20);
    let (pipe, driver) = drive(ours);
    let sent = heat(&pipe, "hot").await;
    let held = call(&pipe, "hot");
    settle().await;
    let in_line = call(&pipe, "cold");
    driver.abort();
    drop(driver.await);
    drop(theirs);
    for pending in sent {
        assert!(matches!(pending.await, Outcome::Unknown(Trouble::Broken(_))));
    }
    for pending in [held, in_line] {
        assert!(matches!(pending.await, Outcome::NotSent(Trouble::Broken(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_retired_answers_what_is_held() {
    let (pipe, commands) = serve(millis(1), 1);
    let first = heat(&pipe, "hot").await;
    let held = call(&pipe, "hot");
    pipe.retire();
    assert_eq!(answered(held).await, 0);
    drop(first);
    assert_eq!(commands.load(Relaxed), HOT_UNANSWERED_MIN + 1);
    settle().await;
    assert!(pipe.call(charge("hot"), Kind::Call, &patience(AMPLE, None)).is_err());
}
