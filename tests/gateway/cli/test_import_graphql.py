"""`toolgate import graphql`, and what the other commands say about GraphQL services."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from graphql import build_schema

from tests.gateway.cli.conftest import Toolgate
from tests.servers.graphql import SDL, PetShop

AT = "http://localhost:4000/graphql"
IMPORT = ("import", "graphql", "shop.graphql", "--name", "shop")


@contextmanager
def selling(shop: PetShop) -> Iterator[str]:
    """The endpoint of `shop`, served by a thread: commands run event loops of their own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            shop.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = json.dumps(shop.answer(json.loads(body))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/graphql"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def sdl_file(folder: Path) -> Path:
    """`shop.graphql`, in the working directory."""
    path = folder / "shop.graphql"
    path.write_text(SDL)
    return path


def test_a_schema_is_imported_and_skipped_fields_are_reported(
    toolgate: Toolgate, sdl_file: Path
) -> None:
    ran = toolgate(*IMPORT, "--base-url", AT)
    assert (ran.code, ran.err) == (0, "")
    skipped, note, counts, tools, calls = ran.out.splitlines()
    assert skipped.startswith("skipped   Subscription.petAdded: a subscription answers for as long")
    assert note.startswith("note      1 of 10 fields are deprecated")
    assert counts == "shop: 10 imported, 1 skipped"
    assert tools == "Tools of shop: 10 added, 0 updated, 0 unchanged, 0 removed."
    assert calls == f"Calls go to {AT}"


def test_an_endpoint_is_asked_with_the_headers_of_the_settings(
    toolgate: Toolgate, folder: Path
) -> None:
    settings = folder / "toolgate.yaml"
    settings.write_text("sources: {shop: {headers: {Authorization: Bearer secret}}}")
    shop = PetShop()
    with selling(shop) as url:
        ran = toolgate("import", "graphql", url, "--name", "shop", "--exclude", "tag:mutation")
        assert ran.code == 0, ran.err
        assert f"Calls go to {url}" in ran.out
        called = toolgate("tools", "call", "pet", "id=1")
        assert json.loads(called.out)["name"] == "Pet 1"
        refreshed = toolgate("sources", "refresh", "shop")
        assert "8 unchanged" in refreshed.out, refreshed
    assert {headers["authorization"] for headers in shop.headers} == {"Bearer secret"}


def test_an_endpoint_without_introspection_is_reported_with_advice(bare: Toolgate) -> None:
    with selling(PetShop(introspects=False)) as url:
        ran = bare("import", "graphql", url, "--name", "shop", "--dry-run")
    assert ran.code == 1
    told = " ".join(ran.err.split())
    assert "refuses introspection: Introspection is not allowed." in told
    assert "Save its schema as SDL" in told


def test_a_schema_without_an_address_suggests_base_url(bare: Toolgate, sdl_file: Path) -> None:
    ran = bare(*IMPORT, "--dry-run")
    assert "The description has no server URL: add --base-url URL." in ran.out


def test_depth_cost_and_overlay_are_kept(toolgate: Toolgate, sdl_file: Path, folder: Path) -> None:
    overlay = folder / "tools.yaml"
    overlay.write_text('operations: {pet: {selection: "{ name }"}, pets: {enabled: true}}')
    options = ("--depth", "1", "--cost", "2", "--overlay", "tools.yaml", "--base-url", AT)
    assert toolgate(*IMPORT, *options).code == 0
    shown = toolgate("tools", "show", "pet", "--json").json
    assert shown["binding"]["selection"] == "{ name }"
    assert (
        toolgate("tools", "show", "petBy", "--json").json["binding"]["selection"] == "{ id name }"
    )
    assert "10 unchanged" in toolgate("sources", "refresh", "shop").out
    ran = toolgate(*IMPORT, *options, "--only-marked", "--json")
    imported = [one["name"] for one in ran.json["operations"] if one["status"] == "imported"]
    assert imported == ["pets"]


def test_a_tool_shows_its_selection(toolgate: Toolgate, sdl_file: Path) -> None:
    assert toolgate(*IMPORT, "--base-url", AT).code == 0
    shown = toolgate("tools", "show", "petBy").out
    assert f"query petBy  {AT}" in shown
    assert "asks for { id name kind born owner { id name email } }" in shown


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--depth", "0"), "0 is not in the range"),
        (("--cost", "0"), "0 is not in the range"),
        (("--base-url", "localhost"), "expected an http:// or https:// URL"),
    ],
)
def test_invalid_options_are_usage_errors(
    bare: Toolgate, sdl_file: Path, options: tuple[str, ...], expected: str
) -> None:
    ran = bare(*IMPORT, *options)
    assert ran.code == 2
    assert expected in " ".join(ran.err.split())


def test_a_syntax_error_says_where(bare: Toolgate, sdl_file: Path) -> None:
    sdl_file.write_text("type Query {\n  pets: [Pet\n}")
    ran = bare(*IMPORT, "--dry-run")
    assert ran.code == 1
    assert "shop.graphql, line 3, column 1: not a GraphQL schema (SDL): Expected ']'" in " ".join(
        ran.err.split()
    )


def test_doctor_looks_whether_the_service_can_be_reached(
    toolgate: Toolgate, sdl_file: Path
) -> None:
    assert toolgate(*IMPORT, "--base-url", "http://127.0.0.1:9/graphql").code == 0
    checks = toolgate("doctor", "--json").json
    [told] = [check for check in checks if check["name"] == "source"]
    assert told["status"] == "warning"
    assert "shop: 10 tools; http://127.0.0.1:9/graphql cannot be reached" in told["detail"]


def test_a_new_schema_is_compared_and_an_old_one_restored(
    toolgate: Toolgate, sdl_file: Path, folder: Path
) -> None:
    assert toolgate(*IMPORT, "--base-url", AT).code == 0
    newer = SDL.replace("pet(id: ID!)", "pet(id: ID!, of: ID!)").replace("echo(", "said(")
    (folder / "newer.graphql").write_text(newer)
    told = toolgate("sources", "diff", "shop", "newer.graphql").out
    for words in ("echo", "said", "of"):
        assert words in told
    sdl_file.write_text(newer)
    assert toolgate("sources", "refresh", "shop").code == 0
    assert "said" in [tool["name"] for tool in toolgate("tools", "list", "--json").json]
    assert toolgate("sources", "rollback", "shop").code == 0
    names = [tool["name"] for tool in toolgate("tools", "list", "--json").json]
    assert "echo" in names
    assert "said" not in names


def test_an_endpoint_is_compared_with_its_former_version_and_rolled_back(
    toolgate: Toolgate,
) -> None:
    shop = PetShop()
    with selling(shop) as url:
        assert toolgate("import", "graphql", url, "--name", "shop").code == 0
        shop.schema = build_schema(SDL.replace("echo(", "said("))
        told = toolgate("sources", "diff", "shop")
        assert told.code == 0, told.err
        assert "said" in told.out
        assert toolgate("sources", "refresh", "shop").code == 0
    restored = toolgate("sources", "rollback", "shop")  # nobody is asked
    assert restored.code == 0, restored.err
    assert "echo" in [tool["name"] for tool in toolgate("tools", "list", "--json").json]
