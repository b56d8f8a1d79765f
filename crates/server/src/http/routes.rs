//! All routes: the one table that requests are dispatched by, that people read, and that the description is held against.
//!
//! A route names a [`Call`] for each of its methods, and `mod.rs` answers each call by a match without a wildcard: a route
//! without an answer does not compile, and an answer without a route is a warning that the lints deny. The tests below
//! hold the description and the guide against the table.

use std::net::SocketAddr;

use http::header::HOST;
use http::{HeaderMap, Method, StatusCode};

use super::answer::{Failure, JSON, Reply, TEXT, quote, reply};
use crate::bounds::HOST_BYTES_MAX;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Check,
    CheckInQuery,
    Auth,
    Report,
    AcquirePermit,
    RenewPermit,
    ReleasePermit,
    Alive,
    Ready,
    Metrics,
    Description,
    EnvoyJson,
    EnvoyHealth,
    Overview,
    /// Only for administrators.
    Admin(AdminCall),
}

impl Call {
    /// Whether it changes counts or permits on the word of the caller alone: then a web page of another site must not be
    /// able to make it. What a proxy asks has the headers of its client, and administrators have checks of their own.
    pub(super) fn trusts_the_caller(self) -> bool {
        use Call::{AcquirePermit, Check, CheckInQuery, EnvoyJson, ReleasePermit, RenewPermit, Report};
        matches!(self, Check | CheckInQuery | Report | AcquirePermit | RenewPermit | ReleasePermit | EnvoyJson)
    }
}

/// What only administrators may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminCall {
    Inspect,
    Reset,
    Grant,
    Block,
    Unblock,
    ExplainDenial,
    ExplainRequest,
    Rules,
    SetMode,
    Top,
    Blocks,
    EnvoyLimits,
}

/// A route.
struct Route {
    /// A segment in braces stands for any one segment that is not empty.
    path: &'static str,
    has_parameters: bool,
    methods: Methods,
    what: &'static str,
}

/// The methods of a route, and what each asks for.
enum Methods {
    /// Whatever the method is.
    Any(Call),
    /// These, in the order in which they are shown.
    Each(&'static [(&'static str, Call)]),
}

/// The segments of a path that stand where its route has braces. No route has more.
pub(super) type Parameters<'p> = [&'p str; 2];

const fn route(path: &'static str, methods: Methods, what: &'static str) -> Route {
    let (bytes, mut number, mut has_parameters) = (path.as_bytes(), 0, false);
    while number < bytes.len() {
        has_parameters |= bytes[number] == b'{';
        number += 1;
    }
    Route { path, has_parameters, methods, what }
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
static ROUTES: &[Route] = {
    use Call::{
        AcquirePermit, Admin, Alive, Auth, Check, CheckInQuery, Description, EnvoyHealth, EnvoyJson, Metrics, Overview,
        Ready, ReleasePermit, RenewPermit, Report,
    };
    use AdminCall::{
        Block, Blocks, EnvoyLimits, ExplainDenial, ExplainRequest, Grant, Inspect, Reset, Rules, SetMode, Top, Unblock,
    };
    use Methods::{Any, Each};

    &[
        route("/v1/check", Each(&[("GET", CheckInQuery), ("POST", Check)]), "check a request"),
        route("/v1/auth", Any(Auth), "check a request, for proxies"),
        route("/v1/report", Each(&[("POST", Report)]), "report the response to a request"),
        route("/v1/permits", Each(&[("POST", AcquirePermit)]), "acquire a permit (concurrency limits)"),
        route("/v1/permits/{id}", Each(&[("PUT", RenewPermit), ("DELETE", ReleasePermit)]), "renew or release a permit"),
        route("/v1/inspect", Each(&[("POST", Admin(Inspect))]), "show the state of a key"),
        route("/v1/reset", Each(&[("POST", Admin(Reset))]), "reset a key"),
        route("/v1/grant", Each(&[("POST", Admin(Grant))]), "give units back to a key"),
        route("/v1/block", Each(&[("POST", Admin(Block))]), "deny a key for a time"),
        route("/v1/unblock", Each(&[("POST", Admin(Unblock))]), "lift a block or penalty of a key"),
        route("/v1/blocks", Each(&[("GET", Admin(Blocks))]), "blocks and penalties in force"),
        route("/v1/top", Each(&[("GET", Admin(Top))]), "the keys with the most requests or denials"),
        route("/v1/explain", Each(&[("POST", Admin(ExplainRequest))]), "show what rules would do with a request"),
        route("/v1/explain/{id}", Each(&[("GET", Admin(ExplainDenial))]), "show why a request was denied"),
        route("/v1/rules", Each(&[("GET", Admin(Rules))]), "all rules with their counts"),
        route("/v1/rules/{domain}/{rule}/mode", Each(&[("PUT", Admin(SetMode))]), "switch a rule to enforce, shadow, off or configured"),
        route("/healthz", Each(&[("GET", Alive), ("HEAD", Alive)]), "liveness probe"),
        route("/readyz", Each(&[("GET", Ready), ("HEAD", Ready)]), "readiness probe"),
        route("/metrics", Each(&[("GET", Metrics)]), "metrics for Prometheus"),
        route("/openapi.json", Each(&[("GET", Description)]), "this API as OpenAPI 3.1"),
        route("/json", Each(&[("POST", EnvoyJson)]), "Envoy's rate limit service in JSON"),
        route("/healthcheck", Each(&[("GET", EnvoyHealth), ("HEAD", EnvoyHealth)]), "readiness, as in envoyproxy/ratelimit"),
        route("/rlconfig", Each(&[("GET", Admin(EnvoyLimits))]), "all limits, as in envoyproxy/ratelimit"),
        route("/", Each(&[("GET", Overview), ("HEAD", Overview)]), "this page"),
    ]
};

impl Route {
    /// The parameters of a path, if it is one of this route.
    fn parameters<'p>(&self, path: &'p str) -> Option<Parameters<'p>> {
        let (mut own, mut given) = (self.path.split('/'), path.split('/'));
        let mut parameters = Parameters::default();
        let mut places = parameters.iter_mut();
        loop {
            match (own.next(), given.next()) {
                (None, None) => return Some(parameters),
                (Some(name), Some(segment)) if name.starts_with('{') && !segment.is_empty() => {
                    *places.next()? = segment;
                }
                (Some(name), Some(segment)) if name == segment => {}
                _ => return None,
            }
        }
    }

    /// What a method asks for, if there is anything for it.
    fn call(&self, method: &Method) -> Option<Call> {
        match self.methods {
            Methods::Any(call) => Some(call),
            Methods::Each(all) => all.iter().find(|(name, _)| method == *name).map(|(_, call)| *call),
        }
    }

    fn method_names(&self) -> String {
        match self.methods {
            Methods::Any(_) => "any".to_owned(),
            Methods::Each(all) => all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        }
    }

    fn is_for_admins(&self) -> bool {
        match self.methods {
            Methods::Any(call) => matches!(call, Call::Admin(_)),
            Methods::Each(all) => all.iter().all(|(_, call)| matches!(call, Call::Admin(_))),
        }
    }
}

/// Finds what a request asks for, and the parameters of its path.
pub(super) fn find<'p>(method: &Method, path: &'p str) -> Result<(Call, Parameters<'p>), Failure> {
    let plain = ROUTES.iter().find(|route| !route.has_parameters && route.path == path);
    let (route, parameters) = plain
        .map(|route| (route, Parameters::default()))
        .or_else(|| {
            let mut others = ROUTES.iter().filter(|route| route.has_parameters);
            others.find_map(|route| Some((route, route.parameters(path)?)))
        })
        .ok_or_else(|| unknown(path))?;
    let call = route.call(method).ok_or_else(|| Failure::method(&route.method_names()))?;
    Ok((call, parameters))
}

/// Nothing is there.
fn unknown(path: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("path: {} not found; GET / lists all paths", quote(path)))
}

/// A page for people.
pub(super) fn page(headers: &HeaderMap, listener: Option<SocketAddr>) -> Reply {
    let mut page = String::from("Tidegate decides whether requests may pass.\n\n");
    for route in ROUTES {
        let (methods, Route { path, what, .. }) = (route.method_names(), route);
        let note = if route.is_for_admins() { " (admin)" } else { "" };
        page += &format!("{methods:<11} {path:<32} {what}{note}\n");
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

    /// Each operation, with whether it needs a token of administrators.
    fn described() -> Vec<(String, bool)> {
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut described = Vec::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            let operations = methods.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters");
            described.extend(operations.map(|(method, operation)| {
                let needs_token = operation["security"][0].get("adminToken").is_some();
                (format!("{} {path}", method.to_uppercase()), needs_token)
            }));
        }
        described.sort();
        described
    }

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let mut routes = Vec::new();
        for Route { path, methods, .. } in ROUTES {
            match methods {
                // Any method will do for a proxy.
                Methods::Any(call) => routes.push((format!("GET {path}"), matches!(call, Call::Admin(_)))),
                // A HEAD is what its GET is.
                Methods::Each(all) => routes.extend(
                    all.iter()
                        .filter(|(method, _)| *method != "HEAD")
                        .map(|(method, call)| (format!("{method} {path}"), matches!(call, Call::Admin(_)))),
                ),
            }
        }
        routes.sort();
        assert_eq!(described(), routes);
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn the_guide_has_every_route() {
        let guide = include_str!("../../../../docs/src/http.md");
        for Route { path, .. } in ROUTES {
            let path = path.replace("{domain}/{rule}", "DOMAIN/RULE").replace("/{id}", "");
            assert!(guide.contains(&path), "docs/src/http.md: {path} is missing");
        }
    }

    #[test]
    fn each_method_of_a_route_asks_for_what_it_says() {
        let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        for Route { path, methods, .. } in ROUTES {
            let found = |method: &str| find(&method.parse().unwrap(), path).map(|(call, _)| call).ok();
            match methods {
                Methods::Any(call) => assert_eq!(found("BREW"), Some(*call), "{path}"),
                Methods::Each(all) => {
                    assert!(all.iter().all(|(method, call)| found(method) == Some(*call)), "{path}");
                    assert_eq!(found("BREW"), None, "{path}");
                    // A HEAD that its GET would not answer makes no sense.
                    let head = all.iter().find(|(method, _)| *method == "HEAD");
                    assert!(head.is_none_or(|(_, call)| all[0] == ("GET", *call)), "{path}");
                }
            }
        }
        paths.sort_unstable();
        assert!(paths.is_sorted_by(|one, next| one < next), "a path stands there twice: {paths:?}");
    }

    #[test]
    fn parameters_of_paths() {
        let find = |method: Method, path| find(&method, path).ok();
        for (path, expected) in [
            ("/v1/permits/", None),
            ("/v1/permits/a", Some("a")),
            ("/v1/permits/a%2Fb", Some("a%2Fb")),
            ("/v1/permits/{id}", Some("{id}")),
            ("/v1/permits/a/b", None),
            ("/v1/permitsa", None),
        ] {
            assert_eq!(find(Method::DELETE, path), expected.map(|id| (Call::ReleasePermit, [id, ""])), "{path}");
        }
        assert_eq!(find(Method::POST, "/v1/permits"), Some((Call::AcquirePermit, ["", ""])));
        let mode = Some((Call::Admin(AdminCall::SetMode), ["api", "per%2Fuser"]));
        assert_eq!(find(Method::PUT, "/v1/rules/api/per%2Fuser/mode"), mode);
        for path in [
            "/v1/rules",
            "/v1/rules/",
            "/v1/rules/api/mode",
            "/v1/rules//a/mode",
            "/v1/rules/a//mode",
            "/v1/rules/a/b/c/mode",
            "/v1/rules/a/b/mode/",
        ] {
            assert_eq!(find(Method::PUT, path), None, "{path}");
        }
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
