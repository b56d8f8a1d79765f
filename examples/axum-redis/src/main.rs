//! An axum service whose instances share a limit through Redis: five requests a minute for each user.

use std::env::var;
use std::error::Error;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, serve};
use tidegate::redis::RedisLimiter;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let redis = var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let limiter = RedisLimiter::open(&redis, "5/minute".parse()?)?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(from_fn_with_state(limiter, limit));
    let listener = TcpListener::bind(var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned())).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(serve(listener, app).await?)
}

async fn limit(State(limiter): State<RedisLimiter>, request: Request, next: Next) -> Response {
    let user = request.headers().get("x-user").map_or(&b"nobody"[..], |user| user.as_bytes()).to_vec();
    match limiter.check(user).await {
        Ok(decision) if decision.is_allowed() => next.run(request).await,
        Ok(decision) => {
            // Rounded up, so that nobody comes back too early.
            let wait = decision.retry_after().map_or(1, |wait| wait.as_nanos().div_ceil(1_000_000_000));
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", wait.to_string())], "too many requests\n").into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("x-user: {error}\n")).into_response(),
    }
}
