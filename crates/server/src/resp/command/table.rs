//! All commands in a list, with what COMMAND tells of them.

/// What a command is to the code that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Throttle,
    Check,
    Acquire,
    Renew,
    Release,
    Del,
    Exists,
    Ttl,
    Pttl,
    Hello,
    Auth,
    Client,
    Select,
    Ping,
    Echo,
    Quit,
    Reset,
    Info,
    Command,
    Config,
    Time,
    Flush,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// A command.
pub(super) struct Spec {
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) run: Name,
    /// How many arguments it takes with its name; at least so many if negative.
    pub(super) arity: i8,
    pub(super) group: &'static str,
    pub(super) flags: &'static [&'static str],
    /// The first and the last argument that is a key, and the step between them.
    pub(super) keys: (i8, i8, i8),
    pub(super) summary: &'static str,
}

const fn spec(
    name: &'static str,
    run: Name,
    arity: i8,
    group: &'static str,
    flags: &'static [&'static str],
    keys: (i8, i8, i8),
    summary: &'static str,
) -> Spec {
    Spec { name, run, arity, group, flags, keys, summary }
}

const NONE: (i8, i8, i8) = (0, 0, 0);
const ONE: (i8, i8, i8) = (1, 1, 1);
const ALL: (i8, i8, i8) = (1, -1, 1);

const CONNECTION: &[&str] = &["fast", "loading", "stale"];
const BEFORE_AUTH: &[&str] = &["fast", "loading", "no_auth", "stale"];
const READ: &[&str] = &["fast", "readonly"];
const WRITE: &[&str] = &["fast", "write"];

/// In the order of their groups.
#[rustfmt::skip]
pub(super) static ALL_COMMANDS: &[Spec] = &[
    spec("cl.throttle", Name::Throttle, -5, "rate limit", WRITE, ONE, "Takes units under the limit in its arguments: key max_burst count period [quantity]."),
    spec("tidegate.check", Name::Check, -4, "rate limit", WRITE, NONE, "Takes units under the rules of a domain: domain key value [key value ...] [COST n]."),
    spec("tidegate.acquire", Name::Acquire, -4, "permits", WRITE, ONE, "Acquires a permit of a key, with a limit and a lease: key limit lease_ms [id]."),
    spec("tidegate.renew", Name::Renew, 4, "permits", WRITE, ONE, "Renews a permit: key id lease_ms."),
    spec("tidegate.release", Name::Release, 3, "permits", WRITE, ONE, "Releases a permit: key id."),
    spec("del", Name::Del, -2, "generic", WRITE, ALL, "Resets keys of CL.THROTTLE."),
    spec("unlink", Name::Del, -2, "generic", WRITE, ALL, "Resets keys of CL.THROTTLE."),
    spec("exists", Name::Exists, -2, "generic", READ, ALL, "Counts the keys of CL.THROTTLE that are in use."),
    spec("ttl", Name::Ttl, 2, "generic", READ, ONE, "Returns the seconds until a key of CL.THROTTLE has its whole limit again."),
    spec("pttl", Name::Pttl, 2, "generic", READ, ONE, "Returns the milliseconds until a key of CL.THROTTLE has its whole limit again."),
    spec("hello", Name::Hello, -1, "connection", BEFORE_AUTH, NONE, "Selects the version of the protocol."),
    spec("auth", Name::Auth, -2, "connection", BEFORE_AUTH, NONE, "Authenticates the connection."),
    spec("quit", Name::Quit, -1, "connection", BEFORE_AUTH, NONE, "Closes the connection."),
    spec("reset", Name::Reset, 1, "connection", BEFORE_AUTH, NONE, "Resets the connection."),
    spec("client", Name::Client, -2, "connection", CONNECTION, NONE, "Shows and sets properties of the connection."),
    spec("select", Name::Select, 2, "connection", CONNECTION, NONE, "Has no effect: there is one keyspace."),
    spec("ping", Name::Ping, -1, "connection", CONNECTION, NONE, "Answers."),
    spec("echo", Name::Echo, 2, "connection", CONNECTION, NONE, "Returns its argument."),
    spec("info", Name::Info, -1, "server", CONNECTION, NONE, "Returns information about the server."),
    spec("command", Name::Command, -1, "server", CONNECTION, NONE, "Returns information about commands."),
    spec("config", Name::Config, -2, "server", CONNECTION, NONE, "Returns the few settings of Redis that clients read."),
    spec("time", Name::Time, 1, "server", CONNECTION, NONE, "Returns the time of the clock that limits use."),
    spec("flushall", Name::Flush, -1, "server", WRITE, NONE, "Not supported: it would reset every limit."),
    spec("flushdb", Name::Flush, -1, "server", WRITE, NONE, "Not supported: it would reset every limit."),
    spec("multi", Name::Multi, 1, "transactions", CONNECTION, NONE, "Queues the commands that follow until EXEC."),
    spec("exec", Name::Exec, 1, "transactions", CONNECTION, NONE, "Runs the queued commands."),
    spec("discard", Name::Discard, 1, "transactions", CONNECTION, NONE, "Drops the queued commands."),
    spec("watch", Name::Watch, -2, "transactions", CONNECTION, ALL, "Not supported: CL.THROTTLE needs no transaction."),
    spec("unwatch", Name::Unwatch, 1, "transactions", CONNECTION, NONE, "Has no effect: nothing is watched."),
];

impl Spec {
    /// Whether it takes so many arguments, its name included.
    pub(super) fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    /// Whether it may be sent before the password.
    pub(super) fn before_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Whether it may wait for EXEC. Others answer at length, or change what the reply to EXEC looks like.
    pub(super) fn can_wait(&self) -> bool {
        !matches!(self.run, Name::Hello | Name::Auth | Name::Client | Name::Info | Name::Command | Name::Config)
    }
}

/// The command of this name, in whatever case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    ALL_COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}
