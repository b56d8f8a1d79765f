"""The protocols: sends requests, and reads answers in a form that can be compared."""

import re
import socket
from dataclasses import dataclass

import grpc
from envoy.service.ratelimit.v3 import rls_pb2

RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

ANSWER_SECONDS_MAX = 30

# A server that closes a connection does so at once, or after it has waited for the rest of a request.
END_SECONDS_MAX = 20

# Stands for the last permit id that a side generated, and is as long.
PERMIT = "last-generated-permit-id-of-side"

# Connections of each protocol: more than threads, so that each thread of a server answers some.
CONNECTIONS = 3


@dataclass(slots=True)
class Request:
    """A request, which both sides get."""

    door: str
    # The call, like `POST /v1/check`.
    place: str
    # Bytes to send.
    payload: bytes
    # The keys it is about, to find earlier requests about them.
    keys: tuple = ()
    connection: int = 0
    # RESP: the number of replies.
    replies: int = 1
    # Whether the server ends the connection after its answer.
    closes: bool = False
    # Parts that differ by nature: `permit`, `connection` or `info`.
    mask: str = ""


@dataclass(slots=True, eq=True)
class Answer:
    """An answer, without the parts that are not compared."""

    # The status of HTTP or gRPC; for RESP the type of the reply.
    status: str
    # Whether the request may pass; None if the call decides nothing.
    allowed: bool | None
    # Headers, sorted, or trailers.
    head: tuple
    body: bytes
    # Whether the server closed the connection.
    closed: bool = False

    def lines(self, start=0):
        """Renders the answer, its body from `start` on."""
        head = [f"{name}: {value}" for name, value in self.head]
        return [f"status {self.status}{', closed' if self.closed else ''}", *head, ("…" if start else "") + repr(self.body[start:])]


# Calls that return documentation.
DESCRIPTIONS = {"GET /", "HEAD /", "GET /openapi.json", "HEAD /openapi.json", "COMMAND"}

# Members of `application/problem+json` that are prose.
PROSE = rb'"(?:title|detail)":"(?:[^"\\]|\\.)*",?'


def without_wording(request, answer):
    """Returns the answer without prose: without error messages, documentation, and the length of the body."""
    head = tuple((name, value) for name, value in answer.head if "content-length" not in name)
    body = answer.body
    if request.place in DESCRIPTIONS or (request.door == "grpc" and answer.status != "OK"):
        body = b""
    elif request.door == "resp":
        body = re.sub(rb"^-(\w+)[^\r\n]*", rb"-\1", body, flags=re.MULTILINE)
    elif ("content-type", "application/problem+json") in head:
        body = re.sub(PROSE, b"", body)
    return Answer(answer.status, answer.allowed, head, body, answer.closed)


class Link:
    """A TCP connection that is opened again after it has ended."""

    def __init__(self, port):
        self.port = port
        self.socket = None
        self.buffer = b""

    def send(self, payload):
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS_MAX)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.buffer = b""
        try:
            self.socket.sendall(payload)
        except (BrokenPipeError, ConnectionResetError):
            # The server refused the request before it was sent completely: its answer can still be read.
            pass

    def more(self):
        """Reads more bytes. Returns False at the end, and closes the connection."""
        if self.socket is None:
            return False
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            self.close()
        self.buffer += data
        return bool(data)

    def until(self, mark):
        """Reads up to and including a mark, or to the end if there is none."""
        while (at := self.buffer.find(mark)) < 0:
            if not self.more():
                return self.take(len(self.buffer))
        return self.take(at + len(mark))

    def exactly(self, count):
        while len(self.buffer) < count and self.more():
            pass
        return self.take(count)

    def take(self, count):
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def ends(self):
        """Whether the server closes the connection now. It is closed in any case."""
        if self.socket:
            self.socket.settimeout(END_SECONDS_MAX)
        try:
            return not self.more()
        except TimeoutError:
            return False
        finally:
            self.close()


class Doors:
    """All connections to one server."""

    def __init__(self, side):
        self.side = side
        self.http = [Link(side.http_port) for _ in range(CONNECTIONS)]
        self.resp = [Link(side.resp_port) for _ in range(CONNECTIONS)]
        # Channels with a common pool would share one connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self.grpc = [grpc.insecure_channel(f"127.0.0.1:{side.grpc_port}", options) for _ in range(CONNECTIONS)]
        self.calls = {}
        self.pending = None

    def send(self, request):
        payload = request.payload
        if request.mask == "permit":
            payload = payload.replace(PERMIT.encode(), self.side.permit.encode())
        if request.door == "grpc":
            self.pending = self.call(request)(payload, timeout=ANSWER_SECONDS_MAX)
        else:
            links = self.http if request.door == "http" else self.resp
            links[request.connection].send(payload)

    def call(self, request):
        key = (request.connection, request.place)
        if key not in self.calls:
            self.calls[key] = self.grpc[request.connection].unary_unary(request.place).future
        return self.calls[key]

    def receive(self, request):
        match request.door:
            case "http":
                return self.receive_http(request)
            case "resp":
                return self.receive_resp(request)
            case _:
                return self.receive_grpc(request)

    def receive_http(self, request):
        link = self.http[request.connection]
        head = link.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head[1:] if line]
        named = {name.lower(): value for name, *value in headers for value in value}
        status = head[0].split(" ")[1] if " " in head[0] else head[0]
        closes = named.get("connection") == "close"
        if request.place.startswith("HEAD "):
            body = b""
        elif "content-length" in named:
            body = link.exactly(int(named["content-length"]))
        else:
            body = b"" if status == "204" else until_end(link)
        closed = (closes or request.closes or not head[0]) and link.ends()
        if request.mask == "permit":
            if found := re.search(rb'"id":"([0-9a-f]{32})"', body):
                self.side.permit = found[1].decode()
            body = re.sub(rb"[0-9a-f]{32}", b"<id>", body)
        shown = ((name.lower(), *value) for name, *value in headers if name.lower() != "date")
        allowed = {"200": True, "201": True, "429": False, "403": False, "503": False}.get(status)
        return Answer(status, allowed, tuple(sorted(shown)), body, closed)

    def receive_resp(self, request):
        link = self.resp[request.connection]
        replies = [read_reply(link) for _ in range(request.replies)]
        closed = request.closes and link.ends()
        body = b"".join(replies)
        if request.mask == "connection":
            body = re.sub(rb"addr=[0-9.:]+", b"addr=<address>", body)
            body = re.sub(rb"^\$\d+", b"$<length>", body)
        elif request.mask == "info":
            body = b" ".join(re.findall(rb"^([a-z_]+):", body, re.MULTILINE))
        elif request.mask == "permit":
            if found := re.search(rb"([0-9a-f]{32})\r\n", body):
                self.side.permit = found[1].decode()
            body = re.sub(rb"[0-9a-f]{32}", b"<id>", body)
        first = re.match(rb"\*\d+\r\n:([01])\r\n", body)
        allowed = first[1] == b"0" if first else None
        return Answer(chr(body[0]) if body else "", allowed, (), body, closed)

    def receive_grpc(self, request):
        call, self.pending = self.pending, None
        # Waits for the end of the call.
        status = call.code()
        body = call.result() if status == grpc.StatusCode.OK else (call.details() or "").encode()
        head = [*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())]
        shown = (("trailer " + name, str(value)) for name, value in head if name != "date")
        allowed = None
        if status == grpc.StatusCode.OK and request.place == RATE_LIMIT:
            answer = rls_pb2.RateLimitResponse.FromString(body)
            allowed = answer.overall_code == answer.OK
            # Maps have no order on the wire.
            body = answer.SerializeToString(deterministic=True)
        return Answer(status.name, allowed, tuple(sorted(shown)), body)

    def close(self):
        for link in self.http + self.resp:
            link.close()
        for channel in self.grpc:
            channel.close()


def until_end(link):
    while link.more():
        pass
    return link.take(len(link.buffer))


def read_reply(link):
    """Reads one RESP reply, with all its members, and returns its bytes."""
    line = link.until(b"\r\n")
    kind, count = line[:1], line[1:-2]
    if not line.endswith(b"\r\n"):
        return line
    if kind in b"$=!" and count != b"-1":
        return line + link.exactly(int(count) + 2)
    if kind in b"*~>%":
        members = max(int(count), 0) * (2 if kind == b"%" else 1)
        return line + b"".join(read_reply(link) for _ in range(members))
    return line
