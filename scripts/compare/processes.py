"""Processes that a run starts, waits for and ends."""

import socket
import subprocess
import time

START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 30


class ProcessFailed(Exception):
    """A process ended, or did not answer in time."""


def wait_for(attempt, process, name):
    """Repeats an attempt until it returns something."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if (result := attempt()) is not None:
            return result
        time.sleep(0.01)
    raise ProcessFailed(f"{name} is not ready, or has ended")


def stop(process):
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count):
    """Returns ports that are free at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
