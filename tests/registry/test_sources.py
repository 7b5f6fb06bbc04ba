"""Imports from end to end: a file, its tools in the database."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.load import load
from config.settings import Imports
from registry.sources import ImportSpec, Sources, preview
from registry.store import ToolStore
from schemas.errors import ImportRejected
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets

pytestmark = pytest.mark.anyio

LIMITS: Imports = load(None, {}).imports


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(pets()))
    return path


@pytest.fixture
def sources(store: ToolStore) -> Sources:
    return Sources(store, HOST, LIMITS)


def spec(path: Path, **changes: Any) -> ImportSpec:
    return ImportSpec(**{"name": "pets", "location": str(path), **changes})


async def test_a_preview_needs_no_database(description: Path) -> None:
    report = await preview(spec(description), LIMITS)
    assert [o.status for o in report.outcomes] == ["imported"] * 5
    assert report.saved is None


async def test_importing_again_updates_and_keeps_identities(
    sources: Sources, store: ToolStore, description: Path
) -> None:
    await sources.import_openapi(spec(description))
    before = {tool.name: tool.id for tool in await store.tools(HOST)}
    changed = pets(1)
    changed["paths"]["/pets"]["get"]["summary"] = "All pets"
    del changed["paths"]["/slow"]
    description.write_text(json.dumps(changed))
    saved = (await sources.refresh("pets")).saved
    assert saved is not None
    assert (saved.added, saved.updated, saved.removed) == (("more_0000",), ("listPets",), ("slow",))
    after = {tool.name: tool.id for tool in await store.tools(HOST)}
    assert after.keys() - before.keys() == {"more_0000"}
    assert all(after[name] == before[name] for name in after.keys() & before.keys())


async def test_an_unchanged_description_is_not_imported_again(
    sources: Sources, description: Path
) -> None:
    wanted = spec(description, base_url="http://127.0.0.1:1")
    assert await sources.import_changed(wanted) is not None
    assert await sources.import_changed(wanted) is None
    assert await sources.import_changed(spec(description, base_url="http://127.0.0.1:2"))
    assert await sources.import_changed(spec(description, include=("listPets",)))
    description.write_text(json.dumps(pets(1)))
    assert await sources.import_changed(spec(description, include=("listPets",)))


async def test_an_import_that_would_leave_nothing_is_rejected(
    sources: Sources, store: ToolStore, description: Path
) -> None:
    await sources.import_openapi(spec(description))
    with pytest.raises(ImportRejected, match="exclude all 5 operations"):
        await sources.import_openapi(spec(description, include=("nothing*",)))
    description.write_text(json.dumps({**pets(), "paths": {}}))
    with pytest.raises(ImportRejected, match="no operations"):
        await sources.import_openapi(spec(description))
    assert len(await store.tools(HOST)) == 5


async def test_an_unknown_source_cannot_be_refreshed(sources: Sources) -> None:
    with pytest.raises(LookupError):
        await sources.refresh("nobody")


@pytest.mark.parametrize(
    ("servers", "base_url", "expected"),
    [
        ([{"url": "https://api.example.com/v1/"}], None, ("https://api.example.com/v1", False)),
        ([{"url": "https://api.example.com"}], "http://10.0.0.1", ("http://10.0.0.1", True)),
        ([{"url": "/v1"}], None, (None, False)),  # relative to a file: no address
        ([{"url": "ftp://x"}, {"url": "http://y.example"}], None, ("http://y.example", False)),
    ],
)
async def test_calls_go_where_the_operator_says_or_the_description(
    sources: Sources,
    description: Path,
    servers: Any,
    base_url: str | None,
    expected: tuple[str | None, bool],
) -> None:
    description.write_text(json.dumps({**pets(), "servers": servers}))
    report = await preview(spec(description, base_url=base_url), LIMITS)
    assert (report.source.base_url, report.source.base_url_trusted) == expected
