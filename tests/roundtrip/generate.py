"""Arguments that fit an input schema. Pure: the same schema and Random, the same arguments.

Schemas may be recursive; what cannot be built straight is tried again and checked by a validator.
"""

import base64
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import jsonschema_rs

from tests.roundtrip.merge import Impossible, merge
from tests.roundtrip.texts import ODD, format_text, matching, word

Json = dict[str, Any]

ATTEMPTS = 24
LEVELS = 7  # of optional members inside one another
NODES = 250  # after so many values, only what is required is made
LONGEST = 100_000  # text, and array, that a test sends
HOPS = 40  # a `$ref` to a `$ref` to ...
TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_NUMBERS = (0, 1, -1, 2, 7, 42, 1000, 65535, 123456789012, 0.5, -2.25, 0.1, 1e-7, 1e21)
_EXTRA = ("extra", "x y", "ä", "a.b", "k&=+", "n1")

Scope = Mapping[str, Any]


def arguments(
    schema: Json, r: Random, variant: int, files: frozenset[str] = frozenset()
) -> Json | None:
    """Variant 0: what is required; 1: everything; the others: some of it, odd texts, nulls. None
    when nothing was found that fits. `files` are the arguments that are files, `argument.member` a
    file inside one."""
    validator = jsonschema_rs.Draft202012Validator(schema)
    for attempt in range(ATTEMPTS):
        plain = variant < 2 or attempt > ATTEMPTS * 2 // 3
        made = _Making(schema, r, share=_share(variant, attempt), odd=0.0 if plain else 0.5)
        try:
            value = made.arguments(files)
        except Impossible:
            continue
        if validator.is_valid(value):
            return value
    return None


def _share(variant: int, attempt: int) -> float:
    """How many of the optional members are made; fewer, when it did not fit."""
    wanted = {0: 0.0, 1: 1.0}.get(variant, 0.5)
    return wanted if attempt < ATTEMPTS // 2 else wanted / 2 if attempt < ATTEMPTS - 2 else 0.0


class _Making:
    def __init__(self, root: Json, r: Random, share: float, odd: float) -> None:
        self._definitions: Scope = root.get("$defs", {})
        self._root = root
        self._r = r
        self._share = share
        self._odd = odd
        self._nodes = 0

    def arguments(self, files: frozenset[str]) -> Json:
        flat = self._flat(self._root)
        made: Json = {}
        for name in self._choose_members(flat, 0):
            inner = flat.get("properties", {}).get(name, {})
            made[name] = self._file(inner) if name in files else self.value(inner, 1)
        self._depend(flat, made)
        for inside in files:
            name, dot, member = inside.partition(".")
            if dot and isinstance(made.get(name), dict) and member in made[name]:
                made[name][member] = self._like(made[name][member])
        return made

    def _like(self, value: Any) -> Any:
        """A file instead of a value; as many as there are of it."""
        return [self._file({}) for _ in value] if isinstance(value, list) else self._file({})

    def value(self, schema: Any, level: int) -> Any:
        self._nodes += 1
        if level > LEVELS * 3:
            raise Impossible("too deep")
        flat = self._flat(schema)
        if "const" in flat:
            return flat["const"]
        if "enum" in flat:
            return self._r.choice(flat["enum"])
        return self._makers[self._type(flat, level)](self, flat, level)

    def _type(self, flat: Json, level: int) -> str:
        stated = flat.get("type")
        if isinstance(stated, str):
            return stated
        kinds = list(stated) if stated else _implied_types(flat) or list(TYPES[:4])
        if stated is None and self._odd and level < 3 and kinds == list(TYPES[:4]):
            kinds += ["array", "object"]
        if len(kinds) > 1 and "null" in kinds and self._r.random() > self._odd / 3:
            kinds.remove("null")
        return self._r.choice(kinds)

    def _flat(self, schema: Any, hops: int = 0) -> Json:
        """Without `$ref`, `allOf`, `anyOf` and `oneOf`: one of the ways to fit."""
        if schema is True or schema is None:
            return {}
        if schema is False or hops > HOPS or schema.get("not") in ({}, True):
            raise Impossible("nothing fits")
        flat = merge({}, {key: value for key, value in schema.items() if key not in _COMBINING})
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            parts.append(self._target(schema["$ref"]))
        unions = [schema[key] for key in ("oneOf", "anyOf") if schema.get(key)]
        parts += map(self._branch, unions)
        for part in parts:
            flat = merge(flat, self._flat(part, hops + 1))
        return flat

    def _branch(self, branches: list[Any]) -> Any:
        null = [one for one in branches if one in ({"type": "null"}, {"enum": [None]})]
        real = [one for one in branches if one not in null]
        if not real or (null and self._r.random() < self._odd / 3):
            return self._r.choice(branches)
        return self._r.choice(real)

    def _target(self, ref: str) -> Any:
        if ref == "#":
            return self._root
        name = ref.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if not ref.startswith("#/$defs/") or name not in self._definitions:
            raise Impossible(f"$ref {ref}")
        return self._definitions[name]

    def _choose_members(self, flat: Json, level: int) -> list[str]:
        """Names of the members to make."""
        properties = flat.get("properties", {})
        required = list(dict.fromkeys(flat.get("required", ())))
        optional = [name for name in properties if name not in required]
        full = level > LEVELS or self._nodes > NODES
        share = 0.0 if full else self._share if level < 3 else self._share / 2
        return required + [name for name in optional if self._r.random() < share]

    def _object(self, flat: Json, level: int) -> Json:
        properties, made = flat.get("properties", {}), {}
        rest = _rest(flat)
        for name in self._choose_members(flat, level):
            try:
                made[name] = self.value(properties.get(name, rest), level + 1)
            except Impossible:
                if name in flat.get("required", ()):
                    raise
        self._depend(flat, made, level)
        wanted = flat.get("minProperties", 0) - len(made)
        if wanted <= 0 and rest not in (False, True) and self._odd + self._share >= 0.5:
            wanted = 0 if level > LEVELS or self._nodes > NODES else 1
        if wanted > 0:
            self._add(flat, made, wanted, level)
        return made

    def _add(self, flat: Json, made: Json, count: int, level: int) -> None:
        """Optional properties first, then names of our own."""
        properties, rest = flat.get("properties", {}), _rest(flat)
        names = [name for name in properties if name not in made] if "minProperties" in flat else []
        if rest is not False:
            names += [name for name in (_EXTRA if self._odd else ("extra",)) if name not in made]
        for name in names[: min(count, 5)]:
            made[name] = self.value(properties.get(name, rest), level + 1)

    def _depend(self, flat: Json, made: Json, level: int = 0) -> None:
        """What one member demands besides itself."""
        properties = flat.get("properties", {})
        for name, others in flat.get("dependentRequired", {}).items():
            for other in others if name in made else ():
                if other not in made:
                    made[other] = self.value(properties.get(other, {}), level + 1)

    def _array(self, flat: Json, level: int) -> list[Any]:
        least, most = flat.get("minItems", 0), flat.get("maxItems", 3)
        full = level > LEVELS or self._nodes > NODES
        low = least if full or self._r.random() < self._odd / 4 else max(least, 1)
        count = min(max(least, self._r.randint(min(low, most), max(low, min(most, low + 2)))), most)
        _check_bound(count, "minItems")
        front = flat.get("prefixItems", [])
        items = flat.get("items", {})
        if full and not least:
            return []
        made: list[Any] = []
        for index in range(max(count, 0)):
            inner = front[index] if index < len(front) else items
            try:
                one = self.value(inner, level + 1)
            except Impossible:
                if index < least:
                    raise
                break
            if not flat.get("uniqueItems") or one not in made:
                made.append(one)
        return made

    def _string(self, flat: Json, level: int) -> str:
        least, most = flat.get("minLength", 0), flat.get("maxLength", 1000)
        patterns = flat.get("patterns", [])
        if patterns:
            return matching(patterns[0], self._r, min(least, 5000))
        if text := format_text(str(flat.get("format", "")), self._r):
            return text
        text = self._r.choice(ODD) if self._r.random() < self._odd else word(self._r)
        _check_bound(least, "minLength")
        text += "x" * (least - len(text))
        return text[: max(most, 0)]

    def _integer(self, flat: Json, level: int) -> int:
        return int(self._number({**flat, "whole": True}, level))

    def _number(self, flat: Json, level: int) -> float:
        low, high = _bounds(flat)
        step = flat.get("multipleOf")
        fitting = [n for n in _NUMBERS if low <= n <= high]
        if flat.get("whole") or step:
            fitting = [n for n in fitting if n == int(n) and abs(n) < 2**53]
            if flat.get("format") == "int32":
                fitting = [n for n in fitting if abs(n) < 2**31]
        if step:
            start = -(-low // step) * step if low > -1e300 else 0
            return start + step * self._r.randint(0, 3) if start < high else start
        if fitting:
            return self._r.choice(fitting)
        return _within(low, high, whole=bool(flat.get("whole")))

    def _boolean(self, flat: Json, level: int) -> bool:
        return self._r.random() < 0.5

    def _null(self, flat: Json, level: int) -> None:
        return None

    def _file(self, schema: Any) -> Any:
        """A file in one of the ways in which an argument can say it; an array of them where the
        schema wants one."""
        flat = schema if isinstance(schema, dict) else {}
        while "$ref" in flat:
            flat = self._target(flat["$ref"])
        if flat.get("type") == "array":
            return [self._file(flat.get("items", {})) for _ in range(self._r.randint(1, 2))]
        content = self._r.choice((b"plain text", b"\x00\xff\r\n--\r\n", b"%PDF-1.7 \xe2\xe3", b"x"))
        encoded = base64.b64encode(content).decode()
        spelled: list[Any] = [encoded, f"data:image/png;base64,{encoded}"]
        if _takes_objects(flat):
            spelled += [
                {"data": encoded, "filename": "a b.png", "mimeType": "image/png"},
                {"data": encoded, "filename": 'q"uö.txt'},
            ]
        return self._r.choice(spelled)

    _makers: "dict[str, Callable[[_Making, Json, int], Any]]" = {  # noqa: RUF012 - functions
        "object": _object,
        "array": _array,
        "string": _string,
        "integer": _integer,
        "number": _number,
        "boolean": _boolean,
        "null": _null,
    }


def _check_bound(least: float, keyword: str) -> None:
    """Raises Impossible where a schema wants more than a test sends."""
    if least > LONGEST:
        raise Impossible(f"{keyword} {least}")


_COMBINING = ("$ref", "allOf", "anyOf", "oneOf", "$defs", "description", "title", "examples")


def _rest(flat: Json) -> Any:
    """What members must be that no property describes; False: there are none."""
    rest = flat.get("additionalProperties", True)
    return False if isinstance(rest, dict) and rest.get("not") in ({}, True) else rest


def _takes_objects(flat: Json) -> bool:
    """Whether a file's schema lets an object through."""
    kinds = flat.get("type", "object" if not flat else "")
    branches = [*flat.get("anyOf", ()), *flat.get("oneOf", ())]
    return "object" in kinds or any("object" in one.get("type", "") for one in branches)


def _implied_types(flat: Json) -> list[str]:
    """Types of which a schema without one speaks."""
    if {"properties", "additionalProperties", "minProperties"} & flat.keys() or flat.get(
        "required"
    ):
        return ["object"]
    if "items" in flat or "prefixItems" in flat:
        return ["array"]
    if {"format", "patterns", "minLength", "maxLength"} & flat.keys():
        return ["string"]
    return ["number"] if {"minimum", "maximum", "multipleOf"} & flat.keys() else []


def _bounds(flat: Json) -> tuple[float, float]:
    whole = 1 if flat.get("whole") else 1e-3
    low = max(flat.get("minimum", -1e308), flat.get("exclusiveMinimum", -1e308 - whole) + whole)
    high = min(flat.get("maximum", 1e308), flat.get("exclusiveMaximum", 1e308 + whole) - whole)
    return low, high


def _within(low: float, high: float, *, whole: bool) -> float:
    if low > high:
        raise Impossible("no number")
    near = low if low > -1e300 else high
    return -(-near // 1) if whole else near
