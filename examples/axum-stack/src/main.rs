//! An axum service behind all of Tidegate's layers: it sheds, limits rates, takes turns and holds a total.

#[path = "../../support/start.rs"]
mod start;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Router, serve};
use tidegate::shed::Criticality;
use tidegate::tower::{Head, KeyBy, Mode, Part, RateLimitLayer, StackHandle, StackLayer, Tenant};
use tokio::time::sleep;

/// What this service bears at once. Behind the stack four requests are in progress, at most, and forty wait.
const LIMIT: u64 = 4;

#[tokio::main]
async fn main() -> ExitCode {
    start::ended(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let work = start::millis("WORK_MS", 50)?;
    let stack = StackLayer::builder(LIMIT)
        .class(class)
        // Counted here. `RateLimitLayer::policy` takes rules, which may count in a Redis that instances share.
        .rate(RateLimitLayer::limit("100/minute".parse()?, KeyBy::header("x-tenant")).build()?)
        .tenant(|head| Some(Tenant::new(head.header("x-tenant")?)))
        .deadline(Duration::from_secs(2))
        .build()?;
    let handle = stack.handle();
    let works = async move || {
        sleep(work).await;
        "done\n"
    };
    let app = Router::new()
        .route("/report", get(works))
        .route("/pay", post(works))
        .layer(stack)
        // Routes that come after `layer` are not behind it. In earnest they belong on a port of their own.
        .route("/metrics", get(metrics))
        .route("/switch/{part}/{mode}", post(switch))
        .with_state(handle);
    let listener = start::listen("LISTEN", "127.0.0.1:3000").await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(serve(listener, app).await?)
}

/// Payments matter most: a fifth of the room is kept for them.
fn class(head: Head<'_>) -> Criticality {
    match head.uri().path() {
        "/pay" => Criticality::Critical,
        _ => Criticality::Get,
    }
}

/// What each part has done, for Prometheus.
async fn metrics(State(stack): State<StackHandle>) -> impl IntoResponse {
    ([(CONTENT_TYPE, StackHandle::CONTENT_TYPE)], stack.render())
}

/// The kill switch and shadow mode of each part, while the service runs.
async fn switch(State(stack): State<StackHandle>, Path((part, mode)): Path<(String, String)>) -> StatusCode {
    let mode = match mode.as_str() {
        "enforce" => Mode::Enforce,
        "shadow" => Mode::Shadow,
        "off" => Mode::Off,
        _ => return StatusCode::NOT_FOUND,
    };
    let part = Part::ALL.into_iter().find(|one| one.name() == part);
    let Some(switch) = part.and_then(|part| stack.switch(part)) else { return StatusCode::NOT_FOUND };
    switch.set_mode(mode);
    StatusCode::NO_CONTENT
}
