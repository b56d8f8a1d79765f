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

use super::bounds::{REPLIES_MAX, TURN_TIME_MIN, UNANSWERED_FIRST};
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
    assert_eq!(
        over,
        Trouble::Broken("the server sent a reply that nobody asked for".into()),
        "and not what came later"
    );
}
