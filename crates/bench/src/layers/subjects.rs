//! The layers, as a user would set them up, with limits that are never reached.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use governor::clock::QuantaInstant;
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware};
use http::Request;
use tidegate::Rate;
use tidegate::adaptive::{Gradient2, Gradient2Config, WindowConfig};
use tidegate::shed::{ClientThrottleConfig, Criticality, WorkerShedderConfig};
use tidegate_engine::Engine;
use tidegate_policy::{LoadOptions, load_text};
use tidegate_tower::{
    AdaptiveLayer, ByLimit, ClientAddress, ConcurrencyLayer, FairLayer, KeyBy, KeyedConcurrencyLayer, Measure, Queue,
    RateLimitBuilder, RateLimitLayer, ShapeLayer, Shaper, ShaperConfig, ShedLayer, StackLayer, Tenant, ThrottleLayer,
};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tower::layer::util::Identity;
use tower::limit::{ConcurrencyLimitLayer, RateLimitLayer as TowerRateLimitLayer};
use tower::load_shed::LoadShedLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{KeyExtractor, PeerIpKeyExtractor};
use tower_governor::{GovernorError, GovernorLayer};

use super::caller::{CLIENT, Clients, calls};
use super::peers::{All, Each, HoldLayer, Limited, Paced, Timed};
use super::{Lane, Section};
use crate::subjects::{Terms, limitador::InMemory, tidegate::gcra};

/// How many may be in at once, where that is told: there is one.
const AT_ONCE: u64 = 1_000;
/// The fastest pace that there is. Requests come more slowly, with what is done between the timed batches; the few that
/// have to wait, because a round has just begun, do not change a median.
const PER_SECOND: u64 = 10_000_000;
const TERMS: Terms = Terms::HOT;
const TOWER: &str = "tower's ConcurrencyLimit";
const HELD: &str = "a semaphore, held until the body ends";
const HELD_EACH: &str = "a map by header, held until the body ends";
const TOWER_ACC: &str = "tower-acc's ConcurrencyLimit with Gradient2";
const LIMITADOR: &str = "limitador, limit by address";
const TIMED: &str = "a semaphore, held until the body ends, with a clock";

fn bare(runtime: &Runtime, clients: &Rc<Clients>) -> Lane {
    Lane::peer("the service alone", calls(runtime, clients, Identity::new()))
}

/// Layers that know how many are in, beside the one of tower that does.
pub(super) fn at_once(runtime: &Runtime) -> Section {
    let clients = &Clients::new(1);
    let at_once = AT_ONCE.try_into().expect("it fits");
    let queue = Queue::new(100, Duration::from_secs(1));
    let tenant = FairLayer::builder(AT_ONCE, |head| Some(Tenant::new(head.header(CLIENT)?)));
    let semaphore = Arc::new(Semaphore::new(at_once));
    let each = Each(Arc::default(), at_once);
    let lanes = vec![
        bare(runtime, clients),
        Lane::peer(TOWER, calls(runtime, clients, ConcurrencyLimitLayer::new(at_once))),
        Lane::peer(HELD, calls(runtime, clients, HoldLayer(All(semaphore)))),
        Lane::peer(HELD_EACH, calls(runtime, clients, HoldLayer(each))),
        Lane::beside(TOWER, "ConcurrencyLayer", calls(runtime, clients, ConcurrencyLayer::new(AT_ONCE).unwrap()))
            .and_beside(HELD),
        Lane::beside(
            TOWER,
            "ConcurrencyLayer with a queue",
            calls(runtime, clients, ConcurrencyLayer::builder(AT_ONCE).queue(queue).build().unwrap()),
        )
        .and_beside(HELD),
        Lane::beside(TOWER, "FairLayer by header", calls(runtime, clients, tenant.build().unwrap()))
            .and_beside(HELD_EACH),
        Lane::beside(
            TOWER,
            "ShedLayer for a fleet",
            calls(runtime, clients, ShedLayer::fleet(AT_ONCE, 0.2).build().unwrap()),
        )
        .and_beside(HELD),
    ];
    Section { title: "Concurrency limits", lanes }
}

/// Layers that go by a key or read a clock, beside tower_governor, which does both.
pub(super) fn by_key_or_clock(runtime: &Runtime) -> Section {
    let clients = &Clients::new(1);
    let at_once = AT_ONCE.try_into().expect("it fits");
    let each = KeyedConcurrencyLayer::builder(AT_ONCE, |head| head.header(CLIENT)).build().unwrap();
    let worker = ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: AT_ONCE }).build().unwrap();
    let gradient = || AdaptiveLayer::builder(Gradient2::new(Gradient2Config::default()).expect("the defaults"));
    let throttle = ThrottleLayer::builder(ClientThrottleConfig::default()).build().unwrap();
    // As from a service that takes longer than this one: of answers within a tenth of a millisecond a window learns nothing.
    let every = WindowConfig { rtt_min: Duration::ZERO, ..WindowConfig::default() };
    let learning = tower_acc::Gradient2::default();
    let timed = Timed(Arc::new(Semaphore::new(at_once)), Arc::default());
    let ours = |name, same, rounds| Lane::beside(GOVERNOR, name, rounds).and_beside(same).and_beside_lesser(TOWER);
    let lanes = vec![
        bare(runtime, clients),
        Lane::peer(TOWER, calls(runtime, clients, ConcurrencyLimitLayer::new(at_once))),
        Lane::peer(GOVERNOR, calls(runtime, clients, governor(governor_builder(ByHeader).finish()))),
        Lane::peer(HELD_EACH, calls(runtime, clients, HoldLayer(Each(Arc::default(), at_once)))),
        Lane::peer(TIMED, calls(runtime, clients, HoldLayer(timed))),
        Lane::peer(TOWER_ACC, calls(runtime, clients, tower_acc::ConcurrencyLimitLayer::new(learning))),
        ours("KeyedConcurrencyLayer by header", HELD_EACH, calls(runtime, clients, each)),
        ours("ShedLayer for a worker", TIMED, calls(runtime, clients, worker)),
        ours("AdaptiveLayer", TIMED, calls(runtime, clients, gradient().build().unwrap())),
        ours(
            "AdaptiveLayer, one update per response",
            TOWER_ACC,
            calls(runtime, clients, gradient().window(every).build().unwrap()),
        ),
        ours("ThrottleLayer", TIMED, calls(runtime, clients, throttle)),
    ];
    Section { title: "Layers with a key or a clock", lanes }
}

fn plain_stack() -> StackLayer {
    StackLayer::builder(AT_ONCE).build().unwrap()
}

/// All that protects a service: shed, rate by header, turns, concurrency. tower has the first and the last, tower_governor
/// the second, and nobody has turns.
pub(super) fn stacks(runtime: &Runtime) -> Section {
    const PEER: &str = "LoadShed, tower_governor, ConcurrencyLimit";
    let clients = &Clients::new(1);
    let at_once = AT_ONCE.try_into().expect("it fits");
    let theirs =
        (LoadShedLayer::new(), governor(governor_builder(ByHeader).finish()), ConcurrencyLimitLayer::new(at_once));
    let rate = RateLimitLayer::limit(gcra(TERMS), KeyBy::header(CLIENT.as_str())).headers_on_pass(false);
    let ours = StackLayer::builder(AT_ONCE)
        .class(|_| Criticality::Get)
        .rate(rate.build().unwrap())
        .tenant(|head| Some(Tenant::new(head.header(CLIENT)?)))
        .build()
        .unwrap();
    let lanes = vec![
        bare(runtime, clients),
        Lane::peer(TOWER, calls(runtime, clients, ConcurrencyLimitLayer::new(at_once))),
        Lane::beside(TOWER, "StackLayer, concurrency only", calls(runtime, clients, plain_stack())),
        Lane::peer(PEER, calls(runtime, clients, theirs)),
        Lane::beside(PEER, "StackLayer, all parts", calls(runtime, clients, ours)),
    ];
    Section { title: "Stacks", lanes }
}

/// Calls at a pace, beside the layer of tower that has them wait as well, and beside a pace that clones share.
pub(super) fn pace(runtime: &Runtime) -> Section {
    const PEER: &str = "tower's RateLimit";
    const PACED: &str = "a pace under a lock, shared by clones";
    let clients = &Clients::new(1);
    let shaper = Shaper::new(Rate::per_second(PER_SECOND).unwrap(), ShaperConfig::default()).unwrap();
    let lanes = vec![
        bare(runtime, clients),
        Lane::peer(PEER, calls(runtime, clients, TowerRateLimitLayer::new(PER_SECOND, Duration::from_secs(1)))),
        Lane::peer(PACED, calls(runtime, clients, HoldLayer(Paced::new(PER_SECOND)))),
        Lane::beside(PEER, "ShapeLayer", calls(runtime, clients, ShapeLayer::new(shaper))).and_beside(PACED),
    ];
    Section { title: "Paced calls", lanes }
}

/// Rates by the address that the server left in the request.
pub(super) fn rate_by_address(runtime: &Runtime, title: &'static str, count: u32) -> Section {
    let clients = &Clients::new(count);
    let tidegate = || RateLimitLayer::limit(gcra(TERMS), KeyBy::client_address(peer_address()));
    let mut lanes = rate_lanes(runtime, clients, PeerIpKeyExtractor, tidegate);
    let limitador = Limited(Rc::new(InMemory::empty(TERMS, count.into())));
    lanes.push(Lane::peer(LIMITADOR, calls(runtime, clients, HoldLayer(limitador))));
    let silent = calls(runtime, clients, policy(false));
    lanes.push(Lane::beside(GOVERNOR, "RateLimitLayer, policy with one rule", silent).and_beside(LIMITADOR));
    let telling = calls(runtime, clients, policy(true));
    lanes.push(Lane::beside(GOVERNOR_TELLS, "RateLimitLayer, policy with one rule, with headers", telling));
    Section { title, lanes }
}

/// Rates by a header.
pub(super) fn rate_by_header(runtime: &Runtime, title: &'static str, count: u32) -> Section {
    let clients = &Clients::new(count);
    let tidegate = || RateLimitLayer::limit(gcra(TERMS), KeyBy::header(CLIENT.as_str()));
    Section { title, lanes: rate_lanes(runtime, clients, ByHeader, tidegate) }
}

const GOVERNOR: &str = "tower_governor";
const GOVERNOR_TELLS: &str = "tower_governor, with headers";

fn rate_lanes<K>(
    runtime: &Runtime,
    clients: &Rc<Clients>,
    extractor: K,
    tidegate: impl Fn() -> RateLimitBuilder<ByLimit>,
) -> Vec<Lane>
where
    K: KeyExtractor<Key: 'static> + 'static,
{
    let mut builder = governor_builder(extractor);
    let silent = governor(builder.finish());
    let telling = governor(builder.use_headers().finish());
    let silent_tidegate = tidegate().headers_on_pass(false).build().unwrap();
    let mut lanes = vec![
        bare(runtime, clients),
        Lane::peer(GOVERNOR, calls(runtime, clients, silent)),
        Lane::beside(GOVERNOR, "RateLimitLayer", calls(runtime, clients, silent_tidegate)),
        Lane::peer(GOVERNOR_TELLS, calls(runtime, clients, telling)),
        Lane::beside(
            GOVERNOR_TELLS,
            "RateLimitLayer, with headers",
            calls(runtime, clients, tidegate().build().unwrap()),
        ),
    ];
    if clients.count() > 1 {
        let sized = || tidegate().keys(clients.count());
        let silent = calls(runtime, clients, sized().headers_on_pass(false).build().unwrap());
        lanes.push(Lane::beside(GOVERNOR, "RateLimitLayer, room for all clients", silent));
        let telling = calls(runtime, clients, sized().build().unwrap());
        lanes.push(Lane::beside(GOVERNOR_TELLS, "RateLimitLayer, room for all clients, with headers", telling));
    }
    lanes
}

fn governor_builder<K: KeyExtractor>(extractor: K) -> GovernorConfigBuilder<K, NoOpMiddleware<QuantaInstant>> {
    let mut builder = GovernorConfigBuilder::default().key_extractor(extractor);
    builder.period(TERMS.period() / TERMS.units).burst_size(TERMS.burst);
    builder
}

fn governor<K, M>(config: Option<tower_governor::governor::GovernorConfig<K, M>>) -> GovernorLayer<K, M, Body>
where
    K: KeyExtractor,
    M: RateLimitingMiddleware<QuantaInstant>,
{
    GovernorLayer::new(config.expect("neither of its numbers is zero"))
}

/// A key of tower_governor owns what it is made of.
#[derive(Clone)]
struct ByHeader;

impl KeyExtractor for ByHeader {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let value = request.headers().get(CLIENT).and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or(GovernorError::UnableToExtractKey)
    }
}

fn peer_of(info: &ConnectInfo<SocketAddr>) -> Option<IpAddr> {
    Some(info.0.ip())
}

fn peer_address() -> ClientAddress {
    ClientAddress::new().peer_from(peer_of)
}

fn policy(tells: bool) -> RateLimitLayer {
    let Terms { burst, units, .. } = TERMS;
    let rule = format!("{{name: each, key: [address], limit: {{rate: {units}/s, burst: {burst}}}}}");
    let loaded = load_text("rules.yaml", &format!("domains: {{api: {{rules: [{rule}]}}}}"), &LoadOptions::default());
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let engine = Engine::with_policy(tidegate_engine::Options::default(), policy).expect("enough memory");
    RateLimitLayer::policy(Arc::new(engine), "api").peer_from(peer_of).headers_on_pass(tells).build().unwrap()
}
