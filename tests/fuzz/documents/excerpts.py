"""Parts of descriptions with everything that they refer to: small enough to damage thousands of.

Of our own, and of the files in a directory where one is given.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml
from graphql import build_schema, introspection_from_schema

from tests.roundtrip.ours import all_versions

OPERATIONS = 30  # of one excerpt, at most
OF_EACH_FILE = 6
LIMIT_BYTES = 120_000
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")

Json = dict[str, Any]

GRAPHQL = '''
"""A shop."""
schema { query: Query mutation: Mutation subscription: Feed }
scalar DateTime @specifiedBy(url: "https://example.com/time")
directive @cost(weight: Int = 1) on FIELD_DEFINITION
enum Kind { LAMP "Not sold any more" CHAIR @deprecated(reason: "none left") }
interface Node { id: ID! }
type Item implements Node { id: ID! name: String! kind: Kind price(currency: String = "EUR"): Float
  related(first: Int = 5): [Item!]! maker: Maker made: DateTime }
type Maker implements Node { id: ID! name: String items(first: Int, after: String): Items! }
type Items { edges: [Edge] pageInfo: Page! }
type Edge { node: Item cursor: String! }
type Page { hasNextPage: Boolean! endCursor: String }
union Thing = Item | Maker
input Filter { kind: Kind = LAMP and: [Filter!] price: Range }
input Range @oneOf { below: Float above: Float }
type Query { item(id: ID!): Item things(filter: Filter, first: Int): [Thing!]! node(id: ID!): Node
  items(first: Int!, after: String): Items! }
type Mutation { rename(id: ID!, name: String!): Item! drop(ids: [ID!]!): Int @deprecated }
type Feed { changed: Item }
'''


def gather_excerpts(directory: Path | None, r: Random) -> list[tuple[str, bytes]]:
    """(name, bytes) of all excerpts; the name's end says what it is."""
    found = [
        (f"ours-{name}-{number}.json", _encode_json(excerpt(one, r)))
        for name, one in all_versions()
        for number in range(OF_EACH_FILE)
    ]
    for path in _files(directory):
        root = read(path)
        if isinstance(root, dict) and isinstance(root.get("paths"), dict):
            found += [
                (f"{path.stem}-{number}.json", _encode_json(excerpt(root, r)))
                for number in range(OF_EACH_FILE)
            ]
    told = introspection_from_schema(build_schema(GRAPHQL), descriptions=True)
    found += [(f"shop-{number}.graphql", GRAPHQL.encode()) for number in range(OF_EACH_FILE)]
    return [*found, ("introspection.json", _encode_json({"data": told}))]


def whole(directory: Path | None) -> list[Path]:
    """Descriptions to be damaged as they are."""
    return [path for path in _files(directory) if path.suffix == ".json"]


def read(path: Path) -> Any:
    """None for what is neither JSON nor YAML."""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(data)
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (ValueError, yaml.YAMLError):
        return None


def _files(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        for path in sorted(directory.rglob("*")):
            if path.suffix in (".json", ".yaml", ".yml") and path.is_file():
                yield path


def excerpt(root: Json, r: Random) -> Json:
    """Some of the operations of `root` and what they refer to, in at most LIMIT_BYTES."""
    keys = [
        (path, method)
        for path, item in root["paths"].items()
        if isinstance(item, dict)
        for method in METHODS
        if method in item
    ]
    count = min(len(keys), r.randint(1, OPERATIONS))
    start = r.randrange(max(1, len(keys) - count + 1))
    while True:
        part = _part(root, keys[start : start + count])
        if count <= 1 or len(_encode_json(part)) <= LIMIT_BYTES:
            return part
        count //= 2


def _part(root: Json, keys: list[tuple[str, str]]) -> Json:
    holders = ("paths", "components", "definitions", "parameters", "responses")
    part = {key: value for key, value in root.items() if key not in (*holders, "tags")}
    part["paths"] = {}
    for path, method in keys:
        item = root["paths"][path]
        rest = {key: value for key, value in item.items() if key not in METHODS}
        part["paths"].setdefault(path, rest)[method] = item[method]
    schemes = root.get("components", {}).get("securitySchemes")
    if schemes:
        part["components"] = {"securitySchemes": schemes}
    waiting, seen = list(_refs(part)), set()
    while waiting:
        ref = waiting.pop()
        if ref not in seen and ref.startswith("#/") and len(seen) < 2000:
            seen.add(ref)
            waiting += _refs(_copy_referenced(root, part, ref))
    return part


def _copy_referenced(root: Json, part: Json, ref: str) -> Any:
    """What `ref` points at, put into `part` at the same place."""
    source, target, names = root, part, ref[2:].split("/")
    for name in names[:-1]:
        key = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(source, dict) or not isinstance(source.get(key), dict):
            return None
        source = source[key]
        target = target.setdefault(key, {})
    last = names[-1].replace("~1", "/").replace("~0", "~")
    if not isinstance(source, dict) or last not in source:
        return None
    target[last] = source[last]
    return source[last]


def _refs(node: Any) -> Iterator[str]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("$ref"), str):
                yield one["$ref"]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _encode_json(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
