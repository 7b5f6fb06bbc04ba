"""`toolgate import openapi` of several files, with marks in them and beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.conftest import Toolgate

ROOT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example.com"}],
    "paths": {"/pets": {"$ref": "pets.yaml"}, "/off": {"get": {"operationId": "off"}}},
}
PETS = "get: {operationId: pets}\npost: {operationId: addPet, x-toolgate: {enabled: true}}\n"
OVERLAY = "operations: {GET /pets: {enabled: true, name: list_pets}, 'off': {enabled: false}}"


@pytest.fixture
def api(folder: Path) -> Path:
    """A directory of two descriptions, and an overlay beside it."""
    (folder / "api").mkdir()
    (folder / "api" / "openapi.json").write_text(json.dumps(ROOT))
    (folder / "api" / "swagger.json").write_text('{"swagger": "2.0", "paths": {"/a": {"get": {}}}}')
    (folder / "api" / "pets.yaml").write_text(PETS)
    (folder / "marks.yaml").write_text(OVERLAY)
    return folder


def names(toolgate: Toolgate) -> set[str]:
    return {tool["name"] for tool in toolgate("tools", "list", "--json").json}


def run_import(toolgate: Toolgate, *options: str) -> Any:
    return toolgate("import", "openapi", "api", "--name", "shop", *options)


def test_a_directory_of_several_descriptions_wants_an_entry(toolgate: Toolgate, api: Path) -> None:
    ran = run_import(toolgate)
    assert ran.code == 1
    assert "several descriptions: openapi.json, swagger.json" in ran.err
    assert "--entry" in ran.err
    assert run_import(toolgate, "--entry", "openapi.json").code == 0
    assert names(toolgate) == {"pets", "addPet", "off"}


@pytest.mark.parametrize("entry", ["/etc/passwd", "../openapi.json"])
def test_an_entry_lies_inside(toolgate: Toolgate, api: Path, entry: str) -> None:
    ran = run_import(toolgate, "--entry", entry)
    assert ran.code == 2
    assert "expected the path of a file inside the directory" in " ".join(ran.err.split())


def test_a_refresh_repeats_the_options_of_the_import(
    toolgate: Toolgate, api: Path, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    options = ("--entry", "openapi.json", "--overlay", "marks.yaml", "--only-marked")
    assert run_import(toolgate, *options).code == 0
    assert names(toolgate) == {"list_pets", "addPet"}
    (api / "api" / "pets.yaml").write_text(PETS + "put: {operationId: more}\n")
    (api / "marks.yaml").write_text("operations: {more: {enabled: true}}")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert toolgate("sources", "refresh", "shop").code == 0
    assert names(toolgate) == {"addPet", "more"}


def test_settings_say_the_same(toolgate: Toolgate, api: Path) -> None:
    settings = {
        "openapi": "api", "entry": "openapi.json", "overlay": "marks.yaml", "only_marked": True,
    }  # fmt: skip
    (api / "toolgate.yaml").write_text(json.dumps({"sources": {"shop": settings}}))
    assert toolgate("sources", "refresh", "shop").code == 0
    assert names(toolgate) == {"list_pets", "addPet"}


def test_a_description_without_marks_is_refused_with_a_reason(
    toolgate: Toolgate, api: Path
) -> None:
    ran = run_import(toolgate, "--entry", "swagger.json", "--only-marked")
    assert ran.code == 1
    assert "operations are left out (no x-toolgate has `enabled: true`)" in ran.err


@pytest.mark.parametrize(
    ("option", "value", "remark"),
    [
        ("--overlay", "marks.yaml", "; the overlay's 'GET /petz' matches no operation"),
        ("--include", "GET /petz", "; the pattern 'GET /petz' matches no operation"),
    ],
)
def test_import_without_operations_names_keys_that_match_none(
    toolgate: Toolgate, api: Path, option: str, value: str, remark: str
) -> None:
    (api / "marks.yaml").write_text("operations: {GET /petz: {enabled: true}}")
    ran = run_import(toolgate, "--entry", "swagger.json", "--only-marked", option, value)
    assert (ran.code, ran.err.rstrip().endswith(remark)) == (1, True)


def test_an_overlay_with_an_unknown_key_names_the_expected_keys(
    toolgate: Toolgate, api: Path
) -> None:
    (api / "marks.yaml").write_text("operations: {pets: {enable: true}}")
    ran = run_import(toolgate, "--entry", "openapi.json", "--overlay", "marks.yaml")
    assert ran.code == 1
    assert "operations.pets: unknown key 'enable', expected enabled, name" in ran.err


def test_a_file_that_is_missing_is_named(toolgate: Toolgate, api: Path) -> None:
    (api / "api" / "pets.yaml").unlink()
    ran = run_import(toolgate, "--entry", "openapi.json")
    assert ran.code == 0
    assert "the file 'pets.yaml' cannot be read: it does not exist" in ran.out + ran.err
    assert names(toolgate) == {"off"}


def test_a_token_in_the_address_of_a_description_is_not_printed(toolgate: Toolgate) -> None:
    where = "http://127.0.0.1:9/openapi.yaml?token=hunter2"
    said = toolgate("import", "openapi", where, "--name", "pets", "--dry-run")
    assert said.code == 1
    assert "http://127.0.0.1:9/openapi.yaml?***" in said.err
    assert "hunter2" not in said.err
