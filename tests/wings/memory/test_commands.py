"""Commands of the memory besides its operations, at a running gateway."""

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.app.evaluation_questions import rank_scores
from gateway.cli.common.questions import means_of
from gateway.cli.memory import DEPTHS
from tests.fixtures_gateway import Client, running

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    memory = replace(settings.memory, enabled=True, compat=("graph",))
    async with running(replace(settings, memory=memory)) as client:
        yield client


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str


async def ran(client: Client, *arguments: str) -> Ran:
    """A command in a process of its own, as commands have an event loop."""
    command = [sys.executable, "-m", "gateway", "memory", *arguments, "--url", client.url]
    done = await anyio.run_process(command, check=False)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


async def add(client: Client, content: str, **more: Any) -> str:
    body = {"scope": "user", "content": content, **more}
    _, answer, _ = await client.post("/memory/v1/memories", body)
    return str(answer["items"][0]["id"])


def lines(path: Path, *rows: Any) -> str:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(texts) + "\n")
    return str(path)


async def test_questions_are_evaluated_by_group(client: Client, tmp_path: Path) -> None:
    tea, _ = await add(client, "Ann likes tea"), await add(client, "Bo plays the piano")
    good = {"query": "who likes tea?", "evidence": [tea], "group": "drinks"}
    bad = {"query": "piano", "evidence": [tea], "group": "music", "arguments": {"kinds": ["state"]}}
    found = await ran(client, "eval", lines(tmp_path / "q", good, bad), "--json")
    figures = json.loads(found.stdout)
    assert figures["drinks"]["N@10"] == figures["drinks"]["R@1"] == 100
    assert figures["music"]["R@50"] == 0
    assert (figures["all"]["questions"], figures["all"]["N@10"]) == (2, 50)
    wrong = await ran(client, "eval", lines(tmp_path / "q", good, {"query": "?"}))
    assert "q:2: expected `evidence`" in wrong.stderr


def test_figures_match_known_rankings() -> None:
    scores = rank_scores(["c", "a", "x", "b"], frozenset("ab"), DEPTHS)
    assert round(scores["N@10"], 1) == 65.1  # (1/log2(3) + 1/log2(5)) / (1 + 1/log2(3))
    assert [scores[f"R@{depth}"] for depth in DEPTHS] == [0, 100, 100, 100, 100]
    assert means_of([scores, rank_scores([], frozenset("a"), DEPTHS)])["R@5"] == 50


async def test_exports_can_be_imported_again(client: Client, tmp_path: Path) -> None:
    """Exports can be imported again (M29)."""
    await add(client, "Ann lives in Bern", slot="home.city")
    await add(client, "Ann lives in Oslo", slot="home.city")
    file = tmp_path / "ann.jsonl"
    done = await ran(client, "export", "--output", str(file))
    assert done.code == 0, done.stderr
    assert len(file.read_text().splitlines()) == 2
    ids = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    await client.post("/memory/v1/forget", {"ids": ids})
    first = json.loads((await ran(client, "import", str(file))).stdout)
    assert (first["stored"], first["present"]) == (2, 0)
    _, found, _ = await client.post("/memory/v1/search", {"query": "where does Ann live?"})
    assert [one["content"] for one in found["items"]] == ["Ann lives in Oslo"]


async def test_a_file_of_the_reference_server_is_imported_but_for_broken_lines(
    client: Client, tmp_path: Path
) -> None:
    entity = {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["sings"]}
    relation = {"type": "relation", "from": "Ann", "to": "Bo", "relationType": "knows"}
    file = lines(tmp_path / "memory.jsonl", entity, '{"type": "ent', relation, "[]", {"type": "?"})
    for counted in ({"entities": 1, "relations": 1}, {"entities": 0, "relations": 0}):
        done = await ran(client, "import", file)
        assert done.code == 1
        assert json.loads(done.stdout) == {**counted, "unreadable": 3}
        for number in (2, 4, 5):
            assert f"memory.jsonl:{number}: " in done.stderr
    answer = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "read_graph", "params": {}})
    assert answer["result"]["entities"][0]["observations"] == ["sings"]
    assert answer["result"]["relations"][0]["to"] == "Bo"
