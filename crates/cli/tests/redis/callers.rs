//! Many callers at once, each of whom waits for its answer, over the protocol of Redis and over gRPC.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};

/// Callers that share a connection over gRPC: fewer than the server allows.
const CALLERS_A_CHANNEL: usize = 100;

/// The longest time that a test waits for all callers together.
const PATIENCE: Duration = Duration::from_secs(90);

/// The pause of a caller that was told that the node is overloaded.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp,
    Grpc,
}

/// An answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Passed,
    Denied,
    Overloaded,
}

/// What all callers together were answered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) overloaded: u64,
    /// How long each answer took.
    pub(crate) took: Vec<Duration>,
}

impl Answers {
    fn add(&mut self, answer: Answer, took: Duration) {
        match answer {
            Answer::Passed => self.passed += 1,
            Answer::Denied => self.denied += 1,
            Answer::Overloaded => self.overloaded += 1,
        }
        self.took.push(took);
    }

    fn join(&mut self, other: Answers) {
        self.passed += other.passed;
        self.denied += other.denied;
        self.overloaded += other.overloaded;
        self.took.extend(other.took);
    }

    /// Returns the time that 99 of 100 answers did not exceed.
    pub(crate) fn p99(&mut self) -> Duration {
        self.took.sort_unstable();
        self.took.get(self.took.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// Returns the counts and the 99th percentile of the times in a line.
    pub(crate) fn summary(&mut self) -> String {
        let p99 = self.p99();
        let Answers { passed, denied, overloaded, .. } = self;
        format!("{passed} passed, {denied} denied, {overloaded} overloaded, p99 {p99:.1?}")
    }
}

/// How long a caller goes on asking.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Until it is denied.
    Denied,
    /// For this long, whatever it is answered.
    Passed(Duration),
}

/// Lets this many callers, divided among the nodes, ask for one unit of a user's limit again and again, and returns what
/// they were answered. The user is that of the caller's number.
pub(crate) fn ask_all(
    protocol: Protocol,
    nodes: &[SocketAddr],
    callers: usize,
    user: impl Fn(usize) -> String,
    until: Until,
) -> Answers {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let asking = async {
        let mut tasks = JoinSet::new();
        let mut channels = Vec::new();
        // All are connected before the first of them asks.
        let mut clients = Vec::new();
        for number in 0..callers {
            let node = number % nodes.len();
            if protocol == Protocol::Grpc && (number / nodes.len()).is_multiple_of(CALLERS_A_CHANNEL) {
                channels.resize(nodes.len(), None);
                let endpoint = Endpoint::from_shared(format!("http://{}", nodes[node])).unwrap();
                channels[node] = Some(endpoint.connect().await.unwrap());
            }
            clients.push(match channels.get(node).cloned().flatten() {
                Some(channel) => Client::Grpc(RateLimitServiceClient::new(channel)),
                None => Client::Resp(BufReader::new(connect(nodes[node]).await)),
            });
        }
        for (number, client) in clients.into_iter().enumerate() {
            tasks.spawn(ask_again(client, user(number), until));
        }
        let mut all = Answers::default();
        while let Some(answers) = tasks.join_next().await {
            all.join(answers.unwrap());
        }
        all
    };
    let all = runtime.block_on(async { timeout(PATIENCE, asking).await });
    all.expect("the callers are not answered")
}

/// Connects, also if the server's queue of new connections is full for a moment.
async fn connect(address: SocketAddr) -> TcpStream {
    for _ in 0..100 {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                return stream;
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
    panic!("{address} takes no connection")
}

async fn ask_again(mut client: Client, user: String, until: Until) -> Answers {
    let (mut answers, start) = (Answers::default(), Instant::now());
    loop {
        let began = Instant::now();
        let answer = client.ask(&user).await.unwrap();
        answers.add(answer, began.elapsed());
        let is_over = match until {
            Until::Denied => answer == Answer::Denied,
            Until::Passed(time) => start.elapsed() >= time,
        };
        if is_over {
            return answers;
        }
        if answer == Answer::Overloaded {
            sleep(PAUSE).await;
        }
    }
}

enum Client {
    Resp(BufReader<TcpStream>),
    Grpc(RateLimitServiceClient<Channel>),
}

impl Client {
    async fn ask(&mut self, user: &str) -> io::Result<Answer> {
        match self {
            Client::Resp(stream) => ask_resp(stream, user).await,
            Client::Grpc(client) => Ok(ask_grpc(client, user).await),
        }
    }
}

async fn ask_resp(stream: &mut BufReader<TcpStream>, user: &str) -> io::Result<Answer> {
    stream.get_mut().write_all(format!("TIDEGATE.CHECK api user {user}\r\n").as_bytes()).await?;
    let first = line(stream).await?;
    if first.starts_with("-OVERLOADED ") {
        return Ok(Answer::Overloaded);
    }
    assert_eq!(first, "*6", "an answer that no rule chose");
    let limited = line(stream).await?;
    // Four numbers, and the name of the rule with its length.
    for _ in 0..6 {
        line(stream).await?;
    }
    Ok(if limited == ":0" { Answer::Passed } else { Answer::Denied })
}

async fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

async fn ask_grpc(client: &mut RateLimitServiceClient<Channel>, user: &str) -> Answer {
    let entry = Entry { key: "user".to_owned(), value: user.to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors: vec![descriptor], hits_addend: 1 };
    match client.should_rate_limit(request).await {
        Ok(response) if response.get_ref().overall_code == i32::from(Code::Ok) => Answer::Passed,
        Ok(_) => Answer::Denied,
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            assert!(status.message().contains("overloaded"), "{status:?}");
            Answer::Overloaded
        }
    }
}
