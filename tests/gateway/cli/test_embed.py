"""`toolgate embed` and `toolgate worker`."""

import json
import signal
from pathlib import Path

import psycopg
import pytest

from config.settings import Database as DatabaseSettings
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import Served, start
from tests.registry.embedding.conftest import until

pytestmark = pytest.mark.anyio


def counts(toolgate: Toolgate) -> dict[str, int]:
    (found,) = toolgate("embed", "status", "--json").json["counts"]
    return {name: number for name, number in found.items() if isinstance(number, int) and number}


def test_before_any_gateway_has_run_nothing_is_embedded(with_pets: Toolgate) -> None:
    assert counts(with_pets) == {"total": 5, "disabled": 5}
    shown = with_pets("embed", "status", FORCE_COLOR="1").out
    assert "disabled" in shown
    assert "embedding.provider" in shown


def test_without_tools_status_says_so(toolgate: Toolgate) -> None:
    assert toolgate("embed", "status").out == "There are no tools yet.\n"


def test_a_backfill_embeds_everything_and_again_nothing(with_pets: Toolgate) -> None:
    first = with_pets("embed", "backfill", "--json")
    assert (first.code, first.json["queued"], first.json["done"]) == (0, 5, 5)
    assert counts(with_pets) == {"total": 5, "ready": 5}
    second = with_pets("embed", "backfill")
    assert second.out.startswith("Queued 0, embedded 0.\ntool  5  5  0  0  0  0  bundled/")
    assert second.err == ""


def test_what_was_only_queued_is_pending_and_done_later(with_pets: Toolgate) -> None:
    assert with_pets("embed", "backfill", "--no-wait").out.startswith("Queued 5, embedded 0.")
    assert counts(with_pets) == {"total": 5, "pending": 5}
    assert with_pets("embed", "backfill", "--json").json["done"] == 5


def test_tools_are_refreshed_by_name(with_pets: Toolgate) -> None:
    with_pets("embed", "backfill")
    assert with_pets("embed", "refresh", "getPet", "listPets").out == "Queued 0 of 2.\n"
    assert with_pets("embed", "refresh", "getPet", "--force").out == "Queued 1 of 1.\n"
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
    assert (ran.code, "embeddings are disabled" in ran.err) == (2, True)


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
        assert await worker.line() == "Worker is ready: bundled/toolgate-minilm-1"
        with psycopg.connect(database_settings.url, autocommit=True) as db:
            await until(lambda: db.execute("SELECT FROM embedding_task_t").rowcount == 0)
        code, log = await worker.stop(signal.SIGTERM)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 0
    assert json.loads(log.splitlines()[-1])["embedded"] == 5
