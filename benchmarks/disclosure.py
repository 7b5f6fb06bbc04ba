"""Token cost of an agent's first turn and of a search: real descriptions where a directory is
given, else a generated one of as many tools. A token counts as 4 characters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import calls
from benchmarks.description import describe
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import installation, serving
from registry.display.token_budgets import tokens

LARGE = ("github", "stripe", "kubernetes")  # 2,400 tools together
OPERATIONS = 2400  # of the description that stands in for them
TIMEOUT_S = 120.0
QUERIES = (
    "Open a new issue in a repository.",
    "List the pull requests that wait for my review. Merge one of them.",
    "Refund a charge of a customer.",
    "Create a subscription with a trial period and send the invoice.",
    "Delete a pod.",
    "Scale a deployment to five replicas and look at its status.",
    "Who has access to this repository?",
    "Create a payment link for a product.",
    "Read the log of a failed workflow run. Run its failed jobs again.",
    "Change a config map in a namespace.",
    "Find code that mentions a function.",
    "Pay out the balance to a bank account.",
)

FIRST_TURN = (Target("value", 1500.0),)
ANSWER = (Target("value", 2000.01),)  # at most


def measure_disclosure(rig: Rig, directory: Path | None) -> list[Row]:
    files = _chosen(rig.directory, directory)
    sources = {
        path.stem.split("-")[0]: {"openapi": str(path), "base_url": rig.upstream_url}
        for path in files
    }
    whose = "" if directory else "; OUR OWN: no directory of real descriptions was given"
    with installation(rig, "disclosure", sources) as site, serving(rig, site) as child:
        about = len(_asked(child.port, "server/discover"))
        listed = _asked(child.port, "tools/list")
        every = _asked(child.port, "tools/list", path="/mcp?mode=direct")
        tools = len(msgspec.json.decode(every)["tools"])
        first = about + len(listed)
        answers = {query: _searched(child.port, query) for query in QUERIES}
    largest = max(answers, key=lambda query: answers[query])
    mean = sum(answers.values()) / len(answers)
    names = ", ".join(sources)
    return [
        Row(
            "first turn of an agent, mode auto",
            tokens(" " * first),
            "tokens",
            targets=FIRST_TURN,
            note=f"server/discover and tools/list; {tools:,} tools of {names}{whose}",
        ),
        Row("the same, all tools listed", tokens(" " * (about + len(every))), "tokens"),
        Row(
            "search_tools, largest answer",
            answers[largest],
            "tokens",
            targets=ANSWER,
            note=f"of {len(QUERIES)} queries, mean {mean:,.0f}; {largest!r}",
        ),
    ]


def _chosen(workspace: Path, directory: Path | None) -> list[Path]:
    if directory is None:
        path = workspace / "disclosure.json"
        path.write_bytes(describe(OPERATIONS, "http://127.0.0.1:9"))
        return [path]
    paths = sorted(path for path in directory.iterdir() if path.suffix in (".json", ".yaml"))
    large = [path for path in paths if path.stem.startswith(LARGE)]
    if not paths:
        raise Unavailable(f"{directory} holds no description")
    return large or paths


def _searched(port: int, query: str) -> int:
    params = {"name": "search_tools", "arguments": {"query": query}}
    result = msgspec.json.decode(_asked(port, "tools/call", params))
    return tokens(result["content"][0]["text"])


def _asked(
    port: int, method: str, params: Mapping[str, Any] | None = None, path: str = "/mcp?mode=auto"
) -> bytes:
    """The result as it is sent, all pages of a list in one."""
    result = _page(port, method, params or {}, path)
    if "nextCursor" not in result:
        return bytes(msgspec.json.encode(result))
    tools: list[Any] = msgspec.json.decode(result["tools"])
    while "nextCursor" in result:
        cursor = {"cursor": msgspec.json.decode(result["nextCursor"])}
        result = _page(port, method, cursor, path)
        tools += msgspec.json.decode(result["tools"])
    return bytes(msgspec.json.encode({"tools": tools}))


def _page(port: int, method: str, params: Mapping[str, Any], path: str) -> dict[str, msgspec.Raw]:
    return calls.result(calls.stateless(port, method, params, path).send(TIMEOUT_S))
