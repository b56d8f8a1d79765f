"""The two sides of a comparison: a Tidegate with its Redis each, all under one fake clock."""

import http.client
import mmap
import os
import signal
import struct
import subprocess
from pathlib import Path

import redis_servers
from processes import free_ports, stop, wait_for

HERE = Path(__file__).parent

# No window of a common length begins at this instant.
START_NANOS = 1_790_600_000_123_456_000

# The budget of a call to Redis, in real time. On a busy machine the default of 10 ms could be exceeded on one side alone, and that side
# would decide without its store.
CALL_TIME = "timeout=10s"

# The end of each log that is printed when a server fails.
LOG_BYTES_MAX = 2_000


class Clock:
    """The time of day of all processes, in a file that they map."""

    def __init__(self, directory):
        self.path = directory / "clock"
        self.path.write_bytes(bytes(8))
        with self.path.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), 8)
        self.set(START_NANOS)

    def set(self, nanos):
        self.nanos = nanos
        struct.pack_into("=Q", self.page, 0, nanos)

    def advance(self, nanos):
        self.set(self.nanos + nanos)


def build_clock(directory):
    """Compiles the library that replaces the clocks of a program."""
    library = directory / "clock.so"
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, HERE / "clock.c"]
    subprocess.run(command, check=True)
    return library


class Side:
    """A binary with its own Redis."""

    def __init__(self, name, binary, directory, clock, library):
        self.name = name
        self.binary = binary
        self.directory = directory / name
        self.directory.mkdir()
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")},
            "LD_PRELOAD": str(library),
            "COMPARE_CLOCK": str(clock.path),
        }
        self.tidegate = None
        self.servers = []
        # The last permit id that this side generated.
        self.permit = "0" * 32

    def start_redis(self):
        """Starts its Redis servers. A Cluster is ready later."""
        self.single = redis_servers.start_single(self.directory / "single", self.environment)
        self.servers.append(self.single)
        self.servers.append(redis_servers.start_cluster(self.directory / "cluster", self.environment))

    def start(self, policy, uses_redis, flags):
        """Starts Tidegate. If `uses_redis`, the default store is in Redis too."""
        self.write_policy(policy)
        _, cluster = self.servers
        url = f"redis+unix://{self.single.path}?{CALL_TIME}"
        environment = {
            **self.environment,
            "COMPARE_COUNTER": "1",
            "COMPARE_SHARED_URL": f"{url}&prefix=shared",
            "COMPARE_SECOND_URL": f"{url}&prefix=second&db=1",
            "COMPARE_CLUSTER_URL": f"redis+cluster://{cluster.url_host}?{CALL_TIME}",
            "COMPARE_GONE_URL": f"redis+unix://{self.directory}/nobody.sock",
        }
        self.http_port, self.grpc_port, self.resp_port = ports = free_ports(3)
        command = [self.binary, "serve", "--config", self.directory / "policy", "--drain-delay", "0", "--dynamic-metadata", *flags]
        for name, port in zip(["--http", "--grpc", "--resp"], ports):
            command += [name, f"127.0.0.1:{port}"]
        if uses_redis:
            command += ["--store", url]
        log = (self.directory / "tidegate.log").open("w")
        self.tidegate = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        wait_for(self.is_ready, self.tidegate, f"{self.name}: {self.binary}")

    def is_ready(self):
        """Returns True as soon as Tidegate is ready, else None."""
        link = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=1)
        try:
            link.request("GET", "/readyz")
            return link.getresponse().status == 200 or None
        except OSError:
            return None
        finally:
            link.close()

    def write_policy(self, policy):
        """Writes the files of a policy, a map from names to texts."""
        directory = self.directory / "policy"
        directory.mkdir(exist_ok=True)
        for name, text in policy.items():
            # The server watches the files: it must not see half of one.
            new = directory / f"{name}.new"
            new.write_text(text)
            new.replace(directory / name)

    def reload(self, policy):
        self.write_policy(policy)
        self.tidegate.send_signal(signal.SIGHUP)

    def redis_calls(self):
        """Returns the number of scripts that its Redis servers have run."""
        return sum(server.calls() for server in self.servers)

    def logs(self):
        """Returns the end of each log."""
        return [f"{path}:\n{path.read_text()[-LOG_BYTES_MAX:]}" for path in sorted(self.directory.rglob("*.log"))]

    def stop(self):
        """Ends all its processes."""
        if self.tidegate:
            stop(self.tidegate)
        for server in self.servers:
            server.stop()
