//! How a request ended, as closures see it.

use std::any::Any;

use http::{HeaderMap, Response, StatusCode};

use crate::grpc::STATUS;

/// How a request ended: the argument of closures that judge it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ended<'a> {
    /// The service returned a response.
    Response {
        /// The status of the response.
        status: StatusCode,
        /// The headers of the response.
        headers: &'a HeaderMap,
    },
    /// The service returned an error; use `downcast_ref` to find out which.
    Error(&'a dyn Any),
}

impl<'a> Ended<'a> {
    pub(crate) fn of<B, E: 'static>(result: &'a Result<Response<B>, E>) -> Ended<'a> {
        match result {
            Ok(response) => Ended::Response { status: response.status(), headers: response.headers() },
            Err(error) => Ended::Error(error),
        }
    }

    /// Returns the gRPC status code if the headers have one, as in calls that fail before their first message.
    #[must_use]
    pub fn grpc_status(self) -> Option<u32> {
        match self {
            Ended::Response { headers, .. } => headers.get(STATUS)?.to_str().ok()?.parse().ok(),
            Ended::Error(_) => None,
        }
    }
}
