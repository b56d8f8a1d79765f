//! From an HTTP request to the form that rules match: the one adapter of all front ends.
//!
//! Paths, queries and headers are read alike for all front ends. They differ in the source of the rest:
//!
//! | front end | constructor | method, host, path | form of the host | address |
//! |---|---|---|---|---|
//! | a layer, a gateway | [`HttpRequest::received`] | of the request itself | lower case, no port | of the client behind the peer |
//! | forward auth | [`HttpRequest::forwarded`] | from headers of the proxy | lower case, no port | of the client behind the peer |
//! | the check API | [`HttpRequest::described`] | from the caller | as it is | from the caller, or none |
//!
//! A front end that knows which parts the rules read may leave the others empty; only a layer does.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};
use tidegate_policy::{Clients, Http, HttpParts, PathForms, Policy, without_port};

/// An HTTP request in the form that rules match.
///
/// ```
/// use tidegate_engine::{Engine, HttpRequest, Options};
/// use tidegate_policy::{Descriptor, HttpParts, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(Options::default())?;
/// let (parts, ()) = http::Request::get("https://Example.org:8443//login?next=/").body(())?.into_parts();
/// let request = HttpRequest::of_parts(&parts, HttpParts::ALL);
/// let address = request.client_address(&engine.policy(), "192.0.2.7".parse()?);
/// let http = request.http(Some(address));
/// assert_eq!((http.method, http.host, http.path, http.query), ("GET", "example.org", "/login", "next=/"));
///
/// let descriptors = [Descriptor::default()];
/// let outcome = engine.check(&Request { domain: "web", descriptors: &descriptors, http: Some(&http), cost: 1 }).await?;
/// assert!(outcome.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct HttpRequest<'a> {
    method: &'a str,
    host: Cow<'a, str>,
    path: PathForms<'a>,
    query: &'a str,
    headers: Vec<(&'a str, &'a str)>,
}

/// The target of a request, as a front end read it. An empty part is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpTarget<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// The host.
    pub host: HttpHost<'a>,
    /// The path, without the query, as the client wrote it: not decoded, since it must be decoded only once.
    pub path: &'a str,
    /// The query, without the question mark.
    pub query: &'a str,
}

/// The host of a request, by its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpHost<'a> {
    /// From a URL or a header: rules match it in lower case and without its port.
    Authority(&'a str),
    /// From a description: rules match it as it is.
    Described(&'a str),
}

impl Default for HttpHost<'_> {
    fn default() -> Self {
        HttpHost::Authority("")
    }
}

impl<'a> HttpHost<'a> {
    /// The host of a received request. One in its URL is preferred to the `Host` header.
    fn received(uri: &'a Uri, headers: &'a HeaderMap) -> HttpHost<'a> {
        let named = || headers.get(HOST).and_then(header_text).unwrap_or_default();
        HttpHost::Authority(uri.host().unwrap_or_else(named))
    }

    fn canonical(self) -> Cow<'a, str> {
        match self {
            HttpHost::Described(host) => Cow::Borrowed(host),
            HttpHost::Authority(host) => {
                let host = without_port(host);
                match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
                    true => Cow::Owned(host.to_ascii_lowercase()),
                    false => Cow::Borrowed(host),
                }
            }
        }
    }
}

impl<'a> HttpRequest<'a> {
    /// Reads a received request. Parts that are not among `parts` are left empty; pass [`HttpParts::ALL`] if it is not
    /// known which the rules read.
    #[must_use]
    pub fn received(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap, parts: HttpParts) -> HttpRequest<'a> {
        HttpRequest {
            method: method.as_str(),
            host: if parts.host { HttpHost::received(uri, headers).canonical() } else { Cow::default() },
            path: if parts.path { PathForms::new(uri.path()) } else { PathForms::default() },
            query: uri.query().unwrap_or_default(),
            headers: if parts.headers { header_texts(headers) } else { Vec::new() },
        }
    }

    /// Reads the head of a received request, as [`HttpRequest::received`] does.
    #[must_use]
    pub fn of_parts(head: &'a Parts, parts: HttpParts) -> HttpRequest<'a> {
        HttpRequest::received(&head.method, &head.uri, &head.headers, parts)
    }

    /// Reads a request that a proxy asks about: the proxy states the target, and passes on the headers of its client.
    #[must_use]
    pub fn forwarded(target: HttpTarget<'a>, headers: &'a HeaderMap) -> HttpRequest<'a> {
        HttpRequest::described(target, header_texts(headers))
    }

    /// Reads a request that a caller describes. The names of headers are in lower case.
    #[must_use]
    pub fn described(target: HttpTarget<'a>, headers: Vec<(&'a str, &'a str)>) -> HttpRequest<'a> {
        HttpRequest {
            method: target.method,
            host: target.host.canonical(),
            path: PathForms::new(target.path),
            query: target.query,
            headers,
        }
    }

    /// Returns the address of the client behind the peer: the policy sets which proxies are trusted. It needs the
    /// headers, if the policy's [`HttpParts`] include them.
    #[must_use]
    pub fn client_address(&self, policy: &Policy, peer: IpAddr) -> IpAddr {
        policy.client_address(peer, &self.headers)
    }

    /// Returns the request in the form that rules match, with the address of its client.
    #[must_use]
    pub fn http(&self, address: Option<IpAddr>) -> Http<'_> {
        Http {
            method: self.method,
            host: &self.host,
            path: self.path.canonical(),
            odd_path: self.path.odd(),
            query: self.query,
            headers: &self.headers,
            address,
        }
    }
}

/// Returns the address that a client is counted by, for callers without a policy. Headers are read only if one is
/// trusted.
#[must_use]
pub fn counted_address(clients: &Clients, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let lines = std::iter::once_with(|| headers.get_all(clients.header_name()));
    clients.address(peer, lines.flat_map(|lines| lines.iter().rev()).filter_map(header_text))
}

/// Returns the text of a header's value, or `None` if it is not UTF-8.
#[must_use]
pub fn header_text(value: &HeaderValue) -> Option<&str> {
    str::from_utf8(value.as_bytes()).ok()
}

/// The headers that are text; names are in lower case already.
fn header_texts(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let mut texts = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        if let Some(value) = header_text(value) {
            texts.push((name.as_str(), value));
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tidegate_policy::{LoadOptions, load_text};

    use super::*;

    /// What rules see of a request, as text.
    fn seen(request: &HttpRequest<'_>) -> String {
        let Http { method, host, path, query, headers, .. } = request.http(None);
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{method}|{host}|{path}|{query}|{}", headers.join(","))
    }

    fn parts(uri: &str, headers: &[(&str, &[u8])]) -> Parts {
        let mut request = Request::put(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_received_request_has_one_form() {
        for (uri, headers, expected) in [
            (
                "/a//b/%41?q=%41",
                &[("Host", &b"Example.org:80"[..])][..],
                "PUT|example.org|/a/b/A|q=%41|host=Example.org:80",
            ),
            ("http://Url.org:8080/", &[("host", b"header.org")], "PUT|url.org|/||host=header.org"),
            ("/", &[("host", b"[::1]:80")], "PUT|[::1]|/||host=[::1]:80"),
            ("/", &[], "PUT||/||"),
            ("/", &[("host", b"\xff"), ("x-a", b"\xff"), ("x-a", b"1"), ("x-a", b"2")], "PUT||/||x-a=1,x-a=2"),
        ] {
            assert_eq!(seen(&HttpRequest::of_parts(&parts(uri, headers), HttpParts::ALL)), expected, "{uri}");
        }
    }

    #[test]
    fn parts_that_nobody_looks_at_stay_empty() {
        let parts = parts("/a?b", &[("host", b"x"), ("c", b"d")]);
        assert_eq!(seen(&HttpRequest::of_parts(&parts, HttpParts::default())), "PUT|||b|");
        let path = HttpParts { path: true, ..HttpParts::default() };
        assert_eq!(seen(&HttpRequest::of_parts(&parts, path)), "PUT||/a|b|");
    }

    /// What no server reads in another way is compared as it stands, and the other forms are not made.
    #[test]
    fn odd_paths_have_further_forms() {
        for (uri, expected) in
            [("/login?/../x", None), ("/%6cogin", None), ("/x/..%2flogin", Some((&b"/login"[..], &b"/x/../login"[..])))]
        {
            let parts = parts(uri, &[]);
            let request = HttpRequest::of_parts(&parts, HttpParts::ALL);
            let http = request.http(None);
            assert_eq!(http.odd_path.map(|odd| (odd.decoded(), odd.unresolved())), expected, "{uri}");
            let unread = HttpRequest::of_parts(&parts, HttpParts::default());
            assert_eq!(unread.http(None).odd_path, None, "{uri}");
        }
    }

    /// A description is the caller's own word: its host stays as it is, also in rules that were written for that.
    #[test]
    fn a_description_keeps_its_host() {
        let target = |host| HttpTarget { method: "GET", host, path: "/a/../b", query: "c" };
        let described = HttpRequest::described(target(HttpHost::Described("Ex.org:80")), vec![("d", "e")]);
        assert_eq!(seen(&described), "GET|Ex.org:80|/b|c|d=e");
        let headers = parts("/v1/auth", &[("d", b"e")]).headers;
        let forwarded = HttpRequest::forwarded(target(HttpHost::Authority("Ex.org:80")), &headers);
        assert_eq!(seen(&forwarded), "GET|ex.org|/b|c|d=e");
    }

    #[test]
    fn the_client_stands_behind_trusted_proxies() {
        let config = "client_address: {trusted_hops: 1}\ndomains: {a: {rules: [{name: r, limit: 1/s, key: address}]}}";
        let policy = load_text("test.yaml", config, &LoadOptions::default()).policy.unwrap();
        let parts = parts("/", &[("x-forwarded-for", b"192.0.2.1, 192.0.2.2")]);
        let request = HttpRequest::of_parts(&parts, policy.http_parts(policy.domain("a").unwrap()));
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(request.client_address(&policy, peer).to_string(), "192.0.2.2");
        assert_eq!(request.client_address(&Policy::default(), peer), peer);
    }
}
