//! Logs on stderr, as text or JSON, and traces over OTLP where they are asked for.

use std::io::IsTerminal;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

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
    /// Where traces are sent over OTLP (gRPC), like `http://127.0.0.1:4317`; nowhere if not said.
    pub otlp: Option<String>,
}

/// Sends what is left of traces when it is dropped.
#[derive(Debug)]
pub struct TelemetryGuard(Option<SdkTracerProvider>);

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Traces cannot be sent there.
    #[error("otlp: cannot send traces to `{endpoint}`: {error}; use an address like http://127.0.0.1:4317")]
    Otlp {
        /// Where to.
        endpoint: String,
        /// Why not.
        error: opentelemetry_otlp::ExporterBuildError,
    },
}

impl Telemetry {
    /// Starts to log and trace. To be called within a runtime, which traces are sent on.
    ///
    /// # Errors
    /// If traces cannot be sent.
    pub fn start(&self) -> Result<TelemetryGuard, TelemetryError> {
        let provider = self.otlp.as_deref().map(provider).transpose()?;
        let traces = provider.as_ref().map(|provider| {
            let only_traces = Targets::new().with_target(TRACE_TARGET, LevelFilter::TRACE);
            tracing_opentelemetry::layer().with_tracer(provider.tracer("tidegate")).with_filter(only_traces)
        });
        // Filters by target are asked once for each place in the code. One that is asked for each event made the events that
        // h2 has for its own developers cost two thirds of a gRPC call.
        let level = LevelFilter::from_level(self.level);
        let wanted = Targets::new().with_default(level).with_target(TRACE_TARGET, LevelFilter::OFF);
        let logs = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
        let logs = match self.format {
            LogFormat::Text => logs.with_filter(wanted).boxed(),
            LogFormat::Json => logs.json().flatten_event(true).with_filter(wanted).boxed(),
        };
        // Fails only if something else in this process logs already, and then that goes on.
        let _ = tracing_subscriber::registry().with(logs).with(traces).try_init();
        Ok(TelemetryGuard(provider))
    }
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let wrong = |error| TelemetryError::Otlp { endpoint: endpoint.to_owned(), error };
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build().map_err(wrong)?;
    let resource = Resource::builder().with_service_name("tidegate").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|provider| provider.shutdown()) {
            eprintln!("error: the last traces were not sent: {error}");
        }
    }
}
