//! X

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::drain::Drain;
use crate::listener::Door;
use crate::service::Service;

/// X
#[derive(Debug)]
pub struct HttpDoor {
    service: Arc<Service>,
}

impl HttpDoor {
    /// X
    #[must_use]
    pub fn new(service: Arc<Service>) -> HttpDoor {
        HttpDoor { service }
    }
}

impl Door for HttpDoor {
    const NAME: &'static str = "http";

    async fn serve(self: Arc<Self>, stream: TcpStream, _peer: SocketAddr, _drain: Drain) {
        let _ = (&self.service, stream);
    }
}
