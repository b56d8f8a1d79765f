"""The recorded traffic: requests of all doors, and the steps of the clock between them. A seed always gives the same traffic."""

import random
from dataclasses import dataclass

import grpc_traffic
import http_traffic
import resp_traffic
import subjects
from subjects import NANOS
from wire import Request

MICROS = 1_000

# Requests in a block for leased and async rules, and the rounds that they are sent in.
EASED_BLOCK = 80
EASED_ROUNDS = 4

# After this time all leases of a node have ended, and it has forgotten their rate of use.
LEASES_END = 40 * NANOS


@dataclass
class Advance:
    """Moves the clock."""

    nanos: int


class Settle:
    """Waits for background work."""


class Outage:
    """Ends the single Redis of both sides, and waits until the servers have noticed."""


class Recovery:
    """Starts it again, and waits until the servers have noticed."""


class Reload:
    """Replaces the configuration with its next variant."""


EASED_DOORS = [http_traffic.check, resp_traffic.check_of, grpc_traffic.should_rate_limit_of]

# Draws of requests between the end of Redis and its start.
OUTAGE_BATCHES = 150

# How often a request is repeated.
REPEATED = [1] * 12 + [2, 2, 3, 6]

DOORS = [http_traffic.draw, resp_traffic.draw, grpc_traffic.draw]
DOOR_WEIGHTS = [40, 35, 25]


def steps(seed, count):
    """Generates `count` requests, and the steps between them."""
    dice = random.Random(seed)
    due = [every // 4 for every, _ in REGULAR]
    asked = 0
    while asked < count:
        drawn = list(pause(dice))
        for number, (every, draw) in enumerate(REGULAR):
            if asked >= due[number]:
                due[number] += every
                drawn += draw(dice)
        drawn += ask(dice)
        for step in drawn:
            asked += isinstance(step, Request)
            yield step


def ask(dice):
    """Draws a request. Some are repeated at once, so that limits are reached."""
    draw = dice.choices(DOORS, DOOR_WEIGHTS)[0]
    return list(draw(dice)) * dice.choice(REPEATED)


def outage(dice):
    """Sends requests while Redis is away. It has lost all counts when it is back."""
    yield Outage()
    for _ in range(OUTAGE_BATCHES):
        yield from pause(dice)
        yield from ask(dice)
    yield Recovery()


def reload(_dice):
    yield Reload()


def pause(dice):
    """Draws a step of the clock: mostly none or milliseconds, sometimes past the end of a window. The clock of Redis has
    microseconds."""
    kind = dice.random()
    if kind < 0.5:
        return
    if kind < 0.9:
        yield Advance(dice.randint(1, 60_000) * MICROS)
    elif kind < 0.996:
        yield Advance(dice.randint(1, 1_500_000) * MICROS)
    elif kind < 0.9993:
        yield Advance(dice.randint(1, 90_000_000) * MICROS)
    elif kind < 0.9999:
        yield Advance(dice.randint(1, 3_600) * NANOS)
    else:
        yield Advance(dice.randint(1, 40) * 86_400 * NANOS)


def eased_block(dice):
    """Sends requests for leased and async rules in rounds. The clock stands still in a round; then it moves and the servers settle. All
    rounds are within nine seconds, since a node may forget an idle key after ten."""
    block = dice.randrange(1_000_000)
    yield Advance(LEASES_END)
    yield Settle()
    for number in range(EASED_ROUNDS):
        if number > 0:
            yield Advance(dice.choice([120_000, 1_000_000, 3_000_000]) * MICROS)
            yield Settle()
        for _ in range(EASED_BLOCK // EASED_ROUNDS):
            entries = subjects.eased(dice, block)
            units = dice.choices([1, 0, 2, 7, 25], [65, 5, 15, 11, 4])[0]
            yield dice.choice(EASED_DOORS)(dice, "eased", entries, units)
    yield Advance(LEASES_END)
    yield Settle()


# Steps that recur after a number of requests.
REGULAR = [(1_500, http_traffic.configured), (2_600, eased_block), (7_000, outage), (9_000, reload)]
