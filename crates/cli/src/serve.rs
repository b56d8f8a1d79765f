//! `tidegate serve`: the service.

use std::fmt::Display;
use std::io::{self, IsTerminal};
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

use crate::bounds::{DRAIN_DELAY_SECONDS_MAX, EXPLAIN_MEMORY_MB_MAX, REQUEST_MEMORY_MB_MAX, THREADS_MAX};
use crate::tls::TlsArgs;

/// Serve rate limit decisions over HTTP, gRPC (Envoy) and the Redis protocol
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File or directory with rules, in the format of Tidegate or of envoyproxy/ratelimit; can be repeated
    #[arg(long, value_name = "PATH")]
    config: Vec<PathBuf>,
    /// Listen address for HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    http: SocketAddr,
    /// Listen address for Envoy's rate limit protocol (gRPC)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = address)]
    grpc: SocketAddr,
    /// Listen address for Redis clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = address)]
    resp: SocketAddr,
    /// Default store for counts: `memory:`, `memory:KEYS` with room for that many keys, or a Redis or Valkey that several
    /// nodes share: `redis://HOST:PORT`, `rediss://` for TLS, `redis+unix:///PATH`, `redis+sentinel://HOST,HOST/NAME`,
    /// `redis+cluster://HOST,HOST`
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true, default_value = "memory:")]
    store: String,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1, Some(THREADS_MAX)))]
    threads: Option<u16>,
    /// Run all rules in shadow mode: count and report denials, but deny nothing. Limits sent by clients are still enforced
    #[arg(long)]
    shadow: bool,
    /// Algorithm for limits in files of envoyproxy/ratelimit that name none
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::FixedWindow)]
    envoy_algorithm: Algorithm,
    /// Allow several files to define rules of the same domain
    #[arg(long)]
    merge_domains: bool,
    /// Token for admin calls, sent as `Authorization: Bearer TOKEN`; without one, only clients on loopback can make them
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true, value_parser = secret)]
    admin_token: Option<String>,
    /// Password that Redis clients must send with AUTH; without one, no password is needed
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_PASSWORD", hide_env_values = true, value_parser = secret)]
    password: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Enable gRPC server reflection, for tools such as grpcurl
    #[arg(long)]
    reflection: bool,
    /// Send the `metadata` of rules to Envoy as dynamic metadata
    #[arg(long)]
    dynamic_metadata: bool,
    /// Largest share of all clients' permits that one address may hold, such as 1/4; with 1/1, one address may hold all
    #[arg(long, value_name = "PART", default_value_t = PermitShare::default())]
    permit_share: PermitShare,
    /// Longest lease of a permit for clients, such as 10m; at most 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = permit_lease)]
    permit_lease_max: Duration,
    /// Accept refunds (`is_negative_hits`) from every gRPC client, not only from this machine or with a client certificate
    #[arg(long)]
    grpc_refunds: bool,
    /// Disable response reports (POST /v1/report); only rules that count responses need them
    #[arg(long)]
    no_reports: bool,
    /// Memory per listener for incomplete requests, in megabytes; beyond it, the largest request is dropped
    #[arg(long, value_name = "MB", default_value_t = 16, allow_negative_numbers = true, value_parser = whole(1, Some(REQUEST_MEMORY_MB_MAX)))]
    request_memory: usize,
    /// Memory per connection for incomplete requests, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 2, allow_negative_numbers = true, value_parser = whole(1, Some(REQUEST_MEMORY_MB_MAX)))]
    connection_request_memory: usize,
    /// Memory for denials that `tidegate explain` can explain, in megabytes; with 0, denials have no ids
    #[arg(long, value_name = "MB", default_value_t = 64, allow_negative_numbers = true, value_parser = whole(0, Some(EXPLAIN_MEMORY_MB_MAX)))]
    explain_memory: usize,
    /// Seconds to keep serving after a stop signal while reporting not ready
    #[arg(long, value_name = "SECONDS", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0, Some(DRAIN_DELAY_SECONDS_MAX)))]
    drain_delay: u64,
    /// Log format; logs go to stderr
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// Minimum log level
    #[arg(long, value_enum, default_value_t = Level::Info)]
    log_level: Level,
    /// OTLP endpoint (gRPC) for traces, such as http://127.0.0.1:4317; https:// for TLS
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Append decisions to this file as JSON lines
    #[arg(long, value_name = "PATH")]
    decision_log: Option<PathBuf>,
    /// Log only one in N decisions to the decision log
    #[arg(long, value_name = "N", default_value_t = 1, requires = "decision_log", allow_negative_numbers = true, value_parser = whole(1_u64, None))]
    decision_log_every: u64,
}

const EXAMPLES: &str = r#"No configuration is needed to start: with CL.THROTTLE and /v1/check, clients send the limit with each request.
Rules are reloaded when their files change and on SIGHUP. If the new files have errors, the old rules stay in force.

Exit codes:
  0  stopped by SIGTERM or Ctrl-C
  2  invalid arguments, or the server cannot start

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

/// Reads an address with its port. `localhost` is the loopback address of IPv4.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    let named = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let wrong = || "use an address and port, such as 127.0.0.1:8080 or [::1]:8080".to_owned();
    named.or(text.parse().ok()).ok_or_else(wrong)
}

/// Reads a whole number within bounds.
fn whole<T: Copy + Display + FromStr + PartialOrd>(
    least: T,
    most: Option<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let is_within = |number: &T| *number >= least && most.is_none_or(|most| *number <= most);
        let range = || most.map_or_else(|| format!("of at least {least}"), |most| format!("from {least} to {most}"));
        text.parse().ok().filter(is_within).ok_or_else(|| format!("use a whole number {}", range()))
    }
}

/// Reads the longest lease of permits.
fn permit_lease(text: &str) -> Result<Duration, String> {
    let read = tidegate_policy::read_duration(text);
    let is_within = |lease: &Duration| (PERMIT_LEASE_MIN..=PERMIT_LEASE_MAX).contains(lease);
    read.filter(is_within).ok_or_else(|| "use a duration from 1ms to 24h, such as 10m or 1h30m".to_owned())
}

/// Reads a secret. An empty one is refused, since no client could send it.
fn secret(text: &str) -> Result<String, String> {
    let wrong = "it is empty; set a value, or omit the flag and unset its environment variable";
    if text.is_empty() { Err(wrong.to_owned()) } else { Ok(text.to_owned()) }
}

/// The default store, from its URL.
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
            Ok(keys) => Err(format!("memory:{keys} is out of range: use 1 to {KEYS_MAX} keys")),
            Err(_) => Err("use memory: or memory:KEYS, such as memory:1000000".to_owned()),
        },
        None => {
            let message = |(problem, fix): (String, String)| format!("{problem}: {fix}");
            tidegate_engine::check_store_url(url).map_err(message)?;
            Ok(Store { keys: None, url: Some(url.into()) })
        }
    }
}

/// Serves until a signal stops it. If it cannot start, it prints one line and exits with code 2.
pub(crate) fn run(args: Args) -> ExitCode {
    // Not a parser of the flag: clap would repeat an invalid value, which may contain a password.
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
            explain_bytes: args.explain_memory << 20,
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

/// Whether the listeners in the commands to try use TLS.
#[derive(Clone, Copy)]
struct Encrypts {
    http: bool,
    resp: bool,
}

/// Prints the addresses, and in a terminal commands to try.
fn greet(addresses: Addresses, encrypts: Encrypts) {
    let Addresses { http, grpc, resp } = addresses;
    println!("tidegate {} serves HTTP on {http}, Envoy on {grpc}, Redis clients on {resp}", env!("CARGO_PKG_VERSION"));
    if !io::stdout().is_terminal() {
        return;
    }
    println!("Try these commands in another terminal:");
    let (http, resp) = (reachable(http), reachable(resp));
    let scheme = if encrypts.http { "https" } else { "http" };
    let tls = if encrypts.resp { " --tls" } else { "" };
    println!("  curl -i '{scheme}://{http}/v1/check?key=user:42&rate=5/minute'");
    println!("  redis-cli -h {} -p {}{tls} CL.THROTTLE login:42 15 30 60", resp.ip(), resp.port());
    println!("  curl {scheme}://{http}/metrics");
}

/// Returns an address that clients on this machine can connect to: loopback for a listener on all addresses, since not
/// every system accepts connections to the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
