//! `tidegate demo`: a short demonstration in the terminal.

mod screen;
mod speed;
mod timeline;

use std::io;
use std::time::Duration;

use screen::Screen;
use tidegate::{FakeClock, Key, Limit, Limiter, Rate, Retry};
use timeline::Timeline;

/// Show in 15 seconds what a rate limiter does
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Skip all pauses
    #[arg(long)]
    fast: bool,
}

const EXAMPLES: &str =
    "The output is the same each time, except for the measured speed: the demo runs on a simulated clock.
Colours and pauses are used in terminals only.

Examples:
  tidegate demo
  tidegate demo --fast";

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> io::Result<()> {
    let mut screen = Screen::stdout(args.fast);
    screen.heading("Tidegate: may this request pass now, and if not, when?")?;
    screen.line("A rate limiter is asked before each request is served. It counts the requests of")?;
    screen.line("each key and answers: pass, or wait this long.")?;
    screen.pause(SECOND)?;
    answers(&mut screen)?;
    burst(&mut screen)?;
    seam(&mut screen)?;
    speed::show(&mut screen)?;
    try_it(&mut screen)
}

/// Shows a few requests and their answers.
fn answers(screen: &mut Screen) -> io::Result<()> {
    screen.heading("1  The answers of a limiter")?;
    screen.line("   Limit: 5 per second, at most 5 at once. Six requests arrive at once, one 200 ms later.")?;
    screen.line("")?;
    let clock = FakeClock::new();
    let limiter = build(Limiter::builder(limit("5/second".parse())?).clock(clock.clone()))?;
    let ann = Key::new("ann").map_err(io::Error::other)?;
    for at_ms in [0, 0, 0, 0, 0, 0, 200] {
        clock.set(FakeClock::new().now().plus(Duration::from_millis(at_ms)));
        let decision = limiter.check(ann);
        let answer = match decision.retry() {
            None => screen.green("pass"),
            Some(Retry::After(wait)) => screen.red(&format!("wait {} ms", wait.as_millis())),
            Some(Retry::Never | Retry::Unknown(_)) => screen.red("deny"),
        };
        let left: String = (0..5).map(|unit| if unit < decision.remaining() { '■' } else { '□' }).collect();
        screen.line(&format!("   {at_ms:>6} ms   {left} {} left   {answer}", decision.remaining()))?;
        screen.pause(Duration::from_millis(400))?;
    }
    screen.pause(SECOND)
}

/// Shows the same traffic under several algorithms.
fn burst(screen: &mut Screen) -> io::Result<()> {
    screen.heading("2  One burst, six algorithms")?;
    screen.line("   Limit: 10 per second. Each column is 100 ms. A bar shows how many requests passed,")?;
    screen.line("   a dot that all were denied.")?;
    screen.line("")?;
    let ten = limit(Rate::per_second(10))?;
    let mut traffic = vec![1; 6];
    traffic.extend([8; 4]);
    traffic.extend([2; 24]);
    traffic.extend([0; 6]);
    let mut timeline = Timeline::new(traffic);
    timeline.add("fixed_window", limit(Limit::fixed_window(10, SECOND))?)?;
    timeline.add("sliding_log", limit(Limit::sliding_log(10, SECOND))?)?;
    timeline.add("sliding_counter", limit(Limit::sliding_counter(10, SECOND))?)?;
    timeline.add("sliced_window", limit(Limit::sliced_window_of(10, SECOND, 5))?)?;
    timeline.add("token_bucket", limit(Limit::token_bucket(ten, 10))?)?;
    timeline.add("gcra, burst 1", limit(Limit::gcra(ten, 1))?)?;
    timeline.play(screen)?;
    screen.line("")?;
    screen.line("   Windows return units all together, buckets one by one. Burst 1 spaces requests.")?;
    screen.pause(2 * SECOND)
}

/// Shows twice the limit of a fixed window, around the end of a window.
fn seam(screen: &mut Screen) -> io::Result<()> {
    screen.heading("3  The end of a fixed window")?;
    screen.line("   Limit: 10 per second. 10 requests arrive just before the window ends, 10 just after.")?;
    screen.line("")?;
    let mut traffic = vec![0; 20];
    traffic[9..=10].fill(10);
    let mut timeline = Timeline::new(traffic);
    timeline.add("fixed_window", limit(Limit::fixed_window(10, SECOND))?)?;
    timeline.add("sliding_log", limit(Limit::sliding_log(10, SECOND))?)?;
    timeline.play(screen)?;
    screen.line("")?;
    screen.line("   The fixed window lets twice its limit pass within 200 ms. The sliding log does not:")?;
    screen.line("   it counts the requests in the second before each request.")?;
    screen.pause(2 * SECOND)
}

fn try_it(screen: &mut Screen) -> io::Result<()> {
    let program = program();
    screen.heading("Try it")?;
    screen.line(&format!(
        r#"   printf '%s\n' '{{"op":"new","limit":"5/second"}}' '{{"op":"charge","at_ns":0}}' | {program} decide"#
    ))?;
    screen.line(&format!(r#"   echo '{{"op":"new","limit":"0/second"}}' | {program} decide"#))?;
    screen.line(&format!("   {program} decide --help"))
}

/// Returns the name this program was started by, so that commands can be copied unchanged.
fn program() -> String {
    let plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    std::env::args().next().filter(plain).unwrap_or_else(|| "tidegate".to_owned())
}

fn limit<T>(made: Result<T, tidegate::LimitError>) -> io::Result<T> {
    made.map_err(io::Error::other)
}

fn build(builder: tidegate::LimiterBuilder) -> io::Result<Limiter> {
    builder.build().map_err(io::Error::other)
}
