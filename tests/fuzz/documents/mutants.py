"""What happens to a description: members go, come twice, change type or place, refer to themselves,
grow without end; and the text of it is cut, doubled and overwritten. Pure."""

import copy
import json
import re
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import yaml

from tests.fuzz.damage import damage_text

Slot = tuple[Any, Any]  # a dict or list, and a key of it

_DEEP = "@deep:{}:{}@"
ROOM = 60_000  # places in a document that still may grow
LEVELS = (20, 120, 900, 5000, 50_000)
DEEP_COPIES = 20
WIDE = 1000
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e308, 2**31, 2**63, 10**40, "", " ", "x", "object", "array",
    "string", "null", "file", "é\U0001f600", "\x00", "\ud800", "a" * 5000, "{", "{}", "{a}/{a}",
    "#", "#/", "1e999", "2.0", "3.0.0", "3.1.0", "3.2.0", [], {}, [[]], [{}], {"": {}}, [None],
    ["string", "null"], ["object", "array"], {"type": "object"}, {"type": []}, {"$ref": 1},
    {"$ref": None}, {"allOf": []}, {"oneOf": [{}, {}]}, {"not": {}}, {"const": {"a": [1]}},
)  # fmt: skip
REFS = (
    "#", "#/", "#/paths", "#/info", "#/components", "#/components/schemas/Nope", "#/definitions/x",
    "", "other.json", "other.yaml#/a", "../../../../etc/passwd", "/etc/passwd", "file:///etc/passwd",
    "http://127.0.0.1:9/x.json", "http://[::1/x", "//host/x", "#/paths/~1", "#/%", "#/%zz", "#a",
    "#/~2", "urn:x", "a" * 5000, "#/components/schemas/" + "~1" * 500, "mutant.json",
    "mutant.json#/", "./mutant.json#/paths", "\x00", "#/paths/0/1/2", "?x", "data:,{}",
)  # fmt: skip
KEYWORDS: tuple[tuple[str, Any], ...] = (
    ("style", "deepObject"), ("style", "matrix"), ("style", 7), ("explode", "yes"), ("in", "body"),
    ("in", "formData"), ("in", "cookie"), ("in", "querystring"), ("in", 1), ("name", ""),
    ("name", "a\nb"), ("name", 1), ("required", "x"), ("required", [1]), ("required", True),
    ("required", ["a", "a"]), ("pattern", "(a+)+$"), ("pattern", "(?!"), ("pattern", "["),
    ("pattern", "(" * 3000), ("pattern", "a{1,99999}{1,99999}"), ("pattern", 1), ("maxLength", -1),
    ("maxLength", 1e400), ("minimum", "1"), ("multipleOf", 0), ("enum", []), ("enum", {}),
    ("enum", [1, "1", None, [], {}] * 400), ("type", "file"), ("type", ["a"]), ("type", []),
    ("items", []), ("items", [{}]), ("items", True), ("properties", []), ("properties", {"": 1}),
    ("additionalProperties", []), ("discriminator", "x"), ("discriminator", {"mapping": {"a": 1}}),
    ("nullable", 1), ("default", {"a": {"$ref": "#"}}), ("example", {"$ref": "#/nope"}),
    ("examples", 3), ("allOf", {}), ("allOf", [1]), ("oneOf", []), ("not", True), ("content", {}),
    ("content", {"": {}}), ("content", {"*/*": 1}), ("content", {"a/b; c=\"": {"schema": {}}}),
    ("content", {"multipart/form-data": {"schema": {}, "encoding": {"x": 1}}}),
    ("content", {"application/xml": {"schema": {"type": "array", "xml": 3}}}),
    ("requestBody", {}), ("requestBody", {"$ref": "#"}), ("responses", []),
    ("responses", {"200": 1, "default": [], "2XX": {"content": {"a": 1}}}), ("security", {}),
    ("security", [[]]), ("security", [{"nope": 1}]), ("servers", [{"url": 1}]), ("servers", {}),
    ("servers", [{"url": "{a}", "variables": {"a": 1}}]), ("servers", [{"url": "http://[x"}]),
    ("parameters", {}), ("parameters", [1, None]), ("parameters", [{"$ref": "#/paths"}]),
    ("operationId", 1), ("operationId", "a" * 9000), ("operationId", ""), ("tags", "x"),
    ("x-toolgate", 1), ("x-toolgate", {"enabled": "x"}), ("x-toolgate", {"hide": [], "name": 3}),
    ("$ref", "#"), ("$id", "x"), ("$defs", 1), ("$schema", 1), ("$dynamicRef", "#x"), ("xml", []),
    ("xml", {"name": 1, "wrapped": "x"}), ("format", 1), ("format", "binary"), ("format", "byte"),
    ("collectionFormat", 1), ("collectionFormat", "tsv"), ("consumes", 1), ("consumes", ["x"]),
    ("swagger", "2.0"), ("openapi", "3.1.0"), ("openapi", 3), ("paths", {"": {}}), ("host", 1),
    ("paths", {"/{a": {"get": {}}}), ("additionalOperations", {"a b": {}, "": 1}), ("basePath", 1),
    ("readOnly", "x"), ("writeOnly", 1), ("deprecated", "x"), ("description", 1), ("summary", []),
    ("dependentRequired", {"a": "b"}), ("patternProperties", {"(": {}}), ("contentEncoding", 1),
    ("itemSchema", 1), ("jsonSchemaDialect", 1), ("$self", ":"), ("definitions", []),
    ("components", {"schemas": [], "securitySchemes": {"a": 1, "b": {"type": "apiKey"}}}),
    ("securityDefinitions", {"a": []}), ("components", []), ("schema", []), ("schema", 1),
)  # fmt: skip
NAMES = ("", "$ref", "x-", "__proto__", "{", "a/b~0", "get", "\n", "n" * 5000, "é", "200", "*/*")


def mutant(name: str, excerpt: bytes, r: Random) -> tuple[str, bytes]:
    """(name, bytes) of it damaged; the name says whether it is JSON, YAML or GraphQL."""
    if not name.endswith(".json"):
        return name, _texts(excerpt, r)
    if r.random() < 0.12:
        return name, damage_text(r, excerpt)
    document = json.loads(excerpt)
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        document = mutate(document, r)
    if r.random() < 0.08:
        anchors = _anchors(r) if r.random() < 0.3 else b""
        return name.replace(".json", ".yaml"), anchors + _yaml(document)
    return name, encode_mutant(document)


def mutate(document: Any, r: Random) -> Any:
    slots = _slots(document)
    if not slots or len(slots) > ROOM:
        return document
    slot = r.choice(slots) if r.random() < 0.6 else r.choice(_deeper(slots, r))
    return r.choice(_MUTATIONS)(document, slot, slots, r) or document


def encode_mutant(document: Any) -> bytes:
    """JSON, with what is nested deeper than an encoder goes put in as text; where a mutation made
    many copies of that, the first ones."""
    deep = count()

    def write_nested(match: re.Match[str]) -> str:
        if next(deep) >= DEEP_COPIES:
            return "1"
        kind, levels = match[1], int(match[2])
        opening, closing = {"list": ("[", "]"), "all": ('{"allOf":[', "]}")}.get(
            kind, (f'{{"{kind}":', "}")
        )
        return f"{opening * levels}1{closing * levels}"

    text = re.sub(r'"@deep:([^:"]+):([0-9]+)@"', write_nested, json.dumps(document))
    return text.encode("utf-8", "surrogatepass")


def _yaml(document: Any) -> bytes:
    plain = json.loads(json.dumps(document).replace("\\ud800", "").replace("\\u0000", ""))
    try:
        dumped: str = yaml.dump(plain, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    except (yaml.YAMLError, RecursionError, UnicodeError):
        return encode_mutant(document)
    return dumped.encode("utf-8", "replace")


def _anchors(r: Random) -> bytes:
    """Members whose aliases double, or multiply by nine, with every line."""
    many, levels = r.choice(((2, 60), (9, 12), (9, 400)))
    lines = [
        f"x-{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * many)}]"
        for level in range(levels)
    ]
    return "\n".join(["x-0: &a0 [x, x]", *lines, f"components: *a{levels}", ""]).encode()


def _texts(text: bytes, r: Random) -> bytes:
    """Words and signs of a language change places."""
    if r.random() < 0.3:
        return damage_text(r, text)
    words = text.split(b" ")
    for _ in range(r.randint(1, 4)):
        at = r.randrange(len(words))
        match r.randrange(5):
            case 0:
                del words[at]
            case 1:
                words[at] = r.choice(words)
            case 2:
                words.insert(
                    at, r.choice((b"{", b"}", b"(", b")", b"!", b"@x", b'"""', b"[", b"|"))
                )
            case 3:
                words[at : at + 3] = words[at : at + 3] * r.choice((2, 400))
            case 4:
                words[at] = r.choice(
                    (b"[" * 3000, b"{ a " * 3000, b"Item", b"Filter!", b"x" * 9000)
                )
        words = words or [b""]
    return b" ".join(words)


def _slots(document: Any) -> list[Slot]:
    """Every place in it."""
    found: list[Slot] = []
    waiting = [document]
    while waiting:
        one = waiting.pop()
        keys = (
            list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        )
        for key in keys:
            found.append((one, key))
            waiting.append(one[key])
    return found


def _deeper(slots: list[Slot], r: Random) -> list[Slot]:
    """Places by the name of their key: each name as likely as any other, so that what there is
    little of gets its share."""
    names = {key for _, key in slots if isinstance(key, str)}
    if not names:
        return slots
    name = r.choice(sorted(names))
    return [slot for slot in slots if slot[1] == name]


def _delete(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    del slot[0][slot[1]]


def _replace(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    slot[0][slot[1]] = copy.deepcopy(r.choice(VALUES))


def _transplant(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    other = r.choice(slots)
    if len(json.dumps(other[0][other[1]])) < 100_000:
        slot[0][slot[1]] = copy.deepcopy(other[0][other[1]])


def _duplicate(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    holder, key = slot
    value = holder[key]
    if isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(value) for _ in range(r.choice((1, 2, 20)))]
    else:
        holder[f"{key}{r.choice(('2', '_', ' ', '/'))}"] = copy.deepcopy(value)


def _rename(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    holder, key = slot
    if isinstance(holder, dict):
        holder[r.choice(NAMES)] = holder.pop(key)


def _keyword(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    target = slot[0][slot[1]]
    if not isinstance(target, dict):
        target = slot[0] if isinstance(slot[0], dict) else document
    if isinstance(target, dict):
        for name, value in r.sample(KEYWORDS, r.choice((1, 1, 2, 3))):
            target[name] = copy.deepcopy(value)


def _refer(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    """To nowhere, to another file, or to somewhere in the same document, around itself too."""
    if r.random() < 0.5:
        slot[0][slot[1]] = {"$ref": r.choice(REFS)}
        return
    pointers = _pointers(document, slot[0])
    slot[0][slot[1]] = {"$ref": r.choice(pointers)} if pointers else {"$ref": "#"}


def _pointers(document: Any, holder: Any) -> list[str]:
    """Places that hold `holder`, its ancestors before it: circles."""
    waiting: list[tuple[Any, str]] = [(document, "#")]
    while waiting:
        one, pointer = waiting.pop()
        if one is holder:
            parts = pointer.split("/")
            return ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if isinstance(one, dict):
            waiting += [
                (value, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
                for key, value in one.items()
            ]
        elif isinstance(one, list):
            waiting += [(value, f"{pointer}/{index}") for index, value in enumerate(one)]
    return []


def _nest(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    kind = r.choice(("list", "all", "items", "properties", "not", "schema", "a", "x-toolgate"))
    slot[0][slot[1]] = _DEEP.format(kind, r.choice(LEVELS))


def _wrap(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    value = slot[0][slot[1]]
    for _ in range(r.choice((1, 3, 60))):
        value = r.choice(([value], {"allOf": [value]}, {"items": value}, {"anyOf": [value, {}]}))
    slot[0][slot[1]] = value


def _bomb(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    """Schemas that double with every step for whoever expands them."""
    if not isinstance(document, dict):
        return
    holder = "definitions" if "swagger" in document else "schemas"
    home = document if holder == "definitions" else document.setdefault("components", {})
    if not isinstance(home, dict) or not isinstance(home.setdefault(holder, {}), dict):
        return
    prefix = "#/definitions" if holder == "definitions" else "#/components/schemas"
    levels, shape = r.choice((12, 30, 60)), r.choice(("allOf", "anyOf", "oneOf", "properties"))
    for level in range(levels):
        inner = {"$ref": f"{prefix}/bomb{level + 1}"}
        both: Any = {"a": inner, "b": inner} if shape == "properties" else [inner, inner]
        home[holder][f"bomb{level}"] = {"type": "object", shape: both}
    home[holder][f"bomb{levels}"] = r.choice(({"type": "string"}, {"$ref": f"{prefix}/bomb0"}))
    slot[0][slot[1]] = {"$ref": f"{prefix}/bomb0"}


def _widen(document: Any, slot: Slot, slots: list[Slot], r: Random) -> None:
    holder, key = slot
    value = holder[key]
    small = len(json.dumps(value)) < 300
    if isinstance(holder, list) and small:
        holder += [copy.deepcopy(value) for _ in range(WIDE)]
    elif isinstance(holder, dict) and small:
        for number in range(WIDE):
            holder[f"{key}{number}"] = copy.deepcopy(value)


Mutation = Callable[[Any, Slot, list[Slot], Random], None]
_MUTATIONS: tuple[Mutation, ...] = (
    _delete, _delete, _replace, _replace, _transplant, _transplant, _duplicate, _rename, _keyword,
    _keyword, _keyword, _refer, _refer, _nest, _wrap, _bomb, _widen,
)  # fmt: skip
