//! What is asked, with the wire left behind: every front end decodes to this.

use std::net::IpAddr;

use tidegate_core::Limit;

/// A request that asks whether it may pass.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain whose rules are asked.
    pub domain: &'a str,
    /// What it is about. Each descriptor is matched and answered by itself; all of them pass together or none.
    pub descriptors: &'a [Descriptor<'a>],
    /// The HTTP request it is about, where the front end knows it.
    pub http: Option<&'a Http<'a>>,
    /// Units it takes where neither a descriptor nor a rule says otherwise.
    pub cost: u64,
}

/// One set of entries that rules are looked up for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// Its entries, in order.
    pub entries: &'a [Entry<'a>],
    /// What it asks for instead of the request's `cost`.
    pub ask: Option<Ask>,
    /// A limit that the request brings with it, instead of those of rules.
    pub limit: Option<OwnLimit>,
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To take units if they fit; 0 asks whether more than the limit was used, and takes none.
    Take(u64),
    /// To give units back.
    Refund(u64),
}

/// A limit that a request brings with it.
#[derive(Clone, Copy, Debug)]
pub struct OwnLimit {
    /// The limit; none denies all, as a limit of no units would.
    pub limit: Option<Limit>,
    /// How it is told of.
    pub shown: Shown,
}

/// A limit as answers tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Units in each period.
    pub units: u64,
    /// The period in nanoseconds.
    pub period_ns: u64,
}

/// An HTTP request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// The host that was asked, without its port.
    pub host: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the question mark.
    pub query: &'a str,
    /// Header names in lower case, and their values.
    pub headers: &'a [(&'a str, &'a str)],
    /// The client's address, as `Policy::client_address` found it.
    pub address: Option<IpAddr>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub millis: u64,
}
