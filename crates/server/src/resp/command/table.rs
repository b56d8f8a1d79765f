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
    spec("cl.throttle", Name::Throttle, -5, "rate limit", WRITE, ONE, "Takes from a limit that the command brings: key max_burst count period [quantity]."),
    spec("tidegate.check", Name::Check, -4, "rate limit", WRITE, NONE, "Takes from the configured limits: domain key value [key value ...] [COST n]."),
    spec("tidegate.acquire", Name::Acquire, -4, "permits", WRITE, ONE, "Takes one of so many permits of a key for a time: key limit lease_ms [id]."),
    spec("tidegate.renew", Name::Renew, 4, "permits", WRITE, ONE, "Holds a permit for longer: key id lease_ms."),
    spec("tidegate.release", Name::Release, 3, "permits", WRITE, ONE, "Gives a permit back: key id."),
    spec("del", Name::Del, -2, "generic", WRITE, ALL, "Forgets keys of CL.THROTTLE."),
    spec("unlink", Name::Del, -2, "generic", WRITE, ALL, "Forgets keys of CL.THROTTLE."),
    spec("exists", Name::Exists, -2, "generic", READ, ALL, "Counts the keys of CL.THROTTLE that something was taken from."),
    spec("ttl", Name::Ttl, 2, "generic", READ, ONE, "Seconds until a key of CL.THROTTLE is as if never seen."),
    spec("pttl", Name::Pttl, 2, "generic", READ, ONE, "Milliseconds until a key of CL.THROTTLE is as if never seen."),
    spec("hello", Name::Hello, -1, "connection", BEFORE_AUTH, NONE, "Chooses the version of the protocol."),
    spec("auth", Name::Auth, -2, "connection", BEFORE_AUTH, NONE, "Says the password."),
    spec("quit", Name::Quit, -1, "connection", BEFORE_AUTH, NONE, "Ends the connection."),
    spec("reset", Name::Reset, 1, "connection", BEFORE_AUTH, NONE, "Makes the connection as it was at first."),
    spec("client", Name::Client, -2, "connection", CONNECTION, NONE, "Tells and asks about the connection."),
    spec("select", Name::Select, 2, "connection", CONNECTION, NONE, "Changes nothing: there is one keyspace."),
    spec("ping", Name::Ping, -1, "connection", CONNECTION, NONE, "Answers."),
    spec("echo", Name::Echo, 2, "connection", CONNECTION, NONE, "Answers with its argument."),
    spec("info", Name::Info, -1, "server", CONNECTION, NONE, "Tells about the server."),
    spec("command", Name::Command, -1, "server", CONNECTION, NONE, "Tells about commands."),
    spec("config", Name::Config, -2, "server", CONNECTION, NONE, "Answers what clients ask of the configuration of Redis."),
    spec("time", Name::Time, 1, "server", CONNECTION, NONE, "Tells the time that limits are decided by."),
    spec("flushall", Name::Flush, -1, "server", WRITE, NONE, "Is refused."),
    spec("flushdb", Name::Flush, -1, "server", WRITE, NONE, "Is refused."),
    spec("multi", Name::Multi, 1, "transactions", CONNECTION, NONE, "Lets commands wait for EXEC."),
    spec("exec", Name::Exec, 1, "transactions", CONNECTION, NONE, "Runs the commands since MULTI."),
    spec("discard", Name::Discard, 1, "transactions", CONNECTION, NONE, "Forgets the commands since MULTI."),
    spec("watch", Name::Watch, -2, "transactions", CONNECTION, ALL, "Is refused."),
    spec("unwatch", Name::Unwatch, 1, "transactions", CONNECTION, NONE, "Changes nothing: nothing is watched."),
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
