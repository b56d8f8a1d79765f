//! Decisions, as front ends ask for them: by the rules of a domain, or by limits that callers bring. Each is traced and
//! written to the decision log where that is asked for.

use std::fmt::Display;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tidegate_core::{Decision, Decisions, KeyError, Limit, Op, Permits, Retry};
use tidegate_engine::{Acquired, Batch, Caller, Outcome, PermitError, RequestError, ShapeError, Shaped, Sourced};
use tidegate_policy::Request;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::decision_log::{InlineAnswer, InlineCharge, InlineLimit, InlineVerdict, by_inline_limits, by_rules};
use crate::protocol::{Protocol, Via};
use crate::service::Service;
use crate::telemetry::TRACE_TARGET;
use crate::trace_parent;

/// Decisions by the rules of a domain.
impl Service {
    /// Decides a request that came in this way.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn check(&self, via: Via<'_>, request: &Request<'_>) -> Result<Outcome, RequestError> {
        let checked = self.traced(via, request, pin!(self.engine.check(request))).await;
        self.record(via.protocol, request, checked.as_ref().map_err(ToString::to_string));
        checked
    }

    /// Decides a request for a caller who would let it pass after an error: a key that is too long is denied. No store is
    /// waited for after the deadline.
    ///
    /// # Errors
    /// If the request itself is at fault in another way.
    pub async fn check_or_deny(
        &self,
        via: Via<'_>,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Outcome, RequestError> {
        let checked = self.traced(via, request, pin!(self.engine.check_or_deny_until(request, deadline))).await;
        self.record(via.protocol, request, checked.as_ref().map_err(ToString::to_string));
        checked
    }

    /// Decides a request where a domain without rules is a mistake: then there is no outcome.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn check_known(&self, via: Via<'_>, request: &Request<'_>) -> Result<Option<Outcome>, RequestError> {
        let checked = self.traced(via, request, pin!(self.engine.check(request))).await;
        let checked = checked.map(|outcome| Some(outcome).filter(Outcome::is_known_domain));
        let answered = match &checked {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err("domain: it has no rules".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.record(via.protocol, request, answered);
        checked
    }

    /// Traces how a request is decided.
    async fn traced(
        &self,
        via: Via<'_>,
        request: &Request<'_>,
        decided: Pin<&mut impl Future<Output = Result<Outcome, RequestError>>>,
    ) -> Result<Outcome, RequestError> {
        let span = span(via, Some(request.domain));
        let outcome = decided.instrument(span.clone()).await?;
        if !span.is_disabled() {
            span.record("allowed", outcome.is_allowed());
            if let Some(rule) = outcome.strictest_among(|_| true).and_then(|judgement| judgement.rule) {
                span.record("rule", &*rule.name);
            }
            if outcome.judgements().any(|judgement| judgement.local) {
                span.record("local", true);
            }
        }
        if !outcome.is_known_domain() {
            self.traffic.count_unknown_domain();
        }
        Ok(outcome)
    }

    /// Writes what was answered to the decision log, if there is one.
    fn record(&self, protocol: Protocol, request: &Request<'_>, answered: Result<&Outcome, String>) {
        if let Some(log) = &self.decision_log {
            let answered = answered.as_ref().map(|outcome| *outcome).map_err(String::as_str);
            log.record(|| by_rules(self.engine.clock().now(), protocol, request, answered));
        }
    }
}

/// Decisions by limits that callers bring.
impl Service {
    /// Decides for a key under a limit that the caller brings, perhaps with a name.
    ///
    /// # Errors
    /// If the key is empty or too long, or this node is overloaded.
    pub(crate) async fn decide(
        &self,
        via: Via<'_>,
        key: &[u8],
        (name, limit): (Option<&str>, &Limit),
        cost: u64,
    ) -> Result<Sourced<Decision>, RequestError> {
        let decided = pin!(async {
            check_key(via, key).map_err(RequestError::Key)?;
            self.engine.decide_for(caller(via), key, limit, Op::Take(cost)).await
        });
        let charges = || [InlineCharge { key, name, limit: InlineLimit::Rate(limit), cost }];
        let verdict = |Sourced { answer, local }: &Sourced<Decision>| InlineVerdict {
            local: *local,
            ..InlineVerdict::of([answer], answer.retry())
        };
        self.observed(via, decided, charges, verdict).await
    }

    /// Takes units from a leaky bucket if their turn comes within `wait`.
    ///
    /// # Errors
    /// As [`Engine::shape`](tidegate_engine::Engine::shape).
    pub(crate) async fn shape(
        &self,
        via: Via<'_>,
        key: &[u8],
        (name, limit): (Option<&str>, &Limit),
        cost: u64,
        wait: Duration,
    ) -> Result<Shaped, ShapeError> {
        let decided = pin!(async {
            check_key(via, key)?;
            self.engine.shape(caller(via), key, limit, cost, wait).await
        });
        let charges = || [InlineCharge { key, name, limit: InlineLimit::Rate(limit), cost }];
        let verdict = |Shaped { decision, turn, local }: &Shaped| InlineVerdict {
            local: *local,
            allowed: turn.is_ok(),
            retry: turn.err(),
            wait: turn.ok(),
            answers: vec![InlineAnswer { allowed: turn.is_ok(), remaining: decision.remaining() }],
        };
        self.observed(via, decided, charges, verdict).await
    }

    /// Decides for several keys under limits that the caller brings: all are charged, or none.
    ///
    /// # Errors
    /// If a key is empty or too long, or the charges cannot be made together.
    pub(crate) async fn decide_all<'c>(
        &self,
        via: Via<'_>,
        all: &[(&[u8], Limit, Op)],
        charges: impl FnOnce() -> Vec<InlineCharge<'c>>,
    ) -> Result<Sourced<Decisions>, RequestError> {
        let decided = pin!(async {
            all.iter().try_for_each(|(key, ..)| check_key(via, key)).map_err(RequestError::Key)?;
            self.engine.decide_all_for(caller(via), all).await
        });
        let verdict = |Sourced { answer, local }: &Sourced<Decisions>| InlineVerdict {
            local: *local,
            ..InlineVerdict::of(answer.iter(), answer.retry())
        };
        self.observed(via, decided, charges, verdict).await
    }

    /// Decides for each key of a batch, which take as much from the same limit, in memory, and appends the answers. Where nobody
    /// observes decisions, that costs one branch for the batch.
    #[inline]
    pub(crate) fn decide_batch(
        &self,
        via: Via<'_>,
        batch: &Batch,
        limit: &Limit,
        cost: u64,
        decisions: &mut Vec<Decision>,
    ) {
        if self.is_observed() {
            return self.decide_batch_observed(via, batch, limit, cost, decisions);
        }
        self.engine.decide_batch(caller(via), batch, limit, Op::Take(cost), decisions);
    }

    /// Decides as [`Service::decide_batch`] does, with a span and perhaps a line for each key.
    #[cold]
    fn decide_batch_observed(
        &self,
        via: Via<'_>,
        batch: &Batch,
        limit: &Limit,
        cost: u64,
        decisions: &mut Vec<Decision>,
    ) {
        // Each is a decision of its own, though their answers come together.
        let spans: Vec<Span> = batch.keys().map(|_| span(via, None)).collect();
        let before = decisions.len();
        self.engine.decide_batch(caller(via), batch, limit, Op::Take(cost), decisions);
        for ((key, decision), span) in batch.keys().zip(decisions.iter().skip(before)).zip(&spans) {
            span.record("allowed", decision.is_allowed());
            if let Some(log) = &self.decision_log {
                let charge = InlineCharge { key, name: None, limit: InlineLimit::Rate(limit), cost };
                let verdict = || InlineVerdict::of([decision], decision.retry());
                log.record(|| by_inline_limits(self.engine.clock().now(), via.protocol, &[charge], Ok(verdict())));
            }
        }
    }

    /// Takes a permit of a key, if one is free.
    ///
    /// # Errors
    /// As [`Engine::acquire_permit`](tidegate_engine::Engine::acquire_permit).
    pub(crate) async fn acquire_permit(
        &self,
        via: Via<'_>,
        key: &[u8],
        limit: u64,
        lease: Duration,
        id: Option<&[u8]>,
    ) -> Result<Acquired, PermitError> {
        let decided = pin!(self.engine.acquire_permit(caller(via), key, limit, lease, id));
        let charges = || [InlineCharge { key, name: None, limit: InlineLimit::Permits(limit), cost: 1 }];
        let verdict = |Acquired { permits, local, .. }: &Acquired| InlineVerdict {
            local: *local,
            allowed: permits.done,
            retry: (!permits.done).then_some(Retry::Unknown(permits.next_end)),
            wait: None,
            answers: vec![InlineAnswer { allowed: permits.done, remaining: limit.saturating_sub(permits.in_use) }],
        };
        self.observed(via, decided, charges, verdict).await
    }

    /// Holds a permit of a key for another lease.
    ///
    /// # Errors
    /// As [`Engine::renew_permit`](tidegate_engine::Engine::renew_permit).
    pub(crate) async fn renew_permit(
        &self,
        via: Via<'_>,
        key: &[u8],
        id: &[u8],
        lease: Duration,
    ) -> Result<Permits, PermitError> {
        self.engine.renew_permit(caller(via), key, id, lease).await
    }

    /// Whether decisions are logged, or may be traced: then it is for the span to say.
    #[inline]
    fn is_observed(&self) -> bool {
        // No short circuit: both are loads, and one branch is enough.
        self.decision_log.is_some() | (LevelFilter::current() == LevelFilter::TRACE)
    }

    /// Awaits a decision by limits that the caller brings, and traces and logs it where somebody asked for that.
    async fn observed<'c, T, E: Display, C: AsRef<[InlineCharge<'c>]>>(
        &self,
        via: Via<'_>,
        decided: Pin<&mut impl Future<Output = Result<T, E>>>,
        charges: impl FnOnce() -> C,
        verdict: impl FnOnce(&T) -> InlineVerdict,
    ) -> Result<T, E> {
        if !self.is_observed() {
            return decided.await;
        }
        let span = span(via, None);
        let decided = decided.instrument(span.clone()).await;
        let answered = decided.as_ref().map(verdict).map_err(ToString::to_string);
        if let Ok(verdict) = &answered {
            span.record("allowed", verdict.allowed);
            if verdict.local {
                span.record("local", true);
            }
        }
        if let Some(log) = &self.decision_log {
            log.record(|| by_inline_limits(self.engine.clock().now(), via.protocol, charges().as_ref(), answered));
        }
        decided
    }
}

/// Who brings the limits of a request.
fn caller(via: Via<'_>) -> &Caller {
    static NOBODY: LazyLock<Caller> = LazyLock::new(Caller::default);
    via.peer.map_or_else(|| &*NOBODY, |peer| &peer.caller)
}

/// Refuses an empty key, except from Redis clients: there it is a key like any other, as in redis-cell. Elsewhere it is mostly
/// a variable that has no value.
fn check_key(via: Via<'_>, key: &[u8]) -> Result<(), KeyError> {
    match via.protocol {
        Protocol::Resp => Ok(()),
        _ if key.is_empty() => Err(KeyError::Empty),
        _ => Ok(()),
    }
}

/// The span of a decision, which belongs to the trace of the caller if it names one. Limits of callers have no domain.
fn span(via: Via<'_>, domain: Option<&str>) -> Span {
    let span = tracing::trace_span!(
        target: TRACE_TARGET,
        "check",
        protocol = via.protocol.name(),
        domain,
        allowed = tracing::field::Empty,
        rule = tracing::field::Empty,
        local = tracing::field::Empty,
    );
    if !span.is_disabled()
        && let Some(parent) = via.traceparent().and_then(trace_parent::parse)
    {
        // Fails only where nothing traces, or too late, and it is neither.
        let _ = span.set_parent(parent);
    }
    span
}
