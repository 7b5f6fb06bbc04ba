"""Text of a hostile gateway or registry at a terminal: no command lets it control one."""

import ast
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.json import JSON
from rich.table import Table

import gateway.cli
from gateway.cli.common import output, tables
from gateway.cli.common.failure import CommandFailure
from gateway.cli.common.output import err, out
from gateway.cli.common.progress import progress_bar
from tests.gateway.cli.conftest import Toolgate

ESCAPES = (
    "\x1b[31mred",
    "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x9b2J",
    "up\x1b[1Adown\r",
    "\u202egnp.exe\u2066",
    "[bold red]bold[/]",
    "[link=https://evil.example]here[/link]",
    "[/]",
    ":smile:",
    "two\nlines",
    "tag\U000e0041",
)
HOSTILE = st.lists(st.sampled_from(ESCAPES) | st.text(max_size=8), min_size=1, max_size=4).map(
    "".join
)
MARKUP = ("[bold red]bold[/]", "[link=https://evil.example]here[/link]", ":smile:")
# rich moves the cursor itself, to draw a bar again
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\U000e0041"
CURSOR = re.compile(r"\x1b\[(\?25[lh]|[0-9]*[AK])|\r")

Printed = Callable[[str], None]


def in_table(text: str) -> None:
    table = Table(text, box=None)
    table.add_row(text)
    out.print(table)


def in_json(text: str) -> None:
    out.print(JSON(json.dumps({text: text})))


def as_progress(text: str) -> None:
    with progress_bar() as bar:
        bar.add_task(text, total=2)


def entries(text: str) -> None:
    tables.print_entries((), [{text: text, "x": [text], "y": {text: text}}])


PRINTERS: dict[str, Printed] = {
    "say": output.say,
    "styled": lambda text: output.say(text, "red"),
    "remark": output.remark,
    "out": lambda text: out.print(text),
    "err": lambda text: err.print(text, style="dim"),
    "rows": lambda text: output.print_rows((text, text), [(text, text)]),
    "wrapped": lambda text: output.print_rows((text, text), [(text, text * 9)], wrap=True),
    "json": lambda text: output.print_json({text: [text]}),
    "entries": entries,
    "columns": lambda text: tables.print_entries((("a", text, "text"),), [{"a": text}]),
    "entry": lambda text: tables.print_entry(
        {
            text: text,
            "long": f"{text}\n{text}",
            "list": [{text: text}],
            "texts": [text, "\n"],
            "many": [text] * 20,
        }
    ),
    "no entry": lambda text: tables.print_entry([text]),
    "table": in_table,
    "highlighted": in_json,
    "progress": as_progress,
    "failure": lambda text: CommandFailure(text).show(),
}


@contextmanager
def terminal(is_terminal: bool) -> Iterator[None]:
    """Commands write to a terminal without colours, or to a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        for console in (out, err):
            patch.setattr(console, "_force_terminal", is_terminal)
            patch.setattr(console, "_color_system", None)
        yield


def printed_text(name: str, text: str, is_terminal: bool) -> str:
    """What a printer writes to either stream."""
    stream = io.StringIO()
    with terminal(is_terminal), redirect_stdout(stream), redirect_stderr(stream):
        PRINTERS[name](text)
    return stream.getvalue()


def controls(text: str) -> set[str]:
    """Characters of a text that are none to read, but for line ends and tabs."""
    return {letter for letter in text if letter not in "\n\t" and is_control(letter)}


def is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" or letter in BIDI


WAYS = pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])


@WAYS
@pytest.mark.parametrize("name", PRINTERS)
@given(text=HOSTILE)
def test_no_printer_lets_text_control_a_terminal(name: str, is_terminal: bool, text: str) -> None:
    """Every function that prints writes escapes out, and knows no markup (mending d)."""
    printed = printed_text(name, text, is_terminal)
    printed = CURSOR.sub("", printed) if name == "progress" else printed
    assert not controls(printed), (name, printed)


@WAYS
@pytest.mark.parametrize("name", sorted(PRINTERS.keys() - {"json", "remark", "progress"}))
@pytest.mark.parametrize("markup", MARKUP)
def test_printers_know_no_markup(name: str, is_terminal: bool, markup: str) -> None:
    """Text that looks like markup stays text (mending d)."""
    assert markup in re.sub(r"\s+", " ", printed_text(name, markup, is_terminal))


FREE = {"common/output.py", "common/failure.py", "common/progress.py"}
PRINTING = {"Console", "Progress", "TextColumn", "echo"}


def test_nothing_prints_past_the_printers() -> None:
    """Consoles, bars and raw writes are made in the three modules of printers alone (mending d)."""
    root = Path(gateway.cli.__path__[0])
    calls = {
        f"{path.relative_to(root)}: {name}"
        for path in root.rglob("*.py")
        if str(path.relative_to(root)) not in FREE
        for name in called_names(ast.parse(path.read_text()))
    }
    assert calls == RAW.keys()


RAW = {
    "audit.py: sys.stdout.write": "lines that machines read, whose bytes the hash is of",
    "common/lazy.py: click.echo": "help",
    "imports/report.py: sys.stdout.write": "Markdown, whose cells are escaped as one line",
    "installation.py: click.echo": "file names of the user, and completion",
    "installation.py: sys.stdout.write": "the user's settings as YAML, which escapes",
    "stored/command.py: click.echo": "what is stored as YAML, which escapes",
    "tools/call.py: sys.stdout.write": "a tool's answer in a pipe, as it is",
}


def called_names(tree: ast.Module) -> Iterator[str]:
    """Names of printing functions that are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if text in PRINTING | {"print", "Bar"} or text in {
                "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write",
            }:  # fmt: skip
                yield text


HOSTILE_TEXT = "".join(ESCAPES)


@pytest.fixture
def hostile() -> Iterator[str]:
    """The URL of a gateway whose texts are all hostile."""
    operation = {
        "operationId": "createKey", "summary": HOSTILE_TEXT, "parameters": [],
        "security": [{"token": [HOSTILE_TEXT]}],
        "requestBody": {"required": True},
    }  # fmt: skip
    agent = {"in": "path", "name": "agent"}
    job = {"in": "path", "name": "job"}
    paths = {
        "/keys": {"post": operation},
        "/jobs/{job}": {"get": {**operation, "operationId": "getJob", "parameters": [job]}},
        "/sessions": {"get": {**operation, "operationId": "listSessions"}},
        "/agents/{agent}/skills": {
            "post": {**operation, "operationId": "grantSkills", "parameters": [agent]}
        },
        "/status": {"get": {**operation, "operationId": "getStatus"}},
        "/agents/{agent}": {
            "put": {
                **operation, "operationId": "putAgent", "parameters": [agent],
            }
        },
    }  # fmt: skip
    names = ("id", "name", "principal", "client", "revision", "state", "note", HOSTILE_TEXT)
    entry: dict[str, Any] = dict.fromkeys(names, HOSTILE_TEXT)
    key = {"key": entry, "secret": HOSTILE_TEXT}
    answers: dict[str, Any] = {
        "/openapi.json": {"paths": paths},
        "/keys": key,
        "/jobs/a": {**entry, "ended": "x", "state": "failed", "problem": {"detail": HOSTILE_TEXT}},
        "/sessions": {"items": [entry], "next": ""},
        "/status": {**entry, "more": entry},
        "/agents/a": entry,
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            value = answers.get(self.path.removeprefix("/admin/v1"), {"detail": HOSTILE_TEXT})
            data = json.dumps(value).encode()
            self.send_response(200 if "detail" not in value else 409)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_GET  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@WAYS
@pytest.mark.parametrize(
    "command",
    [
        ("admin",),
        ("admin", "getStatus"),
        ("keys", "create", "a"),
        ("jobs", "wait", "a"),
        ("jobs", "show", "a"),
        ("sessions", "list"),
        ("status",),
        ("agents", "add", "a"),
        ("agents", "grant", "a", "b"),
    ],
)
def test_a_hostile_gateway_controls_no_terminal(
    bare: Toolgate, hostile: str, command: tuple[str, ...], is_terminal: bool
) -> None:
    """Commands escape what a gateway answers, wherever it stands in the answer (mending d)."""
    with terminal(is_terminal):
        ran = bare(*command, "--url", hostile, "--key-file", "-", stdin="key")
    assert "here" in ran.out + ran.err, ran
    assert not controls(CURSOR.sub("", ran.out + ran.err)), ran


def test_consoles_have_no_markup() -> None:
    """A console of rich knows markup until it is told otherwise: ours is told (mending d)."""
    assert isinstance(out, Console)
    for console in (out, err):
        assert console.render_str("[bold]x[/]").plain == "[bold]x[/]"
