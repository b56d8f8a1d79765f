//! All routes, as people and the description see them.

use std::net::SocketAddr;

use http::header::HOST;
use http::{HeaderMap, StatusCode};

use super::answer::{Failure, JSON, Reply, TEXT, quote, reply};
use super::{permits, rules};
use crate::bounds::HOST_BYTES_MAX;

/// A route.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) methods: &'static [&'static str],
    what: &'static str,
}

const fn route(path: &'static str, methods: &'static [&'static str], what: &'static str) -> Route {
    Route { path, methods, what }
}

const PERMIT: &str = "/v1/permits/{id}";
const MODE: &str = "/v1/rules/{domain}/{rule}/mode";

/// All of them, in the order in which they are shown.
pub(super) const ROUTES: [Route; 19] = [
    route("/v1/check", &["GET", "POST"], "may it pass?"),
    route("/v1/auth", &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"], "may it pass? for proxies"),
    route("/v1/report", &["POST"], "what became of it"),
    route("/v1/permits", &["POST"], "so many at once: acquire a permit for a time"),
    route(PERMIT, &["PUT", "DELETE"], "hold it for longer, or give it back"),
    route("/v1/inspect", &["POST"], "what is known of a key (admin)"),
    route("/v1/reset", &["POST"], "forget a key (admin)"),
    route("/v1/grant", &["POST"], "give units back to a key (admin)"),
    route("/v1/block", &["POST"], "deny a key for a time (admin)"),
    route("/v1/rules", &["GET"], "all rules with what they counted (admin)"),
    route(MODE, &["PUT"], "switch a rule to enforce, shadow, off or configured (admin)"),
    route("/healthz", &["GET", "HEAD"], "alive?"),
    route("/readyz", &["GET", "HEAD"], "ready?"),
    route("/metrics", &["GET"], "for Prometheus"),
    route("/openapi.json", &["GET"], "the description of all this"),
    route("/json", &["POST"], "Envoy's rate limit service in JSON"),
    route("/healthcheck", &["GET", "HEAD"], "ready? as envoyproxy/ratelimit says it"),
    route("/rlconfig", &["GET"], "all limits as envoyproxy/ratelimit shows them (admin)"),
    route("/", &["GET", "HEAD"], "this page"),
];

/// The route of a path.
pub(super) fn find(path: &str) -> Option<&'static Route> {
    let is_it = |route: &&Route| match route.path {
        MODE => rules::of_path(path).is_some(),
        PERMIT => permits::of_path(path).is_some(),
        other => other == path,
    };
    ROUTES.iter().find(is_it)
}

/// Nothing is there.
pub(super) fn unknown(path: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("path: nothing at {}; GET / lists what there is", quote(path)))
}

/// A page for people.
pub(super) fn page(headers: &HeaderMap, listener: Option<SocketAddr>) -> Reply {
    let mut page = String::from("Tidegate decides whether requests may pass.\n\n");
    for Route { path, methods, what } in &ROUTES {
        let methods = if *path == "/v1/auth" { "any".to_owned() } else { methods.join(", ") };
        page += &format!("{methods:<11} {path:<32} {what}\n");
    }
    page += &format!("\nTry: curl -i 'http://{}/v1/check?key=user:42&rate=5/minute'\n", authority(headers, listener));
    reply(StatusCode::OK, TEXT, page)
}

/// Where the page was asked for, or else where this listens. What is no host and port is not repeated: the line is made to
/// be copied to a shell.
fn authority(headers: &HeaderMap, listener: Option<SocketAddr>) -> String {
    let is_plain = |host: &&str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(letter)
    };
    let given = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(is_plain).map(str::to_owned);
    given.or(listener.map(|address| address.to_string())).unwrap_or_else(|| "127.0.0.1:8080".to_owned())
}

const OPENAPI: &str = include_str!("openapi.json");

/// The description.
pub(super) fn openapi() -> Reply {
    reply(StatusCode::OK, JSON, OPENAPI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut described = Vec::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            let methods = methods.as_object().unwrap().keys().filter(|key| *key != "parameters");
            described.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
        }
        let routes =
            ROUTES.iter().flat_map(|route| route.methods.iter().map(|method| format!("{method} {}", route.path)));
        // A HEAD is what its GET is, and any method will do for a proxy.
        let mut routes: Vec<String> = routes
            .filter(|route| !route.starts_with("HEAD") && (!route.ends_with("/v1/auth") || route.starts_with("GET")))
            .collect();
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn every_reference_in_the_description_leads_somewhere() {
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        for part in OPENAPI.split("\"$ref\": \"#").skip(1) {
            let pointer = part.split('"').next().unwrap();
            assert!(description.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
