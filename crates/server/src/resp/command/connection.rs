//! HELLO, AUTH, CLIENT and what else is about the connection.

use std::hint::black_box;

use crate::bounds::{CLIENT_NAME_BYTES_MAX, COMMAND_BYTES_TOLD_MAX, WRONG_PASSWORDS_MAX};
use crate::guesses::Attempt;
use crate::headers;

use super::super::parse::Command;
use super::super::reply::{Shown, Version};
use super::{Context, integer, refuse_count, refuse_subcommand};

/// The version of Redis whose clients find what they look for here.
pub(super) const REDIS_VERSION: &str = "7.0.0";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

pub(super) fn hello(context: &mut Context<'_>, command: &Command<'_>) {
    match greet(context, command) {
        Ok(()) => tell(context),
        Err(text) => context.replies.error(text),
    }
}

/// Does what HELLO asks for: all of it, or nothing.
fn greet(context: &mut Context<'_>, command: &Command<'_>) -> Result<(), String> {
    let version = match (command.len(), integer(command.get(1))) {
        (1, _) => context.replies.version,
        (_, Some(2)) => Version::Resp2,
        (_, Some(3)) => Version::Resp3,
        (_, Some(_)) => return Err("NOPROTO unsupported protocol version".to_owned()),
        (_, None) => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
    };
    let mut authenticated = context.session.authenticated;
    let mut name = None;
    let mut at = 2;
    while at < command.len() {
        let left = command.len() - at;
        let option = command.get(at);
        if option.eq_ignore_ascii_case(b"AUTH") && left > 2 {
            authenticate(context, Some(command.get(at + 1)), command.get(at + 2))?;
            authenticated = true;
            at += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && left > 1 {
            name = Some(client_name(command.get(at + 1))?);
            at += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", Shown(option, COMMAND_BYTES_TOLD_MAX)));
        }
    }
    if !authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                    version at the same time"
            .to_owned());
    }
    context.session.authenticated = true;
    context.replies.version = version;
    if let Some(name) = name {
        context.session.name = name;
    }
    Ok(())
}

fn tell(context: &mut Context<'_>) {
    let (id, replies) = (context.session.id, &mut *context.replies);
    replies.map(7);
    replies.bulk("server");
    replies.bulk("redis");
    replies.bulk("version");
    replies.bulk(REDIS_VERSION);
    replies.bulk("proto");
    replies.integer(if replies.version == Version::Resp3 { 3 } else { 2 });
    replies.bulk("id");
    replies.integer(i64::try_from(id).unwrap_or(i64::MAX));
    replies.bulk("mode");
    replies.bulk("standalone");
    replies.bulk("role");
    replies.bulk("master");
    replies.bulk("modules");
    replies.array(0);
}

pub(super) fn auth(context: &mut Context<'_>, command: &Command<'_>) {
    let (user, password) = match command.len() {
        2 => (None, command.get(1)),
        3 => (Some(command.get(1)), command.get(2)),
        _ => return context.replies.error("ERR syntax error"),
    };
    if user.is_none() && context.door.password.is_none() {
        return context.replies.error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        );
    }
    match authenticate(context, user, password) {
        Ok(()) => {
            context.session.authenticated = true;
            context.replies.ok();
        }
        Err(text) => context.replies.error(text),
    }
}

/// Lets this user with this password do all. If the password is wrong, that is counted and logged, and too many of them
/// end the connection. An address that has tried too many has to wait, whichever password it says next.
fn authenticate(context: &mut Context<'_>, user: Option<&[u8]>, given: &[u8]) -> Result<(), String> {
    let (door, session) = (context.door, &mut *context.session);
    let is_right = || is_password(door.password.as_deref(), user, given);
    if door.password.is_none() {
        // There is nothing to guess.
        return if is_right() { Ok(()) } else { Err(WRONG_PASSWORD.to_owned()) };
    }
    let text = match door.service.password_guesses.attempt(session.peer.address, is_right) {
        Attempt::Right => return Ok(()),
        Attempt::Wrong => {
            session.wrong_passwords += 1;
            session.ends |= session.wrong_passwords >= WRONG_PASSWORDS_MAX;
            WRONG_PASSWORD.to_owned()
        }
        Attempt::TooMany(wait) => {
            session.ends = true;
            let seconds = headers::seconds(wait).max(1);
            format!("WRONGPASS too many wrong passwords from this address; try again in {seconds} s")
        }
    };
    door.service.note_auth_failure(session.address);
    Err(text)
}

/// Whether that is the password of the one user there is; where none is set, anything does for it.
fn is_password(password: Option<&str>, user: Option<&[u8]>, given: &[u8]) -> bool {
    let is_user = user.is_none_or(|user| user == b"default");
    is_user && password.is_none_or(|password| same(password.as_bytes(), given))
}

/// Whether two are the same, in a time that does not tell where they differ.
fn same(secret: &[u8], given: &[u8]) -> bool {
    let mut differs = secret.len() != given.len();
    for (number, byte) in given.iter().enumerate() {
        // The time is that of what was given, whose length the caller knows.
        let expected = secret.get(number % secret.len().max(1)).unwrap_or(&0);
        differs |= black_box(byte ^ expected) != 0;
    }
    !black_box(differs)
}

pub(super) fn client(context: &mut Context<'_>, command: &Command<'_>) {
    let subcommand = command.get(1).to_ascii_lowercase();
    let count = command.len();
    match (&*subcommand, count) {
        (b"setinfo", 4) => set_info(context, command),
        (b"setname", 3) => match client_name(command.get(2)) {
            Ok(name) => {
                context.session.name = name;
                context.replies.ok();
            }
            Err(text) => context.replies.error(text),
        },
        (b"getname", 2) if context.session.name.is_empty() => context.replies.null(),
        (b"getname", 2) => context.replies.bulk(&context.session.name),
        (b"id", 2) => context.replies.integer(i64::try_from(context.session.id).unwrap_or(i64::MAX)),
        // Other connections are nobody's business.
        (b"info", 2) | (b"list", 2..) => {
            let line = line(context);
            context.replies.text(&line);
        }
        (b"no-evict" | b"no-touch", 3) => match command.get(2) {
            state if state.eq_ignore_ascii_case(b"ON") || state.eq_ignore_ascii_case(b"OFF") => context.replies.ok(),
            _ => context.replies.error("ERR syntax error"),
        },
        (b"setinfo" | b"setname" | b"getname" | b"id" | b"info" | b"no-evict" | b"no-touch", _) => {
            refuse_count(context, &format!("client|{}", String::from_utf8_lossy(&subcommand)));
        }
        _ => refuse_subcommand(context, "CLIENT", command),
    }
}

fn set_info(context: &mut Context<'_>, command: &Command<'_>) {
    let (option, value) = (command.get(2), command.get(3));
    let (name, place) = if option.eq_ignore_ascii_case(b"LIB-NAME") {
        ("lib-name", &mut context.session.library_name)
    } else if option.eq_ignore_ascii_case(b"LIB-VER") {
        ("lib-ver", &mut context.session.library_version)
    } else {
        return context
            .replies
            .error(format_args!("ERR Unrecognized option '{}'", Shown(option, COMMAND_BYTES_TOLD_MAX)));
    };
    match client_name(value) {
        Ok(value) => {
            *place = value;
            context.replies.ok();
        }
        Err(_) => {
            context.replies.error(format_args!("ERR {name} cannot contain spaces, newlines or special characters."))
        }
    }
}

/// A name that fits into a line of names.
fn client_name(name: &[u8]) -> Result<Vec<u8>, String> {
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return Err(format!("ERR Client names have at most {CLIENT_NAME_BYTES_MAX} bytes, not {}", name.len()));
    }
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) { Ok(name.to_vec()) } else { Err(BAD_NAME.to_owned()) }
}

/// What CLIENT INFO tells of the connection.
fn line(context: &Context<'_>) -> String {
    let session = &*context.session;
    let multi = session.queue.as_ref().map_or(-1, |queue| i64::try_from(queue.len()).unwrap_or(i64::MAX));
    let resp = if context.replies.version == Version::Resp3 { 3 } else { 2 };
    format!(
        "id={} addr={} name={} db=0 sub=0 psub=0 multi={multi} user=default resp={resp} lib-name={} lib-ver={}\n",
        session.id,
        session.address,
        String::from_utf8_lossy(&session.name),
        String::from_utf8_lossy(&session.library_name),
        String::from_utf8_lossy(&session.library_version),
    )
}

/// All numbers name the one keyspace there is.
pub(super) fn select(context: &mut Context<'_>, command: &Command<'_>) {
    match integer(command.get(1)) {
        Some(0..) => context.replies.ok(),
        Some(_) => context.replies.error("ERR DB index is out of range"),
        None => context.replies.error("ERR value is not an integer or out of range"),
    }
}

pub(super) fn ping(context: &mut Context<'_>, command: &Command<'_>) {
    match command.len() {
        1 => context.replies.simple("PONG"),
        2 => context.replies.bulk(command.get(1)),
        _ => refuse_count(context, "ping"),
    }
}

pub(super) fn quit(context: &mut Context<'_>) {
    context.replies.ok();
    context.session.ends = true;
}

pub(super) fn reset(context: &mut Context<'_>) {
    let session = &mut *context.session;
    session.queue = None;
    session.name.clear();
    session.authenticated = context.door.password.is_none();
    context.replies.version = Version::Resp2;
    context.replies.simple("RESET");
}
