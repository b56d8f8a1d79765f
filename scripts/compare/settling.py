"""Waits until the background tasks of both servers have nothing to do at the present fake time.

They sleep in real time. On a busy machine a task may run long after its sleep has ended, so waiting for a time is not enough: after the
longest sleep every thread of both servers has to answer, which it does after it has run what was due.
"""

import time

import grpc_traffic
import resp_traffic
from processes import ProcessFailed
from wire import CONNECTIONS, Request

# The background task of leased and async rules sleeps this long while there is something to push.
NAP_SECONDS = 0.1

# Rounds without a call to Redis after which the tasks are at rest: one in which the task runs, one in which its calls are answered, and
# some more.
QUIET_ROUNDS = 4
ROUND_SECONDS = 0.005

SETTLE_SECONDS_MAX = 30


def turns():
    """Requests that every thread of a server answers, on all connections."""
    for connection in range(CONNECTIONS):
        yield Request("resp", "PING", resp_traffic.encode("PING"), connection=connection)
        yield Request("http", "GET /healthz", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", connection=connection)
        yield Request("grpc", grpc_traffic.HEALTH, b"", connection=connection)


def settle(sides, exchange):
    """Waits for the background tasks. `exchange` sends a request to both sides without comparing the answers."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    time.sleep(NAP_SECONDS * 1.1)
    calls, quiet = None, 0
    while quiet < QUIET_ROUNDS:
        for request in turns():
            exchange(request)
        time.sleep(ROUND_SECONDS)
        now = [side.redis_calls() for side in sides]
        quiet = quiet + 1 if now == calls else 0
        calls = now
        if time.monotonic() > deadline:
            raise ProcessFailed("timeout while waiting for the background tasks of a server")
