"""Jobs of the admin API: by HTTP, as tools, in a worker that is killed, and where they are off."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from openapi_core import OpenAPI
from openapi_spec_validator import validate

from config.settings import Settings
from gateway.context import Principal
from gateway.operations.job_declarations import RESPOND_ASYNC, JobAct
from registry.database.postgres import Database
from registry.jobs.store import JobStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, pets, running
from tests.gateway.admin.client import KEY, ROOT, Admin, bearer, open_admin
from tests.gateway.admin.test_operation_tools import Tools
from tests.gateway.cli.processes import Served, start
from tests.gateway.guards.signing import by_jwks
from tests.polling import until

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-4000-8000-00000000beef"
ASYNC = {"Prefer": RESPOND_ASYNC}
UPLOAD = {"kind": "openapi", "name": "mine", "document": json.dumps(pets())}
EMPTY = {"openapi": "3.1.0", "info": {"title": "", "version": "1"}, "paths": {}}
ZEROS = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def with_jobs(settings: Settings, tmp_path: Path) -> Settings:
    return replace(
        settings,
        auth=by_jwks(tmp_path, [KEY.jwk()]),
        admin=replace(settings.admin, requests=0, tools=True),
        jobs=replace(settings.jobs, poll_s=0.05),
        imports=replace(settings.imports, private_networks=True),
        audit=replace(settings.audit, spool_dir=str(tmp_path / "audit"), flush_s=0.05),
    )


@pytest.fixture
async def job_client(with_jobs: Settings) -> AsyncIterator[Client]:
    async with running(with_jobs) as client:
        yield client


@pytest.fixture
async def api(job_client: Client) -> Admin:
    return await open_admin(job_client.url, job_client.http)


def hanging(service: Recorder) -> dict[str, Any]:
    """An import whose description does not come until the service is released."""
    return {"kind": "openapi", "name": "slow", "url": f"{service.url}/slow"}


async def state(api: Admin, job: str) -> str:
    return str((await api("GET", f"/jobs/{job}")).json["state"])


async def test_an_import_runs_as_a_job_and_gives_the_same_result(api: Admin) -> None:
    accepted = await api("POST", "/sources", UPLOAD, **ASYNC)
    job = accepted.json
    assert accepted.status == 202
    assert accepted.headers["location"] == f"{ROOT}/jobs/{job['job']}"
    assert accepted.headers["preference-applied"] == RESPOND_ASYNC
    assert (job["operation"], job["principal"]) == ("importSource", "root")
    assert job["state"] in ("waiting", "running")
    ended = await api.await_job(accepted)
    assert (ended["state"], ended["location"]) == ("succeeded", f"{ROOT}/sources/mine")
    assert (ended["done"], ended["total"]) == (5, 5)
    at_once = await api("POST", "/sources", UPLOAD | {"name": "mine2"})
    assert at_once.status == 201
    assert ended["result"] == at_once.json | {
        "source": "mine",
        "outcomes": ended["result"]["outcomes"],
    }
    again = await api("POST", "/sources/mine/rollback", **ASYNC)
    assert (await api.await_job(again))["problem"]["status"] == 422  # no version before
    changed = UPLOAD["document"].replace("One pet", "A pet")
    upload = await api("PUT", "/sources/mine/document", {"document": changed}, **ASYNC)
    assert (await api.await_job(upload))["result"]["counts"]["imported"] == 5


async def test_a_repeated_request_gets_the_same_job(api: Admin) -> None:
    once = {**ASYNC, "Idempotency-Key": "k1"}
    first, second = [await api("POST", "/sources", UPLOAD, **once) for _ in range(2)]
    assert (first.status, first.json) == (second.status, second.json)
    await api.await_job(first)
    assert len((await api("GET", "/jobs")).json["items"]) == 1


async def test_invalid_requests_are_refused_before_a_job_starts(api: Admin) -> None:
    wrong = [
        await api("POST", "/sources", {"kind": "openapi"}, **ASYNC),
        await api("POST", "/sources", b"{", **ASYNC),
        await api("POST", "/sources/none%20of%20these/refresh", **ASYNC),
        await api("POST", "/sources", UPLOAD, "admin:registry:read", **ASYNC),
        await api(
            "PUT", "/sources/none/document", {"document": "{}"}, **ASYNC, **{"If-Match": "*"}
        ),
    ]
    assert [one.status for one in wrong] == [422, 400, 404, 403, 404]
    assert (await api("GET", "/jobs")).json == {"items": []}


async def test_a_running_job_is_cancelled(api: Admin, service: Recorder) -> None:
    job = (await api("POST", "/sources", hanging(service), **ASYNC)).json["job"]
    with anyio.fail_after(DEADLINE_S):
        await service.arrived.wait()
    cancelled = await api("DELETE", f"/jobs/{job}")
    assert (cancelled.status, cancelled.json["cancelling"]) == (200, True)
    await until(lambda: reads(api, job, "cancelled"))
    assert (await api("GET", "/sources/slow")).status == 404


async def reads(api: Admin, job: str, wanted: str) -> bool:
    return await state(api, job) == wanted


async def test_jobs_are_visible_to_callers_of_their_operations(api: Admin) -> None:
    job = (await api("POST", "/sources", UPLOAD, **ASYNC)).json["job"]
    verified = await api("POST", "/audit/verification", scope="admin:audit:read")
    for path in (f"/jobs/{job}", f"/jobs/{ZEROS}"):
        for method in ("GET", "DELETE"):
            assert (await api(method, path, scope="admin:audit:read")).status == 404
    readable = (await api("GET", "/jobs", scope="admin:audit:read")).json["items"]
    assert [one["operation"] for one in readable] == ["verifyAudit"]
    report = await api.await_job(verified, **bearer(scope="admin:audit:read"))
    assert report["result"]["problems"] == []
    assert (await api("GET", f"/jobs/{job}", scope="admin:registry:write")).status == 200
    assert (await api.raw("GET", "/jobs", None, {})).status == 401


async def test_no_tenant_sees_or_cancels_jobs_of_another(
    with_jobs: Settings, tmp_path: Path, service: Recorder
) -> None:
    auth = by_jwks(tmp_path, [KEY.jwk()], tenant_claim="host")
    own, other = bearer(host=HOST), bearer(host=OTHER)
    async with running(replace(with_jobs, auth=auth)) as client:
        api = Admin(client.url, client.http, OpenAPI.from_dict(EMPTY))
        sent = {**own, **ASYNC, "Content-Type": "application/json"}
        body = json.dumps(hanging(service)).encode()
        job = (await api.raw("POST", "/sources", body, sent)).json["job"]
        for method in ("GET", "DELETE"):
            foreign = await api.raw(method, f"/jobs/{job}", None, other)
            unknown = await api.raw(method, f"/jobs/{ZEROS}", None, other)
            assert foreign.status == unknown.status == 404
            assert foreign.json["detail"] == unknown.json["detail"].replace(ZEROS, job)
        assert (await api.raw("GET", "/jobs", None, other)).json["items"] == []
        shown = (await api.raw("GET", f"/jobs/{job}", None, own)).json
        assert shown["state"] in {"waiting", "running"}
        assert not shown.get("cancelling")
        assert (await api.raw("DELETE", f"/jobs/{job}", None, own)).status == 200


async def test_the_list_is_paged_newest_first_without_results(api: Admin) -> None:
    jobs = []
    for name in ("one", "two", "three"):
        accepted = await api("POST", f"/sources/{name}/refresh", **ASYNC)
        jobs.append((await api.await_job(accepted))["job"])
    first = (await api("GET", "/jobs?limit=2")).json
    rest = (await api("GET", f"/jobs?limit=2&after={first['next']}")).json
    found = [*first["items"], *rest["items"]]
    assert [one["job"] for one in found] == jobs[::-1]
    assert not any("result" in one or "problem" in one for one in found)
    assert len((await api("GET", "/jobs?state=failed")).json["items"]) == 3
    assert (await api("GET", "/jobs?state=waiting")).json["items"] == []
    assert (await api("GET", "/jobs?after=abc")).status == 422
    assert (await api("GET", "/jobs?after=MjAyNiB4")).status == 422


async def test_starts_and_ends_are_in_the_audit_log(api: Admin) -> None:
    ended = await api.await_job(await api("POST", "/sources/none/refresh", **ASYNC))

    async def records() -> list[dict[str, Any]]:
        found = (await api("GET", "/audit?subject=none")).json["items"]
        return [one["entry"] for one in found if one["entry"]["front"] == "job"]

    async def both() -> bool:
        return len(await records()) == 2

    await until(both)
    last, first = await records()
    assert [one["outcome"] for one in (first, last)] == ["started", "404"]
    assert {(one["principal"], one["method"], one["request_id"]) for one in (first, last)} == {
        ("root", "refreshSource", ended["job"])
    }


async def test_tools_answer_with_jobs(job_client: Client, api: Admin) -> None:
    tools = Tools(job_client)
    listed = await tools.all()
    assert "as_job" in listed["importSource"]["inputSchema"]["properties"]
    assert "as_job" not in listed["verifyAudit"]["inputSchema"].get("properties", {})
    body = {name: value for name, value in UPLOAD.items() if name != "as_job"}
    made = await tools.call("importSource", body=body, as_job=True)
    job = made["structuredContent"]["job"]
    await until(lambda: reads(api, job, "succeeded"))
    shown = await tools.call("getJob", job=job)
    assert shown["structuredContent"]["result"]["source"] == "mine"
    at_once = await tools.call("importSource", body=body | {"name": "mine2"})
    assert at_once["structuredContent"]["source"] == "mine2"
    verifying = await tools.call("verifyAudit")
    assert verifying["structuredContent"]["operation"] == "verifyAudit"
    cancelled = await tools.call("cancelJob", job=job)
    assert cancelled["structuredContent"]["state"] == "succeeded"


async def test_all_answer_at_once_where_jobs_are_off(with_jobs: Settings) -> None:
    off = replace(with_jobs, jobs=replace(with_jobs.jobs, enabled=False))
    async with running(off) as client:
        api = await open_admin(client.url, client.http)
        assert client.gateway.jobs is None
        verified = await api("POST", "/audit/verification", **ASYNC)
        assert (verified.status, verified.json["problems"]) == (200, [])
        assert (await api("POST", "/sources", UPLOAD, **ASYNC)).status == 201
        assert (await api.raw("GET", "/jobs", None, bearer())).status == 404


async def test_a_stop_lets_a_job_end_or_wait(
    with_jobs: Settings, service: Recorder, store: Any
) -> None:
    short = replace(with_jobs, jobs=replace(with_jobs.jobs, grace_s=0.05))
    async with running(short) as client:
        api = await open_admin(client.url, client.http)
        job = (await api("POST", "/sources", hanging(service), **ASYNC)).json["job"]
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
    service.release.set()
    async with running(short) as client:
        api = await open_admin(client.url, client.http)
        await until(lambda: has_ended(api, job))
        assert (await api("GET", f"/jobs/{job}")).json["attempt"] == 2


async def has_ended(api: Admin, job: str) -> bool:
    return "ended" in (await api("GET", f"/jobs/{job}")).json


async def test_a_killed_worker_is_followed_by_another(
    with_jobs: Settings, service: Recorder, tmp_path: Path, database: Database
) -> None:
    jobs = replace(with_jobs.jobs, concurrency=0)
    async with running(replace(with_jobs, jobs=jobs)) as client:
        api = await open_admin(client.url, client.http)
        accepted = await api("POST", "/sources", hanging(service), **ASYNC)
        job = accepted.json["job"]
        first = await worker(with_jobs, tmp_path)
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        assert await state(api, job) == "running"
        first.process.send_signal(signal.SIGKILL)
        await first.process.wait()
        async with database.connect() as connection:
            await connection.execute("UPDATE job_t SET beat_ts = beat_ts - interval '1 hour'")
        service.release.set()
        second = await worker(with_jobs, tmp_path)
        found = await api.await_job(accepted)
        assert found["attempt"] == 2
        code, _ = await second.stop(signal.SIGTERM)
        assert code == 0


async def worker(settings: Settings, tmp_path: Path) -> Served:
    """`toolgate worker`, once it is ready."""
    process = await start(
        "worker",
        TOOLGATE_DATABASE__URL=settings.database.url,
        TOOLGATE_AUTH__MODE="jwt",
        TOOLGATE_AUTH__JWKS_FILE=settings.auth.jwks_file,
        TOOLGATE_EMBEDDING__PROVIDER="disabled",
        TOOLGATE_JOBS__POLL_S="0.05",
        TOOLGATE_IMPORTS__PRIVATE_NETWORKS="true",
        TOOLGATE_AUDIT__SPOOL_DIR=str(tmp_path / "audit-of-worker"),
    )
    served = Served(process)
    assert await served.line() == "Worker is ready: jobs"
    return served


PROBE = """
import sys
from config.load import load
from gateway.app.gateway import Gateway
for enabled in ("false", "true"):
    Gateway(load(None, {"TOOLGATE_ADMIN__ENABLED": enabled, "TOOLGATE_AUTH__MODE": "keys"}))
    print([name for name in ("procrastinate", "gateway.app.jobs") if name in sys.modules])
"""


async def test_admin_modules_are_imported_only_with_the_admin_api() -> None:
    ran = await anyio.run_process([sys.executable, "-c", PROBE])
    assert ran.stdout.decode().splitlines() == ["[]", "['procrastinate', 'gateway.app.jobs']"]
    assert ran.stderr == b""


async def test_without_the_admin_api_there_is_no_table_and_no_worker(
    with_jobs: Settings, empty_settings: Any
) -> None:
    off = replace(with_jobs, database=empty_settings, admin=replace(with_jobs.admin, enabled=False))
    async with running(off) as client, client.gateway._handle.opened.connect() as connection:
        found = await connection.execute(
            "SELECT to_regclass('job_t'), to_regclass('procrastinate_jobs')"
        )
        assert await found.fetchone() == (None, None)


async def test_ended_jobs_are_removed_on_a_schedule_and_by_operators(
    job_client: Client, api: Admin
) -> None:
    old = (await api.await_job(await api("POST", "/sources/none/refresh", **ASYNC)))["job"]
    pool = job_client.gateway._handle.pool()
    async with pool.connection() as connection:
        await connection.execute("UPDATE job_t SET ended_ts = ended_ts - interval '31 days'")
    refused = await api.await_job(await api("POST", "/jobs/removal"))
    assert refused["problem"]["status"] == 403
    await job_client.gateway.jobs._tick("removeEndedJobs")

    async def is_removed() -> bool:
        return await JobStore(pool).get(HOST, old) is None

    await until(is_removed)
    ours = [
        one for one in (await api("GET", "/jobs")).json["items"] if one["principal"] == "schedule"
    ]
    assert [one["operation"] for one in ours] == ["removeEndedJobs"]


async def test_ended_jobs_are_removed_at_the_times_of_the_settings(
    with_jobs: Settings, database: Database
) -> None:
    """No caller asks for it."""
    each_second = replace(with_jobs.jobs, removal_schedule="* * * * * *")
    store = JobStore(database.pool)
    async with running(replace(with_jobs, jobs=each_second)):

        async def is_removed() -> bool:
            jobs = await store.page(HOST, ["removeEndedJobs"], limit=1, state="succeeded")
            return bool(jobs)

        await until(is_removed)


async def test_runs_of_a_schedule_that_succeed_are_not_in_the_audit_log(
    job_client: Client, api: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit log is that of people: a schedule is there if it fails, and whoever asks for the
    same, whatever their name, is (mending 43)."""
    acts: list[tuple[str, str]] = []
    jobs = job_client.gateway.jobs
    assert jobs is not None
    monkeypatch.setattr(jobs, "_on_act", lambda act: acts.append((act.principal.id, act.event)))
    await jobs._tick("removeEndedJobs")

    async def have_succeeded(count: int) -> bool:
        found = (await api("GET", "/jobs")).json["items"]
        return [one["state"] for one in found].count("succeeded") == count

    await until(partial(have_succeeded, 1))
    assert acts == []
    operator = bearer("schedule", roles=["operator"])
    assert (await api("POST", "/jobs/removal", **operator)).status == 202
    await until(partial(have_succeeded, 2))
    await until(lambda: acts == [("schedule", "started"), ("schedule", "succeeded")])
    jobs._forward_act(
        JobAct(Principal("schedule", HOST), "x", (), "job", "failed", 500, scheduled=True)
    )
    assert acts[-1] == ("schedule", "failed")


async def test_metrics_count_ended_jobs(job_client: Client, api: Admin) -> None:
    await api.await_job(await api("POST", "/sources/none/refresh", **ASYNC))
    async with job_client.http.get(f"{job_client.url}/metrics") as response:
        text = await response.text()
    assert 'toolgate_jobs_ended_total{state="failed"} 1.0' in text
    assert 'toolgate_jobs{state="waiting"}' in text


async def test_the_answers_of_jobs_are_described(api: Admin) -> None:
    description = api.api.spec.read_value()
    validate(description)
    paths = description["paths"]
    importing, verifying = paths["/sources"]["post"], paths["/audit/verification"]["post"]
    assert {"201", "202"} <= set(importing["responses"])
    assert "200" not in verifying["responses"]
    assert "Prefer" in {one["name"] for one in importing["parameters"]}
    accepted = importing["responses"]["202"]
    assert accepted["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/JobView"
    }
