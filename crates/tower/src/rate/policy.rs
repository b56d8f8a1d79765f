//! Decisions by the rules of an engine, which chooses the stores and handles their failures.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use tidegate_core::Time;
use tidegate_engine::bounds::COST_MAX;
use tidegate_engine::{Denial, Engine, HttpRequest, Outcome, RequestError, http_headers};
use tidegate_policy::{Descriptor, Entry, Headers, Http, HttpParts, Policy, Request, Response};

use super::limit::CostOf;
use super::{Judge, Later, RateLimitLayer, Ticket, Told, Verdict};
use crate::address::{AddressMissed, Peer};
use crate::answer::{Denied, Why};
use crate::key::Extractor;
use crate::{Head, Reason, Refusal, ResponseHead};

pub(super) struct PolicyJudge {
    pub(super) engine: Arc<Engine>,
    pub(super) domain: Box<str>,
    /// The entries of each descriptor.
    pub(super) descriptors: Box<[Wanted]>,
    /// Whether a request that lacks an entry is refused, rather than checked without it.
    pub(super) denies_missing: bool,
    pub(super) peer: Peer,
    pub(super) cost: Option<CostOf>,
    pub(super) tells_passed: bool,
    pub(super) address_missed: AddressMissed,
}

/// The entries of a descriptor, and the extractors of their values.
pub(super) type Wanted = Box<[(Arc<str>, Extractor)]>;

/// The values of the entries of all descriptors, one after the other; `None` for an entry that a request lacks.
type Values = Vec<Option<String>>;

/// A request, kept until its response is known.
#[derive(Debug)]
pub(super) struct Report {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    about: About,
    started: Time,
}

/// The facts to be checked beside the request itself.
#[derive(Debug)]
struct About {
    values: Values,
    address: Option<IpAddr>,
    cost: u64,
}

impl PolicyJudge {
    pub(super) fn domain(&self) -> &str {
        &self.domain
    }

    /// Decides without awaiting. Returns `None` if the engine must wait for a shared store.
    pub(super) fn judge_at_once(&self, head: &Head<'_>) -> Option<Verdict> {
        let Some(values) = self.values(head) else { return Some(without_entry()) };
        let engine = self.engine.at_once(&self.domain)?;
        let parts = engine.http_parts();
        let asked = HttpRequest::received(head.method(), head.uri(), head.headers(), parts);
        let about = self.about(head, values, engine.policy(), parts, &asked);
        let checked = {
            let (entries, http) = (self.entries(&about), asked.http(about.address));
            engine.check_or_deny(&self.descriptors(&about, &entries), &http, about.cost)
        };
        Some(self.verdict(checked, head, about))
    }

    pub(super) async fn judge(&self, head: &Head<'_>) -> Verdict {
        let Some(values) = self.values(head) else { return without_entry() };
        // All parts: by the time a store has answered, the rules may be others than those that `policy` has.
        let asked = HttpRequest::received(head.method(), head.uri(), head.headers(), HttpParts::ALL);
        let policy = self.engine.policy();
        let parts = policy.domain(&self.domain).map(|domain| policy.http_parts(domain)).unwrap_or_default();
        let about = self.about(head, values, &policy, parts, &asked);
        let checked = {
            let (entries, http) = (self.entries(&about), asked.http(about.address));
            self.engine.check_or_deny(&self.request(&about, &self.descriptors(&about, &entries), &http)).await
        };
        self.verdict(checked, head, about)
    }

    fn request<'a>(&'a self, about: &About, descriptors: &'a [Descriptor<'a>], http: &'a Http<'a>) -> Request<'a> {
        Request { domain: &self.domain, descriptors, http: Some(http), cost: about.cost }
    }

    fn verdict(&self, checked: Result<Outcome, RequestError>, head: &Head<'_>, about: About) -> Verdict {
        // Few answers tell of it, and one instant is all that an answer tells of.
        let now = LazyCell::new(|| self.now());
        let Ok(outcome) = checked else {
            // More limits apply than can be charged at once: nobody knows whether it would pass.
            return Verdict::Deny(Box::new(Denied::plain(Denial::StoreFailure)));
        };
        if let (Some(denial), Some((status, body))) = (outcome.denial(), http_headers::problem(&outcome)) {
            let headers = http_headers::headers(&outcome, Some(Headers::Standard), *now);
            let wait = http_headers::retry_wait(&outcome, Some(Headers::Standard), *now);
            let is_hidden = http_headers::is_hidden_denial(&outcome);
            return Verdict::Deny(Box::new(Denied {
                why: Why::Denial(denial),
                is_hidden,
                status,
                headers,
                body,
                wait,
            }));
        }
        let told = if self.tells_passed { told(&outcome, || *now) } else { Told::Nothing };
        let later = match outcome.counts_response() {
            true => Later::Report(Box::new(Report {
                method: head.method().clone(),
                uri: head.uri().clone(),
                headers: head.headers().clone(),
                about,
                started: *now,
            })),
            false => Later::Nothing,
        };
        Verdict::Pass(Ticket::new(told, later))
    }

    /// The values of all entries, or `None` if one is missing and such requests are denied.
    fn values(&self, head: &Head<'_>) -> Option<Values> {
        let mut values = Values::new();
        for (_, extractor) in self.descriptors.iter().flatten() {
            let value = extractor.entry(head);
            if value.is_none() && self.denies_missing {
                return None;
            }
            values.push(value);
        }
        Some(values)
    }

    /// Collects what is checked beside the request itself.
    fn about(
        &self,
        head: &Head<'_>,
        values: Values,
        policy: &Policy,
        parts: HttpParts,
        asked: &HttpRequest<'_>,
    ) -> About {
        let address = self.peer.find(head).map(|peer| asked.client_address(policy, peer));
        if address.is_none() && parts.address {
            self.address_missed.tell(Some(&self.domain), "rules that count by address do not count it");
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head)).min(COST_MAX);
        About { values, address, cost }
    }

    /// The entries that a request has, of all descriptors, one after the other.
    fn entries<'a>(&'a self, about: &'a About) -> Vec<Entry<'a>> {
        let named = self.descriptors.iter().flatten().zip(&about.values);
        named.filter_map(|((key, _), value)| Some(Entry { key, value: value.as_deref()? })).collect()
    }

    /// The descriptors, each with its own of these entries.
    fn descriptors<'e>(&self, about: &About, mut entries: &'e [Entry<'e>]) -> Cow<'e, [Descriptor<'e>]> {
        if let [wanted] = &*self.descriptors
            && wanted.is_empty()
        {
            return Cow::Borrowed(&[Descriptor { entries: &[], ask: None, limit: None }]);
        }
        let mut values = &about.values[..];
        let descriptor = |wanted: &Wanted| {
            let (own, others) = values.split_at(wanted.len());
            values = others;
            let (own, others) = entries.split_at(own.iter().flatten().count());
            entries = others;
            Descriptor { entries: own, ..Descriptor::default() }
        };
        self.descriptors.iter().map(descriptor).collect()
    }

    pub(super) fn now(&self) -> Time {
        self.engine.clock().now()
    }

    /// A response that has just arrived, as rules see it.
    pub(super) fn response(&self, started: Time, head: ResponseHead<'_>) -> Response {
        let elapsed = self.now().as_nanos().saturating_sub(started.as_nanos());
        let (status, bytes) = (head.status().as_u16(), head.bytes().unwrap_or(0));
        Response { status, bytes, millis: elapsed / 1_000_000 }
    }

    /// Reports a response to rules that count responses. Returns what must be sent to a shared store.
    pub(super) fn report_at_once(
        &self,
        report: Box<Report>,
        head: ResponseHead<'_>,
    ) -> Option<(Box<Report>, Response)> {
        let response = self.response(report.started, head);
        let done = {
            let asked = HttpRequest::received(&report.method, &report.uri, &report.headers, HttpParts::ALL);
            let (entries, http) = (self.entries(&report.about), asked.http(report.about.address));
            let descriptors = self.descriptors(&report.about, &entries);
            self.engine.report_at_once(&self.request(&report.about, &descriptors, &http), &response).is_some()
        };
        (!done).then_some((report, response))
    }

    pub(super) async fn report(&self, report: &Report, response: &Response) {
        let asked = HttpRequest::received(&report.method, &report.uri, &report.headers, HttpParts::ALL);
        let (entries, http) = (self.entries(&report.about), asked.http(report.about.address));
        let descriptors = self.descriptors(&report.about, &entries);
        // The same request was decided before; the engine counts what goes wrong.
        let _ = self.engine.report(&self.request(&report.about, &descriptors, &http), response).await;
    }
}

impl RateLimitLayer {
    /// Returns the names of entries that no rule of the domain uses now: mostly misspelt names, and a rule that does
    /// not apply lets everything pass. The layer is built all the same, since rules can be reloaded: log these names at
    /// the start and after each reload. A layer by one limit has none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tidegate_engine::{Engine, Options};
    /// # use tidegate_policy::{LoadOptions, load_text};
    /// # use tidegate_tower::{KeyBy, RateLimitLayer};
    /// # let rules = "domains: {api: {rules: [{name: per-user, key: [{entry: user}], limit: 100/minute}]}}";
    /// # let policy = load_text("rules.yaml", rules, &LoadOptions::default()).policy.ok_or("see its diagnostics")?;
    /// # let engine = Arc::new(Engine::with_policy(Options::default(), policy)?);
    /// let layer = RateLimitLayer::policy(engine, "api").descriptor([("usr", KeyBy::header("x-user"))]).build()?;
    /// assert_eq!(layer.unused_entries(), ["usr"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unused_entries(&self) -> Vec<&str> {
        let Judge::Policy(judge) = &self.shared.judge else { return Vec::new() };
        let policy = judge.engine.policy();
        let rules = || policy.rules().iter().filter(|rule| rule.domain == judge.domain);
        let mut unused: Vec<&str> = judge.descriptors.iter().flatten().map(|(name, _)| &**name).collect();
        unused.sort_unstable();
        unused.dedup();
        unused.retain(|name| !rules().any(|rule| rule.looks_at_entry(name)));
        unused
    }
}

/// The limits that the response of an allowed outcome shows.
fn told(outcome: &Outcome, now: impl Fn() -> Time) -> Told {
    let mut headers = Vec::new();
    http_headers::tell(outcome, Some(Headers::Standard), now, |name, value| {
        // They are made of printable ASCII; one that is not would be left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            if headers.is_empty() {
                // Most rules tell of themselves in two.
                headers.reserve_exact(2);
            }
            headers.push((name, value));
        }
    });
    if headers.is_empty() { Told::Nothing } else { Told::All(headers) }
}

fn without_entry() -> Verdict {
    Verdict::Deny(Box::new(Denied::refused(Refusal::without_key(Reason::NoKey))))
}
