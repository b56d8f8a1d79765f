//! Whether load balancers hear how the server is.

use tidegate_server::RlsOptions;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

use super::Server;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap()
}

fn named(name: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: name.to_owned() }
}

#[tokio::test]
async fn checks_follow_at_once() {
    let server = Server::start("domains: {}");
    let mut client = HealthClient::new(channel(&server).await);
    for (is_ready, expected) in [(true, ServingStatus::Serving), (false, ServingStatus::NotServing)] {
        server.service.set_ready(is_ready);
        for name in ["", "ratelimit", SERVICE] {
            assert_eq!(client.check(named(name)).await.unwrap().into_inner().status(), expected, "{name}");
        }
    }
    assert_eq!(client.check(named("other")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn watchers_hear_of_changes_and_are_let_go() {
    let server = Server::start("domains: {}");
    let mut client = HealthClient::new(channel(&server).await);
    let mut stream = client.watch(named("ratelimit")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let mut unknown = client.watch(named("other")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    server.service.set_ready(false);
    server.drainer.start();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(stream.message().await.unwrap().is_none(), "the stream ends");
    server.drainer.finished().await;
}

#[tokio::test]
async fn tools_learn_of_the_service_if_they_may() {
    let reflected =
        |is_on| Server::with("domains: {}", Default::default(), RlsOptions { reflection: is_on, ..Default::default() });
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let server = reflected(true);
    let mut client = ServerReflectionClient::new(channel(&server).await);
    let questions = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol(SERVICE.to_owned()),
        MessageRequest::FileByFilename("google/protobuf/duration.proto".to_owned()),
    ];
    let mut answers = client.server_reflection_info(tokio_stream::iter(questions.map(ask))).await.unwrap().into_inner();
    let mut next = async || answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = next().await else { panic!("no list") };
    assert!(list.service.contains(&ServiceResponse { name: SERVICE.to_owned() }), "{list:?}");
    for _ in 0..2 {
        assert!(matches!(next().await, MessageResponse::FileDescriptorResponse(_)));
    }
    let without = reflected(false);
    let mut client = ServerReflectionClient::new(channel(&without).await);
    let refused = client.server_reflection_info(tokio_stream::iter([])).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
}
