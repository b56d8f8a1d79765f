//! Who may give units back.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::RlsOptions;
use tonic::Code;
use tonic::transport::Channel;

use super::{Server, descriptor, hits, request};

const RULES: &str =
    "domains: {edge: {rules: [{name: user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 3/minute}]}}";

/// Takes a unit, tries to give it back, and tells what is left, or why it was refused.
pub(super) async fn left_after_a_refund(channel: Channel) -> Result<u32, String> {
    let mut client = RateLimitServiceClient::new(channel);
    let mut refund = hits(1, descriptor(&[("user", "ann")]));
    refund.is_negative_hits = true;
    client.should_rate_limit(request("edge", vec![descriptor(&[("user", "ann")])])).await.unwrap();
    // The refund is not the first of its request, and none of the others must count.
    let refunded = client.should_rate_limit(request("edge", vec![descriptor(&[("user", "bob")]), refund])).await;
    let looked = vec![hits(0, descriptor(&[("user", "ann")])), hits(0, descriptor(&[("user", "bob")]))];
    let looked = client.should_rate_limit(request("edge", looked)).await.unwrap().into_inner();
    let left: Vec<u32> = looked.statuses.iter().map(|status| status.limit_remaining).collect();
    match refunded {
        Ok(_) => Ok(left[0]),
        Err(status) => {
            assert_eq!((status.code(), left), (Code::PermissionDenied, vec![2, 3]));
            Err(status.message().to_owned())
        }
    }
}

pub(super) fn server() -> Server {
    Server::start(RULES)
}

async fn connect(address: std::net::SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn strangers_give_nothing_back() {
    let server = server();
    let afar = server.afar(RlsOptions::default(), None).await;
    assert_eq!(
        left_after_a_refund(connect(afar).await).await,
        Err("descriptors[1].is_negative_hits: this client may not give units back; use a client certificate, connect \
             from this machine, or start the server with --grpc-refunds"
            .to_owned())
    );
}

#[tokio::test]
async fn this_machine_may() {
    let server = server();
    assert_eq!(left_after_a_refund(connect(server.address).await).await, Ok(3));
}

#[tokio::test]
async fn all_may_if_the_server_says_so() {
    let server = server();
    let afar = server.afar(RlsOptions { refunds: true, ..RlsOptions::default() }, None).await;
    assert_eq!(left_after_a_refund(connect(afar).await).await, Ok(3));
}
