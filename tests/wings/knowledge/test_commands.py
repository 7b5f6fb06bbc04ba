"""The example and the commands of the knowledge, at a running gateway."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.cli.knowledge import path_scores
from tests.fixtures_gateway import Client, running
from tests.gateway.cli.processes import command
from tests.polling import until
from tests.wings.knowledge.test_lightrag import knowing

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[3] / "examples" / "knowledge"


@pytest.fixture
async def client(database_settings: DatabaseSettings) -> AsyncIterator[Client]:
    async with running(knowing(database_settings)) as client:
        yield client


async def ran(*arguments: str) -> tuple[int, str, str]:
    done = await anyio.run_process([sys.executable, *arguments], check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def toolgate(client: Client, *arguments: str) -> tuple[int, str, str]:
    return await command("knowledge", *arguments, "--url", client.url)


async def test_the_example_answers_ten_questions_with_citations(client: Client) -> None:
    code, printed, errors = await ran(str(EXAMPLE / "demo.py"), client.url)
    assert code == 0, errors
    assert "10 of 10 questions" in printed, printed
    assert "Redis listens on port 6380" in printed.partition("# Relevant Memory")[2]
    code, printed, errors = await toolgate(
        client, "eval", str(EXAMPLE / "questions.jsonl"), "--json"
    )
    assert code == 0, errors
    figures = json.loads(printed)["all"]
    assert (figures["questions"], figures["all@10"], figures["cited"]) == (10, 100, 100)


async def test_directories_are_uploaded_and_collections_exported(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 no")
    (tmp_path / "heron.md").write_text("# Heron\n\nIt nests in reeds.\n")
    code, printed, errors = await toolgate(client, "upload", str(tmp_path), "--collection", "x")
    assert (code, errors) == (1, "broken.pdf: it is no readable PDF.\n")
    assert json.loads(printed) == {
        "added": 1, "changed": 0, "unchanged": 0, "failed": ["broken.pdf"],
    }  # fmt: skip
    code, printed, errors = await toolgate(client, "export", "--collection", "x")
    [line] = printed.splitlines()
    assert json.loads(line)["text"] == "# Heron\n\nIt nests in reeds.\n"


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
@pytest.mark.parametrize(
    "words", [("reembed",), ("upload", ".", "--collection=x", "--engine=ray", "--owner=ann")]
)
async def test_work_on_a_cluster_names_the_extra_that_is_missing(words: tuple[str, ...]) -> None:
    code, _, errors = await command("knowledge", *words)
    assert (code, "pip install 'toolgate[ray]'" in errors) == (2, True), errors


async def test_a_watched_directory_is_stored_on_changes(client: Client, tmp_path: Path) -> None:
    heron = tmp_path / "heron.md"
    heron.write_text("# Heron\n\nIt nests in reeds.\n")

    async def find_texts(text: str) -> list[str]:
        query = {"query": text, "collections": ["w"]}
        _, answer, _ = await client.post("/knowledge/v1/query", query)
        return [one["text"] for one in answer["evidence"]]

    watching = [sys.executable, "-m", "gateway", "knowledge", "upload", str(tmp_path),
               "--collection", "w", "--watch", "--url", client.url]  # fmt: skip
    async with await anyio.open_process(watching, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            await until(lambda: find_texts("reeds"))
            heron.write_text("# Heron\n\nIt nests in trees, and is grey.\n")
            await until(lambda: find_texts("trees"))
            heron.unlink()
            await until(lambda: _none(find_texts("heron")))
        finally:
            process.terminate()


async def _none(found: Awaitable[list[str]]) -> bool:
    return not await found


def test_scores_of_one_question() -> None:
    scores = path_scores(["a", "x", "b"], frozenset("ab"))
    assert (scores["R@2"], scores["all@2"], scores["R@5"], scores["all@5"]) == (50, 0, 100, 100)
