//! TLS on every listener, with the clients that people use: who gets in, and with which certificates.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ::tidegate::Clock;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tempfile::TempDir;
use tidegate_testkit::authority::Authority;
use tidegate_testkit::process::{command, directory};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

/// A directory with certificates of a server and of clients, of one authority each.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        let files = Files { directory: directory() };
        files.sign("server", &Authority::new("servers"));
        files.sign("client", &Authority::new("clients"));
        files.sign("stranger", &Authority::new("strangers"));
        files
    }

    /// Writes a certificate with this name, its key, and its authority.
    fn sign(&self, name: &str, authority: &Authority) {
        write(self.directory.path(), name, authority);
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

fn write(directory: &Path, name: &str, authority: &Authority) {
    let (certificate, key) = authority.sign(4000);
    fs::write(directory.join(format!("{name}.pem")), certificate).unwrap();
    fs::write(directory.join(format!("{name}.key")), key).unwrap();
    fs::write(directory.join(format!("{name}-ca.pem")), &authority.pem).unwrap();
}

/// A client that trusts the server, and shows the certificate with a name if there is one.
struct Client<'a> {
    files: &'a Files,
    shows: Option<&'a str>,
}

impl Client<'_> {
    /// What a program needs to be told, by its own names of authority, certificate and key.
    fn arguments(&self, flags: [&str; 3]) -> Vec<String> {
        let mut all = vec![flags[0].to_owned(), self.files.path("server-ca.pem")];
        if let Some(name) = self.shows {
            all.extend([flags[1].to_owned(), self.files.path(&format!("{name}.pem"))]);
            all.extend([flags[2].to_owned(), self.files.path(&format!("{name}.key"))]);
        }
        all
    }

    fn http(&self, tidegate: &Tidegate) -> bool {
        let arguments = self.arguments(["--cacert", "--cert", "--key"]);
        let mut curl = command("curl", &["--silent", "--fail"]);
        let url = format!("https://localhost:{}/v1/check?key=user:42&rate=5/minute", tidegate.http.port());
        let answer = curl.args(arguments).arg(url).output().unwrap();
        String::from_utf8_lossy(&answer.stdout).contains("\"allowed\":true")
    }

    fn resp(&self, tidegate: &Tidegate) -> bool {
        prints(self.redis_cli(tidegate).arg("PING"), "PONG")
    }

    fn redis_cli(&self, tidegate: &Tidegate) -> Command {
        let port = tidegate.resp.port().to_string();
        let mut command = command("redis-cli", &["-h", "localhost", "-p", &port, "--tls"]);
        command.args(self.arguments(["--cacert", "--cert", "--key"]));
        command
    }

    fn grpc(&self, tidegate: &Tidegate) -> bool {
        let read = |name: &str| fs::read(self.files.path(name)).unwrap();
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("server-ca.pem")));
        if let Some(name) = self.shows {
            let identity = Identity::from_pem(read(&format!("{name}.pem")), read(&format!("{name}.key")));
            tls = tls.identity(identity);
        }
        let url = format!("https://localhost:{}", tidegate.grpc.port());
        let connect = async {
            let channel = Channel::from_shared(url).unwrap().tls_config(tls).unwrap().connect().await.ok()?;
            let mut client = RateLimitServiceClient::new(channel);
            client.should_rate_limit(request()).await.ok()
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(connect).is_some()
    }

    /// Whether it is answered on HTTP, gRPC and RESP.
    fn is_answered(&self, tidegate: &Tidegate) -> [bool; 3] {
        [self.http(tidegate), self.grpc(tidegate), self.resp(tidegate)]
    }
}

fn request() -> RateLimitRequest {
    let entry = Entry { key: "user".to_owned(), value: "ann".to_owned() };
    let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }];
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

fn prints(command: &mut Command, expected: &str) -> bool {
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim() == expected
}

#[test]
fn one_certificate_serves_all_listeners() {
    let files = Files::new();
    let (certificate, key, clients) = (files.path("server.pem"), files.path("server.key"), files.path("client-ca.pem"));
    let arguments = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &clients];
    let tidegate = Tidegate::start(&arguments[..4]);
    let anybody = Client { files: &files, shows: None };
    assert_eq!(anybody.is_answered(&tidegate), [true; 3], "clients need not say who they are");
    let tidegate = Tidegate::start(&arguments);
    assert_eq!(anybody.is_answered(&tidegate), [false; 3], "no certificate");
    let known = Client { files: &files, shows: Some("client") };
    assert_eq!(known.is_answered(&tidegate), [true; 3]);
    let stranger = Client { files: &files, shows: Some("stranger") };
    assert_eq!(stranger.is_answered(&tidegate), [false; 3], "a certificate of another authority");
}

#[test]
fn a_listener_may_have_files_of_its_own() {
    let files = Files::new();
    let (certificate, key, clients) = (files.path("server.pem"), files.path("server.key"), files.path("client-ca.pem"));
    let (anybody, known) = (Client { files: &files, shows: None }, Client { files: &files, shows: Some("client") });
    for (number, listener) in ["http", "grpc", "resp"].into_iter().enumerate() {
        let flag = |name: &str| format!("--{listener}-tls-{name}");
        let mut only = [false; 3];
        only[number] = true;
        let tidegate = Tidegate::start(&[&flag("cert"), &certificate, &flag("key"), &key]);
        assert_eq!(anybody.is_answered(&tidegate), only, "the others are in the clear");
        let of_all = ["--tls-cert", &certificate, "--tls-key", &key];
        let tidegate = Tidegate::start(&[&of_all[..], &[&flag("client-ca"), &clients]].concat());
        assert_eq!(anybody.is_answered(&tidegate), only.map(|is_it| !is_it), "the others take anybody");
        assert_eq!(known.is_answered(&tidegate), [true; 3]);
    }
}

#[test]
fn long_pipelines_get_through_tls() {
    let files = Files::new();
    let tidegate = Tidegate::start(&["--tls-cert", &files.path("server.pem"), "--tls-key", &files.path("server.key")]);
    let commands = files.path("commands");
    fs::write(&commands, "CL.THROTTLE k 1000000 1 1\r\n".repeat(50_000)).unwrap();
    let mut client = Client { files: &files, shows: None }.redis_cli(&tidegate);
    let output = client.arg("--pipe").stdin(fs::File::open(commands).unwrap()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("errors: 0, replies: 50000"), "{said}");
}

/// A directory as Kubernetes lays out a secret: its files are links into a directory that is a link itself.
struct Secret {
    files: Files,
}

impl Secret {
    fn new() -> Secret {
        let secret = Secret { files: Files { directory: directory() } };
        secret.swap("first");
        for name in ["server.pem", "server.key", "server-ca.pem", "client.pem", "client.key", "client-ca.pem"] {
            symlink(Path::new("..data").join(name), secret.files.path(name)).unwrap();
        }
        secret
    }

    /// Makes new certificates of new authorities in a directory of this name, and puts that in the place of the one before.
    fn swap(&self, name: &str) {
        let root = self.files.directory.path();
        fs::create_dir(root.join(name)).unwrap();
        write(&root.join(name), "server", &Authority::new(name));
        write(&root.join(name), "client", &Authority::new(name));
        symlink(name, root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
    }

    /// Writes over the files that are there.
    fn overwrite(&self) {
        for name in ["server", "client"] {
            write(&self.files.directory.path().join("..data"), name, &Authority::new("overwritten"));
        }
    }
}

#[test]
fn renewed_certificates_and_authorities_are_in_force_within_two_seconds() {
    let secret = Secret::new();
    let path = |name: &str| secret.files.path(name);
    let (certificate, key, clients) = (path("server.pem"), path("server.key"), path("client-ca.pem"));
    let tidegate = Tidegate::start(&["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &clients]);
    let known = Client { files: &secret.files, shows: Some("client") };
    assert_eq!(known.is_answered(&tidegate), [true; 3]);
    let loaded = || tidegate.process.log().matches("certificates loaded").count();
    let clock = Clock::system();
    let renewals: [&dyn Fn(); 2] = [&|| secret.swap("second"), &|| secret.overwrite()];
    for (number, renew) in renewals.into_iter().enumerate() {
        renew();
        let start = clock.now().as_nanos();
        assert!(eventually(|| loaded() == 3 * (number + 2)), "{}", tidegate.process.log());
        let took = Duration::from_nanos(clock.now().as_nanos() - start);
        assert!(took < Duration::from_secs(2), "{took:?}");
        // Neither side knows the other's authority of before.
        assert_eq!(known.is_answered(&tidegate), [true; 3]);
    }
}
