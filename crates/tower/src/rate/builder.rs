//! What users set up.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_core::{Clock, Limit, Limiter, MemoryStore};
use tidegate_engine::Engine;
use tidegate_engine::bounds::{DESCRIPTORS_MAX, ENTRIES_MAX};

use super::limit::{CostOf, LimitJudge, Made, SettleBy};
use super::policy::PolicyJudge;
use super::{Judge, RateLimitLayer, Settle, Shared};
use crate::address::{AddressMissed, Peer};
use crate::error::{check_name, unknown_domain};
use crate::{ConfigError, Head, KeyBy, MissingKey, Mode, ResponseHead, Speaks, Switch};

/// Sets up a [`RateLimitLayer`]: [`ByLimit`] or [`ByPolicy`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RateLimitBuilder<By> {
    by: By,
    mode: Mode,
    speaks: Speaks,
    tells_passed: bool,
}

/// One limit, counted in the memory of this process.
pub struct ByLimit {
    limit: Limit,
    key: KeyBy,
    missing: MissingKey,
    name: Box<str>,
    keys: Option<usize>,
    clock: Option<Clock>,
    store: Option<Arc<MemoryStore>>,
    cost: Option<CostOf>,
    settle: Option<SettleBy>,
}

/// The rules of an engine.
pub struct ByPolicy {
    engine: Arc<Engine>,
    domain: Box<str>,
    descriptors: Vec<Vec<(Arc<str>, KeyBy)>>,
    denies_missing: bool,
    peer: Peer,
    cost: Option<CostOf>,
}

impl RateLimitLayer {
    /// One limit for each key, counted in the memory of this process: the decision waits for nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Limit;
    /// use tidegate_tower::{ClientAddress, KeyBy, RateLimitLayer};
    ///
    /// let logins = Limit::sliding_log(5, Duration::from_secs(60))?;
    /// let layer = RateLimitLayer::limit(logins, KeyBy::client_address(ClientAddress::new()))
    ///     .name("logins")
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limit(limit: Limit, key: KeyBy) -> RateLimitBuilder<ByLimit> {
        let (missing, name) = (MissingKey::default(), "default".into());
        let (keys, clock, store, cost, settle) = (None, None, None, None, None);
        RateLimitBuilder::new(ByLimit { limit, key, missing, name, keys, clock, store, cost, settle })
    }

    /// The rules that stand under a domain of an engine. They see the method, host, path, query, headers and the client's
    /// address of each request, and the entries of its descriptors. Rules on shared stores hold for all processes that ask
    /// them; if such a store does not answer, each rule's own choice does. Rules that count responses hear of each one; of a
    /// request that ends in an error of the service there is none.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use std::sync::Arc;
    /// use axum::extract::ConnectInfo;
    /// use tidegate_engine::{Engine, Options};
    /// use tidegate_policy::{LoadOptions, load_text};
    /// use tidegate_tower::{KeyBy, RateLimitLayer};
    ///
    /// let rules = "
    /// domains:
    ///   api:
    ///     rules:
    ///       - {name: per-user, key: [{entry: user}], limit: 100/minute}
    ///       - {name: logins, match: {path: /login}, key: [address], limit: 5/minute}
    /// ";
    /// let policy = load_text("rules.yaml", rules, &LoadOptions::default()).policy.ok_or("see its diagnostics")?;
    /// let engine = Arc::new(Engine::with_policy(Options::default(), policy)?);
    /// let layer = RateLimitLayer::policy(engine, "api")
    ///     .descriptor([("user", KeyBy::header("x-user"))])
    ///     // Where axum leaves the address of the peer.
    ///     .peer_from(|peer: &ConnectInfo<SocketAddr>| Some(peer.0.ip()))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(engine: Arc<Engine>, domain: impl Into<Box<str>>) -> RateLimitBuilder<ByPolicy> {
        let (descriptors, peer, cost) = (Vec::new(), Peer::default(), None);
        RateLimitBuilder::new(ByPolicy {
            engine,
            domain: domain.into(),
            descriptors,
            denies_missing: false,
            peer,
            cost,
        })
    }
}

impl<By> RateLimitBuilder<By> {
    fn new(by: By) -> RateLimitBuilder<By> {
        RateLimitBuilder { by, mode: Mode::default(), speaks: Speaks::default(), tells_passed: true }
    }

    /// What it does at first; [`RateLimitLayer::switch`] changes it while it runs.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What clients are answered in: by the request's content type unless told otherwise.
    pub fn speaks(mut self, speaks: Speaks) -> Self {
        self.speaks = speaks;
        self
    }

    /// Whether responses that pass tell of limits in `RateLimit` and `RateLimit-Policy`, as denials do. They do unless told
    /// otherwise.
    pub fn headers_on_pass(mut self, told: bool) -> Self {
        self.tells_passed = told;
        self
    }

    fn finish(self, judge: Judge) -> RateLimitLayer {
        let switch = Switch::in_mode(self.mode);
        RateLimitLayer { shared: Arc::new(Shared { judge, switch, speaks: self.speaks, watchers: Default::default() }) }
    }
}

impl RateLimitBuilder<ByLimit> {
    /// What becomes of a request without a key: unless told otherwise all of them count as one, so that nobody escapes who
    /// leaves a header out.
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.by.missing = missing;
        self
    }

    /// The limit's name in headers and problems: `default` unless told otherwise.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.by.name = name.into();
        self
    }

    /// How many keys find an exact place: 100,000 unless told otherwise. Further ones are counted too strictly.
    pub fn keys(mut self, keys: usize) -> Self {
        self.by.keys = Some(keys);
        self
    }

    /// Where time comes from, as for tests.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.by.clock = Some(clock.into());
        self
    }

    /// Counts in this store, with its size and its clock, so that neither can be set here. Limits with the same
    /// algorithm and window length there count the same keys together.
    pub fn store(mut self, store: Arc<MemoryStore>) -> Self {
        self.by.store = Some(store);
        self
    }

    /// How many units a request takes, as far as that is known before it is served: 1 unless told otherwise. What takes 0
    /// always passes.
    ///
    /// ```
    /// use tidegate_tower::{KeyBy, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::limit("100/minute".parse()?, KeyBy::api_key())
    ///     .cost(|request| if request.uri().path() == "/export" { 20 } else { 1 })
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.by.cost = Some(Arc::new(move |head: &Head<'_>| cost(*head)));
        self
    }

    /// What a response changes of that. A request that ends in an error, or whose caller goes away, keeps what it took.
    ///
    /// ```
    /// use tidegate_tower::{KeyBy, RateLimitLayer, Settle};
    ///
    /// // A kilobyte is a unit, the first one is paid in advance, and what failed is free.
    /// let layer = RateLimitLayer::limit("100000/hour".parse()?, KeyBy::api_key())
    ///     .settle(|response| match response.bytes() {
    ///         _ if response.status().is_server_error() => Settle::Refund(u64::MAX),
    ///         Some(bytes) => Settle::Charge(bytes / 1024),
    ///         None => Settle::Keep,
    ///     })
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle(mut self, settle: impl Fn(ResponseHead<'_>) -> Settle + Send + Sync + 'static) -> Self {
        self.by.settle = Some(Arc::new(settle));
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// If the key or the name cannot be used, there is no memory for so many keys, or something was set that would have
    /// no effect.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        check_name(&self.by.name)?;
        let limiter = match &self.by.store {
            Some(store) => {
                for (field, is_set) in [("keys", self.by.keys.is_some()), ("clock", self.by.clock.is_some())] {
                    if is_set {
                        return Err(ConfigError::unused(field, "on a store that is given", "leave one of both out"));
                    }
                }
                Limiter::on(Arc::clone(store), self.by.limit)
            }
            None => {
                let mut builder = Limiter::builder(self.by.limit);
                if let Some(keys) = self.by.keys {
                    builder = builder.keys(keys);
                }
                if let Some(clock) = &self.by.clock {
                    builder = builder.clock(clock.clone());
                }
                builder.build()?
            }
        };
        let judge = LimitJudge::new(Made {
            limiter,
            key: self.by.key.clone().compile()?,
            missing: self.by.missing,
            cost: self.by.cost.clone(),
            settle: self.by.settle.clone(),
            tells_passed: self.tells_passed,
            name: self.by.name.clone(),
        })?;
        Ok(self.finish(Judge::Limit(judge)))
    }
}

impl RateLimitBuilder<ByPolicy> {
    /// Refuses a request that lacks an entry with 400 (INVALID_ARGUMENT for gRPC). Unless told so it is asked about without
    /// that entry, as rules expect that count only those who have it.
    pub fn deny_missing_entries(mut self) -> Self {
        self.by.denies_missing = true;
        self
    }

    /// Entries that rules are looked up for. Each call makes another descriptor; all of them pass together or none.
    /// Without any, one descriptor without entries is asked about. An entry that no rule looks at changes nothing:
    /// [`RateLimitLayer::unused_entries`] names those.
    pub fn descriptor<N: Into<Arc<str>>>(mut self, entries: impl IntoIterator<Item = (N, KeyBy)>) -> Self {
        self.by.descriptors.push(entries.into_iter().map(|(name, value)| (name.into(), value)).collect());
        self
    }

    /// Which extension of requests has the peer's address: axum's `ConnectInfo<SocketAddr>`, tonic's `TcpConnectInfo`. A
    /// [`SocketAddr`](std::net::SocketAddr) or an [`IpAddr`] is found without this. Whose headers are believed beyond the
    /// peer is for the policy to say, in `client_address`.
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        address: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.by.peer = Peer::from_extension(address);
        self
    }

    /// How many units a request takes where no rule says otherwise: 1 unless told otherwise.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.by.cost = Some(Arc::new(move |head: &Head<'_>| cost(*head)));
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// If no rules stand under the domain now, or the descriptors are at fault.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        let by = &self.by;
        let policy = by.engine.policy();
        if policy.domain(&by.domain).is_none() {
            return Err(unknown_domain(&by.domain, &policy.domains()));
        }
        if by.descriptors.len() > DESCRIPTORS_MAX {
            return Err(ConfigError::Descriptors { count: by.descriptors.len() });
        }
        if by.denies_missing && by.descriptors.iter().all(Vec::is_empty) {
            return Err(ConfigError::unused(
                "deny_missing_entries",
                "without entries",
                "add a descriptor with the entries that must be there, or leave it out",
            ));
        }
        if by.descriptors.iter().all(Vec::is_empty) && policy.looks_at_entries(&by.domain) {
            tracing::warn!(
                domain = &*by.domain,
                "rules look at entries, and the layer has none: those that need one count nobody; add a descriptor with \
                 the entries that they look at"
            );
        }
        let mut descriptors = Vec::with_capacity(by.descriptors.len().max(1));
        for entries in &by.descriptors {
            if entries.len() > ENTRIES_MAX {
                return Err(ConfigError::Entries { count: entries.len() });
            }
            let compiled =
                entries.iter().map(|(name, value)| Ok((Arc::clone(name), value.clone().compile_entry(name)?)));
            descriptors.push(compiled.collect::<Result<Box<[_]>, ConfigError>>()?);
        }
        if descriptors.is_empty() {
            descriptors.push(Box::default());
        }
        let judge = PolicyJudge {
            engine: Arc::clone(&by.engine),
            domain: by.domain.clone(),
            descriptors: descriptors.into(),
            denies_missing: by.denies_missing,
            peer: by.peer.clone(),
            cost: by.cost.clone(),
            tells_passed: self.tells_passed,
            address_missed: AddressMissed::default(),
        };
        Ok(self.finish(Judge::Policy(judge)))
    }
}

impl std::fmt::Debug for ByLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ByLimit");
        shown.field("limit", &self.limit).field("key", &self.key).field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ByPolicy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ByPolicy").field("domain", &self.domain).finish_non_exhaustive()
    }
}
