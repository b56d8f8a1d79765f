//! Findings of a checkup.

use super::super::link::Why;

/// A property of a store that was checked, and the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The address of the primary, if the URL does not name it.
    pub node: Option<String>,
    /// The property.
    pub topic: Topic,
    /// The severity.
    pub severity: Severity,
    /// The result. It begins with `unknown` if the property could not be checked.
    pub message: String,
    /// A fix, or `None` if none is needed.
    pub fix: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The property is fine.
    Ok,
    /// Limits hold, but a failure or more load would harm them.
    Warning,
    /// Limits do not hold, or the store cannot be used.
    Error,
}

impl Severity {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A property of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// Names, sockets, TLS, login.
    Connection,
    /// The software and its version.
    Version,
    /// Connections of all clients.
    Clients,
    /// How full the memory is.
    Memory,
    /// The eviction policy when the memory is full.
    Eviction,
    /// The data that remains after a restart.
    Persistence,
    /// The role of the node, and its replicas.
    Replication,
    /// The state of a Cluster.
    Cluster,
    /// The clock of the server.
    Clock,
    /// Commands and keys that the user may use.
    Permissions,
    /// Whether the server takes writes.
    Writes,
    /// The scripts of the store.
    Scripts,
    /// The time of answers.
    Latency,
}

impl Topic {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Topic::Connection => "connection",
            Topic::Version => "version",
            Topic::Clients => "clients",
            Topic::Memory => "memory",
            Topic::Eviction => "eviction",
            Topic::Persistence => "persistence",
            Topic::Replication => "replication",
            Topic::Cluster => "cluster",
            Topic::Clock => "clock",
            Topic::Permissions => "permissions",
            Topic::Writes => "writes",
            Topic::Scripts => "scripts",
            Topic::Latency => "latency",
        }
    }
}

/// Collects the findings about one node, or about the store as a whole.
#[derive(Debug)]
pub(super) struct Notes {
    node: Option<String>,
    pub(super) findings: Vec<Finding>,
}

impl Notes {
    pub(super) fn new(node: Option<String>) -> Notes {
        Notes { node, findings: Vec::new() }
    }

    pub(super) fn ok(&mut self, topic: Topic, message: impl Into<String>) {
        self.push(topic, Severity::Ok, message.into(), None);
    }

    pub(super) fn warning(&mut self, topic: Topic, message: impl Into<String>, fix: impl Into<String>) {
        self.push(topic, Severity::Warning, message.into(), Some(fix.into()));
    }

    pub(super) fn error(&mut self, topic: Topic, message: impl Into<String>, fix: impl Into<String>) {
        self.push(topic, Severity::Error, message.into(), Some(fix.into()));
    }

    /// The store cannot be reached, or no longer.
    pub(super) fn unreachable(&mut self, why: &Why) {
        let message = plain(why);
        let fix = remedy(&message);
        self.error(Topic::Connection, message, fix);
    }

    fn push(&mut self, topic: Topic, severity: Severity, message: String, fix: Option<String>) {
        // Some of it are words of the server, and a terminal obeys control characters.
        let message = message
            .trim_end_matches('.')
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .collect();
        self.findings.push(Finding { node: self.node.clone(), topic, severity, message, fix });
    }
}

/// What went wrong, without the words that say that there is no connection: the topic does.
pub(super) fn plain(why: &Why) -> String {
    match why {
        Why::NoConnection(reason) | Why::AccessDenied(reason) => reason.to_string(),
        why => why.to_string(),
    }
}

const HUNG_UP: &str =
    "use rediss:// if the port has TLS; set tls-auth-clients no if the server requires client certificates";

/// What may help against a failure to connect, by words of the system, of TLS and of Redis; the first that is found counts.
const REMEDIES: [(&str, &str); 21] = [
    ("WRONGPASS", "correct the user and the password in the URL"),
    ("NOAUTH", "add the password to the URL: redis://user:password@HOST or redis://:password@HOST"),
    ("login refused", "correct the user and the password in the URL; remove them if the server has none"),
    ("database refused", "grant the user +select, or correct the database in the URL; a Cluster has only database 0"),
    ("NOPERM", "grant the user the permissions that docs/src/shared-store.md lists"),
    ("cluster support disabled", "use redis:// without +cluster: the server is not a Cluster"),
    ("no primary named", "correct the name after the / of the URL; `redis-cli -p 26379 SENTINEL MASTERS` lists them"),
    ("command 'SENTINEL'", "use redis:// without +sentinel: the server is not a Sentinel"),
    ("max number of clients", "raise maxclients, or find the clients that keep connections open"),
    ("InvalidContentType", "use redis:// if the port has no TLS, or correct the port"),
    ("CaUsedAsEndEntity", "create a certificate with basicConstraints=CA:FALSE, as in docs/src/shared-store.md"),
    ("NotValidForName", "create a certificate with the host of the URL as subjectAltName"),
    ("UnknownIssuer", "add the authority of the certificate to the URL: ?ca=/path.pem"),
    ("not connected within", "check host, port and firewalls; use redis:// if the port has no TLS"),
    ("TLS", "check the certificate of the server and the authority in ?ca="),
    ("ca ", "correct the path in ?ca="),
    ("refused", "start the server, or correct the host and the port"),
    ("lookup", "correct the host: its name cannot be resolved"),
    ("closed", HUNG_UP),
    ("reset by peer", HUNG_UP),
    ("roken pipe", HUNG_UP),
];

fn remedy(message: &str) -> &'static str {
    let found = REMEDIES.iter().find(|(words, _)| message.contains(words));
    found.map_or("check host, port and firewalls, and whether the server is overloaded", |(_, remedy)| remedy)
}
