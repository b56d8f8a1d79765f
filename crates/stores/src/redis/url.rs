//! The address of a store: a URL, parsed once into a type that cannot be wrong.
//!
//! ```text
//! redis://[[user]:password@]host[:port][/db]                    one server
//! redis+unix://[[user]:password@]/path                          one server, through a socket of this machine
//! redis+sentinel://[[user]:password@]host[:port],…/name[/db]    the primary that Sentinels name
//! redis+cluster://[[user]:password@]host[:port],…               a Cluster, found through any of these nodes
//! ```
//!
//! `rediss` instead of `redis` uses TLS; `valkey` and `valkeys` are aliases of the two.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::link::bounds::{
    ADDRESSES_MAX, BUDGET_DEFAULT, DATABASE_MAX, LINKS_DEFAULT, PORT, SENTINEL_PORT, URL_BYTES_MAX, WAIT_DEFAULT,
};
use super::query::{Query, text};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A host name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(formatter, "[{host}]:{port}") } else { write!(formatter, "{host}:{port}") }
    }
}

/// The address of a store and the settings of its connections, parsed from a URL. Its text never shows a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) place: Place,
    pub(crate) tls: bool,
    /// The certificate authorities of the servers, in PEM. Without it, those of the system.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) login: Login,
    pub(crate) database: u32,
    prefix: Option<String>,
    budget: Duration,
    wait: Duration,
    links: usize,
}

/// The servers that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Server(Address),
    Socket(PathBuf),
    Sentinel { sentinels: Vec<Address>, primary: String, login: Login },
    Cluster(Vec<Address>),
}

/// The user and password for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(super) fn new(text: String) -> Secret {
        Secret(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl Target {
    /// Returns the prefix of key names, if the URL sets one.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Returns the time that the server may take for a call.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Returns the time that a call may wait for its turn in this node.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the most connections to a server.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links
    }

    /// Returns whether states have slots, which hash tags choose.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// Returns whether it has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let is_there = |login: &Login| login.password.as_ref().is_some_and(|password| !password.reveal().is_empty());
        let of_sentinels = matches!(&self.place, Place::Sentinel { login, .. } if is_there(login));
        is_there(&self.login) || of_sentinels
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.place {
            Place::Server(_) => "",
            Place::Socket(_) => "+unix",
            Place::Sentinel { .. } => "+sentinel",
            Place::Cluster(_) => "+cluster",
        };
        write!(formatter, "redis{}{kind}://", if self.tls { "s" } else { "" })?;
        if let Some(user) = &self.login.user {
            write!(formatter, "{user}@")?;
        }
        match &self.place {
            Place::Server(address) => write!(formatter, "{address}/{}", self.database),
            Place::Socket(path) => write!(formatter, "{}", path.display()),
            Place::Sentinel { sentinels, primary, .. } => {
                write!(formatter, "{}/{primary}/{}", Joined(sentinels), self.database)
            }
            Place::Cluster(nodes) => write!(formatter, "{}", Joined(nodes)),
        }
    }
}

struct Joined<'a>(&'a [Address]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            write!(formatter, "{}{address}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The error in a URL: the part, its value unless it may hold a secret, and a fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("store URL: {part}{}: {fix}", Quoted(value.as_deref()))]
pub struct TargetError {
    part: String,
    value: Option<String>,
    fix: String,
}

impl TargetError {
    /// Returns the part that is wrong, and its value unless it may hold a secret.
    #[must_use]
    pub fn problem(&self) -> String {
        format!("{}{}", self.part, Quoted(self.value.as_deref()))
    }

    /// Returns the fix.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

struct Quoted<'a>(Option<&'a str>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |value| write!(formatter, " {value:?}"))
    }
}

pub(super) fn wrong(part: &str, value: &str, fix: impl Into<String>) -> TargetError {
    TargetError { part: part.to_owned(), value: Some(value.to_owned()), fix: fix.into() }
}

pub(super) fn secret(part: &str, fix: &str) -> TargetError {
    TargetError { part: part.to_owned(), value: None, fix: fix.to_owned() }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Target, TargetError> {
        if url.len() > URL_BYTES_MAX {
            return Err(secret("it is too long", &format!("write at most {URL_BYTES_MAX} bytes")));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(without_slashes(url));
        };
        let (kind, tls) = scheme_of(scheme)?;
        let parts = split(rest)?;
        let login = login_of(parts.user_info)?;
        let query = Query::parse(parts.query)?;
        let mut target = Target {
            place: Place::Cluster(Vec::new()),
            tls,
            authorities: query.authorities,
            login,
            database: 0,
            prefix: query.prefix,
            budget: query.budget.unwrap_or(BUDGET_DEFAULT),
            wait: query.wait.unwrap_or(WAIT_DEFAULT),
            links: query.links.unwrap_or(LINKS_DEFAULT),
        };
        let sentinel_login = Login { user: query.sentinel_user, password: query.sentinel_password };
        if kind != Kind::Sentinel && sentinel_login != Login::default() {
            return Err(secret("sentinel_user or sentinel_password", "only redis+sentinel:// takes them"));
        }
        if kind != Kind::Socket && query.database.is_some() {
            return Err(secret("db", "write the database after the host, as in redis://localhost:6379/1"));
        }
        if !tls && target.authorities.is_some() {
            return Err(secret("ca", "a certificate needs TLS: write rediss:// instead of redis://"));
        }
        match kind {
            Kind::Server => {
                target.place = Place::Server(one_address(parts.hosts)?);
                target.database = database_of(parts.path)?;
            }
            Kind::Socket => {
                target.place = Place::Socket(socket_of(parts.hosts, parts.path)?);
                target.database = query.database.unwrap_or(0);
            }
            Kind::Sentinel => {
                let (primary, database) = primary_of(parts.path)?;
                let sentinels = addresses(parts.hosts, SENTINEL_PORT)?;
                target.place = Place::Sentinel { sentinels, primary, login: sentinel_login };
                target.database = database_of(database)?;
            }
            Kind::Cluster => {
                target.place = Place::Cluster(addresses(parts.hosts, PORT)?);
                if database_of(parts.path)? != 0 {
                    return Err(wrong("database", parts.path, "a Cluster has only database 0: leave it out"));
                }
            }
        }
        Ok(target)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

fn scheme_of(scheme: &str) -> Result<(Kind, bool), TargetError> {
    let fix = "write redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster";
    let lower = scheme.to_ascii_lowercase();
    if lower == "unix" {
        return Ok((Kind::Socket, false));
    }
    let (family, kind) = lower.split_once('+').unwrap_or((&lower, ""));
    let tls = match family {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        // What stands before :// could be a password of a URL that was cut in a wrong place.
        _ => return Err(secret("the scheme is unknown", fix)),
    };
    match kind {
        "" => Ok((Kind::Server, tls)),
        "unix" if tls => Err(wrong("scheme", scheme, "a socket of this machine has no TLS: write redis+unix")),
        "unix" => Ok((Kind::Socket, false)),
        "sentinel" => Ok((Kind::Sentinel, tls)),
        "cluster" => Ok((Kind::Cluster, tls)),
        _ => Err(wrong("scheme", scheme, fix)),
    }
}

/// What is wrong with a URL in which no `://` is.
fn without_slashes(url: &str) -> TargetError {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let port = rest.split(['/', '?']).next().unwrap_or_default();
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let fix = match scheme_of(scheme) {
        // A host is missing, or that is its name.
        Ok((Kind::Server, _)) if is_port => {
            format!("write {scheme}://HOST:PORT, or redis://{scheme}:PORT if {scheme} is the host")
        }
        Ok(_) => format!("write {scheme}:// before the rest"),
        Err(_) => {
            return secret("there is no scheme", "write one in front, such as redis://localhost:6379");
        }
    };
    wrong("two slashes are missing after", &format!("{scheme}:"), fix)
}

struct Parts<'a> {
    user_info: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

/// Cuts what follows the scheme. A password that was not escaped must not end up in a message about another part.
fn split(rest: &str) -> Result<Parts<'_>, TargetError> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if tail.contains('@') {
        let fix = "if they belong to the user or password, write / as %2F, ? as %3F and # as %23; an @ after the hosts is %40";
        return Err(secret("there is an @ after a /, ? or #", fix));
    }
    if tail.contains('#') {
        return Err(secret("there is a #", "a store has no fragment: leave it out, or write %23"));
    }
    let (user_info, hosts) = match authority.rsplit_once('@') {
        Some((user_info, hosts)) => (Some(user_info), hosts),
        None => (None, authority),
    };
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    Ok(Parts { user_info, hosts, path, query })
}

fn login_of(user_info: Option<&str>) -> Result<Login, TargetError> {
    let Some(user_info) = user_info else { return Ok(Login::default()) };
    if user_info.contains('@') {
        return Err(secret("user or password", "it has an @: write it as %40"));
    }
    // A password in the place of the user would be told in logs and metrics.
    let Some((user, password)) = user_info.split_once(':') else {
        return Err(secret(
            "user or password",
            "there is no colon: write :password@, user:password@, or user:@ for an empty password",
        ));
    };
    if password.contains(':') {
        return Err(secret("password", "it has a colon: write it as %3A"));
    }
    let not_text = |_| secret("user or password", "its escapes (%XX) are not valid UTF-8 text");
    let user = percent_decode_str(user).decode_utf8().map_err(not_text)?.into_owned();
    let password = percent_decode_str(password).decode_utf8().map_err(not_text)?.into_owned();
    let user = (!user.is_empty()).then_some(user);
    // A user without a password logs in with an empty one, which is right for users that need none.
    let password = (!password.is_empty() || user.is_some()).then_some(Secret(password));
    Ok(Login { user, password })
}

fn one_address(hosts: &str) -> Result<Address, TargetError> {
    if hosts.contains(',') {
        let fix = "one server has one address: write redis+cluster:// or redis+sentinel:// for several";
        return Err(wrong("host", hosts, fix));
    }
    address(hosts, PORT)
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, TargetError> {
    let addresses = hosts.split(',').map(|host| address(host, port)).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > ADDRESSES_MAX {
        return Err(wrong("hosts", &addresses.len().to_string(), format!("write at most {ADDRESSES_MAX} of them")));
    }
    Ok(addresses)
}

fn address(text: &str, port: u16) -> Result<Address, TargetError> {
    let (host, digits) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, rest)) if rest.starts_with(':') => (host, rest.get(1..)),
            _ => return Err(wrong("host", text, "write an IPv6 address in brackets, as in [::1]:6379")),
        },
        None => text.split_once(':').map_or((text, None), |(host, digits)| (host, Some(digits))),
    };
    if host.is_empty() {
        return Err(wrong("host", text, "write a name or an address, as in redis://localhost:6379"));
    }
    if digits.is_some_and(|digits| digits.contains(':')) {
        return Err(wrong("host", text, "write an IPv6 address in brackets, as in [::1]:6379"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%');
    if !host.bytes().all(plain) {
        return Err(wrong("host", host, "a name has letters, digits, dots, hyphens and underscores"));
    }
    let port = match digits {
        None => port,
        Some(digits) => match digits.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(wrong("port", digits, "write a number from 1 to 65535, such as 6379")),
        },
    };
    Ok(Address { host: host.to_owned(), port })
}

fn database_of(path: &str) -> Result<u32, TargetError> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(0),
        digits => database(digits),
    }
}

pub(super) fn database(digits: &str) -> Result<u32, TargetError> {
    match digits.parse() {
        Ok(database) if database <= DATABASE_MAX => Ok(database),
        _ => Err(wrong("database", digits, format!("write a number from 0 to {DATABASE_MAX}, or nothing for 0"))),
    }
}

fn socket_of(hosts: &str, path: &str) -> Result<PathBuf, TargetError> {
    if !hosts.is_empty() {
        return Err(wrong(
            "host",
            hosts,
            "a socket has only a path: write three slashes, as in redis+unix:///run/redis.sock",
        ));
    }
    let path = text("path", path)?;
    if path.len() < 2 {
        return Err(wrong("path", &path, "write the path of the socket, as in redis+unix:///run/redis.sock"));
    }
    Ok(Path::new(&path).to_owned())
}

fn primary_of(path: &str) -> Result<(String, &str), TargetError> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (primary, database) = path.split_once('/').unwrap_or((path, ""));
    let primary = text("name of the primary", primary)?;
    if primary.is_empty() {
        let fix = "after the hosts, write the name that the Sentinels use, as in redis+sentinel://host:26379/mymaster";
        return Err(wrong("name of the primary", &primary, fix));
    }
    Ok((primary, database))
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
