//! MULTI, EXEC, DISCARD. The commands of a transaction run one after the other with nothing of the same connection in
//! between; other connections are not kept out, which is no loss, since each CL.THROTTLE decides and takes in one step.

use super::super::parse::Command;
use super::super::session::Queue;
use super::table::{self, Name, Spec};
use super::{Context, execute, refuse};

/// Whether a command is run here.
pub(super) fn is_about(name: Name) -> bool {
    matches!(name, Name::Multi | Name::Exec | Name::Discard | Name::Watch | Name::Unwatch)
}

pub(super) async fn run(context: &mut Context<'_>, name: Name, command: &Command<'_>) {
    let is_open = context.session.queue.is_some();
    match name {
        Name::Multi if is_open => context.replies.error("ERR MULTI calls can not be nested"),
        Name::Multi => {
            context.session.queue = Some(Queue::default());
            context.replies.ok();
        }
        Name::Exec => exec(context).await,
        Name::Discard if is_open => {
            context.session.queue = None;
            context.replies.ok();
        }
        Name::Discard => context.replies.error("ERR DISCARD without MULTI"),
        Name::Watch if is_open => context.replies.error("ERR WATCH inside MULTI is not allowed"),
        Name::Watch => context.replies.error(
            "ERR WATCH is not supported: CL.THROTTLE decides and takes in one step; remove WATCH and use its reply",
        ),
        Name::Unwatch if is_open => match table::find(command.get(0)) {
            Some(spec) => queue(context, spec, command),
            None => refuse(context, "ERR unknown command"),
        },
        _ => context.replies.ok(),
    }
}

/// Lets a command wait for EXEC.
pub(super) fn queue(context: &mut Context<'_>, spec: &Spec, command: &Command<'_>) {
    if !spec.can_wait() {
        return refuse(context, format_args!("ERR '{}' is not allowed between MULTI and EXEC", spec.name));
    }
    if context.session.queue.as_mut().is_some_and(|queue| queue.push(command)) {
        context.replies.simple("QUEUED");
    } else {
        refuse(context, "ERR too many commands between MULTI and EXEC; send EXEC earlier");
    }
}

async fn exec(context: &mut Context<'_>) {
    let Some(queue) = context.session.queue.take() else {
        return context.replies.error("ERR EXEC without MULTI");
    };
    if queue.failed {
        return context.replies.error("EXECABORT Transaction discarded because of previous errors.");
    }
    context.replies.array(queue.len());
    for command in queue.commands() {
        match table::find(command.get(0)) {
            Some(spec) if spec.run == Name::Unwatch => context.replies.ok(),
            Some(spec) => execute(context, spec.run, &command).await,
            // It was known when it was queued.
            None => context.replies.error("ERR unknown command"),
        }
    }
}
