"""Versions of a source: kept, compared, served again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from config.load import load
from config.settings import Imports
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.source_versions import History, Versions
from registry.sources.tool_store import ToolStore
from schemas.errors import ImportRejected
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets

pytestmark = pytest.mark.anyio

LIMITS: Imports = msgspec.structs.replace(load(None, {}).imports, versions_kept=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pets.json"


@pytest.fixture
def sources(store: ToolStore) -> Sources:
    return Sources(store, HOST, LIMITS)


@pytest.fixture
def versions(database: Database) -> Versions:
    return Versions(database.pool)


@pytest.fixture
def history(store: ToolStore, versions: Versions) -> History:
    return History(store, versions, HOST, LIMITS)


def write(path: Path, number: int, **changes: Any) -> ImportSpec:
    """The description as version `number` has it, and how to import it."""
    document = pets(number)
    document["info"]["version"] = str(number)
    path.write_text(json.dumps(document | changes))
    return ImportSpec("pets", str(path), base_url="http://127.0.0.1:9")


async def names(store: ToolStore) -> set[str]:
    return {tool.name for tool in await store.tools(HOST)}


async def numbers(versions: Versions) -> list[tuple[int, bool, bool]]:
    """(number, current, kept), the newest first."""
    return [
        (one.number, one.current, one.kept) for one in await versions.list_versions(HOST, "pets")
    ]


async def test_the_last_versions_keep_their_descriptions(
    sources: Sources, versions: Versions, path: Path
) -> None:
    for number in range(5):
        await sources.import_(write(path, number))
    found = await versions.list_versions(HOST, "pets")
    assert [one.version for one in found] == ["4", "3", "2", "1", "0"]
    assert [one.kept for one in found] == [True, True, True, False, False]
    assert [one.current for one in found] == [True, False, False, False, False]
    assert found[0].outcomes == {"imported": 9}
    assert found[0].spec["location"] == str(path)
    kept = await versions.document(HOST, "pets", 4)
    assert kept is not None
    assert json.loads(kept)["info"]["version"] == "3"
    assert await versions.document(HOST, "pets", 1) is None
    assert await versions.list_versions(HOST, "nobody") == []


async def test_the_same_description_is_no_new_version(
    sources: Sources, versions: Versions, path: Path
) -> None:
    spec = write(path, 1)
    for _ in range(3):
        await sources.import_(spec)
    await sources.import_(replace(spec, base_url="http://127.0.0.1:10"))
    assert await numbers(versions) == [(1, True, True)]
    (only,) = await versions.list_versions(HOST, "pets")
    assert only.spec["base_url"] == "http://127.0.0.1:10"


async def test_other_options_are_another_version(
    sources: Sources, versions: Versions, path: Path
) -> None:
    spec = write(path, 1)
    await sources.import_(spec)
    await sources.import_(replace(spec, exclude=("DELETE *",)))
    assert await numbers(versions) == [(2, True, True), (1, False, True)]


async def test_a_rollback_serves_the_version_before_with_the_options_of_then(
    sources: Sources, store: ToolStore, history: History, versions: Versions, path: Path
) -> None:
    await sources.import_(replace(write(path, 1), exclude=("deletePet",)))
    before = {tool.name: tool for tool in await store.tools(HOST)}
    await sources.import_(write(path, 2))
    assert await names(store) == {*before, "deletePet", "more_0001"}
    done = await history.roll_back("pets")
    assert {tool.name: tool for tool in await store.tools(HOST)} == before
    assert await numbers(versions) == [(2, False, True), (1, True, True)]
    assert {(one.status, one.name) for one in done.difference.tools} == {
        ("removed", "deletePet"),
        ("removed", "more_0001"),
    }
    source = await store.source(HOST, "pets")
    assert source is not None
    assert (source.version, source.exclude, source.number) == ("1", ("deletePet",), 1)


async def test_a_rolled_back_version_is_not_imported_again(
    sources: Sources, store: ToolStore, history: History, path: Path
) -> None:
    await sources.import_(write(path, 1))
    spec = write(path, 2)
    await sources.import_(spec)
    await history.roll_back("pets")
    assert await sources.import_changed(spec) is None  # as `serve` does when it starts
    report = await sources.import_(spec)  # as `toolgate import` does
    assert (report.saved, report.rolled_back) == (None, 1)
    assert "more_0001" not in await names(store)
    path.rename(path.with_name("moved.json"))
    moved = str(path.with_name("moved.json"))
    elsewhere = replace(spec, location=moved, base_url="http://127.0.0.1:10")
    assert (
        await sources.import_changed(elsewhere) is None
    )  # where it is, and calls go, is no matter


@pytest.mark.parametrize("end", ["another description", "refresh", "other options", "the old one"])
async def test_a_rollback_ends_with(
    sources: Sources, store: ToolStore, history: History, path: Path, end: str
) -> None:
    await sources.import_(write(path, 1))
    spec = write(path, 2)
    await sources.import_(spec)
    await history.roll_back("pets")
    match end:
        case "another description":
            assert await sources.import_changed(write(path, 3)) is not None
        case "refresh":
            await sources.refresh("pets")
        case "other options":
            assert await sources.import_changed(replace(spec, include=("*",))) is not None
        case "the old one":
            assert await sources.import_changed(write(path, 1)) is not None
    source = await store.source(HOST, "pets")
    assert source is not None
    assert source.rolled_back is None
    if end == "the old one":  # so what was rolled back may come again
        assert await sources.import_changed(write(path, 2)) is not None
    assert "more_0001" in await names(store)


async def test_restoring_a_rolled_back_version_makes_no_new_version(
    sources: Sources, history: History, versions: Versions, path: Path
) -> None:
    await sources.import_(write(path, 1))
    await sources.import_(write(path, 2))
    await history.roll_back("pets")
    await sources.refresh("pets")
    assert await numbers(versions) == [(2, True, True), (1, False, True)]
    await history.roll_back("pets")
    assert await numbers(versions) == [(2, False, True), (1, True, True)]


async def test_rolling_back_again_goes_on_and_still_holds_off_the_newest(
    sources: Sources, store: ToolStore, history: History, path: Path
) -> None:
    for number in (1, 2, 3):
        spec = write(path, number)
        await sources.import_(spec)
    await history.roll_back("pets")
    await history.roll_back("pets")
    assert not {"more_0001", "more_0002"} & await names(store)
    assert await sources.import_changed(spec) is None
    await history.roll_back("pets", to=3)  # forward again: nothing is held off
    source = await store.source(HOST, "pets")
    assert source is not None
    assert source.rolled_back is None
    assert "more_0002" in await names(store)


async def test_a_rollback_that_cannot_be_is_refused(
    sources: Sources, history: History, path: Path
) -> None:
    with pytest.raises(LookupError):
        await history.roll_back("nobody")
    await sources.import_(write(path, 1))
    with pytest.raises(ImportRejected, match="no version before 1"):
        await history.roll_back("pets")
    for number in (2, 3, 4):
        await sources.import_(write(path, number))
    for to, reason in ((9, "no version 9; it has 1, 2, 3, 4"), (4, "is served"), (1, "not kept")):
        with pytest.raises(ImportRejected, match=reason):
            await history.roll_back("pets", to)


async def test_a_failed_rollback_changes_nothing(
    sources: Sources, store: ToolStore, history: History, versions: Versions, path: Path
) -> None:
    await sources.import_(write(path, 1))
    await sources.import_(write(path, 300))  # more rows than are written at once
    before = await numbers(versions), await store.tools(HOST)

    def stop(done: int, total: int) -> None:
        raise RuntimeError(f"{done} of {total}")

    await history.roll_back("pets")
    with pytest.raises(RuntimeError):
        await history.roll_back("pets", to=2, progress=stop)
    await sources.refresh("pets")
    assert (await numbers(versions), await store.tools(HOST)) == before


async def test_a_difference_writes_nothing(
    sources: Sources, store: ToolStore, history: History, path: Path
) -> None:
    await sources.import_(write(path, 1))
    before = await store.tools(HOST)
    document = pets(1)
    del document["paths"]["/slow"]
    document["paths"]["/pets"]["get"]["parameters"] = [
        {"name": "limit", "in": "query", "required": True, "schema": {"type": "integer"}},
        {"name": "kind", "in": "query", "schema": {"type": "string"}},
    ]
    found = await history.difference(write(path, 2, paths=document["paths"]))
    told = {(one.status, one.name, one.breaking) for one in found.tools}
    assert told == {("removed", "slow", True), ("changed", "listPets", True)}
    changed = next(one for one in found.tools if one.status == "changed")
    assert ("required", "limit", True) in {(c.kind, c.where, c.breaking) for c in changed.changes}
    assert ("argument", "kind", False) in {(c.kind, c.where, c.breaking) for c in changed.changes}
    assert await store.tools(HOST) == before


async def test_the_database_numbers_versions_and_has_one_current_version(
    database: Database, store: ToolStore
) -> None:
    async with database.connect() as connection:
        await connection.execute("INSERT INTO host_t (host_id, name) VALUES (%s, 'x')", [HOST])
        await connection.execute(
            "INSERT INTO api_t (host_id, name, kind, location)"
            " VALUES (%s, 'a', 'openapi', 'a.json')",
            [HOST],
        )
        add = (
            "INSERT INTO api_version_t (host_id, api_id, title, current, spec)"
            " SELECT host_id, api_id, %s, %s, '{}' FROM api_t"
        )
        for title, current in (("first", False), ("second", True)):
            await connection.execute(add, [title, current])
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute(add, ["third", True])
        found = await connection.execute("SELECT number, title FROM api_version_t ORDER BY number")
        assert await found.fetchall() == [(1, "first"), (2, "second")]


async def test_an_import_begun_before_a_rollback_does_not_undo_the_rollback(
    sources: Sources, store: ToolStore, history: History, path: Path, monkeypatch: Any
) -> None:
    for number in (1, 2):
        await sources.import_(write(path, number))
    save = store.save

    async def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(store, "save", save)
        await history.roll_back("pets")
        return await save(*given, **named)

    monkeypatch.setattr(store, "save", late)  # between what it decided on, and its transaction
    with pytest.raises(ImportRejected, match="was rolled back while it was imported"):
        await sources.import_changed(write(path, 3))
    source = await store.source(HOST, "pets")
    assert source is not None
    assert (source.number, source.rolled_back and source.rolled_back.version) == (1, 2)


async def test_a_rollback_from_a_superseded_version_is_refused(
    sources: Sources, store: ToolStore, history: History, path: Path, monkeypatch: Any
) -> None:
    for number in (1, 2):
        await sources.import_(write(path, number))
    save = store.save

    async def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(store, "save", save)
        await sources.import_(write(path, 3))
        return await save(*given, **named)

    monkeypatch.setattr(store, "save", late)
    with pytest.raises(ImportRejected, match="pets changed while it was rolled back"):
        await history.roll_back("pets")
    source = await store.source(HOST, "pets")
    assert source is not None
    assert (source.number, source.rolled_back) == (3, None)
