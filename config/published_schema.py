"""The published JSON Schema of the settings file: the types, with the comments of `defaults.yaml`.

`python -m config.published_schema` writes it.
Editors use it, people read it; Toolgate itself does not.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from config.hooks import HookSettings
from config.load import DEFAULTS
from config.settings import Profile, Settings, Toolset
from config.sources import SchemeSettings, SourceSettings
from config.yaml_document import VARIABLE_PATTERN, KeyPath
from schemas.json_schema.references import definition_name, refer_to

SCHEMA_FILE = Path(__file__).parents[1] / "schemas" / "json" / "config.schema.json"
KEY_LINE = re.compile(r"( *)([a-z0-9_]+):")
ENTRY_LINE = re.compile(
    r"  ([a-z0-9_]+): (.+)"
)  # in a comment: a key of each entry below a mapping


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the file before `${NAME}` is interpolated."""
    _, definitions = msgspec.json.schema_components((Settings,))
    described = dict(descriptions(DEFAULTS.read_text(encoding="utf-8")))
    defaults = yaml.safe_load(DEFAULTS.read_bytes())
    for definition in definitions.values():
        if "description" in definition:  # of a docstring, whose indentation Python 3.13 removes
            definition["description"] = " ".join(definition["description"].split())
    root = definitions.pop(Settings.__name__)
    for name, section in root["properties"].items():
        if component := definitions.get(definition_name(section)):
            _complete(component, (name,), described, defaults[name])
        else:
            section["default"] = defaults[name]
        section["description"] = described[name,]
    for name, entry in (
        ("sources", SourceSettings),
        ("toolsets", Toolset),
        ("hooks", HookSettings),
    ):
        _complete(definitions[entry.__name__], (name,), described, {})
    _complete(definitions[Profile.__name__], ("profiles", "custom"), described, {})
    scheme = definitions[SchemeSettings.__name__]
    scheme["properties"] = {k: _or_interpolated(v) for k, v in scheme["properties"].items()}
    del root["required"]  # every key is optional
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": "Settings of Toolgate",
        "$defs": definitions | {"Interpolated": _interpolated_schema()},
    }


def write(path: Path = SCHEMA_FILE) -> None:
    path.write_text(text(), encoding="utf-8")


def text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _complete(
    component: dict[str, Any],
    path: KeyPath,
    descriptions: dict[KeyPath, str],
    defaults: dict[str, Any],
) -> None:
    """Put descriptions, defaults and `${NAME}` into one section, in place."""
    component.pop("required", None)
    for name, schema in component["properties"].items():
        default = {"default": defaults[name]} if name in defaults else {}
        component["properties"][name] = (
            {"description": descriptions[(*path, name)]} | _or_interpolated(schema) | default
        )


def _or_interpolated(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema`, or `${NAME}` wherever the text of a reference would not be valid."""
    schema = _plain(schema)
    if definition_name(schema):
        return schema  # a mapping; what is in it may be interpolated
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            return schema | {inner: _or_interpolated(schema[inner])}
    default = {"default": schema.pop("default")} if "default" in schema else {}
    alternatives: list[dict[str, Any]] = [
        _plain(alternative) for alternative in schema.get("anyOf", [schema])
    ]
    if not any(
        "string" in alternative.get("type", ()) and "pattern" not in alternative
        for alternative in alternatives
    ):
        alternatives.append(refer_to("Interpolated"))
    if len(alternatives) > 1:
        return {"anyOf": alternatives} | default
    return alternatives[0] | default


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    # Descriptions of types complete error messages; those of keys are in defaults.yaml.
    schema = {key: value for key, value in schema.items() if key != "description"}
    if schema.pop("verbatim", False):
        schema["type"] = ["string", "number", "boolean"]
    return schema


def _interpolated_schema() -> dict[str, str]:
    return {
        "description": "A text with the value of an environment variable in it.",
        "type": "string",
        "pattern": rf"\$\{{{VARIABLE_PATTERN.pattern}\}}",
    }


def descriptions(source: str) -> Iterator[tuple[KeyPath, str]]:
    """The comment block above each key; a list of keys in it describes those of an entry."""
    path: KeyPath = ()
    block: list[str] = []
    for line in source.splitlines():
        stripped = line.strip()
        if match := KEY_LINE.match(line):
            path = (*path[: len(match[1]) // 2], match[2])
            yield path, _prose(block)
            yield from (((*path, name), comment) for name, comment in _entries(block))
        block = [*block, stripped[2:]] if stripped.startswith("#") else []


def _prose(block: list[str]) -> str:
    return " ".join(line for line in block if not line.startswith("  "))


def _entries(block: list[str]) -> Iterator[tuple[str, str]]:
    name, comment = "", ""
    for line in [*block, "  end: of the list"]:
        if match := ENTRY_LINE.fullmatch(line):
            if name:
                yield name, comment
            name, comment = match[1], match[2]
        else:
            comment = f"{comment} {line.strip()}"


if __name__ == "__main__":
    write()
