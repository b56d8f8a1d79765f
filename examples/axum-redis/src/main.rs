//! An axum service whose instances share a limit through Redis: five requests a minute for each user.

#[path = "../../support/start.rs"]
mod start;

use std::error::Error;
use std::process::ExitCode;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, serve};
use tidegate::redis::RedisLimiter;

#[tokio::main]
async fn main() -> ExitCode {
    start::ended(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    // The store logs through `tracing` when Redis fails and when it is back.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let redis = start::setting("REDIS_URL", "redis://127.0.0.1:6379");
    let limiter = RedisLimiter::open(&redis, "5/minute".parse()?).map_err(|error| format!("REDIS_URL: {error}"))?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(from_fn_with_state(limiter, limit));
    let listener = start::listen("LISTEN", "127.0.0.1:3000").await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(serve(listener, app).await?)
}

async fn limit(State(limiter): State<RedisLimiter>, request: Request, next: Next) -> Response {
    let user = request.headers().get("x-user").map_or(&b"nobody"[..], |user| user.as_bytes()).to_vec();
    match limiter.check(user).await {
        Ok(decision) if decision.is_allowed() => next.run(request).await,
        Ok(decision) => {
            // Rounded up, so that no client retries too early.
            let wait = decision.retry_after().map_or(1, |wait| wait.as_nanos().div_ceil(1_000_000_000));
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", wait.to_string())], "too many requests\n").into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("x-user: {error}\n")).into_response(),
    }
}
