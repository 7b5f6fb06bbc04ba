"""The published schema says what `load` does."""

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from msgspec import to_builtins

from config import published_schema
from config.load import DEFAULTS, load
from config.yaml_document import Loader

EXAMPLE = """
server: {port: "${PORT:-9000}", allowed_hosts: [gateway.example.com, "${HOST}"]}
database: {url: "${DATABASE_URL}", options: {jit: off, work_mem: 64}}
logging: {level: "${LEVEL:-info}", access: "${ACCESS}"}
mcp: {instructions: "${TEXT}", path: "${PREFIX}/mcp"}
sources:
  petshop:
    openapi: ./openapi.yaml
    base_url: ${PETSHOP_URL:-http://127.0.0.1:8766}
    headers: {Authorization: "Bearer ${TOKEN}", X-Version: 7}
    include: [list*]
    timeout_s: 2.5
    retries: ${RETRIES}
  imported-by-command: {retries: 0}
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    published = published_schema.json_schema()
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(published)


def errors(validator: Draft202012Validator, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def test_the_published_file_is_up_to_date() -> None:
    assert published_schema.SCHEMA_FILE.read_text(encoding="utf-8") == published_schema.text(), (
        "run `make schemas`"
    )


@pytest.mark.parametrize("text", [DEFAULTS.read_text(encoding="utf-8"), EXAMPLE, "{}"])
def test_files_that_load_are_valid(validator: Draft202012Validator, text: str) -> None:
    assert errors(validator, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "server: {prot: 1}",
        "servr: {}",
        "server: {port: 99999}",
        "server: {port: '80'}",
        "server: {allowed_hosts: a}",
        "mcp: {path: /}",
        "logging: {level: loud}",
        "upstream: {timeout_s: 0}",
        "sources: {Pets: {}}",
        "sources: {pets: {timeout: 3}}",
        "sources: {pets: {base_url: 'http://me:secret@a.example'}}",
        "sources: {pets: {headers: {X Y: a}}}",
        "- a",
    ],
)
def test_files_that_do_not_load_are_invalid(validator: Draft202012Validator, text: str) -> None:
    assert errors(validator, text)


def test_every_key_has_a_description_and_its_default() -> None:
    published = published_schema.json_schema()
    effective: dict[str, Any] = to_builtins(load(None, {}))
    defaults = yaml.load(DEFAULTS.read_bytes(), Loader=Loader)
    for name, section in published["properties"].items():
        assert section["description"]
        if name in ("sources", "toolsets", "functions", "hooks", "registries"):
            continue
        keys = published["$defs"][section["$ref"].rpartition("/")[2]]["properties"]
        assert keys.keys() == effective[name].keys()
        assert all(key["description"] for key in keys.values())
        assert {key: value["default"] for key, value in keys.items()} == defaults[name]


def test_the_keys_of_a_source_are_described_too() -> None:
    source = published_schema.json_schema()["$defs"]["SourceSettings"]["properties"]
    assert source["timeout_s"]["description"] == (
        "Deadline of one call, seconds; default upstream.timeout_s."
    )
    assert source["openapi"]["description"].endswith("relative to the file that names it.")
