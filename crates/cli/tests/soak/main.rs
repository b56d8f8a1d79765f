//! Slow and heavy tests of the server in a release build. `make soak` runs all of them, one after the other, and
//! `make soak SOAK="reloads stops"` only these two.
//!
//! | to find | look in |
//! |---|---|
//! | the progress and the results of a run | `report.rs` |
//! | clients, load, latencies | `client.rs`, `load.rs` |
//! | HTTP/2 by hand | `http2.rs` |
//! | silent, slow and too many connections | `silent.rs`, `crowd.rs` |
//! | half heads over HTTP, half messages over gRPC | `halves.rs` |
//! | floods of HTTP/2 frames | `floods.rs` |
//! | clients that request large pages and do not read them, and a log that nobody reads | `pages.rs`, `unread_log.rs` |
//! | millions of keys, one hot key, and long sliding logs | `keys.rs`, `sliding.rs` |
//! | permits held by one caller | `hoard.rs` |
//! | a network partition in a Redis Cluster | `partition.rs`, `namespaces.rs` |
//! | reloads, bad files, stops, memory over one minute | `life.rs` |
//! | stops beside clients that keep their connections | `drain.rs` |

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod crowd;
mod drain;
mod floods;
mod halves;
mod hoard;
mod http2;
mod keys;
mod life;
mod load;
mod namespaces;
mod pages;
mod partition;
mod report;
mod silent;
mod sliding;
mod unread_log;

use std::process::ExitCode;

use report::{Report, Run};

/// The runs by their names.
const RUNS: [(&str, Run); 18] = [
    ("silent", silent::silent_and_slow_sockets_are_closed),
    ("crowd", crowd::the_cap_is_held_and_administrators_get_in),
    ("floods", floods::floods_of_frames_are_harmless),
    ("half-heads", halves::half_heads_take_what_is_stated),
    ("half-messages", halves::half_messages_have_a_budget),
    ("pages", pages::slow_readers_share_pages),
    ("unread-log", unread_log::a_log_that_nobody_reads_holds_nobody_up),
    ("keys", keys::ten_million_keys_stay_within_bounds),
    ("callers", keys::keys_of_callers_shut_no_rule_out),
    ("hot-key", keys::a_hot_key_does_not_slow_others),
    ("sliding-log", sliding::long_logs_do_not_slow_others),
    ("permits", hoard::permits_of_one_caller_leave_those_of_others),
    ("reloads", life::a_hundred_reloads_lose_nothing),
    ("bad-configs", life::bad_files_change_nothing),
    ("stops", life::ten_stops_lose_nothing),
    ("drain", drain::clients_that_keep_their_connections_lose_nothing),
    ("partition", partition::a_primary_that_is_cut_off_admits_no_more_than_it_must),
    ("memory", life::memory_is_steady_over_a_minute),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| RUNS.iter().all(|(run, _)| run != name)) {
        eprintln!("error: unknown run {unknown}; use {}", RUNS.map(|(name, _)| name).join(", "));
        return ExitCode::from(2);
    }
    let mut report = Report::new();
    for (name, run) in RUNS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            report.run(name, run);
        }
    }
    report.print();
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
