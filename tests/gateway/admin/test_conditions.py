"""ETags and conditions; requests that are sent twice."""

import asyncio
import json
from typing import Any

import pytest

from gateway.context import Principal
from gateway.operations.operation_server import Both, IdempotentRunner, OperationResponse
from gateway.operations.problems import ProblemDetails
from gateway.state.idempotency import IdempotencyKeys
from registry.database.postgres import Database
from registry.embedding.backfills import backfill
from registry.embedding.target_models import register
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets
from tests.gateway.admin.client import Admin, bearer
from tests.registry.embedding.fakes import HashEmbedder

pytestmark = pytest.mark.anyio

RULE: dict[str, Any] = {"effect": "deny", "tools": ["delete_*"]}
NEW = {"If-None-Match": "*"}
UPLOADED = {
    "kind": "openapi",
    "name": "pets",
    "base_url": "https://pets.example",
    "document": json.dumps(pets()),
}
AT = "/policy/rules/no-deletes"


async def test_a_rule_is_changed_only_with_its_current_etag(api: Admin) -> None:
    assert (await api("PUT", AT, RULE)).status == 428
    assert (await api("PUT", AT, RULE, **{"If-Match": "*"})).status == 412
    made = await api("PUT", AT, RULE, **NEW)
    assert (made.status, made.headers["location"]) == (201, f"/admin/v1{AT}")
    assert (await api("PUT", AT, RULE, **NEW)).status == 412
    for nothing in ('"x"', "x", ""):
        assert (await api("PUT", AT, RULE, **{"If-None-Match": nothing})).status == 428
        assert (await api("PUT", AT, RULE, **{"If-Match": nothing})).status == 412

    found = await api("GET", AT)
    assert found.headers["etag"] == made.headers["etag"]
    assert found.json["rule"]["tools"] == ["delete_*"]
    other = {**RULE, "reason": "Ask first"}
    changed = await api("PUT", AT, other, **found.tag)
    assert (changed.status, changed.json["version"]) == (200, 2)
    assert (await api("PUT", AT, RULE, **found.tag)).status == 412  # it has changed since
    assert (await api("DELETE", AT)).status == 428
    assert (await api("DELETE", AT, **found.tag)).status == 412
    assert (await api("DELETE", AT, **changed.tag)).status == 204
    assert (await api("GET", AT)).status == 404
    assert (await api("DELETE", AT, **changed.tag)).status == 404


async def test_two_at_once_do_not_both_write(api: Admin) -> None:
    made = await api("PUT", AT, RULE, **NEW)
    rules = [{**RULE, "reason": str(number)} for number in range(5)]
    written = await asyncio.gather(*(api("PUT", AT, rule, **made.tag) for rule in rules))
    assert sorted(one.status for one in written) == [200, 412, 412, 412, 412]


async def test_two_at_once_do_not_both_describe_a_tool(api: Admin) -> None:
    await api("POST", "/sources", UPLOADED)
    seen = (await api("GET", "/tools/getPet")).tag
    at, texts = "/tools/getPet/description", [{"text": f"A pet, {n}."} for n in range(5)]
    written = await asyncio.gather(*(api("PUT", at, text, **seen) for text in texts))
    assert sorted(one.status for one in written) == [200, 412, 412, 412, 412]
    seen = (await api("GET", "/tools/getPet")).tag
    both = [api("DELETE", at, **seen), api("PUT", at, texts[0], **seen)]
    assert sorted(one.status for one in await asyncio.gather(*both))[1] == 412


async def test_two_at_once_do_not_both_change_a_source(api: Admin) -> None:
    await api("POST", "/sources", UPLOADED)
    seen = (await api("GET", "/sources/pets")).tag
    documents = [{"document": json.dumps(pets(count))} for count in range(1, 4)]
    at = "/sources/pets/document"
    written = await asyncio.gather(*(api("PUT", at, one, **seen) for one in documents))
    assert sorted(one.status for one in written) == [200, 412, 412]
    seen = (await api("GET", "/sources/pets")).tag
    other = {"document": json.dumps(pets(9))}
    both = [api("PUT", at, other, **seen), api("DELETE", "/sources/pets", **seen)]
    assert sorted(one.status for one in await asyncio.gather(*both))[1] in {404, 412}


AT_TOOL, AT_SKILL, AT_AGENT = "/tools/shout", "/skills/care", "/agents/helper"
CHANGES: list[tuple[str, str, Any]] = [  # by the resource whose tag they name
    ("POST", f"{AT_TOOL}/disable", None),
    ("POST", f"{AT_TOOL}/enable", None),
    ("DELETE", AT_TOOL, None),
    ("POST", f"{AT_SKILL}/tools", {"tools": ["getPet"]}),
    ("DELETE", f"{AT_SKILL}/tools/getPet", None),
    ("PUT", f"{AT_SKILL}/dependencies/sell", {}),
    ("DELETE", f"{AT_SKILL}/dependencies/sell", None),
    ("POST", f"{AT_SKILL}/rollback", {"to": 1}),
    ("DELETE", AT_SKILL, None),
    ("POST", f"{AT_AGENT}/skills", {"skills": ["sell"]}),
    ("DELETE", f"{AT_AGENT}/skills/sell", None),
    ("DELETE", AT_AGENT, None),
    ("POST", "/sources/pets/rollback", None),
    ("POST", "/sources/pets/refresh", None),
]


async def test_no_change_is_made_under_a_tag_of_something_else(api: Admin) -> None:
    await api("POST", "/sources", UPLOADED)
    made = {"name": "shout", "description": "Shout.", "function": "shout"}
    operator = bearer(roles=["operator"])
    assert (await api("POST", "/tools", made, **operator)).status == 201
    skills = [{"document": f"---\nname: {n}\ndescription: {n}\n---\n."} for n in ("care", "sell")]
    assert (await api("POST", "/skills", {"skills": skills})).status == 200
    assert (await api("PUT", AT_AGENT, {"description": "Helps."})).status == 201
    resources = ("/sources/pets", AT_TOOL, AT_SKILL, AT_AGENT)
    before = [(await api("GET", one)).json for one in resources]
    for method, path, body in CHANGES:
        for tag in ('"stale"', "", "stale"):
            refused = await api(method, path, body, **{"If-Match": tag})
            assert refused.status == 412, (method, path)
    assert [(await api("GET", one)).json for one in resources] == before
    for method, path, body in CHANGES[:12]:
        at = next(one for one in resources if path.startswith(one))
        seen = await api("GET", at)
        assert (await api(method, path, body, **seen.tag)).status < 300, (method, path)


async def test_unchanged_representations_are_not_sent_again(api: Admin) -> None:
    assert (await api("PUT", AT_AGENT, {"description": "Helps."})).status == 201
    found = await api("GET", AT_AGENT)
    tag = found.headers["etag"]
    for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        again = await api("GET", AT_AGENT, **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert (await api("GET", AT_AGENT, **{"If-None-Match": '"x"'})).status == 200
    assert (await api("GET", AT_AGENT, **{"If-None-Match": "x"})).status == 200


async def test_a_request_with_a_key_is_done_once(api: Admin) -> None:
    key, wanted = {"Idempotency-Key": "a"}, {"subject": "bob", "reason": "left"}
    times = {"issued_before": "2030-01-01T00:00:00Z", "expires": "2031-01-01T00:00:00Z"}
    first = await api("POST", "/revocations", {**wanted, **times}, **key)
    again = await api("POST", "/revocations", {**wanted, **times}, **key)
    assert first.status == again.status == 201
    assert (again.body, again.headers["location"]) == (first.body, first.headers["location"])
    other = await api("POST", "/revocations", {**wanted, **times, "reason": "ill"}, **key)
    assert (other.status, other.json["type"]) == (422, "problems/idempotency-key-reused")
    assert len((await api("GET", "/revocations")).json["items"]) == 1
    for bad in ("", "a b", "a" * 129):
        answer = await api("POST", "/keys", {"name": "a"}, **{"Idempotency-Key": bad})
        assert answer.status == 400, bad


async def test_a_refusal_is_kept_too(api: Admin) -> None:
    key = {"Idempotency-Key": "a"}
    assert (await api("POST", "/tools/a/disable", **key)).status == 404
    assert (await api("POST", "/tools/b/disable", **key)).status == 404  # another request
    assert (await api("POST", "/tools/a/disable", **key)).status == 404


async def test_a_secret_is_told_once(api: Admin, database: Database) -> None:
    key = {"Idempotency-Key": "a"}
    first = (await api("POST", "/keys", {"name": "ci"}, **key)).json
    again = (await api("POST", "/keys", {"name": "ci"}, **key)).json
    assert first["secret"].startswith(f"tgk_{first['key']['id']}_")
    assert again == {"key": first["key"], "secret": None}
    async with database.pool.connection() as connection:
        rows = await connection.execute(
            "SELECT convert_from(response, 'UTF8') FROM command_idempotency_t"
        )
        kept = str(await rows.fetchall())
    assert first["key"]["id"] in kept
    assert first["secret"] not in kept


@pytest.fixture
def repeats(database: Database) -> IdempotentRunner:
    return IdempotentRunner(IdempotencyKeys(lambda: database.pool, 60))


async def test_a_request_that_still_runs_is_not_begun_again(repeats: IdempotentRunner) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def work() -> Both:
        begun.set()
        await end.wait()
        return OperationResponse(200, b"{}"), OperationResponse(200, b"{}")

    run = asyncio.create_task(
        repeats.run("k", Principal("ada", HOST), action="a", request=b"{}", work=work)
    )
    await begun.wait()
    with pytest.raises(ProblemDetails) as refused:
        await repeats.run("k", Principal("ada", HOST), action="a", request=b"{}", work=work)
    assert refused.value.status == 409
    end.set()
    assert (await run).status == 200
    assert (
        await repeats.run("k", Principal("ada", HOST), action="a", request=b"{}", work=work)
        == await run
    )


async def test_failed_requests_may_be_repeated_under_their_idempotency_key(
    repeats: IdempotentRunner,
) -> None:
    outcomes = [
        OperationResponse(503, b"{}"),
        OperationResponse(200, b"[]"),
        OperationResponse(200, b"{}"),
    ]

    async def work() -> Both:
        response = outcomes.pop(0)
        return response, response

    found = [
        await repeats.run("k", Principal("a", HOST), action="a", request=b"", work=work)
        for _ in range(3)
    ]
    assert [(one.status, one.body) for one in found] == [(503, b"{}"), (200, b"[]"), (200, b"[]")]

    async def crash() -> Both:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await repeats.run("l", Principal("a", HOST), action="a", request=b"", work=crash)
    assert (
        await repeats.run("l", Principal("a", HOST), action="a", request=b"", work=work)
    ).body == b"{}"


async def test_keys_are_their_owners(repeats: IdempotentRunner) -> None:
    async def work() -> Both:
        response = OperationResponse(200, str(next(numbers)).encode())
        return response, response

    numbers = iter(range(10))
    other = "00000000-0000-0000-0000-000000000002"
    for principal in (Principal("a", HOST), Principal("b", HOST), Principal("a", other)):
        first = await repeats.run("k", principal, action="x", request=b"", work=work)
        assert await repeats.run("k", principal, action="x", request=b"", work=work) == first
    assert next(numbers) == 3


async def test_a_vector_that_is_finished_meanwhile_is_no_conflict(
    api: Admin, database: Database
) -> None:
    await api("POST", "/sources", UPLOADED)
    seen = await api("GET", "/tools/getPet")
    assert seen.json["embedding"]["status"] == "disabled"
    await register(database.pool, HashEmbedder())
    await backfill(database.pool)
    later = await api("GET", "/tools/getPet", **{"If-None-Match": seen.headers["etag"]})
    assert (later.status, later.json["embedding"]["status"]) == (200, "pending")
    assert later.headers["etag"] == seen.headers["etag"]
    said = await api("PUT", "/tools/getPet/metadata", {"domain": "pets"}, **seen.tag)
    assert said.status == 200
    assert said.headers["etag"] == (await api("GET", "/tools/getPet")).headers["etag"]
    assert (await api("PUT", "/tools/getPet/metadata", {"domain": "x"}, **seen.tag)).status == 412
