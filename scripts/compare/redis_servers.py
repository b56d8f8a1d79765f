"""The Redis servers of a side: a single one, and a Cluster of one node, where each limit has its own slot."""

import re
import socket
import subprocess

from processes import ProcessFailed, free_ports, stop, wait_for

SLOTS_LAST = 16_383

# How far the fake clock moves while a Cluster is waited for: a node takes writes two seconds after its start.
CLUSTER_STEP_NANOS = 500_000_000


class Redis:
    """A Redis server that listens on a socket of its directory."""

    def __init__(self, directory, environment, *settings, is_cluster=False):
        directory.mkdir()
        self.is_cluster = is_cluster
        self.path = directory / "redis.sock"
        self.environment = environment
        self.log = directory / "redis.log"
        self.command = ["redis-server", "--unixsocket", self.path, "--save", "", "--dir", directory, *settings]
        self.start()

    def start(self):
        """Starts it, without any key."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        self.link = wait_for(self.connect, self.process, "redis-server")

    def connect(self):
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(str(self.path))
        except OSError:
            link.close()
            return None
        return link

    def ask(self, command):
        """Sends a command and returns the text of its reply, which is one line or one bulk string."""
        self.link.sendall(command.encode() + b"\r\n")
        reply = b""
        while not is_whole(reply):
            more = self.link.recv(65_536)
            if not more:
                raise ProcessFailed("redis-server")
            reply += more
        return reply.decode()

    def calls(self):
        """Returns the number of scripts that it has run."""
        found = re.search(r"cmdstat_evalsha:calls=(\d+)", self.ask("INFO commandstats"))
        return int(found[1]) if found else 0

    def stop(self):
        self.link.close()
        stop(self.process)


def start_single(directory, environment):
    return Redis(directory, environment, "--port", "0")


def start_cluster(directory, environment):
    """Starts a Cluster node that owns all slots. `url_host` is where clients find it."""
    port, bus = free_ports(2)
    settings = ["--port", str(port), "--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-announce-ip", "127.0.0.1"]
    node = Redis(directory, environment, "--bind", "127.0.0.1", *settings, is_cluster=True)
    node.ask(f"CLUSTER ADDSLOTSRANGE 0 {SLOTS_LAST}")
    node.url_host = f"127.0.0.1:{port}"
    return node


def wait_for_clusters(nodes, clock):
    """Waits until all Cluster nodes take writes, and sets the clock back."""
    start = clock.nanos

    def are_ready():
        clock.advance(CLUSTER_STEP_NANOS)
        return all("cluster_state:ok" in node.ask("CLUSTER INFO") for node in nodes) or None

    wait_for(are_ready, nodes[0].process, "the Redis Cluster")
    clock.set(start)


def is_whole(reply):
    """Whether a reply of one line or one bulk string is complete."""
    head, end, body = reply.partition(b"\r\n")
    return bool(end) and (not head.startswith(b"$") or len(body) == int(head[1:]) + 2)
