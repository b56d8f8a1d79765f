"""Requests of Envoy: its rate limit service over gRPC."""

from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import wrappers_pb2
from grpc_health.v1 import health_pb2

import subjects
from wire import CONNECTIONS, RATE_LIMIT, Request

HEALTH = "/grpc.health.v1.Health/Check"

Descriptor = ratelimit_pb2.RateLimitDescriptor
UNITS = range(9)

# `is_negative_hits`, which the messages of the package do not have yet.
NEGATIVE = b"\x20\x01"


def descriptor(dice, entries):
    """Makes a descriptor. Some have their own hits, some of these negative, or their own limit."""
    made = Descriptor(entries=[Descriptor.Entry(key=key, value=value) for key, value in entries])
    kind = dice.random()
    if kind < 0.15:
        made.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=subjects.cost(dice) or dice.randrange(4)))
        if dice.random() < 0.3:
            made.MergeFromString(NEGATIVE)
    elif kind < 0.22:
        limit = Descriptor.RateLimitOverride(requests_per_unit=dice.choice([0, 3, 6, 1 << 31]), unit=dice.choice(UNITS))
        made.limit.CopyFrom(limit)
    return made


def should_rate_limit(dice):
    of = subjects.domain(dice)
    listed = subjects.descriptors(dice, of)
    hits = subjects.cost(dice) or 0
    message = rls_pb2.RateLimitRequest(
        domain=of,
        descriptors=[descriptor(dice, entries) for entries in listed],
        hits_addend=hits if hits < 1 << 32 else (1 << 32) - 1,
    )
    return Request("grpc", RATE_LIMIT, message.SerializeToString(), subjects.keys_of(of, listed), dice.randrange(CONNECTIONS))


def should_rate_limit_of(dice, of, entries, units):
    """Makes a request of one descriptor."""
    made = Descriptor(entries=[Descriptor.Entry(key=key, value=value) for key, value in entries])
    made.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=units))
    message = rls_pb2.RateLimitRequest(domain=of, descriptors=[made])
    return Request("grpc", RATE_LIMIT, message.SerializeToString(), subjects.keys_of(of, [entries]), dice.randrange(CONNECTIONS))


def bad(dice):
    """Draws an invalid request, or one for another method."""
    entries = [("remote_address", "198.51.100.5")]
    of, listed = "edge", [entries]
    place, payload = RATE_LIMIT, None
    match dice.randrange(9):
        case 0:
            of = ""
        case 1:
            of = "nowhere"
        case 2:
            listed = []
        case 3:
            listed = [entries] * 65
        case 4:
            listed = [entries * 65]
        case 5:
            listed = [[("remote_address", "x" * 5_000)]]
        case 6:
            payload = b"\xff\xff\xff"
        case 7:
            place, payload = "/envoy.service.ratelimit.v3.RateLimitService/Nothing", b""
        case _:
            name = dice.choice(["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "nothing"])
            place, payload = HEALTH, health_pb2.HealthCheckRequest(service=name).SerializeToString()
    if payload is None:
        made = [Descriptor(entries=[Descriptor.Entry(key=key, value=value) for key, value in entries]) for entries in listed]
        payload = rls_pb2.RateLimitRequest(domain=of, descriptors=made).SerializeToString()
    return Request("grpc", place, payload, (), dice.randrange(CONNECTIONS))


def draw(dice):
    yield bad(dice) if dice.random() < 0.03 else should_rate_limit(dice)


def shown(place, body):
    """Renders an answer as text."""
    if place != RATE_LIMIT:
        return repr(body)
    answer = rls_pb2.RateLimitResponse()
    try:
        answer.MergeFromString(body)
    except Exception:
        return repr(body)
    return str(answer)
