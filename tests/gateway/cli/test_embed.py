"""`toolgate embed` and `toolgate worker`."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.settings import DatabaseSettings
from tests.gateway.cli.conftest import Toolgate, answering
from tests.gateway.cli.processes import Served, ran, start
from tests.polling import until

pytestmark = pytest.mark.anyio


def counts(toolgate: Toolgate) -> dict[str, int]:
    (found,) = toolgate("embed", "status", "--json").json["counts"]
    return {name: number for name, number in found.items() if isinstance(number, int) and number}


def test_all_tools_are_pending_before_the_first_gateway_runs(with_pets: Toolgate) -> None:
    assert counts(with_pets) == {"total": 5, "pending": 5}
    shown = with_pets("embed", "status", FORCE_COLOR="1").out
    assert "There are no embeddings yet" in shown
    assert "toolgate embed backfill" in shown
    assert with_pets("embed", "refresh", "getPet").out == "Queued 0.\n"


def test_switched_off_texts_are_disabled(with_pets: Toolgate) -> None:
    off = {"TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
    (found,) = with_pets("embed", "status", "--json", **off).json["counts"]
    assert (found["total"], found["disabled"], found["pending"]) == (5, 5, 0)
    shown = with_pets("embed", "status", FORCE_COLOR="1", **off).out
    assert "Embeddings are disabled: see embedding.provider." in shown


def test_without_tools_status_says_so(toolgate: Toolgate) -> None:
    assert toolgate("embed", "status").out == "There are no tools yet.\n"


def test_a_backfill_embeds_everything_and_again_nothing(with_pets: Toolgate) -> None:
    first = with_pets("embed", "backfill", "--json")
    assert (first.code, first.json["queued"], first.json["done"]) == (0, 5, 5)
    assert counts(with_pets) == {"total": 5, "ready": 5}
    second = with_pets("embed", "backfill")
    assert second.out.startswith("Queued 0, embedded 0.\ntool  5  5  0  0  0  0  bundled/")
    assert second.err == ""


def test_queued_tools_are_pending_and_embedded_later(with_pets: Toolgate) -> None:
    assert with_pets("embed", "backfill", "--no-wait").out.startswith("Queued 5, embedded 0.")
    assert counts(with_pets) == {"total": 5, "pending": 5}
    assert with_pets("embed", "backfill", "--json").json["done"] == 5


def test_tools_are_refreshed_by_name(with_pets: Toolgate) -> None:
    with_pets("embed", "backfill")
    assert with_pets("embed", "refresh", "getPet", "listPets").out == "Queued 0.\n"
    assert with_pets("embed", "refresh", "getPet", "--force").out == "Queued 1.\n"
    assert counts(with_pets) == {"total": 5, "ready": 4, "pending": 1}
    ran = with_pets("embed", "refresh", "getPett")
    assert (ran.code, ran.err) == (
        1,
        "toolgate: There is no tool 'getPett'. Did you mean getPet?\n",
    )
    assert with_pets("embed", "refresh").code == 2


def test_a_provider_that_is_not_there_fails_the_texts_and_says_why(
    with_pets: Toolgate, folder: Path
) -> None:
    settings = {
        "provider": "openai-compatible", "url": "http://127.0.0.1:9/v1", "model": "small",
        "api_key": "sk-secret", "retries": 0,
    }  # fmt: skip
    (folder / "toolgate.yaml").write_text(json.dumps({"embedding": settings}))
    ran = with_pets("embed", "backfill", "--json")
    assert ran.code == 1
    hint = "toolgate: texts that failed: 5; `toolgate embed retry` queues them again\n"
    assert ran.err.endswith(hint)
    assert counts(with_pets) == {"total": 5, "failed": 5}
    shown = with_pets("embed", "status").out
    assert "5 x " in shown
    doctor = with_pets("doctor").out
    assert "5 texts have failed: " in doctor
    assert ".. " not in doctor
    assert "sk-secret" not in shown
    assert "127.0.0.1" not in shown
    assert with_pets("embed", "retry").out == "Queued 5 again.\n"
    assert with_pets("embed", "retry", "getPet").out == "Queued 0 again.\n"
    (folder / "toolgate.yaml").unlink()
    assert with_pets("embed", "backfill", "--json").code == 0
    assert counts(with_pets)["ready"] == 5


@pytest.mark.parametrize("command", [["embed", "backfill"], ["worker"]], ids=["backfill", "worker"])
def test_switched_off_there_is_nothing_to_do(with_pets: Toolgate, command: list[str]) -> None:
    ran = with_pets(*command, TOOLGATE_EMBEDDING__PROVIDER="disabled")
    assert ran.code == 2
    assert "embedding.provider" in ran.err
    ran = with_pets("embed", "refresh", "getPet", TOOLGATE_EMBEDDING__PROVIDER="disabled")
    assert (ran.code, ran.out) == (0, "Queued 0.\n")


@pytest.fixture
def with_queue(with_pets: Toolgate) -> None:
    """The tools of `pets` wait for their vectors."""
    with_pets("embed", "backfill", "--no-wait")


@pytest.mark.usefixtures("with_queue")
async def test_a_worker_empties_the_queue_and_stops_when_told(
    database_settings: DatabaseSettings,
) -> None:
    process = await start("worker", TOOLGATE_DATABASE__URL=database_settings.url)
    worker = Served(process)
    try:
        assert await worker.line() == "Worker is ready: bundled/toolgate-minilm-4"
        with psycopg.connect(database_settings.url, autocommit=True) as db:
            await until(lambda: db.execute("SELECT FROM embedding_task_t").rowcount == 0)
        code, log = await worker.stop(signal.SIGTERM)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 0
    assert json.loads(log.splitlines()[-1])["embedded"] == 5


def of_embeddings(toolgate: Toolgate, **env: str) -> tuple[str, str]:
    """What `doctor` says of them."""
    checks = toolgate("doctor", "--json", **env).json
    [(status, detail)] = [
        (one["status"], one["detail"]) for one in checks if one["name"] == "embeddings"
    ]
    return status, detail


OF_A_SERVICE = {
    "TOOLGATE_EMBEDDING__PROVIDER": "local-http",
    "TOOLGATE_EMBEDDING__MODEL": "theirs",
}


def test_vectors_that_the_settings_cannot_search_are_told(with_pets: Toolgate) -> None:
    def embed(sent: Any) -> Any:
        return {"embeddings": [[1.0] + [0.0] * 383] * len(sent["inputs"])}

    with answering({"/embed": embed}) as port:
        theirs = {**OF_A_SERVICE, "TOOLGATE_EMBEDDING__URL": f"http://127.0.0.1:{port}/embed"}
        assert with_pets("embed", "backfill", **theirs).code == 0
        assert of_embeddings(with_pets, **theirs) == (
            "ok",
            "5 texts have vectors of local-http/theirs",
        )
    told = (
        "the settings have bundled/toolgate-minilm-4, the database local-http/theirs: "
        "the search is lexical until `toolgate serve` or `toolgate embed backfill` has created all "
        "embeddings"
    )
    assert of_embeddings(with_pets) == ("warning", told)
    assert f"T{told[1:]}." in with_pets("embed", "status", FORCE_COLOR="1").out
    with_pets("embed", "backfill", "--no-wait")  # registers the other model, and embeds nothing
    assert of_embeddings(with_pets) == ("warning", told)
    assert with_pets("embed", "backfill").code == 0
    assert of_embeddings(with_pets)[0] == "ok"


def test_serving_vectors_of_another_model_are_reported(with_pets: Toolgate) -> None:
    assert with_pets("embed", "backfill").code == 0
    theirs = {**OF_A_SERVICE, "TOOLGATE_EMBEDDING__URL": "http://127.0.0.1:9/embed"}
    told = (
        "the settings have local-http/theirs, the database bundled/toolgate-minilm-4: the old "
        "vectors serve until `toolgate worker` or `toolgate embed backfill` has created all "
        "embeddings"
    )
    without = {**theirs, "TOOLGATE_EMBEDDING__WORKERS": "0"}
    assert of_embeddings(with_pets, **without) == ("warning", told)


def test_a_library_that_is_not_there_is_told_in_the_words_of_its_texts(
    with_pets: Toolgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # as if it were not installed
    library = {
        "TOOLGATE_EMBEDDING__PROVIDER": "sentence-transformers",
        "TOOLGATE_EMBEDDING__MODEL": "acme/bge",
    }
    status, detail = of_embeddings(with_pets, **library)
    assert (status, detail.partition(":")[0]) == (
        "failed",
        "The library sentence-transformers is not installed, or cannot be loaded here",
    )
    assert detail in with_pets("embed", "backfill", **library).out


def test_a_hint_names_the_command_that_embeds(with_pets: Toolgate) -> None:
    hint = "5 texts wait for bundled/toolgate-minilm-4; `toolgate {}` embeds them, or `toolgate"
    assert of_embeddings(with_pets)[1].startswith(hint.format("serve"))
    without = of_embeddings(with_pets, TOOLGATE_EMBEDDING__WORKERS="0")
    assert without[0] == "ok"
    assert without[1].startswith(hint.format("worker"))


def test_counts_of_one_text_are_singular(toolgate: Toolgate) -> None:
    toolgate("tools", "add", "x", "--description", "X", "--rest", "GET http://x.example/")
    assert of_embeddings(toolgate)[1].startswith("1 text waits for bundled/toolgate-minilm-4; ")
    toolgate("embed", "backfill")
    assert of_embeddings(toolgate) == ("ok", "1 text has a vector of bundled/toolgate-minilm-4")


def of_a_remote(port: int) -> dict[str, str]:
    return {
        "TOOLGATE_EMBEDDING__PROVIDER": "openai-compatible",
        "TOOLGATE_EMBEDDING__MODEL": "m",
        "TOOLGATE_EMBEDDING__URL": f"http://127.0.0.1:{port}/v1",
    }


@asynccontextmanager
async def backfilling(database: DatabaseSettings, **settings: str) -> AsyncIterator[Served]:
    """A backfill in a process of its own."""
    process = await start("embed", "backfill", TOOLGATE_DATABASE__URL=database.url, **settings)
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()


async def until_waiting(backfill: Served) -> None:
    assert backfill.process.stderr is not None
    said = await backfill.process.stderr.readline()
    assert said == b"Waiting for texts that other workers embed: 1.\n"


POLLING = {"TOOLGATE_EMBEDDING__POLL_S": "0.1"}
TAKE = """
UPDATE embedding_task_t SET status = 'running', worker = 'another', next_attempt_ts = 'infinity'
WHERE task_id = (SELECT min(task_id) FROM embedding_task_t)
"""
GIVE_BACK = "UPDATE embedding_task_t SET next_attempt_ts = current_timestamp"
DISPLACE = """
UPDATE embedding_model_t SET target = false;
INSERT INTO embedding_model_t (purpose, model, provider, dimension, target, serving)
VALUES ('tools', 'fake/other', 'fake', 384, true, false)
"""


@pytest.mark.usefixtures("with_queue")
async def test_a_backfill_reports_once_that_another_worker_is_running(
    database_settings: DatabaseSettings,
) -> None:
    with psycopg.connect(database_settings.url, autocommit=True) as db:
        db.execute(TAKE)
        async with backfilling(database_settings, **POLLING) as backfill:
            await until_waiting(backfill)
            db.execute(GIVE_BACK)
            out, err = await backfill.process.communicate()
    assert (backfill.process.returncode, err) == (0, b"")
    assert out.startswith(b"Queued 0, embedded 5.")


@pytest.mark.usefixtures("with_queue")
async def test_a_backfill_that_is_displaced_says_so_in_a_sentence(
    database_settings: DatabaseSettings,
) -> None:
    with psycopg.connect(database_settings.url, autocommit=True) as db:
        db.execute(TAKE)
        async with backfilling(database_settings, **POLLING) as backfill:
            await until_waiting(backfill)
            db.execute(DISPLACE)
            _, err = await backfill.process.communicate()
    assert backfill.process.returncode == 1
    assert err.splitlines()[-1].startswith(b"toolgate: another gateway has registered another")


@pytest.mark.usefixtures("with_queue")
async def test_a_backfill_whose_service_refuses_says_nothing_but_why(
    database_settings: DatabaseSettings,
) -> None:
    with answering({}, HTTPStatus.UNAUTHORIZED) as port:
        given = {"TOOLGATE_DATABASE__URL": database_settings.url, **of_a_remote(port)}
        code, _, err = await ran("embed", "backfill", **given)
    said = "The embedding service refused the key; check embedding.api_key (status 401)."
    assert (code, err) == (1, f"toolgate: {said}\n")


@pytest.mark.usefixtures("with_pets")
async def test_a_backfill_that_is_stopped_closes_its_connections(
    database_settings: DatabaseSettings,
) -> None:
    asked = "SELECT FROM embedding_task_t WHERE last_error IS NOT NULL"
    with (
        answering({}, HTTPStatus.SERVICE_UNAVAILABLE) as port,
        psycopg.connect(database_settings.url, autocommit=True) as db,
    ):
        async with backfilling(database_settings, **of_a_remote(port)) as backfill:
            await until(lambda: db.execute(asked).rowcount)
            code, err = await backfill.stop(signal.SIGINT)
    assert code == 130
    assert "Unclosed" not in err


def test_a_backfill_that_displaces_a_model_names_both(with_pets: Toolgate) -> None:
    with_pets("embed", "backfill", "--no-wait", **of_a_remote(9))
    ran = with_pets("embed", "backfill", "--no-wait")
    said = "The model is now bundled/toolgate-minilm-4 instead of openai-compatible/m: "
    assert said in ran.err
    assert with_pets("embed", "backfill", "--no-wait").err == ""
