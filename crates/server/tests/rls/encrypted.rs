//! TLS, and certificates of clients.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::KeyPair;
use tempfile::TempDir;
use tidegate_server::{Listener, Protocol, RlsOptions, Tls, TlsFile, TlsFiles};
use tidegate_testkit::authority::Authority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Server, refunds};

/// A directory with the files of a server.
struct Files {
    directory: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Files {
        let files = Files { directory: tempfile::tempdir().unwrap(), authority: Authority::new("servers") };
        files.renew();
        files
    }

    fn renew(&self) {
        let (certificate, key) = self.authority.sign(4000);
        fs::write(self.path("server.pem"), certificate).unwrap();
        fs::write(self.path("server.key"), key).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file with this name, as a flag names it.
    fn file(&self, flag: &'static str, name: &str) -> TlsFile {
        TlsFile { flag, path: self.path(name) }
    }

    fn tls(&self, clients: Option<&Authority>) -> Arc<Tls> {
        let client_authorities = clients.map(|authority| {
            fs::write(self.path("clients.pem"), &authority.pem).unwrap();
            self.file("--tls-client-ca", "clients.pem")
        });
        let (certificate, key) = (self.file("--tls-cert", "server.pem"), self.file("--tls-key", "server.key"));
        Arc::new(Tls::load(TlsFiles { certificate, key, client_authorities }, Protocol::Grpc).unwrap())
    }
}

fn start(tls: &Arc<Tls>) -> Server {
    let listen = |listener: Listener| listener.with_tls(Some(Arc::clone(tls)));
    Server::behind(listen, "domains: {}", Default::default(), RlsOptions::default())
}

/// Whether a client that believes this authority, and has this identity, gets an answer.
async fn is_answered(server: &Server, authority: &Authority, identity: Option<(String, String)>) -> bool {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem)).domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Channel::from_shared(format!("https://{}", server.address)).unwrap().tls_config(tls).unwrap();
    let Ok(channel) = endpoint.connect().await else { return false };
    HealthClient::new(channel).check(HealthCheckRequest::default()).await.is_ok()
}

#[tokio::test]
async fn clients_need_not_say_who_they_are() {
    let files = Files::new();
    let server = start(&files.tls(None));
    assert!(is_answered(&server, &files.authority, None).await);
    assert!(!is_answered(&server, &Authority::new("others"), None).await, "the client does not trust the server");
    let in_the_clear = Channel::from_shared(format!("http://{}", server.address)).unwrap().connect().await;
    if let Ok(channel) = in_the_clear {
        assert!(HealthClient::new(channel).check(HealthCheckRequest::default()).await.is_err());
    }
}

#[tokio::test]
async fn clients_must_say_who_they_are() {
    let (files, clients) = (Files::new(), Authority::new("clients"));
    let server = start(&files.tls(Some(&clients)));
    for (name, identity, expected) in [
        ("as it should be", Some(clients.sign(4000)), true),
        ("none", None, false),
        ("expired", Some(clients.sign(2001)), false),
        ("of another authority", Some(Authority::new("strangers").sign(4000)), false),
        ("of the servers' authority", Some(files.authority.sign(4000)), false),
    ] {
        assert_eq!(is_answered(&server, &files.authority, identity).await, expected, "{name}");
    }
}

/// A client from another machine that TLS encrypts, with an identity or without one.
async fn refund(clients: Option<&Authority>, identity: Option<(String, String)>) -> Result<u32, String> {
    let (files, server) = (Files::new(), refunds::server());
    let address = server.afar(RlsOptions::default(), Some(files.tls(clients))).await;
    let pem = Certificate::from_pem(&files.authority.pem);
    let mut tls = ClientTlsConfig::new().ca_certificate(pem).domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Channel::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap();
    refunds::left_after_a_refund(endpoint.connect().await.unwrap()).await
}

#[tokio::test]
async fn a_certificate_lets_clients_give_units_back() {
    let clients = Authority::new("clients");
    assert_eq!(refund(Some(&clients), Some(clients.sign(4000))).await, Ok(3));
    let refused = refund(None, Some(clients.sign(4000))).await.unwrap_err();
    assert!(refused.contains("is_negative_hits"), "a certificate that nobody asked for says nothing: {refused}");
}

#[tokio::test]
async fn certificates_are_renewed_while_it_runs() {
    let mut files = Files::new();
    let tls = files.tls(None);
    let server = start(&tls);
    let old = std::mem::replace(&mut files.authority, Authority::new("successor"));
    files.renew();
    assert!(is_answered(&server, &old, None).await, "nothing changes by itself");
    tls.reload().unwrap();
    assert!(is_answered(&server, &files.authority, None).await);
    assert!(!is_answered(&server, &old, None).await);
    fs::write(files.path("server.key"), "").unwrap();
    tls.reload().unwrap_err();
    assert!(is_answered(&server, &files.authority, None).await, "bad files change nothing");
}

#[tokio::test]
async fn errors_name_the_file_and_what_is_wrong() {
    let files = Files::new();
    fs::write(files.path("empty"), "").unwrap();
    fs::write(files.path("broken"), "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    fs::write(files.path("other.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let mut lines = String::new();
    for (certificate, key, clients) in [
        ("missing", "server.key", None),
        ("empty", "server.key", None),
        ("server.key", "server.key", None),
        ("broken", "server.key", None),
        ("server.pem", "missing", None),
        ("server.pem", "server.pem", None),
        ("server.pem", "other.key", None),
        ("server.pem", "server.key", Some("empty")),
    ] {
        let client_authorities = clients.map(|name| files.file("--tls-client-ca", name));
        let (certificate, key) = (files.file("--tls-cert", certificate), files.file("--tls-key", key));
        let files = TlsFiles { certificate, key, client_authorities };
        lines += &format!("{}\n", Tls::load(files, Protocol::Grpc).unwrap_err());
    }
    insta::assert_snapshot!(lines.replace(&files.directory.path().display().to_string(), "DIR"));
}
