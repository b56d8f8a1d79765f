//! Commands of one pipeline whose store has to be awaited: they are asked together and answered in their order, so that a
//! pipeline takes one round trip and not one for each command.

use futures_util::future::join_all;

use crate::protocol::Via;

use super::super::RespDoor;
use super::super::parse::Command;
use super::super::reply::{Replies, Version};
use super::table::{self, Name, Spec};
use super::{Context, check, permits, throttle};

/// Whether a command asks a store that has to be awaited, and is well-formed as far as its number of arguments goes.
pub(super) fn takes(context: &Context<'_>, spec: &Spec, command: &Command<'_>) -> bool {
    let session = &context.session;
    if !session.authenticated || session.queue.is_some() || !spec.takes(command.len()) {
        return false;
    }
    let engine = &context.door.service.engine;
    match spec.run {
        Name::Throttle | Name::Acquire | Name::Renew | Name::Release => engine.default_store_awaits(),
        Name::Check => std::str::from_utf8(command.get(1)).is_ok_and(|domain| engine.at_once(domain).is_none()),
        _ => false,
    }
}

/// Adds a command to those that are asked together. If there is no room, they are answered first.
pub(super) async fn add(context: &mut Context<'_>, command: &Command<'_>) {
    if !context.session.together.push(command) {
        settle(context).await;
        // One that is too large even so is asked alone.
        if !context.session.together.push(command) {
            let replies = ask(context.door, context.session.via(), context.replies.version, command).await;
            context.replies.append(&replies);
        }
    }
}

/// Asks for all that was added, and answers.
pub(super) async fn settle(context: &mut Context<'_>) {
    if context.session.together.len() == 0 {
        return;
    }
    let commands = std::mem::take(&mut context.session.together);
    let (door, via, version) = (context.door, context.session.via(), context.replies.version);
    let asked = commands.commands().map(|command| async move { ask(door, via, version, &command).await });
    // Boxed: few connections have this, and each of them would carry its room.
    for replies in Box::pin(join_all(asked)).await {
        context.replies.append(&replies);
    }
}

async fn ask(door: &RespDoor, via: Via<'_>, version: Version, command: &Command<'_>) -> Replies {
    let mut replies = Replies::with_version(version);
    match table::find(command.get(0)).map(|spec| spec.run) {
        Some(Name::Throttle) => throttle::alone(door, via, &mut replies, command).await,
        Some(Name::Check) => check::run(door, via, &mut replies, command).await,
        Some(Name::Acquire) => permits::acquire(door, via, &mut replies, command).await,
        Some(Name::Renew) => permits::renew(door, via, &mut replies, command).await,
        Some(Name::Release) => permits::release(door, &mut replies, command).await,
        // Nothing else is added.
        _ => {}
    }
    replies
}
