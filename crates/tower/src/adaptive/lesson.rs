//! Which responses and errors count as drops.

use std::error::Error;
use std::io;

use http::StatusCode;
use tokio::time::error::Elapsed;

use crate::ended::Ended;
use crate::grpc::code;

/// How a request went, for a limit that adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lesson {
    /// The request succeeded: its response time counts.
    Success,
    /// The request was lost to overload.
    Dropped,
    /// The request shows nothing about the load: errors of the handler, and responses that needed no work.
    Ignored,
}

type BoxError = Box<dyn Error + Send + Sync>;

/// The default: responses 408, 429, 503 and 504, the gRPC states CANCELLED, DEADLINE_EXCEEDED and UNAVAILABLE, and
/// errors that are known to be timeouts, are drops. All other errors are ignored.
#[inline]
pub(super) fn by_default(end: Ended<'_>) -> Lesson {
    match (end, end.grpc_status()) {
        (_, Some(code::OK)) => Lesson::Success,
        (_, Some(code::CANCELLED | code::DEADLINE_EXCEEDED | code::UNAVAILABLE)) => Lesson::Dropped,
        (_, Some(_)) => Lesson::Ignored,
        (Ended::Response { status, .. }, None) => of_status(status),
        (Ended::Error(error), None) => {
            let timed_out = error.is::<Elapsed>()
                || error.downcast_ref::<io::Error>().is_some_and(is_timeout)
                || error.downcast_ref::<BoxError>().is_some_and(|error| any_timeout(error.as_ref()));
            if timed_out { Lesson::Dropped } else { Lesson::Ignored }
        }
    }
}

fn of_status(status: StatusCode) -> Lesson {
    match status {
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Lesson::Dropped,
        status if status.is_client_error() || status.is_server_error() => Lesson::Ignored,
        _ => Lesson::Success,
    }
}

/// Whether an error or one of its causes is a known timeout.
fn any_timeout(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Elapsed>() || error.downcast_ref::<io::Error>().is_some_and(is_timeout) {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn response(status: u16, grpc: Option<&str>) -> Lesson {
        let mut response = Response::builder().status(status);
        if let Some(grpc) = grpc {
            response = response.header("grpc-status", grpc);
        }
        by_default(Ended::of(&response.body(()).map_err(BoxError::from)))
    }

    #[test]
    fn overload_is_a_drop_and_the_handlers_own_errors_are_not() {
        for (lesson, statuses) in [
            (Lesson::Success, &[200, 204, 301, 101][..]),
            (Lesson::Dropped, &[408, 429, 503, 504]),
            (Lesson::Ignored, &[400, 404, 422, 500, 501, 502]),
        ] {
            for status in statuses {
                assert_eq!(response(*status, None), lesson, "{status}");
            }
        }
        for (lesson, states) in [
            (Lesson::Success, &["0"][..]),
            (Lesson::Dropped, &["1", "4", "14"]),
            (Lesson::Ignored, &["2", "3", "5", "8", "13", "16", "99"]),
        ] {
            for state in states {
                assert_eq!(response(200, Some(state)), lesson, "grpc-status {state}");
            }
        }
        assert_eq!(response(200, Some("?")), Lesson::Success, "what cannot be read tells nothing");
    }

    #[test]
    fn timeouts_that_are_known_are_drops() {
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "late");
        let end: Result<Response<()>, io::Error> = Err(timed_out());
        assert_eq!(by_default(Ended::of(&end)), Lesson::Dropped);
        let end: Result<Response<()>, io::Error> = Err(io::Error::other("else"));
        assert_eq!(by_default(Ended::of(&end)), Lesson::Ignored);
        for (error, lesson) in [
            (BoxError::from(timed_out()), Lesson::Dropped),
            (BoxError::from(io::Error::other(timed_out())), Lesson::Ignored),
            (BoxError::from("else"), Lesson::Ignored),
        ] {
            let end: Result<Response<()>, BoxError> = Err(error);
            assert_eq!(by_default(Ended::of(&end)), lesson, "{end:?}");
        }
    }
}
