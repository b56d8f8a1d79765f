"""Subjects of requests: descriptors that match the rules of the policy, users, costs and inline limits."""

NANOS = 1_000_000_000

# The largest cost that is accepted.
UNITS_MAX = 1 << 48

WORDS = ["good", "badly", "badger", "bad", ""]
PATHS = ["/exact", "/abcz", "/a-z", "/login", "/shared/1", "/shared/2", "/other", "/reports/2026"]


def user(dice):
    """Draws a user: a few send most requests, many send few."""
    kind = dice.random()
    if kind < 0.6:
        return f"u{dice.randrange(5)}"
    if kind < 0.9:
        return f"u{dice.randrange(40)}"
    if kind < 0.94:
        return f"u{dice.randrange(20_000)}"
    return dice.choice(["mallory", "trudy", "root", "ann", "partner-1", "partner-2", "vip1", "ü ö/%", "a\nb"])


def tenant(dice):
    return f"t{dice.randrange(6)}"


def address(dice):
    kind = dice.random()
    if kind < 0.7:
        return f"198.51.100.{dice.randrange(0, 64, 5)}"
    if kind < 0.85:
        return f"2001:db8:{dice.randrange(4):x}:{dice.randrange(512):x}::{dice.randrange(9)}"
    return dice.choice(["192.0.2.7", "10.0.0.1", "10.0.0.9", "10.0.3.4", "2001:db8:bad::1", "::ffff:198.51.100.1", "no-address", ""])


def cost(dice):
    """Draws a cost. None leaves it out of the request."""
    kind = dice.random()
    if kind < 0.6:
        return None
    if kind < 0.7:
        return 0
    if kind < 0.94:
        return dice.randint(1, 6)
    return dice.choice([30, 100, 1_000_000, UNITS_MAX, UNITS_MAX + 1, (1 << 64) - 1])


def algorithms(dice):
    kinds = ["gcra", "text", "token", "leaky", "fixed", "staggered", "counter", "log", "sliced", "nanoseconds", "fast", "slow"]
    return [("algorithm", dice.choice(kinds)), ("user", user(dice))]


def several(dice):
    rule = dice.choice(["several", "several", "kinds", "pair", "count-denied", "count-denied-bucket"])
    return [("rule", rule), ("user", user(dice)), ("tenant", tenant(dice))]


EFFECTS = [
    "shadow", "off", "plain", "plain", "plain", "quota", "quota", "penalty", "penalty-shadow", "penalty-many", "cost", "cost-text",
    "count", "count-units", "when", "key-expression", "key-flag", "metrics", "metadata", "hidden", "too-small", "nothing",
]  # fmt: skip


def effects(dice):
    entries = [("rule", dice.choice(EFFECTS)), ("user", user(dice))]
    further = {
        "tenant": lambda: tenant(dice),
        "word": lambda: dice.choice(WORDS),
        "extra": lambda: "yes",
        "deep": lambda: "1",
        "units": lambda: dice.choice(["0", "3", "15", "many", "-1"]),
        "text": lambda: dice.choice(["", "4", "text", "a longer text"]),
    }
    return entries + [(name, value()) for name, value in further.items() if dice.random() < 0.4]


def edge(dice):
    match dice.randrange(10):
        case 0 | 1:
            return [("remote_address", address(dice))]
        case 2:
            return [("remote_address", address(dice)), ("path", dice.choice(PATHS))]
        case 3:
            return [("tenant", tenant(dice)), ("tenant", tenant(dice))]
        case 4:
            return [("remote_address", address(dice)), ("counted", "bytes")]
        case 5:
            return [(dice.choice(["stop", "halt", "free"]), "yes")]
        case 6 | 7:
            return [("told", dice.choice(["headers", "draft", "nothing"])), ("user", user(dice))]
        case 8:
            return [("on", "trial"), ("user", user(dice))]
        case _:
            return [("user", user(dice)), ("on", "trial")]


SHARED = [
    "gcra", "log", "tagged", "tagged", "slots", "slots", "one-slot", "three", "penalty", "quota", "shadow", "denied", "response",
    "gone-default", "gone-allow", "gone-deny", "gone-local", "gone-beside",
]  # fmt: skip


def shared(dice):
    entries = [("rule", dice.choice(SHARED)), ("user", user(dice)), ("tenant", tenant(dice))]
    return entries + ([("extra", "yes")] if dice.random() < 0.3 else [])


def envoy(dice):
    match dice.randrange(14):
        case 0 | 1 | 2:
            return [("remote_address", address(dice))]
        case 3:
            return [("remote_address", dice.choice(["10.0.0.1", "10.0.0.2", "10.1.0.1"])), ("path", dice.choice(PATHS))]
        case 4:
            return [("remote_address", f"10.0.0.{dice.randrange(3)}"), ("remote_address", address(dice))]
        case 5 | 6:
            return [("path", dice.choice(PATHS))]
        case 7 | 8:
            return [("tenant", tenant(dice)), ("user", user(dice))]
        case 9:
            return [("tenant", tenant(dice)), ("action", "write"), ("user", user(dice))]
        case 10:
            return [("tenant", "t1"), ("action", dice.choice(["write", "read"])), ("user", "vip1")]
        case 11:
            return [(dice.choice(["writes", "stopped"]), "any")]
        case 12:
            return [("month", dice.choice(["a", "b"]))]
        case _:
            return [("value_in_metric", dice.choice("abc")), ("leaf", dice.choice("xyz"))]


def envoy_plain(dice):
    two = [("a", "b_c"), ("a_b", "c"), ("a_b_c", ""), ("a_b_c", "x")]
    if dice.random() < 0.7:
        return [dice.choice(two)]
    return [("twice", dice.choice("xy")), ("between", "b"), ("twice", dice.choice("xy"))]


DOMAINS = {
    "algorithms": (4, algorithms),
    "several": (3, several),
    "effects": (6, effects),
    "edge": (3, edge),
    "shared": (3, shared),
    "envoy": (4, envoy),
    "envoy-plain": (1, envoy_plain),
}
NAMES = list(DOMAINS)
WEIGHTS = [weight for weight, _ in DOMAINS.values()]


def domain(dice):
    """Draws a domain whose rules match by entries alone."""
    return dice.choices(NAMES, WEIGHTS)[0]


def descriptor(dice, of):
    return DOMAINS[of][1](dice)


def descriptors(dice, of):
    """Draws the descriptors of a request: mostly one."""
    count = dice.choices([1, 2, 3, 20], [80, 13, 5, 1])[0]
    return [descriptor(dice, of) for _ in range(count)]


# Entries that hardly any rule counts by.
INCIDENTAL = {"extra", "deep", "text", "units", "word", "told", "counted"}


def keys_of(of, listed):
    """Names the keys of a request, to find earlier requests about them: the domain with the entries that identify a key."""
    named = ([f"{name}={value}" for name, value in entries if name not in INCIDENTAL | {"tenant"}] for entries in listed)
    return tuple(sorted({f"{of}: {', '.join(names)}" for names in named}))


EASED = ["leased-gcra", "leased-window", "leased-token", "leased-small", "async-gcra", "async-window", "async-penalty"]


def eased(dice, block):
    """Draws a descriptor of an eased block. Each block has its own users: a node forgets idle users of earlier blocks at moments that
    depend on how often its background task ran."""
    return [("rule", dice.choice(EASED)), ("user", f"e{block}-{dice.randrange(3)}")]


LIMITS = [
    "10/minute", "5/10s", "100/hour",
    {"algorithm": "gcra", "rate": "6/minute", "burst": 9},
    {"algorithm": "token_bucket", "rate": "12/minute", "capacity": 5},
    {"algorithm": "leaky_bucket", "rate": "10/minute", "capacity": 4},
    {"algorithm": "fixed_window", "rate": "8/minute"},
    {"algorithm": "sliding_counter", "limit": 9, "window_ns": 60 * NANOS},
    {"algorithm": "sliding_log", "limit": 7, "window_ns": 60 * NANOS},
    {"algorithm": "sliced_window", "rate": "9/minute", "slices": 4},
    {"algorithm": "fixed_window", "rate": "8/minute", "stagger": True},
    {"rate": 4, "per_ns": 3 * NANOS},
]  # fmt: skip


def inline(dice):
    """Draws a key and the limit that its caller brings, which is mostly the same for each key."""
    number = dice.randrange(36) if dice.random() < 0.9 else dice.randrange(5_000)
    limit = LIMITS[number % len(LIMITS)] if dice.random() < 0.95 else dice.choice(LIMITS)
    return f"own:{number}", limit
