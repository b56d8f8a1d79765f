//! The rate layer, alone on a clock that stands still, and in real servers on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod hostile;
mod limit;
mod policy;
mod served;
mod warnings;

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate_tower::{LayerBody, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

type Body = Full<bytes::Bytes>;

/// What a handler answers that says hello.
async fn hello(_: Request<()>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}

/// What comes of a request through a layer.
async fn ask(layer: &RateLimitLayer, request: Request<()>) -> Response<LayerBody<Body>> {
    layer.layer(service_fn(hello)).oneshot(request).await.unwrap()
}

async fn status(layer: &RateLimitLayer, request: Request<()>) -> u16 {
    ask(layer, request).await.status().as_u16()
}

fn get(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// An answer as clients see it.
async fn shown(response: Response<LayerBody<Body>>) -> String {
    let (parts, body) = response.into_parts();
    let mut lines: Vec<String> =
        parts.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    format!("{}\n{}\n\n{body}", parts.status, lines.join("\n"))
}
