//! Servers of axum and tonic on the loopback address, and clients of them.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::server::HealthReporter;
use tower::{Layer, Service};

/// A server, which stops when the value is dropped.
pub struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
    /// It keeps health checks that are watched open.
    _reporter: Option<HealthReporter>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Serving {
    /// Serves a router of axum on a free port.
    pub async fn axum(app: Router) -> Serving {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Serving { address, task, _reporter: None }
    }

    /// Serves the health check of gRPC behind a layer, by tonic, on a free port.
    pub async fn tonic<L, B>(layer: L) -> Serving
    where
        L: Layer<Routes> + Clone + Send + Sync + 'static,
        L::Service: Service<Request<Body>, Response = Response<B>, Error: Into<Boxed> + Send, Future: Send>,
        L::Service: Clone + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Boxed>> + Send + 'static,
    {
        let (reporter, health) = tonic_health::server::health_reporter();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::builder().layer(layer).add_service(health);
        let task = tokio::spawn(async move {
            serving.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        Serving { address, task, _reporter: Some(reporter) }
    }

    /// Sends `GET /` over HTTP/1.1 and returns the whole response, with its head.
    pub async fn fetch(&self) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Connects to the server for gRPC calls.
    pub async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }
}

type Boxed = Box<dyn Error + Send + Sync>;
