//! Commands: which there are, who may send them, and what each does, a group in each file.
//!
//! | to find | look in |
//! |---|---|
//! | CL.THROTTLE | `throttle.rs` |
//! | TIDEGATE.CHECK | `check.rs` |
//! | TIDEGATE.ACQUIRE, TIDEGATE.RENEW, TIDEGATE.RELEASE | `permits.rs` |
//! | DEL, EXISTS, TTL: keys of CL.THROTTLE | `keys.rs` |
//! | HELLO, AUTH, CLIENT and what else is about the connection | `connection.rs` |
//! | INFO, COMMAND, CONFIG and what else is about the server | `server.rs` |
//! | MULTI, EXEC, DISCARD | `transaction.rs` |
//! | commands of one pipeline that wait for a store together | `together.rs` |
//! | all of them in a list | `table.rs` |

mod check;
mod connection;
mod keys;
mod permits;
mod server;
mod table;
pub(super) mod throttle;
mod together;
mod transaction;

use crate::bounds::{ARGUMENT_BYTES_MAX, COMMAND_BYTES_MAX, COMMAND_BYTES_TOLD_MAX};

use super::RespDoor;
use super::parse::Command;
use super::reply::{Replies, Shown};
use super::session::Session;
use table::{Name, Spec};

/// What a command is answered whose store could not be asked in time.
const OVERLOADED: &str = "OVERLOADED this node is overloaded and could not ask the store in time; try again later";

/// What a command works on.
pub(super) struct Context<'a> {
    pub(super) door: &'a RespDoor,
    pub(super) session: &'a mut Session,
    pub(super) replies: &'a mut Replies,
}

/// Answers a command; a CL.THROTTLE perhaps later, with those that follow. [`settle`] answers what is left.
#[inline]
pub(super) async fn run(context: &mut Context<'_>, command: &Command<'_>) {
    context.session.commands += 1;
    let is_open = context.session.authenticated && context.session.queue.is_none();
    if is_open
        && command.get(0).eq_ignore_ascii_case(b"CL.THROTTLE")
        && !context.door.service.engine.default_store_awaits()
    {
        if context.session.together.len() > 0 {
            together::settle(context).await;
        }
        return throttle::add(context, command);
    }
    throttle::settle(context);
    run_any(context, command).await;
}

/// Answers a command that was too long to be kept.
#[cold]
pub(super) async fn refuse_too_long(context: &mut Context<'_>) {
    context.session.commands += 1;
    settle(context).await;
    let text = format_args!(
        "ERR command too long; send at most {ARGUMENT_BYTES_MAX} bytes in an argument and {COMMAND_BYTES_MAX} in a command"
    );
    refuse(context, text);
}

/// Answers all commands that were not answered at once.
pub(super) async fn settle(context: &mut Context<'_>) {
    // Where one has commands, the other has none: whoever adds to one has settled the other.
    throttle::settle(context);
    together::settle(context).await;
}

/// Answers any command: it may be unknown, wrong, too early, or have to wait for EXEC.
#[inline(never)]
async fn run_any(context: &mut Context<'_>, command: &Command<'_>) {
    let spec = table::find(command.get(0));
    if let Some(spec) = spec
        && together::takes(context, spec, command)
    {
        return together::add(context, command).await;
    }
    together::settle(context).await;
    let Some(spec) = spec else {
        // What a browser was tricked to send must not be read on: its body could hold commands.
        if is_http(command.get(0)) {
            context.session.ends = true;
            return;
        }
        return refuse_unknown(context, command);
    };
    if let Err(text) = admit(context, spec, command) {
        return refuse(context, text);
    }
    if transaction::is_about(spec.run) {
        return transaction::run(context, spec.run, command).await;
    }
    if context.session.queue.is_some() && !matches!(spec.run, Name::Quit | Name::Reset) {
        return transaction::queue(context, spec, command);
    }
    execute(context, spec.run, command).await;
}

/// Whether a command may be run as it is.
fn admit(context: &Context<'_>, spec: &Spec, command: &Command<'_>) -> Result<(), String> {
    if !spec.takes(command.len()) {
        return Err(match spec.run {
            Name::Throttle => throttle::usage(),
            Name::Check => check::USAGE.to_owned(),
            Name::Acquire => permits::ACQUIRE_USAGE.to_owned(),
            Name::Renew => permits::RENEW_USAGE.to_owned(),
            Name::Release => permits::RELEASE_USAGE.to_owned(),
            // What Redis says of its own commands.
            _ => format!("ERR wrong number of arguments for '{}' command", spec.name),
        });
    }
    if !context.session.authenticated && !spec.before_auth() {
        return Err("NOAUTH Authentication required.".to_owned());
    }
    Ok(())
}

/// Does what a command says, except for those about transactions.
async fn execute(context: &mut Context<'_>, name: Name, command: &Command<'_>) {
    match name {
        Name::Throttle => throttle::alone(context.door, context.session.via(), context.replies, command).await,
        Name::Check => check::run(context.door, context.session.via(), context.replies, command).await,
        Name::Acquire => permits::acquire(context.door, context.session.via(), context.replies, command).await,
        Name::Renew => permits::renew(context.door, context.session.via(), context.replies, command).await,
        Name::Release => permits::release(context.door, context.replies, command).await,
        Name::Del => keys::delete(context, command).await,
        Name::Exists => keys::exists(context, command).await,
        Name::Ttl => keys::time_left(context, command, 1_000_000_000).await,
        Name::Pttl => keys::time_left(context, command, 1_000_000).await,
        Name::Hello => connection::hello(context, command),
        Name::Auth => connection::auth(context, command),
        Name::Client => connection::client(context, command),
        Name::Select => connection::select(context, command),
        Name::Ping => connection::ping(context, command),
        Name::Echo => context.replies.bulk(command.get(1)),
        Name::Quit => connection::quit(context),
        Name::Reset => connection::reset(context),
        Name::Info => server::info(context),
        Name::Command => server::command(context, command),
        Name::Config => server::config(context, command),
        Name::Time => server::time(context),
        Name::Flush => server::refuse_flush(context, command),
        Name::Multi | Name::Exec | Name::Discard | Name::Watch | Name::Unwatch => {}
    }
}

/// Answers with an error; a transaction that it would have been part of is void.
fn refuse(context: &mut Context<'_>, text: impl std::fmt::Display) {
    if let Some(queue) = &mut context.session.queue {
        queue.failed = true;
    }
    context.replies.error(text);
}

fn refuse_unknown(context: &mut Context<'_>, command: &Command<'_>) {
    let mut arguments = String::new();
    for argument in command.from(1) {
        let left = COMMAND_BYTES_TOLD_MAX.saturating_sub(arguments.len());
        if left == 0 {
            break;
        }
        arguments.push_str(&format!("'{}' ", Shown(argument, left)));
    }
    let name = Shown(command.get(0), COMMAND_BYTES_TOLD_MAX);
    refuse(context, format_args!("ERR unknown command '{name}', with args beginning with: {arguments}"));
}

fn refuse_subcommand(context: &mut Context<'_>, container: &str, command: &Command<'_>) {
    let name = Shown(command.get(1), COMMAND_BYTES_TOLD_MAX);
    context.replies.error(format_args!("ERR unknown subcommand '{name}'. Try {container} HELP."));
}

fn refuse_count(context: &mut Context<'_>, name: &str) {
    context.replies.error(format_args!("ERR wrong number of arguments for '{name}' command"));
}

fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// Reads a whole number.
#[inline]
fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Counted downwards, since there is one negative number more.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}
