//! The builder of a rate limit layer.

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

/// Builds a [`RateLimitLayer`] by one limit ([`ByLimit`]) or by a policy ([`ByPolicy`]).
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RateLimitBuilder<By> {
    by: By,
    mode: Mode,
    speaks: Speaks,
    tells_passed: bool,
}

/// Settings for one limit, counted in the memory of this process.
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

/// Settings for the rules of an engine.
pub struct ByPolicy {
    engine: Arc<Engine>,
    domain: Box<str>,
    descriptors: Vec<Vec<(Arc<str>, KeyBy)>>,
    denies_missing: bool,
    peer: Peer,
    cost: Option<CostOf>,
}

impl RateLimitLayer {
    /// Starts a layer by one limit for each key, counted in the memory of this process; it decides without awaiting.
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

    /// Starts a layer by the rules of one domain of an engine. The rules see the method, host, path, query, headers and
    /// client address of each request, and the entries of its descriptors. Rules on shared stores hold for all
    /// processes that use them; if such a store does not answer, the failure choice of each rule decides. Rules that
    /// count responses receive each response; a request that ends in an error of the service has none.
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
    ///     // axum's extension with the address of the peer.
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

    /// Sets the initial mode. [`RateLimitLayer::switch`] changes it later.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the protocol of denials. Default: [`Speaks::ByContentType`].
    pub fn speaks(mut self, speaks: Speaks) -> Self {
        self.speaks = speaks;
        self
    }

    /// Sets whether responses of allowed requests also carry `RateLimit` and `RateLimit-Policy`, as denials do.
    /// Default: `true`.
    pub fn headers_on_pass(mut self, enabled: bool) -> Self {
        self.tells_passed = enabled;
        self
    }

    fn finish(self, judge: Judge) -> RateLimitLayer {
        let switch = Switch::in_mode(self.mode);
        RateLimitLayer { shared: Arc::new(Shared { judge, switch, speaks: self.speaks, watchers: Default::default() }) }
    }
}

impl RateLimitBuilder<ByLimit> {
    /// Sets how requests without a key are treated. By default all of them count as one client, so that leaving out a
    /// header avoids no limit.
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.by.missing = missing;
        self
    }

    /// Sets the limit's name in headers and problem bodies. Default: `default`.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.by.name = name.into();
        self
    }

    /// Sets the number of keys that are counted exactly. Default: 100,000. Further keys are counted too strictly.
    pub fn keys(mut self, keys: usize) -> Self {
        self.by.keys = Some(keys);
        self
    }

    /// Sets the clock, for tests.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.by.clock = Some(clock.into());
        self
    }

    /// Counts in this store, which has its own size and clock, so that neither can be set here. Limits with the same
    /// algorithm and window length count the same keys together there.
    pub fn store(mut self, store: Arc<MemoryStore>) -> Self {
        self.by.store = Some(store);
        self
    }

    /// Sets how many units a request takes, as far as this is known before it is served. Default: 1. A request of cost
    /// 0 always passes.
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

    /// Sets how a response changes what its request took. A request that ends in an error, or whose caller goes away,
    /// keeps what it took.
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

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if the key or the name is invalid, there is no memory for the keys, or a setting would have no effect.
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
    /// Refuses requests that lack an entry with 400 (INVALID_ARGUMENT for gRPC). By default they are checked without
    /// that entry, as rules expect that count only requests with it.
    pub fn deny_missing_entries(mut self) -> Self {
        self.by.denies_missing = true;
        self
    }

    /// Adds a descriptor with these entries; rules are looked up for each descriptor, and a request passes if all of
    /// them do. Without any, one empty descriptor is checked. An entry that no rule uses changes nothing:
    /// [`RateLimitLayer::unused_entries`] lists such entries.
    pub fn descriptor<N: Into<Arc<str>>>(mut self, entries: impl IntoIterator<Item = (N, KeyBy)>) -> Self {
        self.by.descriptors.push(entries.into_iter().map(|(name, value)| (name.into(), value)).collect());
        self
    }

    /// Reads the peer's address from an extension of another type, such as axum's `ConnectInfo<SocketAddr>` or tonic's
    /// `TcpConnectInfo`. A [`SocketAddr`](std::net::SocketAddr) or an [`IpAddr`] is found without this. Which proxy
    /// headers are trusted is set by `client_address` in the policy.
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        address: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.by.peer = Peer::from_extension(address);
        self
    }

    /// Sets how many units a request takes where no rule sets a cost. Default: 1.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.by.cost = Some(Arc::new(move |head: &Head<'_>| cost(*head)));
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if the policy has no such domain now, or a descriptor is invalid.
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
                "add a descriptor with the required entries, or leave it out",
            ));
        }
        if by.descriptors.iter().all(Vec::is_empty) && policy.looks_at_entries(&by.domain) {
            tracing::warn!(
                domain = &*by.domain,
                "rules use entries, but the layer has none: rules that need an entry count no requests; add a descriptor \
                 with these entries"
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
