//! INFO, COMMAND, CONFIG and what else is about the server.

use std::sync::atomic::Ordering;

use tidegate_core::bounds::NANOS_PER_SECOND;

use crate::bounds::COMMAND_BYTES_TOLD_MAX;

use super::super::parse::Command;
use super::connection::REDIS_VERSION;
use super::table::{self, ALL_COMMANDS, Spec};
use super::{Context, refuse_count, refuse_subcommand};
use crate::resp::reply::{Replies, Shown};

/// What clients ask of the configuration of Redis, answered as by a server that keeps nothing on disk.
const SETTINGS: &[(&str, &str)] = &[("appendonly", "no"), ("databases", "1"), ("save", "")];

pub(super) fn info(context: &mut Context<'_>) {
    let door = context.door;
    let now = door.service.engine.clock().now().as_nanos();
    let uptime = now.saturating_sub(door.started.as_nanos()) / NANOS_PER_SECOND;
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\ntidegate_version:{}\r\n\
         process_id:{}\r\nuptime_in_seconds:{uptime}\r\n\r\n\
         # Clients\r\nconnected_clients:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        door.open.load(Ordering::Relaxed),
    );
    context.replies.text(&text);
}

pub(super) fn command(context: &mut Context<'_>, command: &Command<'_>) {
    let subcommand = command.get(1).to_ascii_lowercase();
    let replies = &mut *context.replies;
    match (&*subcommand, command.len()) {
        (b"", 1) | (b"info", 2) => {
            replies.array(ALL_COMMANDS.len());
            ALL_COMMANDS.iter().for_each(|spec| describe(replies, spec));
        }
        (b"count", 2) => replies.integer(i64::try_from(ALL_COMMANDS.len()).unwrap_or(i64::MAX)),
        (b"list", 2) => {
            replies.array(ALL_COMMANDS.len());
            ALL_COMMANDS.iter().for_each(|spec| replies.bulk(spec.name));
        }
        (b"info", _) => {
            replies.array(command.len() - 2);
            for name in command.from(2) {
                match table::find(name) {
                    Some(spec) => describe(replies, spec),
                    None => replies.null(),
                }
            }
        }
        (b"docs", 2) => document(replies, ALL_COMMANDS.iter()),
        (b"docs", _) => {
            let mut found: Vec<&Spec> = Vec::new();
            for spec in command.from(2).filter_map(table::find) {
                // Each is told once, whatever the number of times it is asked for.
                if !found.iter().any(|one| one.name == spec.name) {
                    found.push(spec);
                }
            }
            document(replies, found.into_iter());
        }
        (b"count" | b"list", _) => {
            refuse_count(context, &format!("command|{}", String::from_utf8_lossy(&subcommand)));
        }
        _ => refuse_subcommand(context, "COMMAND", command),
    }
}

/// A command as COMMAND tells it: name, arity, flags, keys, then categories, tips, key specifications and subcommands,
/// of which there are none to tell.
fn describe(replies: &mut Replies, spec: &Spec) {
    replies.array(10);
    replies.bulk(spec.name);
    replies.integer(spec.arity.into());
    replies.array(spec.flags.len());
    spec.flags.iter().for_each(|flag| replies.simple(flag));
    let (first, last, step) = spec.keys;
    [first, last, step].into_iter().for_each(|number| replies.integer(number.into()));
    (0..4).for_each(|_| replies.array(0));
}

fn document<'a>(replies: &mut Replies, specs: impl ExactSizeIterator<Item = &'a Spec>) {
    replies.map(specs.len());
    for spec in specs {
        replies.bulk(spec.name);
        replies.map(2);
        replies.bulk("summary");
        replies.bulk(spec.summary);
        replies.bulk("group");
        replies.bulk(spec.group);
    }
}

pub(super) fn config(context: &mut Context<'_>, command: &Command<'_>) {
    let subcommand = command.get(1);
    if !subcommand.eq_ignore_ascii_case(b"GET") {
        return refuse_subcommand(context, "CONFIG", command);
    }
    if command.len() < 3 {
        return refuse_count(context, "config|get");
    }
    let is_asked =
        |name: &str| command.from(2).any(|asked| asked == b"*" || asked.eq_ignore_ascii_case(name.as_bytes()));
    let found: Vec<&(&str, &str)> = SETTINGS.iter().filter(|(name, _)| is_asked(name)).collect();
    context.replies.map(found.len());
    for (name, value) in found {
        context.replies.bulk(name);
        context.replies.bulk(value);
    }
}

pub(super) fn time(context: &mut Context<'_>) {
    let now = context.door.service.engine.clock().now().as_nanos();
    context.replies.array(2);
    context.replies.bulk(itoa::Buffer::new().format(now / NANOS_PER_SECOND));
    context.replies.bulk(itoa::Buffer::new().format(now % NANOS_PER_SECOND / 1_000));
}

pub(super) fn refuse_flush(context: &mut Context<'_>, command: &Command<'_>) {
    let name = Shown(command.get(0), COMMAND_BYTES_TOLD_MAX);
    context
        .replies
        .error(format_args!("ERR {name} is not supported: it would reset every limit; use DEL for single keys"));
}
