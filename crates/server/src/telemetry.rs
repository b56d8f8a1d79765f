//! Logs on stderr, as text or JSON, and traces over OTLP where they are asked for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tidegate_core::Clock;
use tidegate_engine::LogLimiter;
use tidegate_policy::json::quote;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::bounds::TRACE_LINES;
use crate::log_writer::{LogProgress, LogWriter};

/// The target of spans that are exported as traces and never logged. Where nobody asks for traces, they cost a load and
/// a branch.
pub(crate) const TRACE_TARGET: &str = "tidegate::trace";

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged and traced.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// How logs are written.
    pub format: LogFormat,
    /// What is logged: this and what is graver.
    pub level: Level,
    /// Where traces are sent over OTLP (gRPC), like `http://127.0.0.1:4317`, or `https://` for TLS; nowhere if not said.
    pub otlp: Option<String>,
}

/// Sends what is left of traces when it is dropped, and waits a moment for the end of the log.
#[derive(Debug)]
pub struct TelemetryGuard {
    traces: Option<SdkTracerProvider>,
    log: LogProgress,
}

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// That is no place to send traces to.
    #[error("--otlp: `{endpoint}` {problem}; use an address like http://127.0.0.1:4317")]
    Endpoint {
        /// Where to.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Traces cannot be sent there.
    #[error("otlp: cannot send traces to `{endpoint}`: {error}; {remedy}")]
    Otlp {
        /// Where to.
        endpoint: String,
        /// Why not.
        error: opentelemetry_otlp::ExporterBuildError,
        /// What would do.
        remedy: &'static str,
    },
    /// There is no thread to write the log.
    #[error("log: cannot be written: {0}; raise the number of threads or the memory that this process may have")]
    Log(#[source] io::Error),
}

impl Telemetry {
    /// Starts to log and trace. To be called within a runtime, which traces are sent on.
    ///
    /// # Errors
    /// If traces cannot be sent, or the system has no thread to write the log.
    pub fn start(&self) -> Result<TelemetryGuard, TelemetryError> {
        let provider = self.otlp.as_deref().map(provider).transpose()?;
        let traces = provider.as_ref().map(|provider| {
            let only_traces = Targets::new().with_target(TRACE_TARGET, LevelFilter::TRACE);
            // Where in the code and on which thread it was decided helps nobody who reads a trace.
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("tidegate"))
                .with_target(false)
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
                .with_filter(only_traces)
        });
        // Filters by target are asked once for each place in the code. One that is asked for each event made the events that
        // h2 has for its own developers cost two thirds of a gRPC call.
        let level = LevelFilter::from_level(self.level);
        let wanted = Targets::new().with_default(level).with_target(TRACE_TARGET, LevelFilter::OFF);
        let writer = LogWriter::start().map_err(TelemetryError::Log)?;
        let log = writer.progress();
        let logs = fmt::layer().with_writer(writer).with_ansi(io::stderr().is_terminal());
        let logs = match self.format {
            LogFormat::Text => logs.with_filter(wanted).boxed(),
            LogFormat::Json => logs.json().flatten_event(true).with_filter(wanted).boxed(),
        };
        // Fails only if something else in this process logs already, and then that goes on.
        let _ = tracing_subscriber::registry().with(logs).with(traces).try_init();
        Ok(TelemetryGuard { traces: provider, log })
    }
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let is_encrypted = check_endpoint(endpoint)?;
    let remedy = match is_encrypted {
        true => "for TLS, set SSL_CERT_FILE to a file with CA certificates, or install those of the system",
        false => "use an address like http://127.0.0.1:4317",
    };
    let wrong = |error| TelemetryError::Otlp { endpoint: endpoint.to_owned(), error, remedy };
    let mut builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if is_encrypted {
        // The authorities that this machine trusts, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
        builder = builder.with_tls_config(ClientTlsConfig::new().with_native_roots());
    }
    let exporter = builder.build().map_err(wrong)?;
    let exporter = Watched { exporter, failures: LogLimiter::new(TRACE_LINES, Clock::system()) };
    let resource = Resource::builder().with_service_name("tidegate").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// Only what can be sent to is taken: `http://` or `https://` and an authority. Tells whether it is the latter.
fn check_endpoint(endpoint: &str) -> Result<bool, TelemetryError> {
    let wrong = |problem| Err(TelemetryError::Endpoint { endpoint: quote(endpoint), problem });
    let Ok(uri) = endpoint.parse::<http::Uri>() else { return wrong("is not a URL") };
    let is_encrypted = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return wrong("does not start with http:// or https://"),
    };
    match uri.path_and_query() {
        Some(path) if path != "/" => wrong("has a path, but OTLP over gRPC has none"),
        _ => Ok(is_encrypted),
    }
}

/// Sends spans, and warns if that fails: otherwise nobody would know why there are no traces.
#[derive(Debug)]
struct Watched {
    exporter: SpanExporter,
    failures: LogLimiter,
}

impl opentelemetry_sdk::trace::SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent
            && let Some(left_out) = self.failures.turn()
        {
            tracing::warn!(
                spans, left_out, %error, "traces were not sent; does a collector listen at the address of --otlp?"
            );
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl TelemetryGuard {
    /// What becomes of the lines of the log.
    pub(crate) fn log(&self) -> LogProgress {
        self.log.clone()
    }
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.take().map(|provider| provider.shutdown()) {
            tracing::error!(%error, "the last traces were not sent");
        }
        self.log.finish();
    }
}
