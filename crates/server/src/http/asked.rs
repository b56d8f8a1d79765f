//! What a request is about: entries for configured rules, or a key with its own limit. Checks, reports and the calls of
//! administrators name it in the same way.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::Limit;
use tidegate_engine::bounds::{COST_MAX, DESCRIPTORS_MAX, OWN_KEY_BYTES_MAX};
use tidegate_engine::{HttpHost, HttpRequest, HttpTarget};
use tidegate_policy::json::{FieldError, Raw, shortened};
use tidegate_policy::schema::{self, Numbers, RateText};
use tidegate_policy::{
    Calendars, Descriptor, Entry, Http, JsonLimit, LIMIT_REMEDY, Request, Shown, read_duration, read_json_limit,
    read_limit,
};

use super::answer::{Failure, quote};
use super::body::{Fields, list, text};
use super::query::Query;
use crate::decision_log::{InlineCharge, InlineLimit};
use crate::headers::OWN_LIMIT_NAME;
use crate::rls;
use crate::service::Service;

/// A request for configured rules: `concat!` takes no constant.
macro_rules! rules_example {
    () => {
        r#"{"domain":"api","descriptors":[{"user":"42"}]}"#
    };
}

const RULES_EXAMPLE: &str = rules_example!();
const EXAMPLE: &str = concat!(rules_example!(), r#" or {"key":"user:42","limit":"100/minute"}"#);
const DESCRIPTORS: &str = r#"[{"user":"42","plan":"free"}], or [[{"user":"42"},{"plan":"free"}]] where order matters"#;
const HTTP_EXAMPLE: &str = r#"{"method":"GET","path":"/login","address":"192.0.2.7"}"#;

/// What a request is about.
pub(super) enum Asked<'a> {
    Rules(Subject<'a>),
    Inline(Inline<'a>),
}

/// Entries that rules are looked up for.
pub(super) struct Subject<'a> {
    pub(super) domain: Cow<'a, str>,
    pub(super) descriptors: Vec<Entries<'a>>,
    pub(super) http: Option<DescribedHttp<'a>>,
    pub(super) cost: u64,
}

/// The entries of one descriptor.
pub(super) type Entries<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// An HTTP request that somebody tells of.
#[derive(Default)]
pub(super) struct DescribedHttp<'a> {
    method: Cow<'a, str>,
    host: Cow<'a, str>,
    path: Cow<'a, str>,
    query: Cow<'a, str>,
    headers: Vec<(String, Cow<'a, str>)>,
    address: Option<IpAddr>,
}

/// A key with its own limit.
pub(super) struct Inline<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    /// Whether the caller gave the name.
    pub(super) is_named: bool,
    pub(super) limit: Limit,
    pub(super) shown: Shown,
    pub(super) cost: u64,
    /// How long the caller would wait for its turn, if it would: only checks ask for that.
    pub(super) wait: Option<Duration>,
}

impl<'a> Asked<'a> {
    /// Takes what it is about from the fields of an object.
    pub(super) fn take(fields: &mut Fields<'a>) -> Result<Asked<'a>, Failure> {
        match (fields.has("domain") || fields.has("descriptors"), fields.has("key") || fields.has("limit")) {
            (true, false) => Subject::take(fields).map(Asked::Rules),
            (false, true) => Inline::take(fields).map(Asked::Inline),
            (true, true) => {
                Err(Failure::bad("key", "not allowed together with domain", format_args!("write {EXAMPLE}")))
            }
            (false, false) => Err(Failure::bad("body", "neither domain nor key", format_args!("write {EXAMPLE}"))),
        }
    }

    /// The same for a call that takes nothing. A cost that nobody looks at is refused, or it would be taken for units;
    /// `instead` says what to do.
    pub(super) fn take_for(
        call: &str,
        instead: &str,
        fields: &mut Fields<'a>,
        service: &Service,
    ) -> Result<Asked<'a>, Failure> {
        let has_cost = fields.has("cost");
        let asked = Asked::take(fields)?;
        let is_seen = match &asked {
            Asked::Rules(subject) => service.engine.policy().looks_at_cost(&subject.domain),
            Asked::Inline(_) => false,
        };
        if has_cost && !is_seen {
            return Err(Failure::bad("cost", format_args!("it has no effect on {call}"), instead));
        }
        Ok(asked)
    }

    /// Reads an object that holds nothing else.
    pub(super) fn parse(text: &'a str) -> Result<Asked<'a>, Failure> {
        let mut fields = Fields::parse("body", text, EXAMPLE)?;
        let mut asked = Asked::take(&mut fields)?;
        if let Asked::Inline(inline) = &mut asked {
            inline.wait = fields.text("wait", WAITS)?.map(|text| wait(&text)).transpose()?;
        }
        fields.finish("a check")?;
        Ok(asked)
    }
}

impl<'a> Subject<'a> {
    fn take(fields: &mut Fields<'a>) -> Result<Subject<'a>, Failure> {
        let remedy = "name the domain of the rules";
        let domain = fields.text("domain", remedy)?.ok_or_else(|| Failure::bad("domain", "missing", remedy))?;
        let given = fields.need("descriptors", format_args!("write a list like {DESCRIPTORS}"))?;
        let items = list("descriptors", given.get(), DESCRIPTORS)?;
        if items.len() > DESCRIPTORS_MAX {
            let remedy = format_args!("use at most {DESCRIPTORS_MAX}");
            return Err(Failure::bad("descriptors", format_args!("{} are too many", items.len()), remedy));
        }
        let descriptors = items.into_iter().map(descriptor).collect::<Result<_, _>>()?;
        let http = fields.take("request").map(DescribedHttp::parse).transpose()?;
        Ok(Subject { domain, descriptors, http, cost: cost(fields)? })
    }

    pub(super) fn entries(&self) -> Vec<Entry<'_>> {
        self.descriptors.iter().flatten().map(|(key, value)| Entry { key, value }).collect()
    }

    /// The descriptors; `entries` are those that [`Subject::entries`] gave.
    pub(super) fn descriptors<'e>(&self, mut entries: &'e [Entry<'e>]) -> Vec<Descriptor<'e>> {
        let mut all = Vec::with_capacity(self.descriptors.len());
        for descriptor in &self.descriptors {
            let (own, rest) = entries.split_at(descriptor.len().min(entries.len()));
            all.push(Descriptor { entries: own, ..Descriptor::default() });
            entries = rest;
        }
        all
    }

    /// The HTTP request that is described, if any is, with the address of its client.
    pub(super) fn http(&self) -> Option<(HttpRequest<'_>, Option<IpAddr>)> {
        self.http.as_ref().map(|described| (described.request(), described.address))
    }

    pub(super) fn request<'e>(&'e self, descriptors: &'e [Descriptor<'e>], http: Option<&'e Http<'e>>) -> Request<'e> {
        Request { domain: &self.domain, descriptors, http, cost: self.cost }
    }
}

/// Reads a descriptor: a map of entries, a list of maps of one entry each, or an object with a list of `entries`, which is the
/// form of Envoy's JSON.
fn descriptor(value: Raw<'_>) -> Result<Entries<'_>, Failure> {
    if !value.get().starts_with('[') {
        let fields = Fields::parse("descriptors", value.get(), r#"{"user":"42"}"#)?.rest();
        return match fields.iter().find(|(name, value)| name == "entries" && value.get().starts_with('[')) {
            Some(&(_, entries)) => envoy_entries(&fields, entries),
            None => pairs("descriptors", fields),
        };
    }
    let mut entries = Vec::new();
    for item in list("descriptors", value.get(), r#"[{"user":"42"}]"#)? {
        let example = r#"{"user":"42"} or {"key":"user","value":"42"}"#;
        let mut fields = Fields::parse("descriptors", item.get(), example)?;
        if fields.has("key") && fields.has("value") {
            let mut part = |name| text("descriptors", fields.need(name, example)?, "use text");
            entries.push((part("key")?, part("value")?));
            fields.finish("an entry")?;
            continue;
        }
        let mut one = pairs("descriptors", fields.rest())?;
        if one.len() != 1 {
            let problem = format_args!("{} is not one entry", quote(item.get()));
            return Err(Failure::bad("descriptors", problem, format_args!("write {example}")));
        }
        entries.append(&mut one);
    }
    Ok(entries)
}

/// The entries of a descriptor in the form of Envoy's JSON, which has no other field with an effect here.
fn envoy_entries<'a>(fields: &[(Cow<'a, str>, Raw<'a>)], entries: Raw<'a>) -> Result<Entries<'a>, Failure> {
    if let Some((other, _)) = fields.iter().find(|(name, _)| name != "entries") {
        let problem = "not allowed together with a list of entries";
        return Err(Failure::bad(format_args!("descriptors.{}", quote(other)), problem, "leave it out"));
    }
    let entries = rls::json::entries(entries)?;
    Ok(entries.into_iter().map(|entry| (entry.key.into(), entry.value.into())).collect())
}

/// All fields of an object, which must be text.
fn pairs<'a>(owner: &str, fields: Vec<(Cow<'a, str>, Raw<'a>)>) -> Result<Entries<'a>, Failure> {
    let pair = |(name, value): (Cow<'a, str>, Raw<'a>)| {
        let remedy = format_args!("write text, like {}", serde_json::Value::from(quote(value.get())));
        let value = text(&format!("{owner}.{}", quote(&name)), value, remedy)?;
        Ok((name, value))
    };
    fields.into_iter().map(pair).collect()
}

impl<'a> DescribedHttp<'a> {
    fn parse(value: Raw<'a>) -> Result<DescribedHttp<'a>, Failure> {
        let mut fields = Fields::parse("request", value.get(), HTTP_EXAMPLE)?;
        let mut part = |name| Ok::<_, Failure>(fields.text(name, "use text")?.unwrap_or_default());
        let (method, host, path, query) = (part("method")?, part("host")?, part("path")?, part("query")?);
        let address = part("address")?;
        let headers = match fields.take("headers") {
            None => Vec::new(),
            Some(value) => pairs("headers", Fields::parse("headers", value.get(), r#"{"user-agent":"curl"}"#)?.rest())?,
        };
        fields.finish("request")?;
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let address = match &*address {
            "" => None,
            text => Some(text.parse::<IpAddr>().map_err(|_| {
                Failure::bad("address", format_args!("{} is not an IP address", quote(text)), "use one like 192.0.2.7")
            })?),
        };
        Ok(DescribedHttp { method, host, path, query, headers, address })
    }

    /// The request as rules look at it. Its host stays as it was described.
    fn request(&self) -> HttpRequest<'_> {
        let DescribedHttp { method, host, path, query, headers, address: _ } = self;
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_ref())).collect();
        HttpRequest::described(HttpTarget { method, host: HttpHost::Described(host), path, query }, headers)
    }

    /// Whom and what it is about, for logs.
    pub(super) fn in_brief(&self) -> String {
        let request = self.request();
        let Http { method, host, path, address, .. } = request.http(self.address);
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        let parts = [address, shortened(method), shortened(host), shortened(path)];
        let told: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        told.join(" ")
    }
}

impl<'a> Inline<'a> {
    pub(super) fn take(fields: &mut Fields<'a>) -> Result<Inline<'a>, Failure> {
        let remedy = format_args!("use text of 1 to {OWN_KEY_BYTES_MAX} bytes");
        let key = fields.text("key", remedy)?.ok_or_else(|| Failure::bad("key", "missing", remedy))?;
        let written = fields.need("limit", LIMIT_REMEDY)?;
        if let Some((limit, shown)) = remembered(written.get()) {
            return Ok(Inline::unnamed(key, (limit, shown), cost(fields)?));
        }
        let JsonLimit { name, limit, shown } = read_json_limit(written, Calendars::Refused)?;
        let unnamed = Inline::unnamed(key, (limit, shown), cost(fields)?);
        let Some(name) = name else {
            remember(written.get(), (limit, shown));
            return Ok(unnamed);
        };
        Ok(Inline { name, is_named: true, ..unnamed })
    }

    /// What a query asks for.
    pub(super) fn of_query(mut query: Query<'a>) -> Result<Inline<'a>, Failure> {
        if let Some(refusal) = rules_by_query(&query) {
            return Err(refusal);
        }
        let key = query.need("key", "set what is counted, like key=user:42")?;
        let rate = query.need("rate", "set the limit, like rate=100/minute")?;
        let algorithm = query.take("algorithm");
        let (burst, capacity) = (query.whole("burst", UNITS)?, query.whole("capacity", UNITS)?);
        let slices = query.whole("slices", UNITS)?;
        let cost = query.whole("cost", COSTS)?.unwrap_or(1);
        let wait = query.take("wait").map(|text| wait(&text)).transpose()?;
        query.finish()?;
        let numbers = Numbers {
            algorithm: algorithm.map(Cow::into_owned),
            rate: Some(RateText::Text(rate.into_owned())),
            burst,
            capacity,
            slices,
            ..Numbers::default()
        };
        let read = read_limit(&schema::Limit::Numbers(numbers.into()), Calendars::Refused).map_err(FieldError::from)?;
        Ok(Inline { wait, ..Inline::unnamed(key, read, check_cost(cost)?) })
    }

    /// The limit, with its name if the caller gave one.
    pub(super) fn named_limit(&self) -> (Option<&str>, &Limit) {
        (self.is_named.then_some(&*self.name), &self.limit)
    }

    /// What it charges, for the decision log.
    pub(super) fn charge(&self) -> InlineCharge<'_> {
        let (name, limit) = self.named_limit();
        InlineCharge { key: self.key.as_bytes(), name, limit: InlineLimit::Rate(limit), cost: self.cost }
    }

    fn unnamed(key: Cow<'a, str>, (limit, shown): Read, cost: u64) -> Inline<'a> {
        Inline { key, name: Cow::Borrowed(OWN_LIMIT_NAME), is_named: false, limit, shown, cost, wait: None }
    }
}

/// Configured rules take lists, which a query has no place for: who tries is told where to ask.
fn rules_by_query(query: &Query<'_>) -> Option<Failure> {
    let name = ["domain", "descriptors"].into_iter().find(|name| query.has(name))?;
    let remedy = format_args!("for configured rules use POST with a body like {RULES_EXAMPLE}");
    Some(Failure::bad(name, "GET takes a key and a rate only", remedy))
}

thread_local! {
    /// The limit that was read last on this thread, with its text. Most callers write the same limit in every check, and
    /// reading it is half the work of reading the check.
    static LAST: RefCell<Option<(String, Read)>> = const { RefCell::new(None) };
}

/// A limit and how it is told of.
type Read = (Limit, Shown);

/// The limit of this text, if it was the last.
fn remembered(text: &str) -> Option<Read> {
    LAST.with_borrow(|last| last.as_ref().filter(|(known, _)| known == text).map(|(_, read)| *read))
}

fn remember(text: &str, read: Read) {
    LAST.set(Some((text.to_owned(), read)));
}

const WAITS: &str = r#"write a duration like "200ms" or "2s", up to 24 hours"#;

fn wait(text: &str) -> Result<Duration, Failure> {
    read_duration(text).ok_or_else(|| Failure::bad("wait", format_args!("{} is not a duration", quote(text)), WAITS))
}

const UNITS: &str = "use 1 or more units";
pub(super) const COSTS: &str = "use 0 to 9007199254740992 units; 0 takes none";
const _: () = assert!(COST_MAX == 9_007_199_254_740_992);

fn cost(fields: &mut Fields<'_>) -> Result<u64, Failure> {
    check_cost(fields.whole("cost", COSTS)?.unwrap_or(1))
}

/// Holds a cost against its bound.
pub(super) fn check_cost(cost: u64) -> Result<u64, Failure> {
    match cost {
        0..=COST_MAX => Ok(cost),
        _ => Err(Failure::bad("cost", format_args!("{cost} is too large"), COSTS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Text that comes near to a check.
    fn nearly() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(r#""key""#.to_owned()),
            Just(r#""limit""#.to_owned()),
            Just(r#""domain""#.to_owned()),
            Just(r#""descriptors""#.to_owned()),
            Just(r#""request""#.to_owned()),
            Just(r#""cost""#.to_owned()),
            Just(r#""1/s""#.to_owned()),
            "[\\[\\]{},:\"]",
            "[0-9a-z\\\\.-]{1,3}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in nearly()) {
            let _ = Asked::parse(&text);
            let _ = list("body", &text, "").map(|items| items.len());
        }

        #[test]
        fn any_query_is_read_or_refused(text in "[a-z%&=+0-9/.é]{0,40}") {
            let _ = Query::parse(Some(&text)).and_then(Inline::of_query);
        }

        #[test]
        fn any_key_comes_through(key in "\\PC{1,20}|[\0-\u{20}\"\\\\]{1,9}") {
            let text = format!(r#"{{"key":{},"limit":"1/s"}}"#, serde_json::Value::from(&*key));
            let Ok(Asked::Inline(inline)) = Asked::parse(&text) else { panic!("{text}") };
            prop_assert_eq!(inline.key, key);
        }
    }
}
