"""Requests over HTTP: checks, forward auth, reports, administration, permits."""

import json
from urllib.parse import quote, urlencode

import subjects
from wire import CONNECTIONS, PERMIT, Request

METHODS = ["GET", "GET", "GET", "POST", "POST", "PUT", "DELETE"]
PATHS = [
    "/", "/items", "/items/7", "/items/../items/8", "/hosted", "/health", "/static/a.css", "/admin/users", "/jitter", "/login", "/login",
    "/download/a", "/download/b", "/counted", "//items//9", "/%69tems", "/upload",
]  # fmt: skip
HOSTS = ["a.example.com", "B.example.com:8443", "example.org", "example.com"]

# Rules whose mode is switched during the run.
SWITCHED = [
    ("effects", "shadow"), ("effects", "everybody"), ("effects", "off"), ("effects", "block"),
    ("web", "per-address"), ("edge", "edge-path"),
    ("several", "burst-and-day"), ("envoy", "path"), ("effects", "quota-day"),
]  # fmt: skip

# Invalid bodies, by the path that they are sent to.
BAD_BODIES = {
    "/v1/check": [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"key":"a"}',
        b'{"key":"","limit":"1/s"}',
        b'{"key":"a","limit":"5/fortnight"}',
        b'{"key":"a","limit":"0/s"}',
        b'{"key":"a","limit":"20000000/s"}',
        b'{"key":"a","limit":{"algorithm":"nothing","rate":"1/s"}}',
        b'{"key":"a","limit":{"algorithm":"sliced_window","rate":"1/s","slices":0}}',
        b'{"key":"a","limit":"1/s","cost":-1}',
        b'{"key":"a","limit":"1/s","wait":"1s"}',
        b'{"key":"a","limit":{"algorithm":"leaky_bucket","rate":"1/s"},"wait":"2d"}',
        b'{"key":"a","limit":"1/s","unknown":1}',
        b'[{"key":"a","limit":"1/s"},{"key":"a","limit":"1/s"}]',
        b"[" + b",".join(b'{"key":"%d","limit":"1/s"}' % key for key in range(17)) + b"]",
        b'{"domain":"nowhere","descriptors":[{"user":"a"}]}',
        b'{"domain":"effects"}',
        b'{"domain":"effects","descriptors":[]}',
        b'{"domain":"effects","descriptors":[{"rule":7}]}',
        b'{"domain":"effects","descriptors":[{}],"cost":1.5}',
        b'{"domain":"effects","descriptors":[' + b",".join([b"{}"] * 65) + b"]}",
        b'{"domain":"effects","descriptors":[{"rule":"plain","user":"' + b"u" * 5000 + b'"}]}',
        b'{"domain":"web","descriptors":[{}],"request":{"path":7}}',
        b'{"domain":"web","descriptors":[{}],"request":{"unknown":""}}',
    ],
    "/v1/report": [
        b'{"domain":"web","descriptors":[{}]}',
        b'{"domain":"web","descriptors":[{}],"response":{"status":"x"}}',
        b'{"domain":"web","descriptors":[{}],"response":{"status":99}}',
    ],
    "/v1/permits": [
        b'{"key":"a","limit":0,"lease":"1s"}',
        b'{"key":"a","limit":1,"lease":"2d"}',
        b'{"key":"a","limit":1}',
        b'{"key":"a","limit":1,"lease":"1s","id":"a b"}',
    ],
    "/v1/grant": [
        b'{"domain":"effects","descriptors":[{"rule":"plain","user":"a"}]}',
        b'{"domain":"effects","descriptors":[{"rule":"none"}],"units":1}',
    ],
    "/v1/block": [
        b'{"key":"a","limit":"1/s","duration":"1s"}',
        b'{"domain":"effects","descriptors":[{"rule":"plain","user":"a"}],"duration":"never"}',
    ],
    "/v1/reset": [b'{"domain":"nowhere","descriptors":[{}]}', b'{"domain":"effects","descriptors":[{"rule":"none"}]}'],
    "/v1/inspect": [b'{"domain":"effects","descriptors":[{"rule":"plain","user":"a"}],"cost":3}'],
    "/json": [b"{}", b"[", b'{"domain":"edge","descriptors":[]}', b'{"domain":"","descriptors":[{"entries":[]}]}'],
    "/unknown": [b""],
    "/v1/check/": [b"{}"],
}
BAD = [(path, body) for path, bodies in BAD_BODIES.items() for body in bodies]

# Not requests: control characters, no HTTP at all, a head that is too long.
NO_REQUESTS = [
    b"GET /x\x01 HTTP/1.1\r\n\r\n",
    b"nothing\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n",
]

# Headers that make an admin call without a token forbidden.
STRANGERS = [("Origin", "http://example.com"), ("X-Forwarded-For", "198.51.100.1"), ("Via", "1.1 proxy"), ("Host", "example.com")]


def request(dice, method, target, body=b"", headers=(), keys=(), mask="", **more):
    """Makes a request over HTTP. Its place is the method and the path without parameters."""
    host = [] if any(name == "Host" for name, _ in headers) else ["Host: 127.0.0.1"]
    lines = [f"{method} {target} HTTP/1.1", *host, *(f"{name}: {value}" for name, value in headers)]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    payload = "\r\n".join([*lines, "", ""]).encode() + body
    path = target.split("?")[0]
    path = "/v1/permits/ID" if path.startswith("/v1/permits/") else path
    path = "/v1/rules/DOMAIN/RULE/mode" if path.startswith("/v1/rules/") else path
    return Request("http", f"{method} {path}", payload, keys, dice.randrange(CONNECTIONS), mask=mask, **more)


def post(dice, path, value, keys=(), mask=""):
    return request(dice, "POST", path, json.dumps(value).encode(), keys=keys, mask=mask)


def told_request(dice):
    """Describes a request, as a caller of /v1/check does."""
    told = {"method": dice.choice(METHODS), "path": dice.choice(PATHS)}
    further = {
        "host": lambda: dice.choice(HOSTS),
        "query": lambda: dice.choice(["token=a", "token=b&c=d", "x=%41", "token=%zz", ""]),
        "address": lambda: subjects.address(dice) or "198.51.100.1",
        "headers": lambda: dict(headers(dice)),
    }
    return told | {name: value() for name, value in further.items() if dice.random() < 0.75}


def web_keys(address, path):
    return (f"web: address={address}", f"web: path={path}")


def headers(dice):
    drawn = [
        ("X-Plan", dice.choice(["gold", "silver", "free"])),
        ("Cookie", dice.choice(["session=s-1", "session=s-2; other=x", "session=none", "a=b"])),
        ("X-Upload-Bytes", dice.choice(["12", "2000", "many"])),
        ("X-Tenant", subjects.tenant(dice)),
    ]
    return [one for one in drawn if dice.random() < 0.5]


def asked(dice):
    """Returns the body that checks, reports and admin calls share, with the keys it is about."""
    if dice.random() < 0.3:
        told = told_request(dice)
        keys = web_keys(told.get("address", ""), told["path"])
        return {"domain": "web", "descriptors": [{}], "request": told}, keys
    of = subjects.domain(dice)
    listed = subjects.descriptors(dice, of)
    keys = subjects.keys_of(of, listed)
    # A list of maps keeps the order and allows a key twice; a map does not.
    as_lists = of in ("edge", "envoy", "envoy-plain") or dice.random() < 0.1
    shown = [[{key: value} for key, value in entries] if as_lists else dict(entries) for entries in listed]
    return {"domain": of, "descriptors": shown}, keys


def with_cost(dice, value):
    units = subjects.cost(dice)
    return value if units is None else {**value, "cost": units}


def by_rules(dice):
    value, keys = asked(dice)
    return post(dice, "/v1/check", with_cost(dice, value), keys)


def check(dice, of, entries, units):
    """Makes a check of one descriptor."""
    value = {"domain": of, "descriptors": [dict(entries)], "cost": units}
    return post(dice, "/v1/check", value, subjects.keys_of(of, [entries]))


def own(dice):
    """Makes a check that brings its own limit."""
    key, limit = subjects.inline(dice)
    kind = dice.random()
    if kind < 0.15 and isinstance(limit, str):
        query = {"key": key, "rate": limit, "cost": dice.choice([0, 1, 2])}
        return request(dice, "GET", f"/v1/check?{urlencode(query)}", keys=(key,))
    if kind < 0.3 and isinstance(limit, dict) and isinstance(limit.get("rate"), str) and "stagger" not in limit:
        return request(dice, "GET", f"/v1/check?{urlencode({'key': key, **limit})}", keys=(key,))
    if kind < 0.45:
        drawn = dict(subjects.inline(dice) for _ in range(dice.choice([2, 3, 16])))
        checks = [with_cost(dice, {"key": key, "limit": limit}) for key, limit in drawn.items()]
        return post(dice, "/v1/check", checks, tuple(drawn))
    value = with_cost(dice, {"key": key, "limit": limit})
    if isinstance(limit, dict) and limit.get("algorithm") == "leaky_bucket" and dice.random() < 0.7:
        value["wait"] = dice.choice(["0s", "500ms", "6s", "20s", "1h"])
    return post(dice, "/v1/check", value, (key,))


def auth(dice):
    """Makes a forward-auth request, as a proxy does."""
    target = "/v1/auth?domain=" + dice.choices(["web", "effects", "default", "nowhere"], [85, 10, 3, 2])[0]
    further = {"cost": lambda: str(dice.choice([0, 1, 2, 50])), "deny": lambda: dice.choice(["401", "403", "429", "500"])}
    target += "".join(f"&{name}={value()}" for name, value in further.items() if dice.random() < 0.15)
    if dice.random() < 0.3:
        target += "".join(f"&entry.{name}={quote(value)}" for name, value in subjects.effects(dice))
    address, path = subjects.address(dice), dice.choice(PATHS)
    sent = [("X-Forwarded-For", ", ".join(filter(None, [address, dice.choice(["", "10.9.1.2", "203.0.113.9"])])))]
    sent += [
        ("X-Forwarded-Method", dice.choice(METHODS)),
        (dice.choice(["X-Forwarded-Uri", "X-Original-URI"]), path + dice.choice(["", "?token=a"])),
    ]
    if dice.random() < 0.5:
        sent.append(("X-Forwarded-Host", dice.choice(HOSTS)))
    if dice.random() < 0.02:
        sent.append(("X-Original-URL", "/another"))
    if dice.random() < 0.4:
        quoted = f'"[{address}]"' if ":" in address else address or "unknown"
        sent.append(("Forwarded", f"for={quoted};proto=https, for={dice.choice(['10.9.1.2', '203.0.113.9', '_hidden'])}"))
    return request(dice, dice.choice(["GET", "GET", "POST"]), target, headers=sent + headers(dice), keys=web_keys(address, path))


def report(dice):
    value, keys = asked(dice)
    if dice.random() < 0.7:
        told = {
            "method": "POST",
            "path": dice.choice(["/login", "/download/a", "/download/b"]),
            "address": subjects.address(dice) or "198.51.100.5",
        }
        value, keys = {"domain": "web", "descriptors": [{}], "request": told}, web_keys(told["address"], told["path"])
    elif dice.random() < 0.7:
        name = f"u{dice.randrange(6)}"
        value, keys = (
            {"domain": "shared", "descriptors": [{"rule": "response", "user": name}]},
            subjects.keys_of("shared", [[("rule", "response"), ("user", name)]]),
        )
    response = {"status": dice.choice([200, 401, 401, 500, 503])}
    if dice.random() < 0.6:
        response |= {"bytes": dice.choice([0, 100, 20_000, 70_000]), "millis": dice.choice([3, 501, 9_000])}
    return post(dice, "/v1/report", {**value, "response": response}, keys)


def administer(dice):
    """Makes an admin call about the keys of a request."""
    if dice.random() < 0.3:
        key, limit = subjects.inline(dice)
        value, keys = {"key": key, "limit": limit}, (key,)
    else:
        value, keys = asked(dice)
    call = dice.choices(["inspect", "reset", "grant", "block"], [50, 20, 25, 5])[0]
    if call == "grant":
        value["units"] = dice.choice([0, 1, 3, 1000])
    if call == "block":
        value["duration"] = dice.choice(["1s", "20s", "3m"])
    return post(dice, f"/v1/{call}", value, keys)


def switch(dice):
    of, rule = dice.choice(SWITCHED)
    mode = dice.choice(["enforce", "shadow", "off", "configured", "configured", "configured", "nothing"])
    target = f"/v1/rules/{of}/{quote(rule, safe='')}/mode"
    return request(dice, "PUT", target, json.dumps({"mode": mode}).encode(), keys=(f"{of}:rule={rule}",))


def configured(dice):
    """Switches every rule back to its configured mode."""
    for of, rule in SWITCHED:
        yield request(dice, "PUT", f"/v1/rules/{of}/{quote(rule, safe='')}/mode", b'{"mode":"configured"}')


def permit(dice):
    key, holder = f"jobs:{dice.randrange(5)}", f"r{dice.randrange(12)}"
    lease = dice.choice(["50ms", "2s", "30s", "5m"])
    match dice.randrange(4):
        case 0 | 1:
            value = {"key": key, "limit": dice.choice([3, 3, 5]), "lease": dice.choice([lease, 7]), "id": holder}
            yield post(dice, "/v1/permits", value, (key,))
        case 2:
            yield request(dice, "PUT", f"/v1/permits/{holder}?key={key}&lease={lease}", keys=(key,))
        case _:
            yield request(dice, "DELETE", f"/v1/permits/{holder}?key={key}", keys=(key,))
    if dice.random() < 0.1:
        yield post(dice, "/v1/permits", {"key": key, "limit": 4, "lease": lease}, (key,), mask="permit")
        yield request(dice, "PUT", f"/v1/permits/{PERMIT}?key={key}&lease=1m", keys=(key,), mask="permit")
        yield request(dice, "DELETE", f"/v1/permits/{PERMIT}?key={key}", keys=(key,), mask="permit")


def envoy_json(dice):
    of = subjects.domain(dice)
    listed = subjects.descriptors(dice, of)
    descriptors = [{"entries": [{"key": key, "value": value} for key, value in entries]} for entries in listed]
    for one in descriptors:
        if dice.random() < 0.1:
            one["limit"] = {"requestsPerUnit": dice.choice([0, 4]), "unit": dice.choice(["MINUTE", "HOUR", "WEEK", "UNKNOWN"])}
        if dice.random() < 0.1:
            one["hitsAddend"] = dice.choice(["0", "2", 3])
    value = {"domain": of, "descriptors": descriptors}
    units = subjects.cost(dice)
    if units is not None:
        value["hitsAddend"] = units
    return post(dice, "/json", value, subjects.keys_of(of, listed))


def page(dice):
    """Gets a page whose content does not depend on real time."""
    path = dice.choice(["/healthz", "/readyz", "/healthcheck", "/openapi.json", "/", "/v1/rules", "/rlconfig", "/unknown"])
    return request(dice, dice.choice(["GET", "GET", "HEAD"]), path)


def bad(dice):
    kind = dice.random()
    if kind < 0.75:
        path, body = dice.choice(BAD)
        return request(dice, "POST", path, body)
    if kind < 0.85:
        return request(dice, "PATCH", dice.choice(["/v1/check", "/v1/rules", "/metrics", "/v1/permits/x"]))
    if kind < 0.93:
        body = b'{"domain":"effects","descriptors":[{"rule":"plain","user":"u1"}]}'
        return request(dice, "POST", "/v1/inspect", body, [dice.choice(STRANGERS)])
    if kind < 0.97:
        query = dice.choice(
            ["rate=1/s", "key=a", "key=a&rate=1/s&x=1", "key=a&rate=1/s&cost=x", "key=%ff&rate=1/s", "key=a&key=b&rate=1/s"]
        )
        return request(dice, "GET", "/v1/check?" + query)
    if kind < 0.98:
        return request(dice, "POST", "/v1/check", b" " * 300_000, closes=True)
    return Request("http", "no request", dice.choice(NO_REQUESTS), connection=dice.randrange(CONNECTIONS), closes=True)


KINDS = [(by_rules, 40), (own, 16), (auth, 18), (report, 6), (administer, 5), (envoy_json, 6), (page, 0.5), (bad, 3), (switch, 0.5)]
DRAWS = [draw for draw, _ in KINDS]
WEIGHTS = [weight for _, weight in KINDS]


def draw(dice):
    """Draws one request, or several that belong together."""
    if dice.random() < 0.05:
        yield from permit(dice)
    else:
        yield dice.choices(DRAWS, WEIGHTS)[0](dice)
