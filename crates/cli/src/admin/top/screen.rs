//! The live view on a screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row as Cells, Table, TableState};

use super::By;
use super::view::{Keys, Rates, Row, View, key, rate, share};
use crate::admin::text::{escaped, shortened};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const RED: Style = Style::new().fg(Color::Red);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Most lines of keys, with their head.
const KEYS_HEIGHT: u16 = 12;

/// Width of the columns with numbers.
const NUMBER: Constraint = Constraint::Length(11);

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, server: &str) {
    let stores = u16::try_from(view.stores.len()).unwrap_or(u16::MAX).min(4);
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(stores),
        Constraint::Fill(1),
        Constraint::Length(KEYS_HEIGHT.min(frame.area().height / 2)),
        Constraint::Length(1),
    ]);
    let [head, store_lines, rules, keys, foot] = areas.areas(frame.area());
    draw_head(frame, head, view, server);
    draw_stores(frame, store_lines, view);
    draw_rules(frame, rules, view);
    draw_keys(frame, keys, view);
    draw_foot(frame, foot, view);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View, server: &str) {
    // A problem names the server too.
    let of_server = match &view.problem {
        Some(problem) => Span::styled(problem.as_str(), RED),
        None => Span::raw(server),
    };
    frame.render_widget(Line::from(vec![Span::styled("tidegate top  ", BOLD), of_server]), area);
}

fn draw_stores(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = |store: &crate::admin::status::StoreNode| {
        let style = if store.state == "connected" { Style::new() } else { RED };
        Line::styled(format!("store {} {}: {}", escaped(&store.store), escaped(&store.node), store.state), style)
    };
    let lines: Vec<Line<'_>> = view.stores.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_rules(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let widths = [Constraint::Fill(1), Constraint::Length(8), NUMBER, NUMBER, NUMBER, NUMBER];
    let names = usize::from(area.width.saturating_sub(8 + 4 * 11 + 5));
    let cells = |row: &Row| {
        let denies = row.rates.is_some_and(|rates| rates.denied > 0.0);
        let rates: [fn(Rates) -> f64; 3] = [|rates| rates.allowed, |rates| rates.denied, |rates| rates.shadow_denied];
        let [allowed, denied, shadow] = rates.map(|of| right(rate(row.rates, of)));
        let denied = denied.style(if denies { RED } else { Style::new() });
        Cells::new([
            Line::from(shortened(&row.title, names).into_owned()),
            Line::from(row.mode.clone()),
            allowed,
            denied,
            shadow,
            right(row.counts.denied.to_string()),
        ])
    };
    let head = [
        Line::from("RULE"),
        Line::from("MODE"),
        right("ALLOWED/s"),
        right("DENIED/s"),
        right("SHADOW/s"),
        right("DENIED"),
    ];
    let table = Table::new(view.rows().map(cells), widths).header(Cells::new(head).style(BOLD));
    let mut state = TableState::default().with_selected(view.selected());
    frame.render_stateful_widget(table.row_highlight_style(SELECTED), area, &mut state);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Some(row) = view.selected_row() else {
        let text = if view.search.is_empty() { "The server has no rules." } else { "No rule contains this text." };
        return frame.render_widget(Line::styled(text, DIM), area);
    };
    let [title, rest] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let by = view.by.name();
    let width = usize::from(area.width).saturating_sub(40);
    let heading = format!("Keys of {} by {by}{}", shortened(&row.title, width), nodes(&view.keys));
    frame.render_widget(Line::styled(heading, BOLD), title);
    let keys = view.keys_of(&row.name);
    let keys = match (keys, &view.keys) {
        (Some(keys), _) if !keys.is_empty() => keys,
        (keys, known) => {
            let note = match (keys, known) {
                (Some(_), _) => "No requests in the last minute.",
                (None, Keys::Unsupported) => "This server does not support GET /v1/top.",
                (None, _) => "…",
            };
            return frame.render_widget(Line::styled(note, DIM), rest);
        }
    };
    let names = usize::from(area.width.saturating_sub(3 * 11 + 3));
    let cells = keys.iter().map(|one| {
        let name = Line::from(shortened(&key(one), names).into_owned());
        Cells::new([name, right(one.requests.to_string()), right(one.denials.to_string()), right(share(one))])
    });
    let head = [Line::from("KEY"), right("REQUESTS"), right("DENIALS"), right("SHARE")];
    let widths = [Constraint::Fill(1), NUMBER, NUMBER, NUMBER];
    frame.render_widget(Table::new(cells, widths).header(Cells::new(head).style(BOLD)), rest);
}

/// Says whose numbers they are if they are not of this server alone.
fn nodes(keys: &Keys) -> String {
    match keys {
        Keys::Known(_, top) if top.partial => ", some nodes missing".to_owned(),
        Keys::Known(_, top) if top.nodes.len() > 1 => format!(", {} nodes", top.nodes.len()),
        _ => String::new(),
    }
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = match (view.is_searching, view.by) {
        (true, _) => format!("/{}_   Enter: done   Esc: all rules", escaped(&view.search)),
        (false, by) => {
            let other = if by == By::Requests { By::Denials } else { By::Requests };
            let search = if view.search.is_empty() { String::new() } else { format!("   /{}", escaped(&view.search)) };
            format!("q: quit   /: search   arrows: select   d: by {}{search}", other.name())
        }
    };
    frame.render_widget(Line::styled(text, DIM), area);
}

fn right(text: impl Into<String>) -> Line<'static> {
    Line::from(text.into()).right_aligned()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use tidegate::Time;

    use super::*;
    use crate::admin::rules::Rule;
    use crate::admin::status::stores;
    use crate::admin::top::source::{Counted, Top};

    const HOSTILE: &str = "a\u{202e}\u{1b}[2J";

    /// What rules of these names counted after some seconds.
    fn counted(seconds: u64, counts: &[(&str, u64, u64)]) -> Counted {
        let rule = |&(name, allowed, denied): &(&str, u64, u64)| {
            let rule = json!({"domain": "api", "name": name, "action": "limit", "mode": "enforce", "configured_mode": "enforce",
                "limits": [], "counts": {"allowed": allowed, "denied": denied, "shadow_denied": 0}});
            serde_json::from_value::<Rule>(rule).unwrap()
        };
        let breakers = "tidegate_store_breaker{store=\"shared\",node=\"10.0.0.1:6379\"} 0\n\
                        tidegate_store_breaker{store=\"shared\",node=\"10.0.0.2:6379\"} 2\n";
        let at = Time::from_nanos(seconds * 1_000_000_000);
        Counted { at, rules: counts.iter().map(rule).collect(), stores: stores(breakers) }
    }

    fn view() -> View {
        let mut view = View::new(By::Requests);
        view.count(counted(10, &[("quiet", 5, 0), (HOSTILE, 100, 0), ("login", 0, 0)]));
        view.count(counted(12, &[("quiet", 5, 0), (HOSTILE, 101, 3), ("login", 2_000, 0)]));
        view
    }

    fn top() -> Top {
        let key = |value: &str, requests: u64| {
            json!({"key": [{"part": "entry:user", "value": value}, {"part": "address", "value": "::1"}],
                "requests": requests, "denials": 1, "shadow_denials": 0, "share": 0.125})
        };
        let rule = json!({"domain": "api", "rule": "login", "requests": 9, "denials": 1,
            "keys": [key("ann", 9), key(&format!("{HOSTILE}{}", "x".repeat(200)), 3)]});
        serde_json::from_value(json!({"rules": [rule], "nodes": [{"id": "a", "age_ms": 3}]})).unwrap()
    }

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 20)).unwrap();
        terminal.draw(|frame| draw(frame, view, "http://127.0.0.1:8080")).unwrap();
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn rules_keys_and_stores() {
        let mut view = view();
        view.keys = Keys::Known(None, top());
        insta::assert_snapshot!(drawn(&view));
    }

    #[test]
    fn order_search_and_selection() {
        let mut view = view();
        view.keys = Keys::Unsupported;
        view.turn();
        view.select(1);
        view.search = "A\\U".to_owned();
        view.is_searching = true;
        view.problem = Some("http://127.0.0.1:8080: cannot connect".to_owned());
        insta::assert_snapshot!(drawn(&view));
        view.search = "none of them".to_owned();
        assert!(drawn(&view).contains("No rule contains this text."));
        view.search.clear();
        view.select(100);
        let last = view.selected_row().map(|row| row.title.clone());
        view.select(1);
        assert_eq!(view.selected_row().map(|row| row.title.clone()), last, "it stays at the end");
        view.select(-100);
        assert_eq!(view.selected(), Some(0));
    }

    #[test]
    fn a_restart_of_the_server_is_no_negative_rate() {
        let mut view = view();
        view.count(counted(14, &[("quiet", 0, 0), ("new", 7, 0)]));
        let row =
            |title: &str| view.rows().find(|row| row.title == title).map(|row| rate(row.rates, |rates| rates.allowed));
        assert_eq!((row("api/quiet"), row("api/new")), (Some("0".to_owned()), Some("-".to_owned())));
    }

    #[test]
    fn a_small_screen_is_enough() {
        for (width, height) in [(1, 1), (20, 3), (40, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &view(), "http://127.0.0.1:8080")).unwrap();
        }
    }
}
