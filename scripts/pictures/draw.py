#!/usr/bin/env python3
"""Draws the pictures of the guide: scripts/pictures/draw.py target/release/tidegate

The picture of the algorithms shows what `tidegate decide` answers; the others are described below. Colours follow the light or dark
mode of the reader.
"""

import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "src"

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .small { font-size: 11px; fill: #59636e; }
    .title { font-weight: 600; }
    .box { fill: #f6f8fa; stroke: #8c959f; }
    .good { fill: #dafbe1; stroke: #1a7f37; }
    .bad { fill: #ffebe9; stroke: #cf222e; }
    .warn { fill: #fff8c5; stroke: #9a6700; }
    .line { stroke: #59636e; fill: none; }
    .used { fill: #0969da; opacity: 0.25; }
    .seam { stroke: #8c959f; stroke-dasharray: 3 3; }
    .allowed { stroke: #1a7f37; stroke-width: 2; }
    .denied { stroke: #cf222e; stroke-width: 2; }
    .head { fill: #59636e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .small { fill: #9198a1; }
      .box { fill: #151b23; stroke: #656c76; }
      .good { fill: #12261e; stroke: #3fb950; }
      .bad { fill: #25171c; stroke: #f85149; }
      .warn { fill: #272115; stroke: #d29922; }
      .line { stroke: #9198a1; }
      .used { fill: #4493f8; opacity: 0.35; }
      .seam { stroke: #656c76; }
      .allowed { stroke: #3fb950; }
      .denied { stroke: #f85149; }
      .head { fill: #9198a1; }
    }
"""


class Picture:
    def __init__(self, width, height, title):
        self.size = (width, height)
        self.title = title
        self.parts = []

    def text(self, x, y, text, kind="", anchor="start"):
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x, y, width, height, lines, kind="box"):
        """A box with a title and smaller lines below it."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>')
        first = y + height / 2 + 5 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 16 * number, line, "title" if number == 0 else "small", "middle")

    def arrow(self, *points, label=None):
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'<path d="{path}" class="line" marker-end="url(#head)"/>')
        if label:
            (x1, y1), (x2, y2) = points[0], points[-1]
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, label, "small", "middle")

    def line(self, x1, y1, x2, y2, kind="line"):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def write(self, name):
        width, height = self.size
        body = "\n  ".join(self.parts)
        (GUIDE / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f"  <title>{escape(self.title)}</title>\n  <style>{STYLE}  </style>\n"
            '  <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>\n'
            f"  {body}\n</svg>\n"
        )


def decision():
    picture = Picture(860, 250, "How a request is decided")
    picture.box(10, 85, 130, 70, ["request", "domain, descriptors", "or HTTP"])
    picture.box(180, 85, 130, 70, ["rules", "all in the domain", "that match"])
    picture.box(350, 85, 150, 70, ["charges", "one for each limit:", "key, cost, limit"])
    picture.box(540, 85, 130, 70, ["store", "takes all of them", "or none"])
    for left, right in [(140, 180), (310, 350), (500, 540)]:
        picture.arrow((left, 120), (right, 120))
    picture.box(720, 10, 130, 50, ["allowed", "RateLimit headers"], "good")
    picture.box(720, 95, 130, 50, ["denied", "429, Retry-After"], "bad")
    picture.box(720, 180, 130, 60, ["no answer", "on_store_failure:", "allow, deny, local"], "warn")
    picture.arrow((670, 105), (695, 105), (695, 35), (720, 35))
    picture.arrow((670, 120), (720, 120))
    picture.arrow((670, 135), (695, 135), (695, 210), (720, 210))
    picture.text(245, 185, "rules in shadow mode count", "small", "middle")
    picture.text(245, 200, "and report, but never deny", "small", "middle")
    picture.text(605, 185, "if one limit denies,", "small", "middle")
    picture.text(605, 200, "none is charged", "small", "middle")
    picture.write("decision.svg")


SECOND = 1_000_000_000
# Two bursts, a steady stretch and a burst across the end of a minute, in seconds.
ARRIVALS = sorted([2, 2.5, 3, 3.5, 4, 4.5, 5] + [20 + 3 * n for n in range(8)] + [55 + n for n in range(4)] + [61 + n for n in range(6)]
                  + [90 + 2 * n for n in range(6)])
SPAN = 120

ALGORITHMS = [
    ("gcra and both buckets", "one unit every 6 s, 5 at once", {"algorithm": "gcra", "rate": 10, "per_ns": 60 * SECOND, "burst": 5}),
    ("fixed_window", "10 in each minute of the clock", {"algorithm": "fixed_window", "limit": 10, "window_ns": 60 * SECOND}),
    ("sliding_log", "10 in any 60 s, exactly", {"algorithm": "sliding_log", "limit": 10, "window_ns": 60 * SECOND}),
    ("sliced_window", "10 in any 60 s, in slices of 10 s", {"algorithm": "sliced_window", "limit": 10, "window_ns": 60 * SECOND, "slices": 6}),
    ("sliding_counter", "this minute and part of the last one", {"algorithm": "sliding_counter", "limit": 10, "window_ns": 60 * SECOND}),
    ("calendar_window", "10 in each day of a time zone",
     {"algorithm": "calendar_window", "limit": 10, "period": "day", "time_zone": "UTC"}),
]


def answers(binary, limit):
    """Yields the units in use at each half second, and whether each arrival passes."""
    start = 1_800_000_000 * SECOND
    lines, kinds = [{"op": "new", "limit": limit}], [None]
    for tenth in range(0, SPAN * 10 + 1, 5):
        now = tenth / 10
        if now in ARRIVALS:
            lines.append({"op": "charge", "at_ns": start + round(now * SECOND)})
            kinds.append(("arrival", now))
        lines.append({"op": "peek", "at_ns": start + round(now * SECOND)})
        kinds.append(("used", now))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    out = subprocess.run([binary, "decide"], input=text, capture_output=True, text=True, check=True).stdout
    for kind, line in zip(kinds, out.splitlines()):
        answer = json.loads(line)
        if kind and kind[0] == "arrival":
            yield "arrival", kind[1], answer["allowed"]
        elif kind:
            yield "used", kind[1], answer["limit"] - answer["remaining"]


def algorithms(binary):
    width, panel, left = 860, 92, 250
    picture = Picture(width, panel * len(ALGORITHMS) + 50, "What each algorithm lets pass of the same requests")
    scale = (width - left - 20) / SPAN
    for number, (name, what, limit) in enumerate(ALGORITHMS):
        top = number * panel + 12
        base = top + 62
        picture.text(10, top + 26, name, "title")
        picture.text(10, top + 44, what, "small")
        most = limit.get("burst") or limit["limit"]
        points, passed, all_of = [], 0, 0
        for kind, now, value in answers(binary, limit):
            x = left + now * scale
            if kind == "used":
                points.append((x, base - value / most * 44))
            else:
                # Denied ones are lower too, for readers who do not see the colours.
                top_of_tick = base + (3 if value else 14)
                picture.line(x, top_of_tick, x, top_of_tick + 9, "allowed" if value else "denied")
                passed, all_of = passed + value, all_of + 1
        area = f"M{left} {base} " + " ".join(f"L{x:.1f} {y:.1f}" for x, y in points) + f" L{points[-1][0]:.1f} {base} z"
        picture.parts.append(f'<path d="{area}" class="used"/>')
        picture.line(left, base, width - 20, base)
        picture.line(left, base - 44, width - 20, base - 44, "seam")
        picture.line(left + 60 * scale, top + 8, left + 60 * scale, base + 24, "seam")
        picture.text(10, top + 60, f"{passed} of {all_of} pass", "small")
    bottom = panel * len(ALGORITHMS) + 20
    picture.text(left + 60 * scale, bottom, "1 minute", "small", "middle")
    picture.text(width - 20, bottom, "2 minutes", "small", "end")
    picture.text(10, bottom, "blue: units in use; dashed: the limit", "small")
    picture.text(10, bottom + 16, "green: passes; red, lower: denied", "small")
    picture.write("algorithms.svg")


def shared():
    picture = Picture(860, 330, "How exactly nodes share a limit")
    columns = [
        ("exact", ["asks Redis for each request", "all nodes together: exactly the limit", "one round trip for each request"]),
        ("leased", ["takes a slice, spends it locally", "all nodes together: never above the limit", "one round trip for each slice"]),
        ("async", ["counts locally, reports to Redis", "all nodes together: a few more than the limit", "requests do not wait for Redis"]),
    ]
    for number, (name, lines) in enumerate(columns):
        x = 20 + 285 * number
        picture.text(x + 125, 24, f"consistency: {name}", "title", "middle")
        for place, line in enumerate(lines):
            picture.text(x + 125, 262 + 20 * place, line, "small", "middle")
        for node in (0, 1):
            picture.box(x + 135 * node, 45, 115, 46, [f"node {node + 1}"] + (["holds 20 units"] if name == "leased" else []))
        picture.box(x + 60, 180, 130, 50, ["Redis", "60 of 100 left" if name == "leased" else "the count"])
        for node in (0, 1):
            x1, x2 = x + 57 + 135 * node, x + 95 + 60 * node
            if name == "exact":
                picture.arrow((x1, 91), (x2, 180))
                picture.arrow((x2 + 12, 180), (x1 + 12, 91))
            elif name == "leased":
                picture.arrow((x2, 180), (x1, 91))
            else:
                picture.arrow((x1, 91), (x2, 180))
        middle = {"exact": "take 1", "leased": "a slice", "async": "+ 12"}[name]
        picture.text(x + 125, 140, middle, "small", "middle")
    picture.write("shared-store.svg")


def failures():
    picture = Picture(860, 330, "What a rule does when its store does not answer")
    picture.box(10, 120, 150, 70, ["no answer", "from the store", "within timeout"], "warn")
    rows = [
        ("allow", "the request passes", "no limit during the outage", "good"),
        ("deny", "503; OVER_LIMIT for Envoy", "no request passes during the outage", "bad"),
        ("local (the default)", "each node goes on from the last state it knows", "each node can admit what was left", "box"),
        ("local: {share: auto}", "the same, with the limit divided by the nodes", "about the limit, if all nodes are in use", "box"),
        ("local: 100/minute", "each node applies this limit", "at most nodes × 100 a minute", "box"),
    ]
    for number, (choice, what, bound, kind) in enumerate(rows):
        y = 10 + 54 * number
        picture.box(240, y, 190, 42, [choice], kind)
        picture.arrow((160, 155), (200, 155), (200, y + 21), (240, y + 21))
        picture.text(450, y + 18, what)
        picture.text(450, y + 35, bound, "small")
    picture.box(10, 282, 150, 40, ["overload", "of this node"], "warn")
    picture.arrow((160, 302), (240, 302))
    picture.box(240, 282, 190, 40, ["local"], "bad")
    picture.text(450, 298, "503 with Retry-After, UNAVAILABLE, -OVERLOADED")
    picture.text(450, 315, "no local limit decides; allow and deny work as above", "small")
    picture.write("failures.svg")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    decision()
    algorithms(sys.argv[1])
    shared()
    failures()


if __name__ == "__main__":
    main()
