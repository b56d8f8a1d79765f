//! Who may ask for what. Administrators need the token; without one they have to be on this machine, and neither a browser
//! nor a proxy may speak for them. Everything that changes counts is refused to web pages of other sites.

use http::header::{AUTHORIZATION, FORWARDED, HOST, HeaderMap, ORIGIN, VIA};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_policy::without_port;

use super::Caller;
use super::answer::Failure;
use crate::guesses::Attempt;
use crate::service::Service;

/// Somebody who may administer, as logs name them.
pub(super) struct Admin {
    pub(super) who: std::net::IpAddr,
}

const ADMIN_AFAR: &str = "admin: this listener is not on loopback, so administrators need a token; start the server with \
--admin-token TOKEN (or TIDEGATE_ADMIN_TOKEN) and send Authorization: Bearer TOKEN";

const HOST_AFAR: &str = "host: not a loopback name; use 127.0.0.1, [::1] or localhost";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets administrators in, who say the token if there is one.
pub(super) fn admit(service: &Service, token: Option<&str>, caller: &Caller, parts: &Parts) -> Result<Admin, Failure> {
    let admitted = match token {
        Some(token) => with_token(service, token, caller, &parts.headers),
        None if caller.is_local => from_here(&parts.headers),
        None => Err(forbidden(ADMIN_AFAR)),
    };
    let who = caller.peer.address;
    admitted.map(|()| Admin { who }).inspect_err(|_| service.note_admin_refusal(who, parts.uri.path()))
}

fn with_token(service: &Service, token: &str, caller: &Caller, headers: &HeaderMap) -> Result<(), Failure> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(Failure::unauthorized("authorization: missing; send Authorization: Bearer and the admin token"));
    };
    let is_right = || match value.as_bytes().split_at_checked(7) {
        Some((scheme, given)) => scheme.eq_ignore_ascii_case(b"bearer ") && same(given, token.as_bytes()),
        None => false,
    };
    match service.token_guesses.attempt(caller.peer.address, is_right) {
        Attempt::Right => Ok(()),
        Attempt::Wrong => {
            Err(Failure::unauthorized("authorization: wrong; send Authorization: Bearer and the admin token"))
        }
        Attempt::TooMany(wait) => Err(Failure::too_many_guesses(wait)),
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
    for name in [ORIGIN, SEC_FETCH_SITE] {
        if headers.contains_key(&name) {
            return Err(forbidden(format!(
                "{name}: web pages need an admin token; start the server with --admin-token TOKEN"
            )));
        }
    }
    let is_of_proxy = |name: &&HeaderName| {
        [FORWARDED, VIA].contains(name) || name.as_str().starts_with("x-forwarded-") || *name == "x-real-ip"
    };
    if let Some(name) = headers.keys().find(is_of_proxy) {
        return Err(forbidden(format!(
            "{name}: requests through a proxy need an admin token; start the server with --admin-token TOKEN"
        )));
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_loopback(host) => Ok(()),
        _ => Err(forbidden(HOST_AFAR)),
    }
}

/// Refuses what a browser sends for a page of another site. It lets every page send simple requests to any address, though
/// not read the answers. A page can also make a name of its own site resolve to this machine: then only the host tells.
pub(super) fn refuse_other_sites(caller: &Caller, headers: &HeaderMap) -> Result<(), Failure> {
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none") {
        return Err(forbidden("sec-fetch-site: requests from web pages of other sites are refused; use a program"));
    }
    let host = headers.get(HOST);
    if headers.get_all(ORIGIN).iter().any(|origin| !is_of_host(origin, host)) {
        return Err(forbidden(
            "origin: requests from web pages of other sites are refused; use a program, which sends no Origin",
        ));
    }
    if caller.is_local && !headers.get_all(HOST).iter().all(is_loopback) {
        return Err(forbidden(HOST_AFAR));
    }
    Ok(())
}

/// Whether an origin, like `http://localhost:8080`, is that of pages of this host.
fn is_of_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let authority = |origin: &HeaderValue| Some(origin.to_str().ok()?.split_once("://")?.1.to_ascii_lowercase());
    let host = host.and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
    authority(origin).is_some_and(|authority| Some(authority) == host)
}

fn is_loopback(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
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
            assert!(is_loopback(&HeaderValue::from_static(host)), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org", "127.0.0.1.example.org:80", "0.0.0.0", "192.0.2.7:80"]
        {
            assert!(!is_loopback(&HeaderValue::from_static(host)), "{host}");
        }
    }

    #[test]
    fn origins() {
        let check = |origin: &'static str, host: &'static str| {
            is_of_host(&HeaderValue::from_static(origin), Some(&HeaderValue::from_static(host)))
        };
        assert!(check("http://localhost:8080", "localhost:8080"));
        assert!(check("https://Tide.example.org", "tide.example.org"));
        for (origin, host) in [
            ("http://localhost", "localhost:8080"),
            ("http://localhost:80", "localhost:8080"),
            ("http://example.org", "localhost"),
            ("null", "null"),
            ("localhost", "localhost"),
            ("", ""),
        ] {
            assert!(!check(origin, host), "{origin} {host}");
        }
        assert!(!is_of_host(&HeaderValue::from_static("http://localhost"), None));
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
