"""The wing of a gateway: its operations as tools, methods, routes, resources and commands."""

import base64
import io
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from lxml import etree
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings, Settings
from gateway.cli.librarian import NAMESPACE, kind_of, xml_chunk
from gateway.client.librarian import Librarian, LibrarianError, UploadSource, UrlSource
from gateway.operations.job_declarations import END_STATES
from gateway.operations.paging import cursor
from gateway.wings import librarian as folder
from gateway.wings.document_library import FileLink
from gateway.wings.librarian.repository_maps import draw_map
from gateway.wings.librarian.wing import PAGES, WING
from gateway.wings.table import components_of, wing_components
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.gateway.cli.processes import command
from tests.wings.knowledge.test_lightrag import knowing
from tests.wings.librarian.test_library import FILES
from tests.wings.librarian.test_scip_format import document
from tests.wings.memory.test_wing import call_tool
from tests.wings.test_toy import got, rpc

pytestmark = pytest.mark.anyio
REST = "/librarian/v1"
XMLNS = f'<chunk xmlns="{NAMESPACE}">'.encode()
SCHEMA = etree.XMLSchema(etree.parse(Path(folder.__file__).with_name("export.xsd")))


def lending(database: DatabaseSettings, **changes: Any) -> Settings:
    settings = knowing(database)
    librarian = replace(
        settings.librarian, enabled=True, read_bytes=60, index_bytes=2_000_000, **changes
    )
    secrets = replace(settings.secrets, key=base64.b64encode(b"k" * 32).decode())
    return replace(settings, librarian=librarian, secrets=secrets)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    for database in own_database(cluster, TEMPLATE):
        async with running(lending(database)) as client:
            for path, text in FILES.items():
                added = {"collection": "code", "path": path, "text": text}
                status, answer, _ = await client.post("/knowledge/v1/documents", added)
                assert status == 201, answer
            yield client


async def post_body(client: Client, name: str, /, **body: Any) -> Any:
    status, answer, _ = await client.post(f"{REST}/{name}", body)
    assert status == 200, answer
    return answer


async def test_its_operations_are_tools_methods_and_routes(client: Client) -> None:
    asked = {"kind": "method", "inherits": "Root", "path": "src/**", "visibility": "public"}
    by_route = await post_body(client, "symbols", **asked)
    assert [one["symbol"] for one in by_route["symbols"]] == ["App.run", "Scaffold.open"]
    assert await call_tool(client, "librarian_symbols", asked) == by_route
    answer = await client.rpc(rpc("librarian_symbols", asked))
    assert answer["result"] == by_route


async def test_passages_have_their_location(client: Client) -> None:
    """Passages have their location (L05)."""
    found = await post_body(client, "search", query="open the port", path="src/*")
    best = found["passages"][0]
    assert (best["collection"], best["path"].startswith("src/"), best["version"]) == (
        "code",
        True,
        1,
    )
    (found,) = (await post_body(client, "grep", pattern=r"^found\.run"))["passages"]
    assert (found["path"], found["lines"]) == ("main.py", [4, 4])
    files = await post_body(client, "files", limit=3)
    rest = await post_body(client, "files", after=files["next"])
    assert [one["path"] for one in files["files"] + rest["files"]] == sorted(FILES)


async def test_files_of_definitions_that_hits_name_are_shown(client: Client) -> None:
    """Base classes have seldom a word of a question about what inherits them."""
    for path, expected in (("", [("src/app.py", "App"), ("src/base.py", "Scaffold")]),
                           ("src/a*", [("src/app.py", "App")])):  # fmt: skip
        body = {"query": "serves requests", "by": "file", "path": path}
        passages = (await post_body(client, "search", **body))["passages"]
        assert [(passage["path"], passage["symbol"]) for passage in passages] == expected


async def test_reading_goes_on_at_the_next_line(client: Client) -> None:
    text, at = "", 1
    while at:
        read = await post_body(client, "read", collection="code", path="main.py", first=at)
        text, at = text + read["text"], read.get("next", 0)
    assert text == FILES["main.py"]
    for body, status in (
        ({"path": "main.py", "first": 3, "last": 2}, 422),
        ({"path": "main.py", "first": 99}, 422),
        ({"path": "no.py"}, 404),
        ({"path": ""}, 422),
        ({"path": "main.py", "first": 0}, 422),
    ):
        got, answer, _ = await client.post(f"{REST}/read", {"collection": "code", **body})
        assert got == status, answer


async def test_references_and_a_map_of_a_repository_are_served(client: Client) -> None:
    """References and a map of a repository are served (L08)."""
    found = await post_body(client, "references", symbol="App.run")
    assert [one.get("confidence", 1.0) for one in found["symbols"]] == [1.0, 0.5]
    drawn = await post_body(client, "map", collection="code")
    assert "src/base.py" in drawn["text"]
    assert "class Scaffold(Root)" in drawn["text"]
    small = await post_body(client, "map", collection="code", tokens=100, focus=["Scaffold"])
    assert small["text"].startswith("src/base.py\n  1-3  class Scaffold(Root)")


async def test_documents_are_resources_with_lines(client: Client) -> None:
    session = await client.session()

    async def read(uri: str) -> Any:
        return await session.call("resources/read", {"uri": uri})

    answer = await read("library://code/main.py#L3-L4")
    (contents,) = answer["result"]["contents"]
    assert contents["text"] == "found = app.make()\nfound.run(80)\n"
    answer = await read("library://code/src%2Fbase.py#L1")
    assert answer["result"]["contents"][0]["text"] == "class Scaffold(Root):\n"
    for uri in ("library://code/no.py", "library://other/main.py", "library://code/main.py#L9-L2"):
        assert "error" in await read(uri), uri


async def test_sources_are_added_shown_read_and_dropped(client: Client) -> None:
    place = {"type": "url", "location": f"{client.url}/health"}
    added = {"collection": "code", "every_s": 60, "webhook": True, **place}
    status, answer, _ = await client.post(f"{REST}/sources", added)
    assert status == 201, answer
    source = answer["source"]
    assert (source["status"], answer["secret"][:6]) == ("pending", "whsec_")
    status, answer, _ = await client.post(source["webhook"], {})
    assert status == 401, answer

    path = f"{client.url}{REST}/sources/{source['id']}/refresh"
    async with client.http.post(path, headers={"Prefer": "respond-async"}) as response:
        assert response.status == 202
        job = await response.json()
    with anyio.fail_after(DEADLINE_S):
        while job["state"] not in END_STATES:
            await anyio.sleep(0.05)
            status, job, _ = await got(client, f"{REST}/jobs/{job['job']}")
    assert "not a public address" in job["problem"]["detail"]
    shown = await post_body(client, "status", collections=["code"])
    assert shown["collections"][0]["documents"] == {"processed": len(FILES)}
    assert [one["status"] for one in shown["sources"]] == ["failed"]

    async with client.http.delete(f"{client.url}{REST}/sources/{source['id']}") as response:
        assert response.status == 204
    assert (await got(client, f"{REST}/sources"))[1] == {"sources": []}
    status, answer, _ = await client.post(f"{REST}/sources", {**added, "every_s": 5})
    assert (status, "min_interval_s" in answer["detail"]) == (422, True)


async def test_an_index_of_code_is_sent_by_put(client: Client) -> None:
    url = f"{client.url}/librarian/scip/code"
    stray = document("none.py", [("s m p 1 A#", [0, 0, 1], 1)])
    for body, status, told in (
        (stray, 200, "no such document"),
        (b"nonsense", 422, "index"),
        (b"x" * 2_000_001, 413, "index_bytes"),
    ):
        async with client.http.put(f"{url}?below=src", data=io.BytesIO(body)) as response:
            assert (response.status, told in await response.text()) == (status, True)
    async with client.http.get(url) as response:
        assert response.status == 405
    status, answer, _ = await client.post(f"{REST}/indexes", {"collection": "code"})
    assert (status, "by PUT to /librarian/scip/" in answer["detail"]) == (422, True)


async def test_its_pages_of_the_console_name_operations(client: Client) -> None:
    _, document, _ = await got(client, f"{REST}/openapi.json")
    ids = {one["operationId"] for path in document["paths"].values() for one in path.values()}
    for page in PAGES[:-1]:  # without research, which is off here
        assert {page.lists, page.shows or page.lists, *page.acts, *page.adds} <= ids
    _, listed, _ = await got(client, f"{REST}/collections")
    assert "code" in {one["collection"] for one in listed["collections"]}


async def test_its_commands_are_of_the_group_library(client: Client) -> None:
    code, out, errors = await command(
        "librarian", "search", "query=open the port", "--url", client.url
    )
    assert code == 0, errors
    assert json.loads(out)["passages"]


async def test_a_collection_is_exported_as_xml_of_its_schema(client: Client) -> None:
    """A collection is exported as XML of its schema (L05)."""
    odd = "A ]]> and \x0c and <b>\n"
    status, answer, _ = await client.post(
        "/knowledge/v1/documents", {"collection": "odd", "path": "odd.txt", "text": odd}
    )
    assert status == 201, answer
    chunks = []
    for collection in ("code", "odd"):
        asked = ("librarian", "export", collection, "--embeddings", "--url", client.url)
        code, out, errors = await command(*asked)
        assert code == 0, errors
        root = etree.fromstring(out.encode())
        SCHEMA.assertValid(root)
        chunks += root.findall(f"{{{NAMESPACE}}}chunk")

    def of(chunk: Any, *names: str) -> str | None:
        return chunk.findtext("/".join(f"{{{NAMESPACE}}}{name}" for name in names))

    (app,) = [one for one in chunks if of(one, "metadata", "symbol") == "App"]
    assert (of(app, "source", "path"), of(app, "type")) == ("src/app.py", "class")
    (lines,) = app.iter(f"{{{NAMESPACE}}}lines")
    assert (lines.get("start"), of(app, "metadata", "visibility")) == ("6", "public")
    assert (of(app, "content") or "").startswith("class App(Scaffold)")
    (last,) = [one for one in chunks if of(one, "source", "repo") == "odd"]
    assert (of(last, "content") or "").strip() == "A ]]> and \ufffd and <b>"


def test_an_exported_chunk_has_its_vector_as_in_json() -> None:
    """The design's <embedding>."""
    chunk = {"id": "1", "collection": "c", "path": "p", "version": 1, "lines": [1, 2]}
    chunk |= {"kind": "text", "text": "t", "embedding": [0.023, -1e-05, 1.0], "model": 'a "b"'}
    root = etree.Element(f"{{{NAMESPACE}}}chunks")
    root.append(etree.fromstring(xml_chunk(chunk).replace(b"<chunk>", XMLNS)))
    SCHEMA.assertValid(root)
    (vector,) = root.iter(f"{{{NAMESPACE}}}embedding")
    assert (vector.text, vector.get("model")) == ("[0.023, -1e-05, 1.0]", 'a "b"')


async def test_chunks_are_paged(client: Client) -> None:
    whole = await post_body(client, "chunks", collection="code")
    paged, after = [], {}
    while after is not None:
        page = await post_body(client, "chunks", collection="code", limit=2, **after)
        paged += page["chunks"]
        after = {"after": page["next"]} if page.get("next") else None
    assert paged == whole["chunks"]
    for after in (cursor("x y"), cursor("9" * 30 + " y"), "?"):
        status, _, _ = await client.post(f"{REST}/chunks", {"collection": "code", "after": after})
        assert status in (400, 422)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("search", {"query": "a\0b", "path": "\0"}),
        ("grep", {"pattern": "a\0b"}),
        ("read", {"collection": "code", "path": "a\0b"}),
        ("files", {"after": "code/\0"}),
        ("symbols", {"name": "a\0b", "kind": "\0"}),
        ("references", {"symbol": "a\0b"}),
        ("map", {"collection": "code", "focus": ["\0"], "path": "[\0"}),
        ("sources", {"collection": "code", "type": "git", "location": "https://h/\0"}),
        ("search", {"query": "x", "path": "*" * 200}),
    ],
)
async def test_bad_input_is_no_error_of_the_server(
    client: Client, name: str, body: dict[str, Any]
) -> None:
    status, answer, _ = await client.post(f"{REST}/{name}", body)
    assert status < 500, answer


async def test_files_are_added_and_asked_by_commands_and_the_client(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "tide.py").write_text("def tide():\n    return 3\n")
    code, out, errors = await command("librarian", "add", "sea", str(tmp_path), "--url", client.url)
    assert (code, json.loads(out)["added"]) == (0, 1), errors
    code, _, errors = await command("librarian", "add", "sea", "missing", "--url", client.url)
    assert (code, "expected a URL" in errors) == (1, True)
    away = f"{client.url}/x.git"
    code, _, errors = await command("librarian", "add", "sea", away, "--url", client.url)
    assert (code, "https" in errors) == (1, True)
    async with Librarian(client.url) as librarian:
        stored = await librarian.ingest(UploadSource("moon.py", b"def moon(): pass\n"), "sea")
        assert stored["added"] == 1
        with pytest.raises(LibrarianError, match="not a public address"):
            await librarian.ingest(UrlSource(f"{client.url}/health"), "sea")
    found = await post_body(client, "symbols", collections=["sea"])
    assert [one["symbol"] for one in found["symbols"]] == ["moon", "tide"]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("https://github.com/a/b", "git"),
        ("https://github.com/a/b/raw/main/x.md", "url"),
        ("https://host/deep/x.git", "git"),
        ("https://host/x.md", "url"),
        ("s3://bucket/x", "s3"),
    ],
)
def test_the_kind_of_a_source_follows_from_its_location(location: str, kind: str) -> None:
    assert kind_of(location) == kind


def test_a_map_fits_its_budget_and_begins_at_its_focus() -> None:
    def link(source: str, target: str, symbol: str, weight: float) -> FileLink:
        return FileLink(
            collection="c", source=source, target=target, symbol=symbol, kind="function",
            lines=(1, 2), quote=f"def {symbol}():", weight=weight,
        )  # fmt: skip

    links = [
        *(link(f"{name}.py", "core.py", "core", 3) for name in "abcdef"),
        link("a.py", "side.py", "side", 1),
        link("core.py", "core.py", "core", 50),
    ]
    whole = draw_map(links, (), 1000)
    assert whole.text.startswith("core.py\n  1-2  def core():")
    assert (whole.symbols, whole.omitted) == (2, 0)
    assert draw_map(links, ("side",), 1000).text.startswith("side.py")
    small = draw_map(links, (), 1)
    assert (small.symbols, small.omitted) == (1, 1)
    assert draw_map([], ("x",), 100).symbols == 0


async def test_the_example_answers_with_paths_and_lines(client: Client) -> None:
    example = Path(__file__).parents[3] / "examples" / "librarian" / "demo.py"
    done = await anyio.run_process([sys.executable, str(example), "--url", client.url], check=False)
    printed = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert re.search(r"^source\.tar\.gz/fusion\.py:\d+-\d+", printed, re.MULTILINE), printed
    assert "The map:\nsource.tar.gz/" in printed
    assert "is referred to" in printed


def test_tables_are_created_after_their_dependencies() -> None:
    """Also where the wings are opened at the same time, or the other one is off."""
    assert [one.name for one in components_of(WING)] == ["knowledge", "librarian"]
    settings = load(None, {})
    librarian = replace(settings, librarian=replace(settings.librarian, enabled=True))
    assert [one.name for one in wing_components(librarian)] == ["knowledge", "librarian"]
