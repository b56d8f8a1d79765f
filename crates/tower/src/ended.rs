//! What a closure sees of a request's end.

use std::any::Any;

use http::{HeaderMap, Response, StatusCode};

use crate::grpc::STATUS;

/// How a request has ended, as the closures see it that judge it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ended<'a> {
    /// With a response.
    Response {
        /// Its status.
        status: StatusCode,
        /// Its headers.
        headers: &'a HeaderMap,
    },
    /// With an error of the service behind; `downcast_ref` finds out which.
    Error(&'a dyn Any),
}

impl<'a> Ended<'a> {
    pub(crate) fn of<B, E: 'static>(result: &'a Result<Response<B>, E>) -> Ended<'a> {
        match result {
            Ok(response) => Ended::Response { status: response.status(), headers: response.headers() },
            Err(error) => Ended::Error(error),
        }
    }

    /// The number of its gRPC status, if the headers tell one: calls that fail before their first message do.
    #[must_use]
    pub fn grpc_status(self) -> Option<u32> {
        match self {
            Ended::Response { headers, .. } => headers.get(STATUS)?.to_str().ok()?.parse().ok(),
            Ended::Error(_) => None,
        }
    }
}
