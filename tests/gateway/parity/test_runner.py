"""`toolgate parity` against real servers: the gateway in both modes, and an old one."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.load import load
from config.settings import DatabaseSettings, Settings
from gateway.parity.vectors import CHECKOUT
from tests.fixtures_gateway import running
from tests.fixtures_servers import Serve
from tests.gateway.cli.processes import command
from tests.gateway.shared import anyio_backend

__all__ = ["anyio_backend"]

pytestmark = [
    pytest.mark.anyio,
    # aiohttp of the command, which runs in this process: a vector has a body of a megabyte
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

# Tenants of their own in the same database.
OTHER = "00000000-0000-0000-0000-000000000002"
BARE = "00000000-0000-0000-0000-000000000003"


@pytest.fixture(scope="module")
def settings(shared_database: DatabaseSettings) -> Settings:
    return replace(load(str(CHECKOUT / "toolgate.yaml"), {}), database=shared_database)


@pytest.fixture(scope="module")
async def strict(settings: Settings) -> AsyncIterator[str]:
    async with running(settings) as client:
        yield client.url


@pytest.fixture(scope="module")
async def spec(settings: Settings) -> AsyncIterator[str]:
    portal = replace(settings.portal, compat="spec")
    async with running(replace(settings, portal=portal)) as client:
        yield client.url


class Old:
    """What light-hybrid-4j answers to L1 (`OK` without a media type) and L6 (it crashes)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        crashed = scope["method"] == "GET"
        body = b'{"statusCode":500,"code":"ERR10010"}' if crashed else b"OK"
        status = 500 if crashed else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def test_a_gateway_in_strict_mode_passes(strict: str) -> None:
    code, out, err = await command("parity", "--target", strict)
    assert (code, err) == (0, ""), out
    summary = out.splitlines()[-1]
    passed, _, rest = summary.partition(" passed, ")
    count, _, total = passed.partition(" of ")
    assert count == total
    assert int(count) > 250
    assert "of spec mode not run (use --compat spec against a target in spec mode)" in rest


async def test_a_gateway_in_spec_mode_passes(spec: str) -> None:
    code, out, err = await command("parity", "--target", spec, "--compat", "spec", "--json")
    told = json.loads(out)
    assert (code, err, told["failures"]) == (0, "", [])
    assert told["passed"] > 250
    assert list(told["not_run"]) == ["of strict mode"]
    assert told["ledger"]["L17"].startswith("Data must arrive as it was sent")


async def test_failures_are_shown_with_expected_and_actual_values(spec: str) -> None:
    code, out, _ = await command("parity", "--target", spec, "--only", "J11", "--only", "L1")
    assert code == 1
    row, _, *_ = out.splitlines()
    assert row.split()[:3] == ["J11", "status", "400"]
    assert '200 {"jsonrpc":"2.0","id":"1","error"' in row
    assert out.splitlines()[-1].startswith("2 of 3 passed")


async def test_two_gateways_in_one_mode_do_not_differ(strict: str, settings: Settings) -> None:
    tenant = replace(settings.tenant, host_id=OTHER)
    async with running(replace(settings, tenant=tenant)) as other:
        code, out, err = await command("parity", "--target", strict, "--against", other.url)
    assert (code, err) == (0, ""), out
    assert " compared, 0 differ without an entry in the ledger" in out.splitlines()[-1]


async def test_differing_modes_of_gateways_are_not_excused_by_the_ledger(
    strict: str, spec: str
) -> None:
    arguments = ("--target", strict, "--against", spec, "--only", "J4", "--only", "L1", "--json")
    code, out, _ = await command("parity", *arguments)
    told = json.loads(out)
    assert (code, told["compared"]) == (1, 3)
    assert {one["vector"] for one in told["differences"]} == {"J4"}
    assert told["differences"][0] == {
        "vector": "J4",
        "where": "status",
        "target": "204",
        "against": "200",
        "explained": None,
        "unknown": False,
    }


async def test_the_ledger_explains_how_the_gateway_differs_from_light_hybrid_4j(
    strict: str, serve: Serve
) -> None:
    old = await serve(Old())
    chosen = ("--only", "L1", "--only", "L6", "--against-path", "rpc=")
    code, out, err = await command("parity", "--target", strict, "--against", old, *chosen)
    assert (code, err) == (0, ""), out
    assert "L6 differs on purpose: The client is wrong, not the server" in out
    assert "L1" not in out


async def test_gaps_unknown_to_the_ledger_are_not_excused(strict: str, serve: Serve) -> None:
    old = await serve(Old())
    chosen = ("--only", "L6", "--only", "L34", "--against-path", "rpc=")
    code, out, _ = await command("parity", "--target", strict, "--against", old, *chosen)
    assert code == 1
    lines = out.splitlines()
    [row] = [line.split() for line in lines if line.split()[:3] == ["L34", "step", "1:"]][:1]
    assert row[4:6] == ["400", "200"]
    note = "L34 differs, unknown there: the ledger lacks the other's answer"
    assert lines.count(note) == 1
    assert lines[-1].startswith(
        "2 compared, 0 differ without an entry in the ledger, "
        "1 where the ledger lacks the other's answer"
    )
    _, out, _ = await command("parity", "--target", strict, "--against", old, *chosen, "--json")
    told = {one["vector"]: one for one in json.loads(out)["differences"]}
    assert {name: one["unknown"] for name, one in told.items()} == {"L6": False, "L34": True}


async def test_light_hybrid_4j_is_judged_by_its_ledger_entries(serve: Serve) -> None:
    old = await serve(Old())
    arguments = ("parity", "--target", old, "--only", "L1", "--only", "L6", "--only", "L31")
    code, out, _ = await command(*arguments, "--expect", "legacy")
    assert code == 0, out
    assert out == (
        "2 of 2 passed, 1 for /rpc not run (--rpc-path names it), "
        "1 of unknown outcome not run (light-hybrid-4j's answer is not known)\n"
    )
    code, out, _ = await command(*arguments)
    assert code == 1
    assert {"L6", "L31"} <= {line.split()[0] for line in out.splitlines()}


@pytest.fixture(scope="module")
async def bare(settings: Settings) -> AsyncIterator[str]:
    """A gateway without the services of the vectors."""
    tenant = replace(settings.tenant, host_id=BARE)
    async with running(replace(settings, sources={}, tenant=tenant)) as client:
        yield client.url


@pytest.mark.parametrize(
    ("only", "path"),
    [((), "/portal/command"), (("--only", "L2"), "/portal/query"), (("--only", "J1@rpc"), "/rpc")],
)
async def test_a_target_without_the_services_is_told_so_once(
    bare: str, only: tuple[str, ...], path: str
) -> None:
    code, out, err = await command("parity", "--target", bare, *only)
    assert (code, out) == (1, "")
    assert err == (
        "toolgate: The target lacks the services of the vectors (lightapi.net/parity/echo/0.1.0 at "
        f"{bare}{path}): see tests/vectors/hybrid/service/README.md "
        "(ours: toolgate serve -c tests/vectors/hybrid/toolgate.yaml)\n"
    )


async def test_a_second_server_without_the_services_is_told_so_too(strict: str, bare: str) -> None:
    code, out, err = await command("parity", "--target", strict, "--against", bare)
    assert (code, out) == (1, "")
    assert f"lacks the services of the vectors (lightapi.net/parity/echo/0.1.0 at {bare}" in err


async def test_vectors_that_call_no_service_need_none(bare: str) -> None:
    code, out, _ = await command("parity", "--target", bare, "--only", "L4", "--only", "L12")
    assert code == 0, out
    assert out == "2 of 2 passed\n"


async def test_a_target_that_seems_to_be_in_the_other_mode_is_told_so(
    strict: str, spec: str
) -> None:
    for url, asked, other in ((spec, "strict", "spec"), (strict, "spec", "strict")):
        code, out, _ = await command("parity", "--target", url, "--compat", asked)
        assert code == 1
        assert f"It seems to be in {other} mode, for which there is --compat {other}." in out


async def test_a_target_that_trusts_another_key_is_told_so(strict: str, tmp_path: Path) -> None:
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key = tmp_path / "other.pem"
    key.write_bytes(pem)
    code, out, _ = await command("parity", "--target", strict, "--only", "L1", "--key", str(key))
    assert code == 1
    assert "The target does not take our tokens" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["--target", "http://127.0.0.1:9"],
            1,
            "http://127.0.0.1:9/portal/command cannot be reached: connection refused\n",
        ),
        (
            ["--target", "http://nobody.invalid"],
            1,
            "/portal/command cannot be reached: the name nobody.invalid does not resolve\n",
        ),
        (["--target", "localhost:8765"], 2, "--target: expected a URL such as"),
        (["--target", "http://127.0.0.1:9", "--only", "L333"], 2, "there is no vector 'L333'"),
        (["--target", "http://127.0.0.1:9", "--vectors", "/nowhere"], 1, "there is no such folder"),
        (["--target", "http://127.0.0.1:9", "--against-path", "x=/y"], 2, "--against-path: expect"),
        (["--target", "http://127.0.0.1:9", "--rpc-path", "rpc"], 2, "expected a path such as"),
        (
            ["--target", "http://127.0.0.1:9", "--expect", "legacy", "--compat", "spec"],
            2,
            "--expect legacy goes with neither",
        ),
    ],
)
async def test_invalid_arguments_are_reported_in_one_sentence(
    arguments: list[str], code: int, said: str
) -> None:
    found, out, err = await command("parity", *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("toolgate: ")
    assert said in err
    assert err.count("\n") == 1


async def test_a_path_that_the_target_does_not_have_is_told(strict: str) -> None:
    code, _, err = await command("parity", "--target", strict, "--command-path", "/nothing")
    assert code == 1
    assert err == (
        f"toolgate: The target has nothing at {strict}/nothing (404). "
        "--command-path says where the target has it\n"
    )


async def test_a_server_that_falls_silent_is_a_failure_and_not_the_end(
    serve: Serve, tmp_path: Path
) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await asyncio.Event().wait()
        await Old()(scope, receive, send)

    url = await serve(silent)
    chosen = ("--only", "L1@command", "--only", "L6", "--timeout", "0.5", "--json")
    code, out, _ = await command("parity", "--target", url, *chosen)
    failures = {one["vector"]: one["findings"] for one in json.loads(out)["failures"]}
    assert code == 1
    assert failures.keys() == {"L1@command", "L6"}
    assert failures["L1@command"] == [
        {"where": "answer", "expected": "an HTTP answer", "actual": "no answer within 0.5 s"}
    ]


async def test_own_vectors_are_played(strict: str, tmp_path: Path) -> None:
    for name in ("tokens.json", "keys"):
        source = CHECKOUT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    vector: dict[str, Any] = {
        "id": "Z1",
        "title": "Ours",
        "modes": ["strict"],
        "given": {"target": "query", "method": "GET", "query": "cmd="},
        "expect": {"status": 400, "match": {"code": "ERR11202"}},
    }
    file = {"title": "Ours", "vectors": [vector]}
    (tmp_path / "ours.json").write_text(json.dumps(file))
    code, out, _ = await command("parity", "--target", strict, "--vectors", str(tmp_path))
    assert (code, out) == (0, "1 of 1 passed\n")


@pytest.mark.parametrize("seconds", ["nan", "inf"])
async def test_a_timeout_is_finite(seconds: str) -> None:
    code, out, err = await command("parity", "--target", "http://a", "--timeout", seconds)
    assert (code, out) == (2, "")
    assert f"{seconds} is not a finite number" in err
