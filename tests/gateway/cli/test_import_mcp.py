"""`toolgate import mcp`, and what other commands say of MCP servers."""

import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.conftest import Toolgate, answering
from tests.registry.servers import prompt, resource, template, tool
from tests.servers import mcp_lists
from tests.servers.mcp_habits import Habits, running

Lists = Callable[..., None]

FULL: dict[str, list[Any]] = {
    "tools": [tool(description="Says it again."), tool("b.c"), {"name": "broken"}],
    "prompts": [prompt("ask")],
    "resources": [resource("file:///x"), resource("file:///y")],
    "resourceTemplates": [template("file:///{+path}")],
}


@pytest.fixture
def lists(folder: Path) -> Lists:
    """Makes the server at `COMMAND` list these."""

    def write(**lists: Any) -> None:
        (folder / "lists.json").write_text(json.dumps(lists))

    write(**FULL)
    return write


COMMAND = (sys.executable, mcp_lists.__file__, "lists.json")
LINE = " ".join(COMMAND)
IMPORT = ("import", "mcp", "--stdio", LINE, "--name", "fs")


def test_an_import_reports_its_changes_and_the_items_of_the_server(
    toolgate: Toolgate, lists: Lists
) -> None:
    ran = toolgate(*IMPORT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "skipped   broken: has no inputSchema",
        "lists 1.5: 6 imported, 1 skipped",
        "It has 2 tools, 1 prompt, 2 resources, 1 template.",
        "It speaks 2025-11-25.",
        "Tools of fs: 2 added, 0 updated, 0 unchanged, 0 removed.",
        "Prompts and resources of fs: 4 added, 0 updated, 0 unchanged, 0 removed.",
        f"Calls go to a process: {LINE}",
    ]


def test_a_command_may_also_follow_at_the_end(toolgate: Toolgate, lists: Lists) -> None:
    ran = toolgate("import", "mcp", "--name", "fs", "--", *COMMAND)
    assert (ran.code, ran.err) == (0, "")
    [source] = toolgate("sources", "list", "--json").json
    assert source["options"]["command"] == list(COMMAND)


def test_a_dry_run_needs_no_database(bare: Toolgate, lists: Lists) -> None:
    nowhere = "postgresql://127.0.0.1:9/none"
    report = bare(*IMPORT, "--dry-run", "--json", TOOLGATE_DATABASE__URL=nowhere).json
    assert report["dry_run"] is True
    assert [one["name"] for one in report["operations"]] == [
        "echo", "b_c", None, "ask", "file:///x", "file:///y", "file:///{+path}",
    ]  # fmt: skip
    assert report["server"]["handshake"] == "2025-11-25"


def test_the_json_of_an_import_counts_items_and_held_tools(
    toolgate: Toolgate, lists: Lists
) -> None:
    assert toolgate(*IMPORT, "--json").json["saved"] == {
        "added": 2,
        "updated": 0,
        "unchanged": 0,
        "removed": 0,
        "held": 0,
        "items": {"added": 4, "updated": 0, "unchanged": 0, "removed": 0},
    }


def test_import_options_are_repeated_by_a_refresh(toolgate: Toolgate, lists: Lists) -> None:
    options = ("--prefix", "always", "--era", "handshake", "--own-sessions", "--pin")
    assert toolgate(*IMPORT, *options, "--exclude", "b*").code == 0
    [source] = toolgate("sources", "list", "--json").json
    assert source["options"] == {
        "command": list(COMMAND),
        "era": "handshake",
        "prefix": "always",
        "own_sessions": True,
        "pin": True,
    }
    assert [one["name"] for one in toolgate("tools", "list", "--json").json] == ["fs_echo"]
    ran = toolgate("sources", "refresh", "fs")
    assert "Tools of fs: 0 added, 0 updated, 1 unchanged, 0 removed." in ran.out


def test_sources_of_the_settings_can_be_imported_at_once(
    toolgate: Toolgate, lists: Lists, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        f"sources: {{fs: {{command: {json.dumps(COMMAND)}, prefix: always}}}}"
    )
    assert toolgate("sources", "refresh", "fs").code == 0
    assert "fs_echo" in toolgate("tools", "list").out


def test_sources_are_shown_with_the_information_of_their_servers(
    toolgate: Toolgate, lists: Lists
) -> None:
    toolgate(*IMPORT, "--pin")
    assert toolgate("sources", "list").out == f"fs  2  -  stdio:{LINE}  mcp  cli\n"
    shown = toolgate("sources", "show", "fs").out.splitlines()
    assert shown[0].startswith("fs  mcp, 2 tools, version 1.5, imported ")
    assert shown[1:] == [
        f"  from  stdio:{LINE}",
        f"  calls a process: {LINE}",
        "  speaks 2025-11-25",
        "  has   1 prompt, 2 resources, 1 template",
        "  is    lists 1.5",
        "  names prefix conditional",
        "  pins  new and changed tools wait to be accepted",
    ]
    report = toolgate("sources", "show", "fs", "--json").json
    assert (report["prompt"], report["resource"], report["held"]) == (1, 2, [])
    ran = toolgate("sources", "show", "f-s")
    assert (ran.code, ran.err) == (1, "toolgate: There is no source 'f-s'. Did you mean fs?\n")


def test_a_tool_is_shown_with_its_name_on_the_server(toolgate: Toolgate, lists: Lists) -> None:
    lists(tools=[tool("b.c", description="Does.", icons=[])])
    toolgate(*IMPORT)
    assert "tool b.c  of a process" in toolgate("tools", "show", "b_c").out
    shown = toolgate("tools", "show", "b_c", "--json").json
    assert shown["binding"]["name"] == "b.c"
    assert shown["definition"] == {"icons": []}


@pytest.fixture
def with_held_tools(toolgate: Toolgate, lists: Lists) -> Toolgate:
    """A pinned source, of whose tools `echo` changed and `new` is new."""
    lists(tools=[tool(description="Old."), tool("same")])
    toolgate(*IMPORT, "--pin")
    lists(tools=[tool(description="New."), tool("same"), tool("new")])
    return toolgate


def test_held_changes_are_reported(with_held_tools: Toolgate) -> None:
    ran = with_held_tools("sources", "refresh", "fs")
    assert ran.out.splitlines()[:3] == [
        "held      echo: description changed",
        "held      new: new",
        "lists 1.5: 2 held, 1 imported",
    ]
    assert "2 tools wait to be accepted: toolgate tools accept --source fs --diff" in ran.out
    assert with_held_tools("tools", "list").out.splitlines() == [
        "echo  fs  held back: description changed",
        "new   fs  held back: new",
        "same  fs",
    ]
    assert [one["held_reason"] for one in with_held_tools("tools", "list", "--json").json] == [
        "description changed",
        "new",
        None,
    ]
    assert "Held back: description changed." in with_held_tools("tools", "show", "echo").out
    assert with_held_tools("tools", "show", "new", "--json").json["held_reason"] == "new"
    assert "held  echo: see `toolgate tools accept echo --diff`" in with_held_tools(
        "sources", "show", "fs"
    ).out  # fmt: skip
    assert with_held_tools("tools", "call", "echo").code == 1


def test_changes_are_shown_before_acceptance(with_held_tools: Toolgate) -> None:
    with_held_tools("sources", "refresh", "fs")
    ran = with_held_tools("tools", "accept", "echo", "--diff")
    assert (ran.code, ran.err) == (
        2,
        "toolgate: no terminal to confirm: add --yes to accept echo\n",
    )
    assert '-  "description": "Old.",' in ran.out
    assert '+  "description": "New.",' in ran.out
    assert "inputSchema" in ran.out  # what did not change stands beside it
    assert "Accepted" not in ran.out
    assert '+  "name": "new",' in with_held_tools("tools", "accept", "--source", "fs", "--diff").out
    ran = with_held_tools("tools", "accept", "--all", "--diff", "--yes")
    assert ran.out.endswith("Accepted echo.\nAccepted new.\n")
    assert "held" not in with_held_tools("tools", "list").out


@pytest.mark.parametrize(
    ("names", "left"),
    [(["echo"], ["new"]), (["--source", "fs"], []), (["--all"], []), (["echo", "new"], [])],
)
def test_tools_are_accepted_by_name_by_source_or_all(
    with_held_tools: Toolgate, names: list[str], left: list[str]
) -> None:
    with_held_tools("sources", "refresh", "fs")
    assert with_held_tools("tools", "accept", *names).code == 0
    listed = with_held_tools("tools", "list", "--json").json
    assert [one["name"] for one in listed if one["held_reason"]] == left
    assert "held" not in with_held_tools("sources", "refresh", "fs").out or left


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], (2, "expected names of tools, or --source NAME, or --all")),
        (["echo", "--all"], (2, "expected names of tools, or --source NAME, or --all")),
        (["ecko"], (1, "There is no tool 'ecko'. Did you mean echo?")),
        (["--source", "f-s"], (1, "There is no source 'f-s'. Did you mean fs?")),
    ],
)
def test_invalid_acceptances_are_refused(
    with_held_tools: Toolgate, args: list[str], expected: tuple[int, str]
) -> None:
    ran = with_held_tools("tools", "accept", *args)
    assert (ran.code, ran.err) == (expected[0], f"toolgate: {expected[1]}\n")


def test_no_tool_is_accepted_where_none_waits(with_held_tools: Toolgate) -> None:
    assert with_held_tools("tools", "accept", "--all").out == "No tool waits to be accepted.\n"
    assert with_held_tools("tools", "accept", "same").out == "No tool waits to be accepted.\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "expected the URL of an MCP server, or a command: --stdio COMMAND"),
        (["http://x/mcp", "--stdio", "a"], "expected a URL or a command, found both"),
        (["--stdio", "a", "--", "b"], "expected one command"),
        (["--"], "expected a command after --"),
        (["--stdio", 'a "b'], "--stdio: 'a \"b' is not a command: no closing quotation"),
        (["--stdio", " "], "--stdio: expected a command, found nothing"),
        (["x/mcp"], "expected an http:// or https:// URL"),
        (["http://me:hidden@x/mcp"], "(credentials go into `headers`)"),
        (["http://x/mcp", "--prefix", "sometimes"], "'sometimes' is not one of"),
    ],
)
def test_a_server_that_is_not_clearly_named_is_a_usage_error(
    bare: Toolgate, args: list[str], expected: str
) -> None:
    ran = bare("import", "mcp", "--name", "fs", *args)
    assert ran.code == 2
    assert expected in ran.err
    assert "hidden" not in ran.err


def test_commands_are_not_started_if_forbidden_by_settings(bare: Toolgate) -> None:
    ran = bare(*IMPORT, TOOLGATE_UPSTREAM__STDIO="false")
    assert (ran.code, ran.err) == (
        2,
        "toolgate: commands are not allowed: upstream.stdio is false\n",
    )


def test_a_server_that_is_not_there_is_refused_with_the_reason(toolgate: Toolgate) -> None:
    ran = toolgate("import", "mcp", "http://127.0.0.1:9/mcp", "--name", "up")
    assert ran.code == 1
    assert "up could not be reached" in ran.err
    assert toolgate("sources", "list", "--json").json == []


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (HTTPStatus.UNAUTHORIZED, 'sources: {up: {headers: {Authorization: "Bearer ${TOKEN}"}}}'),
        (HTTPStatus.NOT_FOUND, "Is it the whole URL of an MCP endpoint"),
    ],
)
def test_a_refusing_server_is_reported_with_advice(
    toolgate: Toolgate, status: HTTPStatus, advice: str
) -> None:
    with answering({}, status) as port:
        ran = toolgate("import", "mcp", f"http://127.0.0.1:{port}/mcp", "--name", "up")
    assert ran.code == 1
    assert advice in ran.err


def test_the_query_of_a_server_is_sent_and_never_shown(toolgate: Toolgate, folder: Path) -> None:
    """Keys in the query of an MCP server's URL reach the server, and no output (mending 14)."""
    habits = Habits()
    with running(habits) as origin:
        url = f"{origin}/mcp?tools=docs,code&key=hunter2:hunter3"
        (folder / "toolgate.yaml").write_text(f"sources: {{up: {{mcp: '{url}'}}}}")
        outputs = [
            toolgate("config", "check"),
            toolgate("config", "show"),
            toolgate("import", "mcp", url, "--name", "up"),
            toolgate("import", "mcp", url, "--name", "up", "--json"),
            toolgate("import", "mcp", url, "--name", "up", "--", "x"),
            toolgate("sources", "list"),
            toolgate("sources", "list", "--json"),
            toolgate("sources", "show", "up"),
            toolgate("sources", "show", "up", "--json"),
            toolgate("tools", "show", "echo"),
            toolgate("tools", "show", "echo", "--json"),
            toolgate("doctor"),
            toolgate("sources", "refresh", "up"),
        ]
    outputs += [toolgate("sources", "refresh", "up"), toolgate("doctor", "--json")]
    texts = [ran.out + ran.err for ran in outputs]
    assert not [text for text in texts if "hunter" in text]
    assert "Calls go to http://127.0.0.1" in texts[2]
    assert f"{origin}/mcp?***" in texts[5]
    assert {target for _, target in habits.asked} == {"/mcp?tools=docs,code&key=hunter2:hunter3"}


def test_a_program_that_speaks_no_mcp_is_reported_with_advice(toolgate: Toolgate) -> None:
    ran = toolgate("import", "mcp", "--name", "fs", "--", sys.executable, "-c", "print('hi')")
    assert ran.code == 1
    assert "a command that speaks MCP over its standard input and output?" in ran.err


def test_stderr_of_a_failing_program_is_shown(toolgate: Toolgate) -> None:
    failing = "import sys; print('no API key', file=sys.stderr); sys.exit(3)"
    ran = toolgate("import", "mcp", "--name", "fs", "--", sys.executable, "-c", failing)
    assert ran.code == 1
    assert "fs: no API key" in ran.err
    assert "fs ended with code 3" in ran.err


def test_the_doctor_asks_the_server(toolgate: Toolgate, lists: Lists, folder: Path) -> None:
    toolgate(*IMPORT)

    def source_checks() -> list[tuple[str, str]]:
        checks = toolgate("doctor", "--json").json
        return [(one["status"], one["detail"]) for one in checks if one["name"] == "source"]

    assert source_checks() == [
        ("ok", "fs: 2 tools; answers as an MCP server of 2025-11-25"),
        ("warning", "fs: broken is left out: has no inputSchema"),
    ]
    (folder / "lists.json").unlink()
    [(status, detail)] = source_checks()
    assert status == "warning"
    assert detail.startswith("fs: 2 tools; The MCP server cannot be read: ")
    assert str(folder) not in detail


def test_the_doctor_tells_where_a_server_has_moved(toolgate: Toolgate) -> None:
    """Redirects that are followed, and those that are not, are named by the doctor (mending 15)."""
    habits = Habits(redirects={"/mcp": (307, "/mcp/")})
    with running(habits) as origin:
        assert toolgate("import", "mcp", f"{origin}/mcp", "--name", "up").code == 0

        def source_checks() -> list[tuple[str, str]]:
            checks = toolgate("doctor", "--json").json
            return [(one["status"], one["detail"]) for one in checks if one["name"] == "source"]

        assert source_checks()[0] == ("ok", "up: 1 tools; answers as an MCP server of 2025-11-25")
        assert source_checks()[1][0] == "warning"
        assert (
            f"up: its URL redirects to {origin}/mcp/: name that one instead"
            in source_checks()[1][1]
        )
        habits.redirects["/mcp"] = (302, "https://up.example/login?next=/mcp")
        [(status, detail)] = source_checks()
    assert status == "warning"
    assert "answered HTTP 302: redirects to elsewhere are not followed" in detail
    assert "this one leads to https://up.example/login:" in detail


def test_the_doctor_looks_into_toolsets(toolgate: Toolgate, lists: Lists) -> None:
    toolgate(*IMPORT)
    wanted = {"good": {"sources": ["fs"]}, "typo": {"sources": ["sf"]}, "none": {"include": ["x"]}}
    checks = toolgate("doctor", "--json", TOOLGATE_TOOLSETS=json.dumps(wanted)).json
    assert [(one["status"], one["detail"]) for one in checks if one["name"] == "toolset"] == [
        ("ok", "good: 2 tools of 1 sources"),
        ("warning", "typo: 0 tools of 0 sources"),
        ("warning", "none: 0 tools of 0 sources"),
    ]
    idle = [one["detail"] for one in checks if one["name"] == "patterns"]
    assert "toolsets.typo.sources: there is no source sf" in idle  # said once
