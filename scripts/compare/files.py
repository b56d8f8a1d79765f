"""The policy files that both sides serve, and their variants."""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
POLICY = HERE / "policy"
SCHEMA = HERE.parents[1] / "docs/src/tidegate.schema.json"

# The second variant of the policy, which a reload switches to: texts and their replacements.
RELOADED = {
    "limit: {rate: 10/minute, burst: 4}": "limit: {rate: 6/minute, burst: 7}",
    "{algorithm: fixed_window, rate: 9/minute}": "{algorithm: fixed_window, rate: 6/minute}",
    "{algorithm: sliding_log, rate: 8/minute}": "{algorithm: sliding_log, rate: 5/minute}",
    "unit: second, requests_per_unit: 5": "unit: second, requests_per_unit: 3",
    "limit: {rate: 120/minute, burst: 40}": "limit: {rate: 90/minute, burst: 30}",
}

# The other way to find the address of a client.
BY_HOPS = {"trusted_networks: [127.0.0.0/8, 10.9.0.0/16]": "trusted_hops: 2", "header: x-forwarded-for": "header: forwarded"}


def read(directory):
    """Reads the files of a policy, a map from names to texts."""
    files = {path.name: path.read_text() for path in sorted(directory.glob("*.yaml"))}
    if not files:
        raise SystemExit(f"{directory} contains no policy: no file that ends in .yaml")
    return files


def replace(files, texts):
    """Replaces texts in all files. Each must be in one of them."""
    for old, new in texts.items():
        if not any(old in text for text in files.values()):
            raise SystemExit(f"the policy does not contain `{old}`; change the policy or its variants in files.py")
        files = {name: text.replace(old, new) for name, text in files.items()}
    return files


def unused_names():
    """Returns the fields and values of the schema that no file uses."""
    texts = [text for variant in ({}, BY_HOPS) for text in replace(read(POLICY), variant).values()]
    words = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    return sorted(set(schema_names(json.loads(SCHEMA.read_text()))) - words)


def schema_names(node):
    if isinstance(node, list):
        for one in node:
            yield from schema_names(one)
    elif isinstance(node, dict):
        yield from node.get("properties", {})
        yield from (value for value in [*node.get("enum", []), node.get("const")] if isinstance(value, str))
        for one in node.values():
            yield from schema_names(one)
