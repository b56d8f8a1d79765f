"""What a gRPC client sees that was generated from Envoy's own messages. Prints one line an answer."""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from google.protobuf import wrappers_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

channel = grpc.insecure_channel(sys.argv[1])
limits = rls_pb2_grpc.RateLimitServiceStub(channel)
health = health_pb2_grpc.HealthStub(channel)
Descriptor = ratelimit_pb2.RateLimitDescriptor
Code = rls_pb2.RateLimitResponse.Code
UNIT = rls_pb2.RateLimitResponse.RateLimit.Unit


def descriptor(*entries, hits=None, refund=False, limit=None):
    """A descriptor; `hits` of its own may be 0, which only looks."""
    made = Descriptor(entries=[Descriptor.Entry(key=key, value=value) for key, value in entries])
    if hits is not None:
        made.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=hits))
    if refund:
        # `is_negative_hits`, which Envoy has and the messages of this package do not have yet.
        made.MergeFromString(b"\x20\x01")
    if limit:
        made.limit.CopyFrom(Descriptor.RateLimitOverride(requests_per_unit=limit, unit=UNIT.HOUR))
    return made


def ask(what, *descriptors, domain="edge", hits=0):
    request = rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits)
    try:
        answer = limits.ShouldRateLimit(request, timeout=5)
    except grpc.RpcError as error:
        print(f"{what}: {error.code().name} {error.details()}")
        return
    statuses = []
    for status in answer.statuses:
        text = Code.Name(status.code)
        if status.HasField("current_limit"):
            current = status.current_limit
            text += f" {current.name} {current.requests_per_unit}/{UNIT.Name(current.unit)}"
            text += f" remaining {status.limit_remaining}"
            text += " resets" if status.duration_until_reset.ToTimedelta().total_seconds() > 0 else ""
        statuses.append(text)
    print(f"{what}: {Code.Name(answer.overall_code)} [{', '.join(statuses)}]")


for service in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"]:
    status = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status
    print(f"health of {service!r}: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}")

address = ("remote_address", "198.51.100.7")
ask("first", descriptor(address))
ask("with cost", descriptor(address), hits=17)
ask("more than is left", descriptor(address), hits=3)
ask("look", descriptor(address, hits=0))
ask("refund", descriptor(address, hits=5, refund=True))
ask("after the refund", descriptor(address))
report = descriptor(address, ("path", "/reports/2026"))
ask("two descriptors", descriptor(address), report)
ask("no rule", descriptor(("colour", "red")))
ask("own limit", descriptor(("colour", "blue"), limit=2), hits=2)
ask("over the own limit", descriptor(("colour", "blue"), limit=2))
ask("unknown domain", descriptor(address), domain="nowhere")
ask("no domain", descriptor(address), domain="")
ask("no descriptors")
ask("own limit without a unit", Descriptor(entries=report.entries, limit=Descriptor.RateLimitOverride(requests_per_unit=1)))
