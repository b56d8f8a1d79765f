//! Who may administer: whoever knows the token. Without one, only callers on this machine, and no browser or proxy that
//! speaks for others.

use http::header::{AUTHORIZATION, FORWARDED, HOST, HeaderMap, ORIGIN, VIA};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use tidegate_policy::without_port;

use super::Caller;
use super::answer::Failure;
use crate::service::Service;

/// Somebody who may administer, as logs name them.
pub(super) struct Admin {
    pub(super) who: std::net::IpAddr,
}

const ADMIN_AFAR: &str = "admin: this listener is not on loopback, so administrators need a token; start the server with \
--admin-token TOKEN (or TIDEGATE_ADMIN_TOKEN) and send Authorization: Bearer TOKEN";

/// Lets administrators in, who say the token if there is one.
pub(super) fn admit(service: &Service, token: Option<&str>, caller: &Caller, parts: &Parts) -> Result<Admin, Failure> {
    let admitted = match token {
        Some(token) => with_token(token, &parts.headers),
        None if caller.is_local => from_here(&parts.headers),
        None => Err(forbidden(ADMIN_AFAR)),
    };
    let who = caller.peer.address;
    admitted.map(|()| Admin { who }).inspect_err(|_| service.note_admin_refusal(who, parts.uri.path()))
}

fn with_token(token: &str, headers: &HeaderMap) -> Result<(), Failure> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(Failure::unauthorized("authorization: missing; send Authorization: Bearer and the admin token"));
    };
    match value.as_bytes().split_at_checked(7) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") && same(given, token.as_bytes()) => Ok(()),
        _ => Err(Failure::unauthorized("authorization: wrong; send Authorization: Bearer and the admin token")),
    }
}

/// Compares in a time that depends on the length alone, so that a token cannot be guessed byte by byte.
fn same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (given, token)| all | (given ^ token));
    given.len() == token.len() && !token.is_empty() && std::hint::black_box(differences) == 0
}

/// A page in a browser on this machine reaches this address too, by a form or by a name that it made resolve to it; and
/// a proxy on this machine hands on what comes from anywhere.
fn from_here(headers: &HeaderMap) -> Result<(), Failure> {
    const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    for name in [ORIGIN, SEC_FETCH_SITE] {
        if headers.contains_key(&name) {
            return Err(forbidden(format!(
                "{name}: not from web pages without a token; start the server with --admin-token TOKEN"
            )));
        }
    }
    let is_of_proxy = |name: &&HeaderName| {
        [FORWARDED, VIA].contains(name) || name.as_str().starts_with("x-forwarded-") || *name == "x-real-ip"
    };
    if let Some(name) = headers.keys().find(is_of_proxy) {
        return Err(forbidden(format!(
            "{name}: not through proxies without a token; start the server with --admin-token TOKEN"
        )));
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if host.to_str().is_ok_and(is_loopback) => Ok(()),
        _ => Err(forbidden("host: not a name of this machine's loopback; use 127.0.0.1, [::1] or localhost")),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = without_port(host);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn forbidden(detail: impl Into<String>) -> Failure {
    Failure::new(StatusCode::FORBIDDEN, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for host in
            ["localhost", "LocalHost:8080", "127.0.0.1", "127.8.8.8:1", "[::1]", "[::1]:80", "[::ffff:127.0.0.1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org", "127.0.0.1.example.org:80", "0.0.0.0", "192.0.2.7:80"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn tokens() {
        assert!(same(b"secret", b"secret"));
        for given in [&b""[..], b"secre", b"secret2", b"Secret"] {
            assert!(!same(given, b"secret"));
        }
        assert!(!same(b"", b""), "an empty token opens nothing");
    }
}
