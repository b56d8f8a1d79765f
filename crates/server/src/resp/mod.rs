//! X

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::drain::Drain;
use crate::listener::Door;
use crate::service::Service;

/// X
#[derive(Debug)]
pub struct RespDoor {
    service: Arc<Service>,
}

impl RespDoor {
    /// X
    #[must_use]
    pub fn new(service: Arc<Service>) -> RespDoor {
        RespDoor { service }
    }
}

impl Door for RespDoor {
    const NAME: &'static str = "resp";

    async fn serve(self: Arc<Self>, stream: TcpStream, _peer: SocketAddr, _drain: Drain) {
        let _ = (&self.service, stream);
    }
}
