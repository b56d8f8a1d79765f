//! `/v1/auth`: forward-auth, for proxies that ask before they let a request through.
//!
//! Whom it counts is for the proxy's configuration to say, in the query: `?domain=api&entry.plan=free`. Everything else
//! in the request may have come from the client.

use std::borrow::Cow;

use http::header::{HOST, HeaderMap};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_engine::http_request::header_text;
use tidegate_engine::{HttpHost, HttpRequest, HttpTarget};
use tidegate_policy::{Descriptor, Entry, Headers, Request};

use super::Caller;
use super::answer::{Answered, Failure, Reply, add_headers, empty, forbid_caching, quote};
use super::asked::{COSTS, check_cost};
use super::query::Query;
use super::told;
use crate::bounds::PROBLEM_HEADER_BYTES_MAX;
use crate::protocol::Via;
use crate::service::Service;

const STATUS: HeaderName = HeaderName::from_static("x-tidegate-status");
const PROBLEM: HeaderName = HeaderName::from_static("x-tidegate-problem");
const DOMAIN_DEFAULT: &str = "default";

/// What the query says.
struct Options<'a> {
    domain: Cow<'a, str>,
    entries: Vec<(String, Cow<'a, str>)>,
    cost: u64,
    /// The status of every denial, for proxies that understand few.
    deny: Option<StatusCode>,
}

impl<'a> Options<'a> {
    fn parse(query: Option<&'a str>) -> Result<Options<'a>, Failure> {
        let mut query = Query::parse(query)?;
        let domain = query.take("domain").unwrap_or(Cow::Borrowed(DOMAIN_DEFAULT));
        let entries = query.take_prefixed("entry.");
        let cost = check_cost(query.whole("cost", COSTS)?.unwrap_or(1))?;
        let deny = match query.take("deny").as_deref() {
            None => None,
            Some("401") => Some(StatusCode::UNAUTHORIZED),
            Some("403") => Some(StatusCode::FORBIDDEN),
            Some("429") => Some(StatusCode::TOO_MANY_REQUESTS),
            Some(other) => {
                return Err(Failure::bad("deny", format_args!("{} is unknown", quote(other)), "use 401, 403 or 429"));
            }
        };
        query.finish()?;
        Ok(Options { domain, entries, cost, deny })
    }
}

/// Answers a proxy: 200, or why not.
pub(super) async fn any(service: &Service, via: Via<'_>, caller: &Caller, parts: &Parts) -> Answered {
    let options = Options::parse(parts.uri.query())?;
    let original = HttpRequest::forwarded(target(parts)?, &parts.headers);
    let address = original.client_address(&service.engine.policy(), caller.peer.address);
    let http = original.http(Some(address));
    let entries: Vec<Entry<'_>> = options.entries.iter().map(|(key, value)| Entry { key, value }).collect();
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain: &options.domain, descriptors: &descriptors, http: Some(&http), cost: options.cost };
    let outcome = service.check(via, &request).await?;
    let now = service.engine.clock().now();
    if let Some(mut reply) = told::denial(&outcome, now) {
        say_status(&mut reply, options.deny);
        return Ok(reply);
    }
    let mut reply = empty(StatusCode::OK);
    add_headers(&mut reply, crate::headers::headers(&outcome, Some(Headers::Standard), now));
    forbid_caching(&mut reply);
    if !outcome.is_known_domain() {
        // A proxy would answer its clients with an error, so it is said where only people look.
        reply.headers_mut().insert(STATUS, HeaderValue::from_static("unknown-domain"));
    }
    Ok(reply)
}

/// Puts the status into a header. If the proxy asked for another status, puts that in its place and the body into a header:
/// nginx keeps headers of such an answer, and drops its body.
fn say_status(reply: &mut Reply, deny: Option<StatusCode>) {
    if let Ok(status) = HeaderValue::from_str(reply.status().as_str()) {
        reply.headers_mut().insert(STATUS, status);
    }
    if let Some(deny) = deny {
        *reply.status_mut() = deny;
        let body = reply.body().clone().into_inner().filter(|body| body.len() <= PROBLEM_HEADER_BYTES_MAX);
        if let Some(Ok(problem)) = body.map(HeaderValue::from_maybe_shared) {
            reply.headers_mut().insert(PROBLEM, problem);
        }
    }
}

/// What the request asks for that the proxy asks about.
fn target(parts: &Parts) -> Result<HttpTarget<'_>, Failure> {
    let headers = &parts.headers;
    let method = one_of(headers, &["x-forwarded-method", "x-original-method"], |method| method)?;
    let url = one_of(headers, &["x-forwarded-uri", "x-original-uri", "x-original-url"], without_origin)?;
    let (path, query) = url.map(path_and_query).unwrap_or_default();
    let host = one_of(headers, &["x-forwarded-host"], |host| host)?;
    let host = host.or_else(|| headers.get(HOST).and_then(header_text)).unwrap_or_default();
    let method = method.unwrap_or(parts.method.as_str());
    Ok(HttpTarget { method, host: HttpHost::Authority(host), path, query })
}

/// The path and the query of a URL without its origin. A fragment ends both: servers that take one cut it off.
fn path_and_query(url: &str) -> (&str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    // `GET http://example.com?a=b` asks for the root.
    (if path.is_empty() { "/" } else { path }, query)
}

/// The value that some headers agree on. A proxy sets one of them and hands on what the client wrote into the others:
/// where they differ, nobody knows which is true.
fn one_of<'a>(
    headers: &'a HeaderMap,
    names: &'static [&'static str],
    read: impl Fn(&'a str) -> &'a str,
) -> Result<Option<&'a str>, Failure> {
    let mut found = None;
    for name in names {
        for value in headers.get_all(*name) {
            let unreadable = || Failure::bad(name, "not text", "send printable ASCII or UTF-8");
            let value = read(header_text(value).ok_or_else(unreadable)?);
            match found {
                Some(other) if other != value => {
                    let problem = format_args!("{} is not {}", quote(value), quote(other));
                    let remedy = format_args!("let the proxy set one of {} and remove the others", names.join(", "));
                    return Err(Failure::bad(name, problem, remedy));
                }
                _ => found = Some(value),
            }
        }
    }
    Ok(found)
}

/// The path and query of a URL, or of what is one already.
fn without_origin(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !scheme.is_empty() => {
            rest.find(['/', '?', '#']).and_then(|start| rest.get(start..)).unwrap_or("/")
        }
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(headers: &[(&str, &str)]) -> Result<String, String> {
        let mut request = http::Request::builder().uri("/v1/auth");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let told = |target: HttpTarget<'_>| {
            let request = HttpRequest::forwarded(target, &parts.headers);
            let http = request.http(None);
            format!("{} {} {} {}", http.method, http.host, http.path, http.query)
        };
        target(&parts).map(told).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn what_proxies_say_of_a_request() {
        let cases: [(&[(&str, &str)], &str); 13] = [
            (&[("x-original-uri", "//x/../%6cogin?a=//b")], "GET  /login a=//b"),
            (&[("x-original-uri", "/a?b=c"), ("x-original-method", "PUT"), ("host", "Ex.org:80")], "PUT ex.org /a b=c"),
            (
                &[("x-forwarded-uri", "/a"), ("x-forwarded-method", "POST"), ("x-forwarded-host", "b.org")],
                "POST b.org /a ",
            ),
            (&[("x-original-url", "https://ex.org/a/b?c")], "GET  /a/b c"),
            (&[("x-original-url", "https://ex.org")], "GET  / "),
            (&[("x-original-uri", "/login#f?a=b")], "GET  /login "),
            (&[("x-original-uri", "/login?a=b#f")], "GET  /login a=b"),
            (&[("x-original-url", "https://ex.org#/a?b")], "GET  / "),
            (&[("x-original-url", "https://ex.org?a=b")], "GET  / a=b"),
            (&[("x-original-uri", "?a=b")], "GET  / a=b"),
            (&[("x-original-uri", "/go?to=https://ex.org/")], "GET  /go to=https://ex.org/"),
            (&[("x-original-uri", "/a"), ("x-forwarded-uri", "/a"), ("host", "[::1]:80")], "GET [::1] /a "),
            (&[], "GET   "),
        ];
        for (headers, expected) in cases {
            assert_eq!(original(headers).as_deref(), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn a_client_cannot_say_otherwise_than_the_proxy() {
        assert!(original(&[("x-original-uri", "/login"), ("x-forwarded-uri", "/free")]).is_err());
        assert!(original(&[("x-forwarded-method", "GET"), ("x-original-method", "POST")]).is_err());
        assert!(original(&[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")]).is_err());
    }
}
