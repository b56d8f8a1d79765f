//! X

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::drain::Drain;
use crate::listener::Door;
use crate::service::Service;

/// X
#[derive(Debug)]
pub struct RlsDoor {
    service: Arc<Service>,
}

impl RlsDoor {
    /// X
    #[must_use]
    pub fn new(service: Arc<Service>) -> RlsDoor {
        RlsDoor { service }
    }
}

impl Door for RlsDoor {
    const NAME: &'static str = "rls";

    async fn serve(self: Arc<Self>, stream: TcpStream, _peer: SocketAddr, _drain: Drain) {
        let _ = (&self.service, stream);
    }
}
