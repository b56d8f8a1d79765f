//! Sockets: each is bound once and accepted from on every thread, so that an idle one takes the next connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::bounds::{ACCEPT_PAUSE, BACKLOG, CONNECTIONS_MAX, SEND_BYTES};
use crate::drain::Drain;

/// What is behind a listener.
pub trait Door: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// Connections beyond the bound that are served briefly.
    const SPARE: usize = 0;

    /// Serves one connection until it ends. Once `drain` has started, it finishes what is under way and ends.
    fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, drain: Drain) -> impl Future<Output = ()> + Send;

    /// Serves one connection of those beyond the bound: one request, and not for long.
    fn serve_briefly(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        drain: Drain,
    ) -> impl Future<Output = ()> + Send {
        self.serve(stream, peer, drain)
    }
}

/// A bound socket with its count of connections.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: std::net::TcpListener,
    connections_max: usize,
    connections: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

/// Why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{name}: cannot listen on {address}: {}; {}", describe(.error), hint(.error))]
pub struct ListenerError {
    name: &'static str,
    address: SocketAddr,
    error: io::Error,
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address".to_owned(),
        _ => error.to_string(),
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there or choose another port",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => "use an address of this machine, like 127.0.0.1:8080",
    }
}

impl Listener {
    /// Binds a socket for `name`.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(name: &'static str, address: SocketAddr) -> Result<Listener, ListenerError> {
        let bind = || -> io::Result<std::net::TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // A restart must not wait for connections of the process before.
            socket.set_reuse_address(true)?;
            // Connections have it from the socket that accepts them.
            socket.set_send_buffer_size(SEND_BYTES)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        let socket = bind().map_err(|error| ListenerError { name, address, error })?;
        Ok(Listener {
            name,
            socket,
            connections_max: CONNECTIONS_MAX,
            connections: Arc::default(),
            refused: Arc::default(),
        })
    }

    /// The same with room for so many connections.
    #[must_use]
    pub fn with_connections_max(self, connections_max: usize) -> Listener {
        Listener { connections_max, ..self }
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Its name, and the counts of connections that are open and that were refused.
    pub(crate) fn counts(&self) -> (&'static str, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        (self.name, Arc::clone(&self.connections), Arc::clone(&self.refused))
    }

    /// Accepts connections on the runtime this is called on, until it drains.
    ///
    /// # Errors
    /// If the socket cannot be registered with the runtime.
    pub async fn accept<D: Door>(&self, door: Arc<D>, drain: Drain) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket.try_clone()?)?;
        let mut until = drain.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = until.started() => return Ok(()),
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer, Arc::clone(&door), drain.clone()),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(listener = D::NAME, %error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take<D: Door>(&self, stream: TcpStream, peer: SocketAddr, door: Arc<D>, drain: Drain) {
        let Some((place, number)) = Place::take(&self.connections, self.connections_max.saturating_add(D::SPARE))
        else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let is_spare = number >= self.connections_max;
        // Answers are written whole; waiting for more to send only delays them.
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let _place = place;
            if is_spare {
                door.serve_briefly(stream, peer, drain).await;
            } else {
                door.serve(stream, peer, drain).await;
            }
        });
    }
}

/// Whether only one connection failed before it was accepted, and the next may do.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A connection's place among those that are open.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// A place, and how many are taken before it.
    fn take(connections: &Arc<AtomicUsize>, max: usize) -> Option<(Place, usize)> {
        let one_more = |open: usize| (open < max).then_some(open + 1);
        let before = connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some((Place(Arc::clone(connections)), before))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_holds_little_for_who_does_not_read() {
        let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
        listener.socket.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.socket.accept().unwrap();
        let mut sent = 0;
        accepted.set_nonblocking(true).unwrap();
        while let Ok(count) = io::Write::write(&mut &accepted, &[0; 4096]) {
            sent += count;
        }
        assert!(socket2::SockRef::from(&accepted).send_buffer_size().unwrap() <= 2 * SEND_BYTES);
        // What the client's side of this machine holds is beside it.
        assert!(sent > SEND_BYTES / 2, "{sent}");
    }
}
