"""Commands that are made of operations: several entries, names, questions, helps."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
from msgspec.structs import replace

from config.load import load
from gateway import cli
from gateway.cli import operations
from gateway.cli.commands import GROUPS, CommandRow
from gateway.cli.common import options
from gateway.cli.common.output import err, out
from gateway.cli.common.parameter_types import PAST, TIME, seconds_of, span_of
from tests.gateway.cli.conftest import Toolgate

GENERATED = [
    (group, word)
    for group, rows in GROUPS.items()
    for word, row in rows.rows.items()
    if isinstance(row, CommandRow)
]
Json = dict[str, Any]


def test_the_first_failure_stops_and_names_the_entries_done(with_pets: Toolgate) -> None:
    """A command with several names says which are done when one fails (mending c)."""
    ran = with_pets("tools", "disable", "getPet", "listPets", "none", "createPet")
    assert ran.code == 1
    assert ran.out.splitlines() == ["Disabled getPet.", "Disabled listPets."]
    assert "Done: getPet, listPets. Not done: none, createPet." in ran.err
    disabled = with_pets("tools", "list", "--disabled").out
    assert [line.split()[0] for line in disabled.splitlines()] == ["getPet", "listPets"]


def test_json_has_the_answers_before_a_failure(with_pets: Toolgate) -> None:
    """Answers before the first failure are one JSON text (mending c)."""
    ran = with_pets("tools", "disable", "getPet", "none", "--json")
    assert ran.code == 1
    assert [tool["name"] for tool in ran.json] == ["getPet"]


def test_a_first_name_that_fails_keeps_its_message(with_pets: Toolgate) -> None:
    """Nothing is done where the first name fails, and the message is that of one (mending c)."""
    ran = with_pets("tools", "disable", "none", "getPet")
    assert (ran.code, ran.out) == (1, "")
    assert "Done:" not in ran.err
    assert with_pets("tools", "list", "--disabled").out == ""


def test_one_tag_is_of_one_entry(with_pets: Toolgate) -> None:
    """--if-match with the tag of one entry and several names is refused, before any call
    (mending c)."""
    ran = with_pets("tools", "disable", "getPet", "listPets", "--if-match", '"abc"')
    assert ran.code == 2
    assert "--if-match" in ran.err
    assert with_pets("tools", "list", "--disabled").out == ""
    assert with_pets("tools", "disable", "getPet", "listPets", "--if-match", "*").code == 0


def test_keys_are_revoked_by_names_and_ids(toolgate: Toolgate) -> None:
    """`keys revoke A B` takes names and ids (mending c)."""
    ids = {name: toolgate("keys", "create", name, "--json").json["key"]["id"] for name in "ab"}
    ran = toolgate("keys", "revoke", "a", ids["b"])
    assert (ran.code, len(ran.out.splitlines())) == (0, 2), ran.err
    assert all(key["revoked"] for key in toolgate("keys", "list", "--json").json)


def test_an_id_that_is_the_name_of_another_is_refused(toolgate: Toolgate) -> None:
    """A text that names two keys changes neither (mending g)."""
    first = toolgate("keys", "create", "first", "--json").json["key"]["id"]
    second = toolgate("keys", "create", first, "--json").json["key"]["id"]
    ran = toolgate("keys", "revoke", first)
    assert ran.code == 2
    assert f"the name of another, whose id is {second}" in ran.err
    assert toolgate("keys", "revoke", second).code == 0
    assert toolgate("keys", "revoke", first).code == 0


@contextmanager
def gateway(answers: Mapping[tuple[str, str], tuple[int, Any]]) -> Iterator[str]:
    """The URL of a gateway with these answers."""
    parameters = [{"in": "path", "name": "key"}, {"in": "query", "name": "earlier"}]
    row = {"summary": "s", "parameters": [], "security": [{"token": ["s"]}]}
    paths = {
        "/keys": {"get": {**row, "operationId": "listKeys"}},
        "/keys/{key}": {
            "delete": {**row, "operationId": "revokeKey", "parameters": parameters},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix("/admin/v1")
            known = {("GET", "/openapi.json"): (200, {"paths": paths}), **answers}
            absent = (404, {"detail": "There is none."})
            status, value = known.get((self.command, path), absent)
            data = json.dumps(value).encode() if value is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_DELETE = do_GET  # noqa: N815 - names of the library

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


def test_a_key_without_the_right_to_read_revokes_by_id(bare: Toolgate) -> None:
    """A caller that may write, but not list, names entries by their ids (mending g)."""
    answers = {
        ("GET", "/keys"): (403, {"detail": "Needs admin:keys:read."}),
        ("DELETE", "/keys/k1"): (204, None),
    }
    with gateway(answers) as url:
        where = ("--url", url, "--key-file", "-")
        ran = bare("keys", "revoke", "k1", *where, stdin="key")
        assert (ran.code, ran.out) == (0, "Revoked k1.\n"), ran.err
        refused = bare("keys", "revoke", "deploy", *where, stdin="key")
    assert refused.code == 1
    assert "Names cannot be looked up" in refused.err
    assert "admin:keys:read" in refused.err


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (("users", "list"), "login.enabled and login.users: true"),
        (("people", "show", "ann"), "login.enabled: true"),
        (("notifications", "list"), "notifications.enabled: true"),
    ],
)
def test_the_setting_is_named_that_a_gateway_lacks(
    bare: Toolgate, words: tuple[str, ...], setting: str
) -> None:
    with gateway({}) as url:
        ran = bare(*words, "--url", url, "--key-file", "-", stdin="key")
    assert (ran.code, setting in ran.err, "Did you mean" in ran.err) == (2, True, False), ran.err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that a person at a terminal is asked, who says no."""
    questions: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        questions.append(text)
        return False

    monkeypatch.setattr(options, "check_terminal", lambda *_: None)
    monkeypatch.setattr("gateway.cli.operations.check_terminal", lambda *_: None)
    monkeypatch.setattr("click.confirm", confirm)
    return questions


def test_a_source_is_removed_with_the_number_of_its_tools(
    with_pets: Toolgate, terminal: list[str]
) -> None:
    """The question before the removal of a source has the number of its tools (mending g)."""
    ran = with_pets("sources", "remove", "pets")
    assert ran.code == 1
    assert re.fullmatch(r"Remove pets and its tools \(\d\)\?", terminal[0])
    assert "nothing was changed" in ran.err
    assert with_pets("sources", "list").out


@pytest.mark.parametrize("word", ["create", "rotate"])
def test_a_person_is_told_to_store_a_key(
    toolgate: Toolgate, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """The remark stands on standard error, also where the key goes to a file (mending g)."""
    monkeypatch.setattr(err, "_force_terminal", True)
    monkeypatch.setattr(out, "_force_terminal", False)
    earlier = toolgate("keys", "create", "ci", "--json").json["key"]["id"]
    ran = toolgate("keys", word, "ci" if word == "rotate" else "other")
    assert len(ran.out.split()) == 1
    assert "Store it now" in ran.err
    if word == "rotate":
        assert f"The earlier one, {earlier}, is valid for 1d more." in ran.err
    else:
        assert "Nobody is asked for a key now" in ran.err


def test_remarks_on_keys_depend_on_the_settings() -> None:
    """Keys that gateways ask for need no remark (mending g)."""
    row = GROUPS["keys"].rows["create"]
    assert isinstance(row, CommandRow)
    settings = load(None, {})
    assert row.remarks(replace(settings, auth=replace(settings.auth, mode="keys"))) == ""


@pytest.mark.parametrize(("group", "word"), GENERATED)
def test_help_explains_every_argument(group: str, word: str) -> None:
    """Every option has a help, no argument stands twice, and times say their format (mending
    g)."""
    command = getattr(operations, group).load(word)
    context = click.Context(command, info_name=word)
    placed = [option for option in command.params if isinstance(option, click.Argument)]
    metavars = [argument.make_metavar(context) for argument in placed]
    assert len(metavars) == len(set(metavars)), metavars
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        name, text = option.opts[0], option.help or ""
        assert text.endswith((".", "]")), f"{name}: {text!r} is no sentence"
        assert "on one line" not in text, f"{name} tells a limit, not a purpose"
        assert "Turn off: Load" not in text
        if option.type.name in {"time", "span"}:
            assert "such as" in text, f"{name} tells no format"


@pytest.mark.parametrize("text", ["90s", "15m", "36h", "30d"])
def test_spans_survive_writing_and_reading(text: str) -> None:
    assert span_of(seconds_of(text)) == text


@pytest.mark.parametrize(
    "text", ["2090-01-31T12:00", "2090-01-31T12:00Z", "2090-01-31T14:00+02:00"]
)
def test_time_needs_neither_zone_nor_seconds(toolgate: Toolgate, text: str) -> None:
    """The help names 2030-01-31T12:00Z; a time without a zone is in UTC."""
    assert toolgate("keys", "create", "a", "--expires", text, "--json").code == 0
    assert toolgate("keys", "list", "--json").json[0]["expires"] == "2090-01-31T12:00:00Z"


@pytest.mark.parametrize(("kind", "sign"), [(TIME, 1), (PAST, -1)])
def test_spans_lead_to_the_future_or_the_past(kind: click.ParamType[Any], sign: int) -> None:
    """`--expires 2d` is in two days, `--since 2d` was two days ago (mending g)."""
    moment = datetime.fromisoformat(kind.convert("2d", None, None))
    assert (moment - datetime.now(UTC)) * sign > timedelta(days=1)


def test_few_files_of_the_command_line_know_the_registry() -> None:
    """Commands call operations; the rest is what a person sees, and processes that serve."""
    folder = Path(cli.__file__).parent
    texts = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.py")}
    for pattern, limit in ((r"^\s*(from|import) registry\b", 10), (r"\bopen_registry\b", 12)):
        files = [name for name, text in texts.items() if re.search(pattern, text, re.MULTILINE)]
        assert len(files) <= limit, files


@pytest.mark.parametrize(
    ("words", "remark"),
    [
        (("keys", "list"), "To make one: toolgate keys create NAME"),
        (("agents", "list"), "agents add"),
    ],
)
def test_empty_list_is_told_without_a_header(
    toolgate: Toolgate, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], remark: str
) -> None:
    monkeypatch.setattr(out, "_force_terminal", True)
    ran = toolgate(*words)
    assert ran.code == 0, ran.err
    assert remark in ran.out
    assert "name  " not in ran.out
