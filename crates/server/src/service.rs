//! What the front ends share: the engine, and what is known of the server as a whole.

use tidegate_engine::{Engine, Outcome, RequestError};
use tidegate_policy::Request;
use tokio::sync::watch;

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The protocol of Redis.
    Resp,
    /// Envoy's rate limit service.
    Grpc,
    /// HTTP.
    Http,
}

/// The engine, and what is known of the server as a whole.
#[derive(Debug)]
pub struct Service {
    /// Decides.
    pub engine: Engine,
    /// Whether load balancers may send requests here.
    ready: watch::Sender<bool>,
    /// What AUTH has to say on the protocol of Redis; none if it need not be said.
    pub resp_password: Option<String>,
    /// What administrators have to say over HTTP; none if they need not, as on loopback.
    pub admin_token: Option<String>,
}

impl Service {
    /// A service that is not ready yet.
    #[must_use]
    pub fn new(engine: Engine) -> Service {
        Service { engine, ready: watch::Sender::new(false), resp_password: None, admin_token: None }
    }

    /// Whether load balancers may send requests here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Says whether load balancers may send requests here.
    pub fn set_ready(&self, ready: bool) {
        self.ready.send_replace(ready);
    }

    /// Tells whether load balancers may send requests here, now and whenever that changes.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Decides a request that came in this way.
    ///
    /// # Errors
    /// If the request itself is at fault.
    pub async fn check(&self, _protocol: Protocol, request: &Request<'_>) -> Result<Outcome, RequestError> {
        self.engine.check(request).await
    }
}
