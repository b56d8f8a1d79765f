//! `tidegate serve`: the service.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use tidegate::Algorithm;
use tidegate::bounds::KEYS_MAX;
use tidegate_engine::bounds::{PERMIT_LEASE_MAX, PERMIT_LEASE_MIN};
use tidegate_engine::{PermitOptions, PermitShare};
use tidegate_server::{Addresses, LogFormat, Options, RequestMemory, Telemetry};

use crate::bounds::{DRAIN_DELAY_SECONDS_MAX, REQUEST_MEMORY_MB_MAX, THREADS_MAX};
use crate::tls::TlsArgs;

/// Answer Redis clients, Envoy and HTTP, by the rules of a configuration that reloads by itself
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file or directory with rules, of Tidegate or of envoyproxy/ratelimit; may be repeated
    #[arg(long, value_name = "PATH")]
    config: Vec<PathBuf>,
    /// Where HTTP is spoken
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    http: SocketAddr,
    /// Where Envoy's rate limit protocol is spoken
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = address)]
    grpc: SocketAddr,
    /// Where the protocol of Redis is spoken
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = address)]
    resp: SocketAddr,
    /// Where counts are kept that no rule puts elsewhere: `memory:`, `memory:KEYS` for room for that many keys, or a Redis or
    /// Valkey that nodes share: `redis://HOST:PORT`, `rediss://` with TLS, `redis+unix:///PATH`,
    /// `redis+sentinel://HOST,HOST/NAME`, `redis+cluster://HOST,HOST`
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true, default_value = "memory:")]
    store: String,
    /// Threads that serve [default: one a core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1, Some(THREADS_MAX)))]
    threads: Option<u16>,
    /// Put all rules in shadow: count, and tell what they would deny. Limits that callers bring still hold
    #[arg(long)]
    shadow: bool,
    /// The algorithm of limits in files of envoyproxy/ratelimit that name none
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::FixedWindow)]
    envoy_algorithm: Algorithm,
    /// Let a domain stand in several files
    #[arg(long)]
    merge_domains: bool,
    /// What administrators say as `Authorization: Bearer TOKEN`; if none is set, only loopback may administer
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true, value_parser = secret)]
    admin_token: Option<String>,
    /// What Redis clients say with AUTH; not needed if none is set
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_PASSWORD", hide_env_values = true, value_parser = secret)]
    password: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Tell gRPC tools which services and messages there are
    #[arg(long)]
    reflection: bool,
    /// Send the `metadata` of rules to Envoy as dynamic metadata
    #[arg(long)]
    dynamic_metadata: bool,
    /// The part of all permits of callers that one address may hold, like 1/4; 1/1 lets one hold all
    #[arg(long, value_name = "PART", default_value_t = PermitShare::default())]
    permit_share: PermitShare,
    /// The longest lease of a permit that callers get, like 10m; up to 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = permit_lease)]
    permit_lease_max: Duration,
    /// Let every gRPC client give units back (`is_negative_hits`), not only those on this machine or with a certificate
    #[arg(long)]
    grpc_refunds: bool,
    /// Refuse reports of what became of requests (POST /v1/report), for rules that count no responses
    #[arg(long)]
    no_reports: bool,
    /// Megabytes that a listener keeps of requests that have not come whole; the largest are given up first
    #[arg(long, value_name = "MB", default_value_t = 16, allow_negative_numbers = true, value_parser = whole(1, Some(REQUEST_MEMORY_MB_MAX)))]
    request_memory: usize,
    /// Megabytes of those that one connection may take
    #[arg(long, value_name = "MB", default_value_t = 2, allow_negative_numbers = true, value_parser = whole(1, Some(REQUEST_MEMORY_MB_MAX)))]
    connection_request_memory: usize,
    /// Seconds to stay open, unready, after being told to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0, Some(DRAIN_DELAY_SECONDS_MAX)))]
    drain_delay: u64,
    /// How logs are written to stderr
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// What is logged: this and what is graver
    #[arg(long, value_enum, default_value_t = Level::Info)]
    log_level: Level,
    /// Send traces there over OTLP (gRPC), like http://127.0.0.1:4317, or https:// for TLS
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Append decisions there, as JSON lines
    #[arg(long, value_name = "PATH")]
    decision_log: Option<PathBuf>,
    /// Write one in this many decisions to the decision log
    #[arg(long, value_name = "N", default_value_t = 1, requires = "decision_log", allow_negative_numbers = true, value_parser = whole(1_u64, None))]
    decision_log_every: u64,
}

const EXAMPLES: &str = r#"It runs without any configuration: CL.THROTTLE and /v1/check bring their own limits. Rules reload
when their files change and on SIGHUP; a bad file is refused and the old rules stay.

Examples:
  tidegate serve
  tidegate serve --config rules.yaml --http 0.0.0.0:8080
  tidegate serve --config /etc/ratelimit/config --envoy-algorithm gcra
  TIDEGATE_STORE=rediss://user:password@redis.internal tidegate serve --config rules.yaml
  redis-cli -p 6380 CL.THROTTLE login:42 15 30 60
  curl -i 'http://127.0.0.1:8080/v1/check?key=user:42&rate=100/minute'"#;

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// An address with its port. `localhost` is the loopback of IPv4.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    let named = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let wrong = || "write an address and port, like 127.0.0.1:8080 or [::1]:8080".to_owned();
    named.or(text.parse().ok()).ok_or_else(wrong)
}

/// Reads a whole number that is not below the least, nor above the most.
fn whole<T: Copy + Display + FromStr + PartialOrd>(
    least: T,
    most: Option<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let is_within = |number: &T| *number >= least && most.is_none_or(|most| *number <= most);
        let range = || most.map_or_else(|| format!("{least} on"), |most| format!("{least} to {most}"));
        text.parse().ok().filter(is_within).ok_or_else(|| format!("use a whole number from {}", range()))
    }
}

/// A time that leases of permits may be bounded by.
fn permit_lease(text: &str) -> Result<Duration, String> {
    let read = tidegate_policy::read_duration(text);
    let is_within = |lease: &Duration| (PERMIT_LEASE_MIN..=PERMIT_LEASE_MAX).contains(lease);
    read.filter(is_within).ok_or_else(|| "write a time from 1ms to 24h, like 10m or 1h30m".to_owned())
}

/// Nobody could ever say an empty secret, and everybody would be locked out.
fn secret(text: &str) -> Result<String, String> {
    let wrong = "it is empty; give one, or leave out the flag and unset its variable";
    if text.is_empty() { Err(wrong.to_owned()) } else { Ok(text.to_owned()) }
}

/// A store by its URL.
#[derive(Clone)]
struct Store {
    keys: Option<usize>,
    url: Option<Box<str>>,
}

fn store(url: &str) -> Result<Store, String> {
    match url.strip_prefix("memory:") {
        Some("") => Ok(Store { keys: None, url: None }),
        Some(keys) => match keys.parse() {
            Ok(keys) if (1..=KEYS_MAX).contains(&keys) => Ok(Store { keys: Some(keys), url: None }),
            Ok(keys) => Err(format!("memory:{keys} is out of bounds: use 1 to {KEYS_MAX} keys")),
            Err(_) => Err("write memory: or memory:KEYS, like memory:1000000".to_owned()),
        },
        None => {
            let told = |(problem, fix): (String, String)| format!("{problem}: {fix}");
            tidegate_engine::check_store_url(url).map_err(told)?;
            Ok(Store { keys: None, url: Some(url.into()) })
        }
    }
}

/// Serves until it is told to stop. What keeps it from starting is one line and exit code 2.
pub(crate) fn run(args: Args) -> ExitCode {
    // Not a parser of the flag: what is said of a wrong value would repeat it, and it may hold a password.
    let store = match store(&args.store) {
        Ok(store) => store,
        Err(error) => {
            eprintln!("error: --store or TIDEGATE_STORE: {error}; see tidegate serve --help");
            return ExitCode::from(2);
        }
    };
    let options = options(args, store);
    let encrypts = Encrypts { http: options.tls.http.is_some(), resp: options.tls.resp.is_some() };
    match tidegate_server::run(options, |addresses| greet(addresses, encrypts)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(args: Args, store: Store) -> Options {
    Options {
        config: args.config,
        load: tidegate_policy::LoadOptions {
            merge_domains: args.merge_domains,
            envoy_algorithm: args.envoy_algorithm,
            outside: tidegate_policy::Outside {
                check_store: Some(tidegate_engine::check_store_url),
                variable: Some(|name| std::env::var(name).ok()),
                default_is_elsewhere: Some(store.url.is_some()),
            },
        },
        http: args.http,
        grpc: args.grpc,
        resp: args.resp,
        engine: tidegate_engine::Options {
            keys: store.keys,
            store: store.url,
            shadow: args.shadow,
            permits: PermitOptions { share: args.permit_share, lease_max: args.permit_lease_max },
            ..Default::default()
        },
        threads: args.threads.map(usize::from),
        drain_delay: Duration::from_secs(args.drain_delay),
        decision_log: args.decision_log.map(|path| (path, args.decision_log_every)),
        telemetry: Telemetry {
            format: match args.log_format {
                Format::Text => LogFormat::Text,
                Format::Json => LogFormat::Json,
            },
            level: match args.log_level {
                Level::Error => tracing::Level::ERROR,
                Level::Warn => tracing::Level::WARN,
                Level::Info => tracing::Level::INFO,
                Level::Debug => tracing::Level::DEBUG,
            },
            otlp: args.otlp,
        },
        tls: args.tls.of_listeners(),
        request_memory: RequestMemory {
            listener_bytes: args.request_memory << 20,
            connection_bytes: args.connection_request_memory << 20,
        },
        reflection: args.reflection,
        dynamic_metadata: args.dynamic_metadata,
        grpc_refunds: args.grpc_refunds,
        reports: !args.no_reports,
        resp_password: args.password,
        admin_token: args.admin_token,
    }
}

/// Which of the listeners that people can try by hand speak TLS.
#[derive(Clone, Copy)]
struct Encrypts {
    http: bool,
    resp: bool,
}

/// Says where to ask, with lines to try.
fn greet(addresses: Addresses, encrypts: Encrypts) {
    let Addresses { http, grpc, resp } = addresses;
    println!(
        "tidegate {} serves HTTP on {http}, Envoy on {grpc}, Redis clients on {resp}. Try:",
        env!("CARGO_PKG_VERSION")
    );
    let (http, resp) = (reachable(http), reachable(resp));
    let scheme = if encrypts.http { "https" } else { "http" };
    let tls = if encrypts.resp { " --tls" } else { "" };
    println!("  curl -i '{scheme}://{http}/v1/check?key=user:42&rate=5/minute'");
    println!("  redis-cli -h {} -p {}{tls} CL.THROTTLE login:42 15 30 60", resp.ip(), resp.port());
    println!("  curl {scheme}://{http}/metrics");
}

/// Where to ask from this machine: a listener on all addresses is on loopback too, and not every system takes the
/// unspecified address for it.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
