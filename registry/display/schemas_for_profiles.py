"""Rewrites input schemas for a profile: the result accepts whatever the whole schema accepts. Pure.

References lead to definitions of the same schema only.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from config.settings import Profile
from registry.display.portable_patterns import with_portable_patterns
from registry.display.schema_summaries import Summaries
from registry.names.tool_names import HASH_DIGITS, PORTABLE_LIMIT, add_suffix, legal
from schemas.json_schema.keywords import (
    COMPOSITIONS,
    DEFINITION_KEYWORDS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    UNIONS,
    Json,
)
from schemas.json_schema.merge import conjoin, disjoin
from schemas.json_schema.references import find, reference_of, siblings
from schemas.json_schema.validators import Validator, compile_validator
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import encode

NOTES = frozenset(("examples", "example", "title", "default"))
HOPS = 16  # chained references from the root
FLATTENED_LIMIT = 5000  # root schemas visited: nested unions multiply
CHOICES_DESCRIBED = 6  # alternative argument sets described in words
VALUES = 200  # characters of enumerated values described in words
NAME = 200  # characters of an argument's own name beside the one in a list

_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_STRUCTURE = ("properties", "patternProperties", "additionalProperties", "items", "prefixItems")
_OWN = ("x-mcp-header",)  # MCP's own
_OPEN = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_OF_NAMES = frozenset(  # keywords at the root that depend on the names of arguments
    {
        *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
        *("if", "then", "else", "not", "unevaluatedProperties", *(NOTES - {"title"})),
    }
)
_FLAT = Profile(root_unions=False)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")


class NotExpressible(Exception):
    """The tool cannot be expressed for such a client; `str()` is the reason."""


def rewritten(
    schema: Json, profile: Profile, more: str, aliases: Mapping[str, str] | None = None
) -> Json:
    """Rewrite the schema. `more` is the note in summaries on where to get the whole; `aliases`
    are `argument_aliases` of the whole. Raises NotExpressible."""
    if profile.patterns == "portable":
        schema = with_portable_patterns(schema)
    return _Rewriting(schema, profile, more, aliases).run()


def argument_aliases(schema: Json) -> dict[str, str]:
    """Names that every profile accepts, by the names of arguments that some reject. They depend on
    the whole schema alone, so that calls of all clients are mapped back alike."""
    properties = _Rewriting(schema, _FLAT, "").flat().get("properties")
    if not isinstance(properties, dict):
        return {}
    used_names, aliases = set(properties), {}
    for name in properties:
        if not _NAME.fullmatch(name):
            aliases[name] = next(alias for alias in _aliases(name) if alias not in used_names)
            used_names.add(aliases[name])
    return aliases


def _aliases(name: str) -> Iterator[str]:
    alias = legal(name, _NO_NAME) or legal(f"value of {name}", _NO_NAME)
    alias = f"_{alias}"[:PORTABLE_LIMIT] if alias[:1].isdigit() else alias
    yield alias
    for digits in range(HASH_DIGITS, PORTABLE_LIMIT - 1):
        yield add_suffix(alias, name, digits=digits)


def rewrites_schemas(profile: Profile) -> bool:
    """Whether the profile rewrites anything besides names."""
    naming_only = Profile(
        profile.clients, profile.name_limit, profile.name_prefix, profile.name_letter,
        describes=profile.describes,
    )  # fmt: skip
    return profile != naming_only


class _Rewriting:
    def __init__(
        self, schema: Json, profile: Profile, more: str, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._whole = schema
        self._aliases = aliases or {}
        self._profile = profile
        self._more = more
        self._summaries = Summaries(schema, more)
        self._flattened = 0

    def flat(self) -> Json:
        """The schema with the unions at its root as the profile accepts them."""
        return self._whole if self._profile.root_unions else self._flat_root(self._whole)

    def run(self) -> Json:
        root = self._named_well(self.flat())
        schema = self._schema(root, 1, top=True)
        if not self._profile.references:  # no reference is left
            schema = {key: value for key, value in schema.items() if key not in DEFINITION_KEYWORDS}
        return {**schema, "type": "object"}  # arguments are always an object

    def _flat_root(self, root: Json) -> Json:
        definitions: Json = {key: root[key] for key in DEFINITION_KEYWORDS if key in root}
        branches: Any = next((root[key] for key in UNIONS if key in root), [])
        flat = self._flat({key: value for key, value in root.items() if key not in definitions}, 0)
        for keyword in ("enum", "not", "const"):  # OpenAI: not at the top level either
            flat.pop(keyword, None)
        if values_text := _choices(branches):
            flat["description"] = " ".join(filter(None, (flat.get("description"), values_text)))
        return {**flat, **definitions}

    def _flat(self, schema: Any, hops: int) -> Json:
        """The schema without unions and references at its top."""
        self._flattened += 1
        if not isinstance(schema, dict) or hops > HOPS or self._flattened > FLATTENED_LIMIT:
            return {}
        beside = siblings(schema)
        flat = {key: value for key, value in beside.items() if key not in COMPOSITIONS}
        if (reference := reference_of(schema)) is not None:
            flat = conjoin(flat, self._flat(find(self._whole, reference), hops + 1))
        for branch in subschemas(schema, ["allOf"]):
            flat = conjoin(flat, self._flat(branch, hops + 1))
        for keyword in UNIONS:
            if branches := list(subschemas(schema, [keyword])):
                each = [self._flat(branch, hops + 1) for branch in branches if branch is not False]
                flat = conjoin(flat, disjoin(each, self._union))
        return flat

    def _union(self, schemas: list[Any]) -> Any:
        return {"anyOf": schemas}

    def _named_well(self, root: Json) -> Json:
        """The schema with other names for arguments whose names the client rejects; without those
        for which there are none. Raises NotExpressible."""
        properties = root.get("properties")
        if not self._profile.arguments or not isinstance(properties, dict):
            return root
        accepted = _pattern(self._profile.arguments)
        bad = [name for name in properties if not accepted.is_valid(name)]
        if not bad:
            return root
        names = {name: name for name in properties} | {
            name: alias
            for name in bad
            if (alias := self._aliases.get(name)) is not None and accepted.is_valid(alias)
        }
        gone = [name for name in bad if names[name] == name]
        required = root.get("required") or ()
        for name in required:
            if name in gone:
                raise NotExpressible(f"its argument {name[:80]!r} has a name that is not accepted")
        root = {keyword: value for keyword, value in root.items() if keyword not in _OF_NAMES}
        if gone or "patternProperties" in root:  # a name may match where the other one did not
            root = {key: value for key, value in root.items() if key not in _OPEN}
        root["properties"] = {
            names[name]: member if names[name] == name else _with_original(member, name)
            for name, member in properties.items()
            if name not in gone
        }
        if required:
            root["required"] = [names.get(name, name) for name in required]
        return root

    def _inner(self, raw: Any, level: int) -> Any:
        if isinstance(raw, dict):
            return self._schema(raw, level)
        return raw if self._profile.keywords is None else {}

    def _schema(self, raw: Json, level: int, top: bool = False) -> Json:
        """Rewrite a subschema. `level`: nesting of objects and arrays, itself included."""
        schema = raw if top and not self._profile.root_unions else self._restrict_unions(raw)
        if self._profile.nullable:
            schema = self._nullable(schema)
        schema = self._restrict_values(schema)
        if self._too_deep(schema, level):
            schema = self._summary(schema)
        members = {key: self._keyword(key, value, level) for key, value in schema.items()}
        return self._finish(members)

    def _keyword(self, key: str, value: Any, level: int) -> Any:
        if key in MAP_KEYWORDS and isinstance(value, dict):
            return {name: self._inner(member, level + 1) for name, member in value.items()}
        if key in ("not", "if", "contains", "propertyNames"):
            return value  # widening here would narrow
        if key in _ONE and isinstance(value, dict):
            return self._schema(value, level + 1)
        if key in LIST_KEYWORDS and isinstance(value, list):
            deeper = level + (key == "prefixItems")
            return [self._inner(member, deeper) for member in value]
        return value

    def _restrict_unions(self, schema: Json) -> Json:
        """The schema with only the kinds of unions that the profile supports."""
        allowed = self._profile.unions
        if "allOf" in schema and "allOf" not in allowed:
            branches = list(subschemas(schema, ["allOf"]))
            schema = {key: value for key, value in schema.items() if key != "allOf"}
            for branch in branches:
                if isinstance(branch, dict):
                    schema = conjoin(schema, self._restrict_unions(branch))
        if "oneOf" in schema and "oneOf" not in allowed:
            schema = dict(schema)
            branches = schema.pop("oneOf")
            schema.setdefault("anyOf", branches)
        if "anyOf" in schema and "anyOf" not in allowed:
            branches = [
                self._restrict_unions(branch) if isinstance(branch, dict) else branch
                for branch in subschemas(schema, ["anyOf"])
                if branch is not False
            ]
            schema = {key: value for key, value in schema.items() if key != "anyOf"}
            schema = conjoin(schema, disjoin(branches, self._union))
        return schema

    def _nullable(self, schema: Json) -> Json:
        """The schema with at most one type, and null as a flag."""
        branches, stated = schema.get("anyOf"), schema.get("type")
        schema = dict(schema)
        if isinstance(branches, list) and any(_is_null(branch) for branch in branches):
            non_null = [branch for branch in branches if not _is_null(branch)]
            if stated is None:
                schema["nullable"] = True
            schema["anyOf"] = non_null
            if len(non_null) < 2:
                del schema["anyOf"]
            if len(non_null) == 1 and isinstance(non_null[0], dict):
                schema = conjoin(schema, self._nullable(non_null[0]))
                stated = schema.get("type")
        if isinstance(stated, list) or stated == "null":
            self._one_type(schema, [stated] if stated == "null" else list(stated))
        return schema

    def _one_type(self, schema: Json, type_names: list[str]) -> None:
        """Reduce the `type` of `schema`, in place, to one of several types, or none."""
        types = [name for name in type_names if name != "null"]
        if "number" in types and "integer" in types:
            types.remove("integer")
        if len(types) < len(type_names) and "null" in type_names:
            schema["nullable"] = True
        del schema["type"]
        if len(types) < 2:
            schema["type"] = types[0] if types else "string"
        elif "anyOf" not in schema and "anyOf" in self._profile.unions:
            schema["anyOf"] = [_of_type(schema, name) for name in types]
            for key in _STRUCTURE:
                schema.pop(key, None)

    def _restrict_values(self, schema: Json) -> Json:
        """The schema with only the enumerations and formats that the profile supports."""
        keywords = self._profile.keywords
        if "const" in schema and keywords is not None and "const" not in keywords:
            schema = {**schema, "enum": [schema["const"]]}
            del schema["const"]
        values = schema.get("enum")
        if self._profile.text_enums and isinstance(values, list):
            schema = _text_enum(schema, values)
        formats = self._profile.formats
        if formats is not None and schema.get("format") not in formats:
            schema = {key: value for key, value in schema.items() if key != "format"}
        return schema

    def _too_deep(self, schema: Json, level: int) -> bool:
        depth = self._profile.depth
        return depth is not None and level >= depth and not schema.keys().isdisjoint(_STRUCTURE)

    def _summary(self, schema: Json) -> Json:
        short = self._summaries.of(schema)
        short |= {"nullable": True} if schema.get("nullable") else {}
        return self._nullable(short) if self._profile.nullable else short

    def _finish(self, schema: Json) -> Json:
        keywords = self._profile.keywords
        if keywords is not None:
            gone = {key for key in schema if key not in keywords and key not in _OWN}
            if "patternProperties" in gone:
                gone.add("additionalProperties")
            if "prefixItems" in gone:
                gone.add("items")
            schema = {key: value for key, value in schema.items() if key not in gone}
            if "required" in schema:
                properties = schema.get("properties") or {}
                schema["required"] = [name for name in schema["required"] if name in properties]
                if not schema["required"]:
                    del schema["required"]
        bare = "items" not in schema and "prefixItems" not in schema
        if self._profile.items and bare and "array" in _as_list(schema.get("type")):
            schema["items"] = {}
        return schema


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return (
        schema.get("type") in ("null", ["null"])
        or schema.get("enum") == [None]
        or ("const" in schema and schema["const"] is None)
    )


def _of_type(schema: Json, name: str) -> Json:
    keys = {"object": _STRUCTURE[:3], "array": _STRUCTURE[3:]}.get(name, ())
    return {"type": name, **{key: schema[key] for key in keys if key in schema}}


def _text_enum(schema: Json, values: list[Any]) -> Json:
    texts = [value for value in values if isinstance(value, str)]
    others = [value for value in values if not isinstance(value, str | None)]
    if texts and not others:
        null = {"nullable": True} if len(texts) < len(values) else {}
        return {**schema, "type": "string", "enum": texts, **null}
    values_text = ", ".join(encode(value).decode() for value in values)
    described = filter(None, (schema.get("description"), f"One of: {values_text[:VALUES]}"))
    short = {key: value for key, value in schema.items() if key != "enum"}
    return {**short, "description": " ".join(described)}


def _choices(branches: Any) -> str:
    """Alternative sets of required arguments, in words."""
    lists = [branch.get("required") for branch in branches if isinstance(branch, dict)]
    sets = [names for names in lists if isinstance(names, list) and names]
    if len(sets) < 2 or len(sets) > CHOICES_DESCRIBED:
        return ""
    return f"Give {' or '.join(' and '.join(map(str, names)) for names in sets)}."


def _with_original(member: Any, name: str) -> Any:
    """The schema of an argument that has another name in a list, which tells its own."""
    if not isinstance(member, dict):
        return member
    described = filter(None, (member.get("description"), f"Its own name is {name[:NAME]}"))
    return {**member, "description": " ".join(described)}


@lru_cache(maxsize=64)
def _pattern(pattern: str) -> Validator:
    return compile_validator({"type": "string", "pattern": pattern})
