"""Requests over the protocol of Redis."""

import subjects
from wire import CONNECTIONS, PERMIT, Request

# Invalid commands. The last ones have arguments that cannot be written in a line.
BAD = [
    *(
        tuple(line.split())
        for line in """
            CL.THROTTLE k 15 30
            CL.THROTTLE k x 30 60
            CL.THROTTLE k 15 0 60
            CL.THROTTLE k 15 30 0
            CL.THROTTLE k -1 30 60
            CL.THROTTLE k 15 20000000 1
            CL.THROTTLE k 15 30 60 -1
            CL.THROTTLE k 99999999999999999999 30 60
            CL.THROTTLE k 9223372036854775807 1 1
            CL.THROTTLE k 15 30 99999999999
            CL.THROTTLE k 15 30 60 1 2
            TIDEGATE.CHECK nowhere user ann
            TIDEGATE.CHECK effects user
            TIDEGATE.CHECK effects user a b
            TIDEGATE.CHECK effects rule cost user a COST many
            TIDEGATE.CHECK effects rule cost user a COST -1
            TIDEGATE.ACQUIRE k 0 1000
            TIDEGATE.ACQUIRE k 5 0
            TIDEGATE.ACQUIRE k x 1000
            TIDEGATE.ACQUIRE k 5 999999999999
            TIDEGATE.RELEASE k
            GET k
            SET k v
            FLUSHALL
            FLUSHDB
            WATCH k
            EXEC
            DISCARD
            HELLO 4
            HELLO x
            HELLO 3 AUTH default
            AUTH a
            AUTH b c
            CLIENT
            CLIENT KILL
            SELECT x
            SELECT -1
            CONFIG SET a b
            CONFIG GET
            COMMAND x
            TTL
            EXISTS
            DEL
            ECHO
            PING a b
        """.strip().splitlines()
    ),
    ("CL.THROTTLE", "", "15", "30", "60"),
    ("CL.THROTTLE", "k" * 5000, "15", "30", "60"),
    ("TIDEGATE.CHECK", b"\xff", "user", "a"),
    ("TIDEGATE.CHECK", "effects", "user", b"\xff\xfe"),
    ("TIDEGATE.CHECK", "effects", "rule", "plain", "user", "u" * 5000),
    ("TIDEGATE.ACQUIRE", "k", "5", "1000", "a b"),
    ("TIDEGATE.RENEW", "k", "a b", "1000"),
    ("TIDEGATE.RELEASE", "", "a"),
]

# Invalid commands that may stand in a pipeline of checks.
BAD_CHECKS = [command for command in BAD if command[0] in ("CL.THROTTLE", "TIDEGATE.CHECK")]

# Commands that decide nothing.
COURTESIES = [
    tuple(line.split())
    for line in """
        PING
        PING hello
        ECHO hello
        SELECT 3
        TIME
        UNWATCH
        CLIENT SETNAME compare
        CLIENT GETNAME
        CLIENT ID
        CLIENT SETINFO LIB-NAME compare
        CLIENT NO-EVICT on
        CONFIG GET *
        CONFIG GET maxmemory save
        COMMAND
        COMMAND COUNT
        COMMAND LIST
        COMMAND DOCS
        COMMAND INFO cl.throttle get
        COMMAND DOCS ttl
        HELLO
        HELLO 2
        HELLO 3
        RESET
        AUTH default any
    """.strip().splitlines()
]


def encode(*arguments):
    parts = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def throttle(dice):
    """Draws a command that brings its limit, which is mostly the same for each key."""
    number = dice.randrange(24) if dice.random() < 0.85 else dice.randrange(5_000)
    burst, count, period = [(4, 10, 60), (15, 30, 60), (0, 1, 5), (9, 100, 1), (99, 5, 3600)][number % 5]
    if dice.random() < 0.03:
        burst += 3
    quantity = dice.choices([None, 0, 1, 3, 200], [60, 10, 10, 18, 2])[0]
    return ("CL.THROTTLE", f"own:{number}", burst, count, period, *([] if quantity is None else [quantity]))


def check(dice):
    of = subjects.domain(dice)
    entries = subjects.descriptor(dice, of)
    units = subjects.cost(dice)
    return ("TIDEGATE.CHECK", of, *(text for entry in entries for text in entry), *([] if units is None else ["COST", units]))


def check_of(dice, of, entries, units):
    """Makes a check of one descriptor."""
    texts = [text for entry in entries for text in entry]
    return one(("TIDEGATE.CHECK", of, *texts, "COST", units), dice)


def permit(dice):
    key, holder = f"jobs:{dice.randrange(5)}", f"r{dice.randrange(12)}"
    match dice.randrange(4):
        case 0 | 1:
            return ("TIDEGATE.ACQUIRE", key, dice.choice([3, 3, 5]), dice.choice([50, 2_000, 30_000]), holder)
        case 2:
            return ("TIDEGATE.RENEW", key, holder, dice.choice([1_000, 60_000]))
        case _:
            return ("TIDEGATE.RELEASE", key, holder)


def lookup(dice):
    keys = [f"own:{dice.randrange(24)}" for _ in range(dice.randint(1, 3))]
    name = dice.choice(["EXISTS", "EXISTS", "TTL", "PTTL", "DEL", "UNLINK"])
    return (name, *(keys[:1] if "TTL" in name else keys))


def command(dice):
    """Draws a command that decides or reads."""
    draw = dice.choices([throttle, check, permit, lookup], [40, 48, 8, 4])[0]
    return draw(dice)


def keys_of(drawn):
    name, *arguments = drawn
    if name == "TIDEGATE.CHECK":
        of, *texts = arguments
        return subjects.keys_of(of, [list(zip(texts[::2], texts[1::2]))])
    return tuple(str(argument) for argument in arguments if str(argument).startswith(("own:", "jobs:")))


def one(drawn, dice, mask=""):
    return Request("resp", drawn[0], encode(*drawn), keys_of(drawn), dice.randrange(CONNECTIONS), mask=mask)


def pipeline(dice):
    """Draws a pipeline. The server decides neighbours of the same limit together."""
    count = dice.choice([2, 3, 8, 24])
    drawn = [command(dice) for _ in range(count)]
    if dice.random() < 0.5:
        first = throttle(dice)
        drawn = [(first[0], f"own:{dice.randrange(9) * 5}", *first[2:]) for _ in range(count)]
    if dice.random() < 0.2:
        drawn[0] = dice.choice(BAD_CHECKS)
    keys = tuple({key for one in drawn if isinstance(one[1], str) for key in keys_of(one)})
    return Request("resp", "pipeline", b"".join(encode(*one) for one in drawn), keys, dice.randrange(CONNECTIONS), replies=count)


def transaction(dice):
    drawn = [command(dice) for _ in range(dice.randint(1, 5))]
    if dice.random() < 0.1:
        drawn.append(dice.choice([("HELLO",), ("GET", "k"), ("MULTI",), ("UNWATCH",), ("WATCH", "a"), ("INFO",)]))
    drawn = [("MULTI",), *drawn, dice.choice([("EXEC",), ("EXEC",), ("EXEC",), ("DISCARD",)])]
    keys = tuple({key for one in drawn for key in keys_of(one)})
    payload = b"".join(encode(*one) for one in drawn)
    return Request("resp", "MULTI", payload, keys, dice.randrange(CONNECTIONS), replies=len(drawn))


def random_permit(dice):
    """Acquires a permit with an id that the server generates, and releases it."""
    key = f"jobs:{dice.randrange(5)}"
    yield one(("TIDEGATE.ACQUIRE", key, 4, 20_000), dice, "permit")
    yield one(("TIDEGATE.RELEASE", key, PERMIT), dice, "permit")


def rough(dice):
    """Draws what ends the connection, breaks the protocol, or tells about the connection."""
    drawn = dice.randrange(8)
    connection = dice.randrange(CONNECTIONS)
    if drawn == 0:
        return Request("resp", "QUIT", encode("QUIT"), (), connection, closes=True)
    if drawn == 1:
        return Request("resp", "protocol error", b"*x\r\n", (), connection, closes=True)
    if drawn == 2:
        return Request("resp", "protocol error", b"*2\r\n:5\r\n", (), connection, closes=True)
    if drawn == 3:
        return Request("resp", "inline", b"CL.THROTTLE own:1 15 30 60\r\n", ("own:1",), connection)
    if drawn == 4:
        return Request("resp", "inline", b"TIDEGATE.CHECK algorithms algorithm gcra user 'u 1'\r\n", (), connection)
    if drawn == 5:
        return Request("resp", "CLIENT", encode("CLIENT", dice.choice(["INFO", "LIST"])), (), connection, mask="connection")
    if drawn == 6:
        return Request("resp", "INFO", encode("INFO"), (), connection, mask="info")
    return Request("resp", "protocol error", b"*1\r\n$99999999\r\n", (), connection, closes=True)


def draw(dice):
    """Draws one request, or several that belong together."""
    kind = dice.random()
    if kind < 0.78:
        yield one(command(dice), dice)
    elif kind < 0.86:
        yield pipeline(dice)
    elif kind < 0.89:
        yield transaction(dice)
    elif kind < 0.90:
        yield from random_permit(dice)
    elif kind < 0.96:
        yield one(dice.choice(BAD), dice)
    elif kind < 0.985:
        yield one(dice.choice(COURTESIES), dice)
    else:
        yield rough(dice)
