//! Connections as front ends get them.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::bounds::REQUEST_MEMORY;
use crate::budget::{Account, Budget};
use crate::seats::Activity;
use crate::stream::Stream;
use crate::tls::Tls;

/// A connection that a listener has accepted, greeted by TLS where the listener speaks that.
#[derive(Debug)]
pub struct Accepted {
    pub(crate) stream: Stream,
    /// Of the client.
    pub(crate) address: SocketAddr,
    /// For its requests that have not come whole.
    pub(crate) account: Account,
    /// What it is used for shows here.
    pub(crate) activity: Activity,
}

impl Accepted {
    /// A connection in the clear that no listener has counted.
    #[must_use]
    pub fn in_the_clear(stream: TcpStream, address: SocketAddr) -> Accepted {
        let account = Budget::new(REQUEST_MEMORY).account();
        Accepted { stream: Stream::plain(stream), address, account, activity: Activity::default() }
    }

    /// A connection that no listener has counted, greeted by TLS. Returns `None` if the client leaves without a word.
    ///
    /// # Errors
    /// If TLS cannot be agreed on.
    pub async fn greeted(stream: TcpStream, address: SocketAddr, tls: &Tls) -> io::Result<Option<Accepted>> {
        let account = Budget::new(REQUEST_MEMORY).account();
        Ok(Stream::greet(stream, tls).await?.map(|stream| Accepted {
            stream,
            address,
            account,
            activity: Activity::default(),
        }))
    }

    /// Whether the client has shown a certificate of an authority that the listener trusts.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.stream.has_certificate()
    }
}
