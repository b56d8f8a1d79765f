"""Compares the answers of two builds of Tidegate to the same requests. `make compare BEFORE=path/to/old/tidegate` runs it.

Each binary has its own Redis and Redis Cluster. All processes share one fake clock (clock.c), which stands still while a request is
answered and is moved between requests, also past the ends of windows. Both binaries get the same requests, generated from a seed, over
HTTP, the protocol of Redis and Envoy's. The policy (policy/) uses every feature of the configuration. A run has three courses: counts in
memory, counts in Redis, and all rules in shadow mode. During a course rules are switched, the configuration is reloaded and Redis fails.

Answers are compared as a whole: status, headers, body and every number. At the end of a course the counts of all rules are compared.
A difference is printed with both answers and the previous requests about the same keys, and the exit code is 1. Answers that differ in
only the wording of texts (error messages, documentation) are listed at the end; the exit code is 1 for them too, unless --allow-rewording is given.

Not compared:
- `date` headers, permit ids that a server generates, addresses, process ids: they always differ.
- Times, and metrics of calls to Redis: they are measured in real time or depend on when background tasks run.
- Concurrent requests: requests are sent one by one, because the order of concurrent ones is not known.
- Full stores, which count further keys approximately: the places of keys depend on a seed that each process generates.
- The moments at which Redis fails and comes back: they are real time. Redis ends and starts again while no request is under way, and
  the run goes on when both servers have noticed. A store that never answers is compared too.

Leased and async rules call Redis from a background task, in real time. Their requests are therefore sent in blocks: the clock stands still
in each round of a block, and after each step of the clock the run waits until both servers make no more calls. So each background call is
made at the same fake time on both sides, and these rules are compared as strictly as all others. What a node remembers of a key between
blocks depends on how often its background task ran, so each block has its own keys.
"""

import argparse
import platform
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import files
import report
import resp_traffic
import sides
import traffic
from processes import ProcessFailed
from redis_servers import wait_for_clusters
from settling import settle
from wire import Doors, Request, without_wording

# The run stops at this number of differences: later ones mostly follow from the first.
DIFFERENCES_MAX = 5

# Metrics that count decisions.
COUNTED = re.compile(
    r"tidegate_(decisions_total|store_failures_total|reported_units_total|rule_mode|permits_total|requests_total|http_responses_total"
    r"|unknown_domain_total|unmatched_total|auth_failures_total|expression_errors_total|undecided_total|fallbacks_total)"
    r"|ratelimit_service_(rate_limit_|total_requests|should_rate_limit_error|config_load_error)"
)

# Breakers of the stores in the single Redis.
BREAKER = re.compile(r'tidegate_store_breaker\{store="(?:default|shared|second)",.*\} (\d)')
BREAKER_CLOSED = "0"
BREAKER_OPEN = "2"

WAIT_SECONDS_MAX = 20


class Course(NamedTuple):
    """A part of the run, with its own servers."""

    name: str
    share: float
    # Whether the default store is Redis.
    uses_redis: bool
    flags: tuple[str, ...] = ()
    # Texts of the policy that are replaced.
    variant: dict[str, str] = {}


COURSES = [
    Course("memory", 0.45, False),
    Course("redis", 0.45, True),
    Course("shadow", 0.1, False, ("--shadow", "--envoy-algorithm", "gcra"), files.BY_HOPS),
]


class TooManyDifferences(Exception):
    """The run stops."""


class Comparison:
    """One course: asks both sides and compares their answers."""

    def __init__(self, pair, clock, summary, ignored):
        self.ignored = ignored
        self.pair = pair
        self.clock = clock
        self.summary = summary
        self.history = report.History()
        self.doors = [Doors(side) for side in pair]
        self.differences = 0
        self.number = 0
        self.primed = 0
        # Each side may have been asked a different number of times whether it is ready.
        self.counted = [counted(page) for page in self.page("/metrics")]

    def ask(self, request):
        """Sends a request to both sides and compares the answers."""
        answers = self.exchange(request)
        self.number += 1
        before, after = answers
        self.summary.add(request, before)
        if before != after:
            self.judge(request, answers)
        self.history.add(self.number, self.clock.nanos, request, before)
        return answers

    def exchange(self, request):
        """Sends a request to both sides and returns the answers."""
        for doors in self.doors:
            doors.send(request)
        return [doors.receive(request) for doors in self.doors]

    def judge(self, request, answers):
        """Reports a difference, unless only prose differs."""
        if request.place in self.ignored:
            return
        before, after = (without_wording(request, answer) for answer in answers)
        if before == after:
            self.summary.add_wording(request, answers)
        else:
            self.tell(request, answers)

    def tell(self, request, answers):
        self.differences += 1
        names = [side.name for side in self.pair]
        for line in report.difference(self.number, self.clock.nanos, request, answers, names, self.history):
            print(line)
        sys.stdout.flush()
        if self.differences >= DIFFERENCES_MAX:
            raise TooManyDifferences

    def settle(self):
        """Waits for the background tasks of both servers. A new key of an async rule wakes them."""
        self.primed += 1
        for _ in range(2):
            payload = resp_traffic.encode("TIDEGATE.CHECK", "eased", "rule", "primer", "user", f"p{self.primed}")
            self.ask(Request("resp", "TIDEGATE.CHECK", payload))
        settle(self.pair, self.exchange)

    def page(self, path):
        """Gets a page of each side."""
        return [answer.body.decode() for answer in self.exchange(Request("http", f"GET {path}", get(path)))]

    def reload(self, policies):
        """Makes both sides load other files, and waits until they have."""
        before = [loads(page) for page in self.page("/metrics")]
        for side, policy in zip(self.pair, policies):
            side.reload(policy)
        self.wait_for(lambda pages: all(loads(page) > then for page, then in zip(pages, before)), "the new configuration")

    def wait_for_breakers(self, state):
        """Waits until all stores in the single Redis have a breaker in this state."""
        self.wait_for(lambda pages: all(set(BREAKER.findall(page)) == {state} for page in pages), f"breakers in state {state}")

    def wait_for(self, is_done, what):
        """Waits for something that the metrics of both sides show."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_done(self.page("/metrics")):
            if time.monotonic() > deadline:
                raise ProcessFailed(f"timeout while waiting for {what}")
            time.sleep(0.01)

    def run(self, steps, variants):
        """Runs all steps. `variants` are pairs of policies, which reloads go through in turn."""
        for step in steps:
            match step:
                case traffic.Advance():
                    self.clock.advance(step.nanos)
                case traffic.Settle():
                    self.settle()
                case traffic.Outage():
                    for side in self.pair:
                        side.single.stop()
                    self.wait_for_breakers(BREAKER_OPEN)
                case traffic.Recovery():
                    for side in self.pair:
                        side.single.start()
                    self.wait_for_breakers(BREAKER_CLOSED)
                case traffic.Reload():
                    variants = variants[1:] + variants[:1]
                    self.reload(variants[0])
                case _:
                    self.ask(step)

    def check_clock(self):
        """Makes sure that both servers use the fake clock."""
        time.sleep(0.05)
        answers = self.ask(Request("resp", "TIME", resp_traffic.encode("TIME")))
        seconds, micros = divmod(self.clock.nanos // 1_000, 1_000_000)
        expected = resp_traffic.encode(seconds, micros)
        for side, answer in zip(self.pair, answers):
            if answer.body != expected:
                raise SystemExit(f"{side.name} does not use the fake clock: TIME is {answer.body!r}, not {expected!r}")

    def finish(self):
        """Compares the counts of all rules."""
        self.settle()
        rules = self.ask(Request("http", "GET /v1/rules", get("/v1/rules")))
        self.summary.add_rules(rules[0].body)
        before, after = (since(then, counted(now)) for then, now in zip(self.counted, self.page("/metrics")))
        for name in sorted(before.keys() | after.keys()):
            counts = before.get(name), after.get(name)
            if None in counts:
                self.summary.series_of_one.append(name)
            elif counts[0] != counts[1]:
                self.differences += 1
                print(f"DIFFERENCE in {name}: BEFORE {counts[0]:.0f}, AFTER {counts[1]:.0f}")

    def close(self):
        for doors in self.doors:
            doors.close()


def loads(metrics):
    found = re.search(r'tidegate_config_loads_total\{result="success"\} (\d+)', metrics)
    return int(found[1]) if found else 0


def counted(metrics):
    """Returns the counts of decisions, by the name of the series."""
    lines = (line.rsplit(" ", 1) for line in metrics.splitlines() if COUNTED.match(line))
    return {name: float(count) for name, count in lines}


def since(then, now):
    """Subtracts earlier counts."""
    return {name: count - then.get(name, 0) for name, count in now.items()}


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compare the answers of two builds of Tidegate to the same requests. The exit code is 1 if they differ.")
    parser.add_argument("before", type=Path, help="the reference binary")
    parser.add_argument("after", type=Path, help="the binary to compare")
    parser.add_argument("--requests", type=int, default=200_000, help="number of requests")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random requests")
    parser.add_argument("--threads", type=int, default=2, help="worker threads per server")
    for side in ("before", "after"):
        help_text = f"directory with the policy of {side.upper()}, if the two builds need different file formats"
        parser.add_argument(f"--policy-{side}", type=Path, default=files.POLICY, help=help_text)
    parser.add_argument("--allow-rewording", action="store_true", help="exit with 0 if only the wording of texts differs")
    parser.add_argument("--ignore", action="append", default=[], metavar="CALL", help="do not compare this call, such as `GET /v1/rules`; can be repeated")
    parser.add_argument("--alter", nargs=2, metavar=("OLD", "NEW"), help="replace OLD with NEW in the policy of AFTER, to check that differences are found")
    arguments = parser.parse_args()
    for binary in (arguments.before, arguments.after):
        if not binary.is_file():
            parser.error(f"{binary}: no such file")
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        parser.error("the fake clock needs Linux on x86-64")
    return arguments


def main():
    arguments = parse_arguments()
    start = time.monotonic()
    summary, differences = report.Summary(), 0
    alter = dict([arguments.alter]) if arguments.alter else {}
    policies = [files.read(arguments.policy_before), files.replace(files.read(arguments.policy_after), alter)]
    with tempfile.TemporaryDirectory(prefix="tidegate-compare-") as directory:
        directory = Path(directory)
        library = sides.build_clock(directory)
        for number, course in enumerate(COURSES):
            steps = traffic.steps(arguments.seed * len(COURSES) + number, round(arguments.requests * course.share))
            differences += compare(arguments, directory, library, course, steps, policies, summary)
            if differences:
                break
    print(*summary.lines(), sep="\n")
    print("schema names that the policy does not use:", ", ".join(files.unused_names()) or "none")
    seconds = time.monotonic() - start
    verdict = f"{differences or 'no'} difference{'s' if differences > 1 else ''}"
    reworded = f", {len(summary.wordings)} texts with different wording" if summary.wordings else ""
    print(f"{verdict}{reworded} in {summary.doors.total()} requests, seed {arguments.seed}, {seconds:.0f} s")
    return 1 if differences or (summary.wordings and not arguments.allow_rewording) else 0


def compare(arguments, directory, library, course, steps, policies, summary):
    """Runs one course and returns the number of differences."""
    policies = [files.replace(policy, course.variant) for policy in policies]
    variants = [policies, [files.replace(policy, files.RELOADED) for policy in policies]]
    directory = directory / course.name
    directory.mkdir()
    clock = sides.Clock(directory)
    binaries = {"BEFORE": arguments.before.resolve(), "AFTER": arguments.after.resolve()}
    pair = [sides.Side(name, binary, directory, clock, library) for name, binary in binaries.items()]
    comparison = None
    try:
        for side in pair:
            side.start_redis()
        wait_for_clusters([server for side in pair for server in side.servers if server.is_cluster], clock)
        for side, policy in zip(pair, variants[0]):
            side.start(policy, course.uses_redis, ["--threads", str(arguments.threads), *course.flags])
        comparison = Comparison(pair, clock, summary, arguments.ignore)
        comparison.check_clock()
        try:
            comparison.run(steps, variants)
            comparison.finish()
        except TooManyDifferences:
            print(f"stopped after {DIFFERENCES_MAX} differences; there may be more")
        return comparison.differences
    except (ProcessFailed, OSError) as error:
        raise SystemExit("\n".join([log for side in pair for log in side.logs()] + [f"failed: {error}"])) from error
    finally:
        if comparison:
            comparison.close()
        for side in pair:
            side.stop()


if __name__ == "__main__":
    sys.exit(main())
