//! The live view: one thread reads the server, the other one keys and draws.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::By;
use super::screen::draw;
use super::source::{Counted, Source, Top};
use super::view::{Keys, RuleName, View};
use crate::admin::Problem;

/// How long a key waits for its effect at most, and news to be drawn.
const TICK: Duration = Duration::from_millis(50);

/// The keys that are to be read.
type Wanted = (By, Option<RuleName>);

/// What was read.
enum News {
    Counted(Counted),
    /// With what was wanted.
    Top(Wanted, Option<Top>),
    /// Why nothing was read.
    Problem(String),
}

pub(super) fn run(source: Source, by: By, interval: Duration) -> Result<(), Problem> {
    let mut view = View::new(by);
    // A server that cannot be reached at all is a problem of the command.
    view.count(source.counted()?);
    let (title, (news, receiver), (wanted, asked)) = (source.shown().to_owned(), mpsc::channel(), mpsc::channel());
    std::thread::spawn(move || look(&source, interval, &asked, &news));
    let mut terminal = ratatui::try_init()?;
    let done = show(&mut terminal, &mut view, &title, &receiver, &wanted);
    ratatui::restore();
    Ok(done?)
}

/// Reads the server until nobody listens: now and then, and the keys as soon as others are wanted.
fn look(source: &Source, interval: Duration, asked: &Receiver<Wanted>, news: &Sender<News>) {
    let mut wanted = match asked.recv() {
        Ok(wanted) => wanted,
        Err(_) => return,
    };
    loop {
        if news.send(top(source, &wanted)).is_err() {
            return;
        }
        match asked.recv_timeout(interval) {
            // Only the last of several matters.
            Ok(other) => wanted = asked.try_iter().last().unwrap_or(other),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let counted = source.counted().map_or_else(problem, News::Counted);
                if news.send(counted).is_err() {
                    return;
                }
            }
        }
    }
}

fn top(source: &Source, wanted: &Wanted) -> News {
    let read = source.top(wanted.0, wanted.1.as_ref());
    read.map_or_else(problem, |top| News::Top(wanted.clone(), top))
}

fn problem(problem: Problem) -> News {
    News::Problem(match problem {
        Problem::Arguments(text) | Problem::Failed(text) => text,
        Problem::Output(error) => error.to_string(),
    })
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    title: &str,
    news: &Receiver<News>,
    wanted: &Sender<Wanted>,
) -> io::Result<()> {
    let want = |view: &View| (view.by, view.selected_row().map(|row| row.name.clone()));
    let mut last = want(view);
    // If the other thread has ended, what was read last stays there.
    let _ = wanted.send(last.clone());
    loop {
        news.try_iter().for_each(|one| take(view, one));
        let now = want(view);
        if now != last {
            let _ = wanted.send(now.clone());
            last = now;
        }
        terminal.draw(|frame| draw(frame, view, title))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && !press(view, key)
        {
            return Ok(());
        }
    }
}

fn take(view: &mut View, news: News) {
    match news {
        News::Counted(counted) => view.count(counted),
        News::Problem(problem) => view.problem = Some(problem),
        News::Top(_, None) => view.keys = Keys::Unsupported,
        // What is selected may be another rule by now.
        News::Top((by, rule), Some(top)) => {
            if by == view.by && rule.as_ref() == view.selected_row().map(|row| &row.name) {
                view.keys = Keys::Known(rule, top);
            }
        }
    }
}

/// Does what a key stands for. Returns whether to go on.
fn press(view: &mut View, key: KeyEvent) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return false;
    }
    match (view.is_searching, key.code) {
        (true, KeyCode::Enter) => view.is_searching = false,
        (true, KeyCode::Esc) => {
            view.is_searching = false;
            view.search.clear();
        }
        (true, KeyCode::Backspace) => {
            view.search.pop();
        }
        (true, KeyCode::Char(letter)) => view.search.push(letter),
        (false, KeyCode::Esc) if !view.search.is_empty() => view.search.clear(),
        (false, KeyCode::Char('q') | KeyCode::Esc) => return false,
        (false, KeyCode::Char('/')) => view.is_searching = true,
        (false, KeyCode::Char('d')) => view.turn(),
        (_, KeyCode::Up) => view.select(-1),
        (_, KeyCode::Down) => view.select(1),
        (_, KeyCode::PageUp) => view.select(-10),
        (_, KeyCode::PageDown) => view.select(10),
        _ => {}
    }
    true
}
