"""`toolgate tools add`: what is made is listed, and called as imported tools are."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.gateway.cli.conftest import Toolgate


@pytest.fixture
def echo() -> Iterator[str]:
    """The URL of a service that answers with what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            told = {
                "asked": f"{self.command} {self.path}",
                "key": self.headers.get("X-Key"),
                "body": json.loads(self.rfile.read(length) or b"null"),
            }
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def call_tool(toolgate: Toolgate, *args: str, **env: str) -> Any:
    ran = toolgate("tools", "call", *args, "--json", **env)
    assert ran.code == 0, ran.err + ran.out
    return json.loads(ran.json["content"][0]["text"])


def test_a_request_becomes_a_tool_that_can_be_called(toolgate: Toolgate, echo: str) -> None:
    ran = toolgate(
        *("tools", "add", "weather", "--description", "The weather of a city", "--tag", "sky"),
        *("--rest", f"GET {echo}/v1/{{city}}/now?q={{text}}&units=metric"),
    )
    assert (ran.code, ran.err) == (0, "")
    source = "127-0-0-1-" + echo.rpartition(":")[2]
    assert ran.out == f"Added weather, through the source {source}.\n"
    assert toolgate("tools", "list").out == f"weather  {source}  The weather of a city\n"
    told = call_tool(toolgate, "weather", "city=São Paulo", "text=a b")
    assert told["asked"] == "GET /v1/S%C3%A3o%20Paulo/now?q=a%20b&units=metric"
    shown = toolgate("tools", "show", "weather").out
    assert f"GET {echo}/v1/{{city}}/now" in shown
    assert f"manual tool; its calls use the source {source}" in shown
    assert "tags sky" in shown
    assert "embedding disabled" in shown or "embedding pending" in shown


def test_an_added_tool_is_called_with_the_headers_of_its_source(
    toolgate: Toolgate, echo: str, folder: Path
) -> None:
    schema = folder / "schema.json"
    schema.write_text('{"type": "object", "properties": {"id": {"type": "integer"}, "note": {}}}')
    toolgate(
        *("tools", "add", "note", "--description", "Notes it", "--source", "notes"),
        *("--rest", f"POST {echo}/notes/{{id}}", "--input-schema", str(schema)),
    )
    (folder / "toolgate.yaml").write_text("sources: {notes: {headers: {X-Key: secret}}}")
    assert call_tool(toolgate, "note", "id=7", 'note={"a": 1}') == {
        "asked": "POST /notes/7",
        "key": "secret",
        "body": {"note": {"a": 1}},
    }


def test_a_path_goes_through_an_imported_source(with_pets: Toolgate, echo: str) -> None:
    assert (
        with_pets("import", "openapi", "pets.json", "--name", "pets", "--base-url", echo).code == 0
    )
    ran = with_pets(
        *("tools", "add", "photo", "--description", "A photo", "--source", "pets"),
        *("--rest", "GET /pets/{id}/photo"),
    )
    assert ran.code == 0, ran.err
    assert call_tool(with_pets, "photo", "id=3")["asked"] == "GET /pets/3/photo"


FILE = """
tools:
  - name: one
    description: One
    rest: GET https://api.example.com/one
    tags: [a]
    examples: [{}]
    annotations: {readOnlyHint: false}
  - name: two
    description: Two
    script: two.py
    language: python
"""


def test_several_are_made_of_a_file(toolgate: Toolgate, folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "tools.yaml").write_text(FILE)
    (folder / "more" / "two.py").write_text("def main(arguments): return 2")
    ran = toolgate("tools", "add", "--from", "more/tools.yaml", "--dry-run", "--json")
    assert [one["name"] for one in ran.json] == ["one", "two"]
    assert toolgate("tools", "list").out == ""
    ran = toolgate("tools", "add", "--from", "more/tools.yaml")
    assert ran.out.splitlines() == [
        "Added one, through the source api-example-com.",
        "Added two.",
    ]
    assert "scripts are switched off (scripts.enabled): script tools cannot be called" in ran.err
    assert [one["name"] for one in toolgate("tools", "list", "--json").json] == ["one", "two"]
    shown = toolgate("tools", "show", "one", "--json").json
    assert shown["annotations"] == {"readOnlyHint": False}
    assert shown["input_schema"]["examples"] == [{}]


def test_one_invalid_tool_of_a_file_stops_all_additions(toolgate: Toolgate, folder: Path) -> None:
    (folder / "tools.yaml").write_text(FILE.replace("two.py", "missing.py"))
    ran = toolgate("tools", "add", "--from", "tools.yaml")
    assert (ran.code, ran.err) == (1, "toolgate: missing.py: no such file or directory\n")
    (folder / "two.py").write_text("def main(arguments): return 2")
    (folder / "tools.yaml").write_text(FILE.replace("language: python", "langage: python"))
    ran = toolgate("tools", "add", "--from", "tools.yaml")
    assert ran.code == 2
    assert "/tools/1/langage: is not known; did you mean 'language'?" in ran.err
    assert toolgate("tools", "list").out == ""


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ([], 2, "expected the NAME of a tool, or --from FILE"),
        (["a"], 1, "expected one of rest"),
        (["a b", "--rest", "GET http://x/"], 2, "expected a name of at most 128"),
        (["a", "--rest", "GET http://x/", "--input-schema", "nowhere.json"], 2, "No such file"),
        (["a", "--rest", "GET http://x/", "--input-schema", "{"], 2, "--input-schema"),
        (["a", "--script", "nowhere.py", "--language", "python"], 1, "no such file"),
        (
            ["a", "--script", "x.py", "--language", "python", "--function", "y"],
            1,
            "found function, code",
        ),
        (["a", "--script", "x.py", "--language", "perl"], 2, "/tools/0/language"),
        (["a", "--rest", "GET http://u:pw@x/", "--description", "D"], 1, "without credentials"),
        (["a", "--from", "tools.yaml"], 2, "or --from FILE"),
        (["a", "--function", "nobody", "--description", "D"], 1, "no function 'nobody'"),
        (["a", "--rest", "GET http://x/", "--description", "D", "--tier", "pubic"], 2, "n public?"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_are_explained(
    toolgate: Toolgate, folder: Path, args: list[str], code: int, told: str
) -> None:
    (folder / "x.py").write_text("def main(arguments): return 1")
    ran = toolgate("tools", "add", *args)
    assert ran.code == code, ran.err
    assert told in ran.err
    assert "pw" not in ran.err


FUNCTIONS = '''
from typing import Annotated
from msgspec import Meta

def count(text: str, shortest: Annotated[int, Meta(ge=1)] = 1) -> dict:
    """Count the words of a text."""
    return {"words": sum(len(word) >= shortest for word in text.split())}
'''


def test_a_function_needs_no_schema(
    toolgate: Toolgate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "handmade_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "toolgate.yaml").write_text("functions: {count: 'handmade_functions:count'}")
    ran = toolgate("tools", "add", "countWords", "--function", "count")
    assert ran.code == 0, ran.err
    assert "SIGHUP" in ran.err
    assert call_tool(toolgate, "countWords", "text=a bb ccc", "shortest=2") == {"words": 2}
    ran = toolgate("tools", "call", "countWords", "text=a", "shortest=0")
    assert (ran.code, "shortest" in ran.out) == (1, True)
    (folder / "toolgate.yaml").write_text("functions: {count: 'handmade_functions:counted'}")
    ran = toolgate("tools", "call", "countWords", "text=a")
    assert "functions.count: handmade_functions:counted: the module" in ran.err


def test_a_script_is_run_when_scripts_are_switched_on(toolgate: Toolgate, folder: Path) -> None:
    (folder / "slug.py").write_text(
        "def main(arguments):\n    return arguments['text'].lower().replace(' ', '-')\n"
    )
    toolgate(
        *("tools", "add", "slug", "--description", "A slug", "--script", "slug.py"),
        *("--language", "python"),
    )
    ran = toolgate("tools", "call", "slug", "text=A B")
    assert ran.code == 1
    assert "scripts are switched off (scripts.enabled)" in ran.out
    ran = toolgate(
        "tools", "call", "slug", "text=A B",
        TOOLGATE_SCRIPTS__ENABLED="true", TOOLGATE_SCRIPTS__TIME_S="60",
    )  # fmt: skip
    # where the machine has no namespaces: refused, and said why
    assert ran.out == "a-b\n" or "does not let scripts be confined" in ran.out
