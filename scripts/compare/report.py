"""Reports: differences with the requests before them, and a summary."""

import json
import re
from collections import Counter, defaultdict, deque

import grpc_traffic

# Earlier requests about the same keys that are shown with a difference.
EARLIER_MAX = 6

# Keys that are remembered. Beyond it the least recently used one is dropped.
KEYS_MAX = 20_000

WORDINGS_SHOWN_MAX = 100

VERDICTS = ["allowed", "denied", "shadow_denied", "reported"]

SHOWN_BYTES_MAX = 1_500


class History:
    """The last requests about each key."""

    def __init__(self):
        self.by_key = {}

    def add(self, number, nanos, request, answer):
        for key in request.keys:
            earlier = self.by_key.pop(key, None) or deque(maxlen=EARLIER_MAX)
            earlier.append((number, nanos, request, answer))
            self.by_key[key] = earlier
        while len(self.by_key) > KEYS_MAX:
            del self.by_key[next(iter(self.by_key))]

    def about(self, request):
        """Returns the last requests about any of its keys."""
        found = {entry[0]: entry for key in request.keys for entry in self.by_key.get(key, ())}
        return [found[number] for number in sorted(found)][-EARLIER_MAX:]


class Summary:
    """Counts requests and answers."""

    def __init__(self):
        self.doors = Counter()
        self.places = Counter()
        self.statuses = defaultdict(Counter)
        self.decisions = defaultdict(Counter)
        self.rules = {}
        # Answers that differ in their wording, by their text.
        self.wordings = {}
        # Names of metrics that only one side has.
        self.series_of_one = []

    def add_wording(self, request, answers):
        """Adds an answer that differs in its wording alone. Texts that differ in numbers alone are one text."""
        texts = tuple(re.sub(r"\d+", "0", repr(answer.body)) for answer in answers)
        self.wordings.setdefault(texts, (request, answers))

    def add(self, request, answer):
        self.doors[request.door] += 1
        self.places[f"{request.door}: {request.place}"] += 1
        self.statuses[request.door][answer.status] += 1
        if answer.allowed is not None:
            self.decisions[request.door][answer.allowed] += 1

    def add_rules(self, page):
        """Adds the counts of the rules from `/v1/rules`."""
        for rule in json.loads(page)["rules"]:
            counts = self.rules.setdefault(f"{rule['domain']}/{rule['name']}", Counter())
            for verdict in VERDICTS:
                counts[verdict] += rule["counts"][verdict]

    def lines(self):
        for door, count in sorted(self.doors.items()):
            decided = self.decisions[door]
            yield f"{door}: {count} requests, {decided[True]} allowed, {decided[False]} denied"
            statuses = self.statuses[door].most_common()
            yield "  statuses: " + ", ".join(f"{status} {count}" for status, count in statuses)
        yield "calls:"
        for place, count in sorted(self.places.items()):
            yield f"  {count:8} {place}"
        yield "rules: allowed, denied, denied in shadow mode, units reported"
        for name, counts in self.rules.items():
            yield "  " + " ".join(f"{counts[verdict]:8}" for verdict in VERDICTS) + f" {name}"
        gaps = [name for name, counts in self.rules.items() if not any(counts.values())]
        for request, answers in list(self.wordings.values())[:WORDINGS_SHOWN_MAX]:
            yield f"different wording: {request.door} {request.place}: {cut(repr(request.payload), 200)}"
            yield from (f"  {cut(repr(answer.body), 500)}" for answer in answers)
        for name in sorted(set(self.series_of_one)):
            yield f"only one build has the metric {name}"
        # A run that stops at differences does not read the rules.
        if self.rules:
            yield "rules that no request reached: " + (", ".join(gaps) or "none")


def difference(number, nanos, request, answers, names, history):
    """Renders a difference."""
    yield f"DIFFERENCE at request {number}, {nanos} ns: {request.door} {request.place}, connection {request.connection}"
    yield "  sent: " + cut(repr(request.payload))
    yield from (f"  decoded: {line}" for line in read(request))
    start = max(0, common_start(*(answer.body for answer in answers)) - SHOWN_BYTES_MAX // 2)
    for name, answer in zip(names, answers):
        yield f"  {name}:"
        lines = answer.lines(start)
        if request.door == "grpc":
            lines += grpc_traffic.shown(request.place, answer.body).splitlines()
        yield from (f"    {cut(line)}" for line in lines)
    earlier = history.about(request)
    yield f"  the last {len(earlier)} requests for the same keys, with equal answers:"
    for number, nanos, request, answer in earlier:
        yield f"    {number}, {nanos} ns: {request.door} {request.place}: {cut(repr(request.payload), 300)}"
        yield f"      {answer.status} {cut(repr(answer.body), 300)}"


def read(request):
    """Renders a request of Envoy as text."""
    if request.door != "grpc" or request.place != grpc_traffic.RATE_LIMIT:
        return []
    message = grpc_traffic.rls_pb2.RateLimitRequest()
    try:
        message.MergeFromString(request.payload)
    except Exception:
        return []
    return re.sub(r"\s+", " ", str(message)).splitlines()


def common_start(one, other):
    """Returns the number of bytes at which two bodies begin to differ."""
    pairs = enumerate(zip(one, other))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def cut(text, length=SHOWN_BYTES_MAX):
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} in all)"
