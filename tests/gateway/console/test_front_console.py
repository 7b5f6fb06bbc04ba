"""The console of a whole gateway: pages, logins, forms, and what is refused."""

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.load import load
from config.settings import Settings
from gateway.console.login import NOBODY
from gateway.console.navigation import navigation, title_of_wing
from gateway.console.sessions import is_id, new_id
from gateway.console.visitor_operations import ConsoleOperations
from gateway.context import Context, Identity, Principal
from gateway.guards.api_keys import KeyTable
from gateway.operations.resource_view import ResourceView
from gateway.wings.interface import WingContributions
from gateway.wings.table import WINGS
from registry.access.api_keys import ApiKeys
from registry.access.approvals import ApprovalRequest, Approvals, HeldProgram
from schemas.tool import ToolResult
from tests import polling
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client
from tests.gateway.console.visiting import Browser, console
from tests.wings.rig import wings, with_toy

pytestmark = pytest.mark.anyio

HOSTILE = "<img src=x onerror=alert(1)>\u202e{{7*7}}</script>"
PAGES = (
    *("", "tools", "tools?q=add+a+pet", "tools/listPets", "tools/createPet/try", "sources"),
    *("sources/pets", "sources/new", "policy", "approvals", "audit", "audit/export", "keys"),
    *("search", "search/compare"),
    *(
        "revocations",
        "secrets",
        "sessions",
        "toolsets",
        "skills",
        "agents",
        "embeddings",
        "connect",
    ),
    *("health", "limits", "design", "do/createKey", "do/putRule", "?format=json"),
)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "audit"))
    return replace(settings, audit=audit)


async def test_a_gateway_without_a_console_has_no_trace_of_the_console(client: Client) -> None:
    async with client.http.get(f"{client.url}/console") as answer:
        assert answer.status == 404
    assert client.gateway.console is None


async def test_a_visitor_of_an_open_gateway_goes_from_an_import_to_the_audit_log(
    settings: Settings,
) -> None:
    async with console(settings) as (client, browser):
        for page in PAGES:
            status, text = await browser.get(page)
            assert status == 200, (page, text[-300:])
        for language, word in (("en", "Overview"), ("zh", "总览")):
            _, text = await browser.get("", **{"Accept-Language": language})
            assert word in text
            assert "auth.mode" in text
        await a_source_is_looked_at_and_imported(browser)
        await a_rule_lets_a_call_wait_until_it_is_approved(browser, client)
        await a_program_is_looked_at_and_granted_further_calls(browser, client)
        await what_removes_asks_for_the_name(browser)
        await no_operation_removes_unconfirmed(browser, client)
        await forms_from_elsewhere_are_refused(browser)
        await pages_of_other_origins_only_link_here(browser, client)
        await two_who_edit_a_rule_see_both(browser)
        await two_who_edit_a_skill_see_both(browser)


async def a_source_is_looked_at_and_imported(browser: Browser) -> None:
    described = {
        "openapi": "3.1.0",
        "info": {"title": HOSTILE, "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9/"}],
        "paths": {"/a": {"get": {"operationId": "hostile", "summary": HOSTILE}}},
    }
    document = json.dumps(described)
    fields = {"view": "form", "#variant": "0", "/name": "evil", "/document": document}
    await browser.get("sources/new")
    status, text = await browser.post("sources/new", {**fields, "act": "preview"})
    assert (status, "evil" in text) == (200, True)
    assert "Every operation becomes a tool" in text
    assert "call public addresses only" in text
    assert (await browser.get("sources/evil"))[0] == 404  # nothing was written
    status, text = await browser.post("sources/new", {**fields, "act": "import"})
    assert status == 200, text[-500:]
    assert "evil" in text

    async def is_there() -> bool:
        return (await browser.get("tools/hostile"))[0] == 200

    await polling.until(is_there)
    for page in ("tools/hostile", "tools/hostile/try", "tools?source=evil", "sources/evil"):
        _, text = await browser.get(page)
        assert "<img src=x" not in text
        assert "\u202e" not in text
        assert "{{7*7}}" in unescape(text) or "hostile" in text


async def a_rule_lets_a_call_wait_until_it_is_approved(browser: Browser, client: Client) -> None:
    await browser.get("do/putRule")
    rule = {"name.rule": "ask", "/effect": '"approve"', "/tools": "createPet", "view": "form"}
    status, text = await browser.post("do/putRule", {**rule, "act": "do", "if_match": ""})
    assert status == 200, text[-500:]
    assert "createPet" in text

    call = {"view": "form", "/name": "Rex", "act": "call"}

    async def waits() -> bool:
        return "waits for approval" in (await browser.post("tools/createPet/try", call))[1]

    await polling.until(waits)
    await browser.post("tools/createPet/try", {**call, "/name": "Bello"})
    _, text = await browser.get("approvals")
    assert len(set(re.findall(r'name="approval" value="([^"]+)"', text))) == 2
    other = re.search(r'"name": "Bello".*?name="approval" value="([^"]+)"', unescape(text), re.S)
    assert other is not None
    _, text = await browser.post("approvals/deny", {"approval": other[1]})
    assert "Bello" not in text
    await browser.post("tools/createPet/try", {**call, "/name": "Luna"})
    _, text = await browser.get("approvals")
    luna = re.search(r'"name": "Luna".*?name="approval" value="([^"]+)"', unescape(text), re.S)
    assert luna is not None
    both = [("approval", luna[1])]
    status, _ = await browser.post("approvals/deny", {"approval": other[1]}, also=both)
    assert status == 409  # Bello's is decided; Luna's is denied all the same
    _, text = await browser.get("approvals")
    assert "Luna" not in text
    approval = re.search(r"/console/approvals/([0-9a-f-]{36})", text)
    assert approval is not None
    assert await browser.head(f"approvals/{approval[1]}") == 405  # it decides nothing
    assert await browser.head("approvals") == 200
    status, _ = await browser.post(f"approvals/{approval[1]}", {"decision": "approve"})
    assert status == 200
    status, text = await browser.post("tools/createPet/try", call)
    assert "curl -s" in unescape(text)
    assert "heard" in text

    async def is_recorded() -> bool:
        _, text = await browser.get("audit?subject=createPet")
        return "ask" in text and "anonymous" in text

    await polling.until(is_recorded)
    _, text = await browser.get("policy")
    await browser.post("policy", {"tool": "createPet"})
    status, text = await browser.post("do/verifyAudit", {"act": "do"})
    assert (status, "records" in text) == (200, True)


async def a_program_is_looked_at_and_granted_further_calls(
    browser: Browser, client: Client
) -> None:
    view = json.dumps({"code": f"send('{HOSTILE}')", "calls": []}).encode()
    program = HeldProgram(str(uuid4()), b"c" * 32, "run_code_writing", view)
    call = ApprovalRequest("ada", str(uuid4()), "createPet", "pets", "0" * 64, "rule", "")
    gateway = client.gateway
    approvals = Approvals(gateway.feed.pool, gateway.principal.tenant)
    id_, _ = await approvals.request_together(program, {1: (call, '{"name": "Rex"}')}, 60, 5)
    _, text = await browser.get("approvals")
    assert "<img src=x" not in text
    assert "send('<img src=x onerror=alert(1)>" in unescape(text)
    form = {"decision": "approve", "tool": "createPet", "calls": "3", "minutes": "5"}
    status, _ = await browser.post(f"approvals/{id_}", form)
    assert status == 200
    assert [call.most for call in await approvals.calls(id_)] == [1, 3]


async def what_removes_asks_for_the_name(browser: Browser) -> None:
    await browser.get("do/deleteSource?name.source=evil")
    fields = {"name.source": "evil", "act": "do"}
    status, text = await browser.post("do/deleteSource", fields)
    assert (status, "confirm-error" in text) == (200, True)
    status, _ = await browser.post("do/deleteSource", {**fields, "confirmed": "evil"})
    assert status == 200
    assert (await browser.get("sources/evil"))[0] == 404


async def no_operation_removes_unconfirmed(browser: Browser, client: Client) -> None:
    api = client.gateway.admin
    assert api is not None
    removing = [one for one in api.operations.by_id.values() if one.effect == "remove"]
    assert len(removing) > 10
    for one in removing:
        names = {f"name.{name}": "petshop" for name in one.names}
        _, text = await browser.get(f"do/{one.id}?{urlencode(names)}")
        assert 'name="confirmed"' in text, one.id
        body = {"view": "json", "json": "{}", "act": "do", "confirmed": "another", **names}
        _, text = await browser.post(f"do/{one.id}", body)
        assert "confirm-error" in text, one.id


async def forms_from_elsewhere_are_refused(browser: Browser) -> None:
    body = {"act": "do", "name.rule": "ask"}
    for token, headers in (
        ("", {}),
        ("0" * 64, {}),
        ("\u00e9", {}),
        (None, {"Sec-Fetch-Site": "cross-site"}),
        (None, {"Sec-Fetch-Site": "same-site"}),
    ):
        status, _ = await browser.post("do/deleteRule", body, token, **headers)
        assert status == 403
    assert (await browser.post("do/nothing", {}))[0] == 404
    assert (await browser.post("tools", {}))[0] == 405


async def pages_of_other_origins_only_link_here(browser: Browser, client: Client) -> None:
    """Not even those that the gateway's CORS knows, such as these of loopback, read a page."""
    for status, headers in (
        (403, {"Origin": "http://localhost:1"}),
        (403, {"Origin": "http://localhost:1", "Sec-Fetch-Site": "same-site"}),
        (403, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
        (200, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        (200, {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}),
        (200, {"Origin": client.url}),
    ):
        assert (await browser.get("tools", **headers))[0] == status, headers


async def two_who_edit_a_rule_see_both(browser: Browser) -> None:
    """The second is told what the first has changed, member by member, and decides."""
    form = "do/putRule?name.rule=ask"
    began = hidden_of((await browser.get(form))[1])
    fields = {"name.rule": "ask", "view": "form", "act": "do", "/tools": "createPet"}
    first = {**fields, **began, "/effect": '"deny"', "/reason": "Too costly."}
    assert (await browser.post("do/putRule", first))[0] == 200
    second = {**fields, **began, "/effect": '"allow"', "/sources": "pets"}
    status, text = await browser.post("do/putRule", second)
    assert status == 412
    assert side_by_side(text) == {
        "effect": ("approve", "*deny", "*allow"),
        "reason": ("\u2013", "*Too costly.", "\u2013"),
        "sources": ("\u2013", "\u2013", '*[ "pets" ]'),
    }
    assert (await browser.post("do/putRule", second))[0] == 412  # the form of before
    status, _ = await browser.post("do/putRule", {**second, **hidden_of(text)})
    assert status == 200  # knowing what it replaces
    removed = {"name.rule": "ask", "act": "do", "confirmed": "ask", **began}
    status, text = await browser.post("do/deleteRule", removed)
    assert status == 412
    assert side_by_side(text)["effect"] == ("approve", "*allow", "approve")
    _, text = await browser.get(form)
    assert 'value="&#34;allow&#34;" selected' in text


async def two_who_edit_a_skill_see_both(browser: Browser) -> None:
    def skill(text: str) -> str:
        return f"---\nname: greet\ndescription: Greet a customer\n---\n\n{text}\n"

    await browser.get("skills/new/edit")
    new = {"act": "save", "document": skill("Say hello."), "digest": ""}
    assert (await browser.post("skills/new/edit", new))[0] == 200
    _, text = await browser.get("skills/greet/edit")
    began = {"act": "save", "digest": page_digest(text)}
    first = {**began, "document": skill("Say good morning.")}
    assert (await browser.post("skills/greet/edit", first))[0] == 200
    second = {**began, "document": skill("Say good evening.")}
    status, text = await browser.post("skills/greet/edit", second)
    assert status == 412
    assert "Say good morning." in text
    assert "Say good evening." in text
    knowing = {**second, "digest": page_digest(text)}
    assert (await browser.post("skills/greet/edit", knowing))[0] == 200
    assert "Say good evening." in (await browser.get("skills/greet"))[1]


def page_digest(page: str) -> str:
    return re.findall(r'name="digest" value="([^"]+)"', page)[0]


def hidden_of(page: str) -> dict[str, str]:
    """What the form of a page says of the resource that it begins with."""
    found = re.findall(r'name="(if_match|began)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


def side_by_side(page: str) -> dict[str, tuple[str, ...]]:
    """The table of a conflict: members with what they began with, are now, and would become. What
    is marked has a star."""
    rows = page.split('id="conflict"')[1].split("</section>")[0].split("<tr>")[2:]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", one, re.S) for one in rows]
    return {text_of(name): tuple(map(text_of, values)) for name, *values in cells}


def text_of(cell: str) -> str:
    marked = cell.replace("<mark>", "*")
    return " ".join(unescape(re.sub(r"<[^>]+>", "", marked)).split())


async def test_a_key_opens_the_pages_of_its_scopes(settings: Settings) -> None:
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    async with console(settings, auth=keyed) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        keys = ApiKeys(database.pool, HOST)
        reader, secret = await keys.create("reader", None, ["admin:registry:read"], [])
        _, text = await browser.get("tools")
        assert 'name="key"' in text  # the way to log in
        status, _ = await browser.post("login", {"key": "tgk_wrong_key"})
        assert status == 401
        authenticator = client.gateway.access.authenticator
        loaded, authenticator.keys = authenticator.keys, KeyTable(time.time)
        status, text = await browser.post("login", {"key": secret})
        assert (status, "is starting" in text) == (503, True)
        authenticator.keys = loaded

        async def is_in() -> bool:
            await browser.get("login")
            return (await browser.post("login", {"key": secret}))[0] == 200

        await polling.until(is_in)
        status, text = await browser.get("tools/createPet")
        assert status == 200
        assert "changeMetadata" not in text
        assert "/console/keys" not in text
        assert "/console/limits" not in text
        status, text = await browser.get("do/disableTool?name.tool=createPet")
        assert (status, "Required scope: admin:registry:write." in text) == (403, True)
        assert (await browser.get("audit"))[0] == 403
        status, text = await browser.get("limits")
        assert (status, "This takes the role operator" in text) == (403, True)
        status, text = await browser.get("")
        assert (status, "Latency" in text) == (200, False)  # of calls of all tenants
        assert (await browser.get("?format=json"))[0] == 403
        _, text = await browser.get("health")
        assert "embedding" not in text.split("<main")[1].lower()
        await keys.revoke(reader.id)
        _, text = await browser.get("tools")
        assert 'name="key"' in text
        _, secret = await keys.create("other", None, ["other:scope"], [])

        async def is_told_whom_to_ask() -> bool:
            await browser.get("login")
            status, text = await browser.post("login", {"key": secret})
            return (status, "key:other" in text, "ask those who run" in text) == (200, True, True)

        await polling.until(is_told_whom_to_ask)
        status, text = await browser.get("?format=json")
        assert (status, "admin:registry:read" in text) == (403, True)


async def test_tools_of_long_names_and_of_a_pair_have_pages_of_their_own(
    settings: Settings,
) -> None:
    """They are made, shown, disabled and deleted by their exact names (mending 22)."""
    long = "forecast_" * 11 + "x"
    async with console(settings) as (client, browser):
        for name in (long, "tidesAt", "tidesat"):
            await browser.get("do/createTool")
            made = {"name": name, "description": f"About {name}.", "rest": "GET https://a.test/t"}
            fields = {"view": "json", "json": json.dumps(made), "act": "do"}
            status, text = await browser.post("do/createTool", fields)
            assert status == 200, text[-500:]

        def tool_names() -> set[str]:
            return {tool.name for tool in client.gateway.catalogs.of(HOST).tools}

        await polling.until(lambda: {long, "tidesAt", "tidesat"} <= tool_names())
        for name in (long, "tidesAt", "tidesat"):
            status, text = await browser.get(f"tools/{name}")
            assert (status, f"About {name}." in text) == (200, True)
        for act, gone in (("disableTool", "tidesat"), ("deleteTool", long)):
            await browser.get(f"do/{act}?name.tool={gone}")
            fields = {"name.tool": gone, "act": "do", "confirmed": gone}
            status, text = await browser.post(f"do/{act}", fields)
            assert status == 200, text[-500:]
            await polling.until(lambda gone=gone: gone not in tool_names())
        assert "tidesAt" in tool_names()
        assert (await browser.get(f"tools/{long}"))[0] == 404


async def test_a_session_ends_with_the_logout(settings: Settings) -> None:
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    async with console(settings, auth=keyed) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        _, secret = await ApiKeys(database.pool, HOST).create("all", None, ["admin"], [])

        async def is_in() -> bool:
            await browser.get("login")
            return (await browser.post("login", {"key": secret, "next": "keys"}))[0] == 200

        await polling.until(is_in)
        before = {one.key: one.value for one in browser._http.cookie_jar}
        await a_key_is_made_once(browser)
        assert (await browser.post("login", {"key": secret}))[0] == 200
        await is_stale(client, before)  # a new login ends the session before it
        before = {one.key: one.value for one in browser._http.cookie_jar}
        await browser.get("keys")
        assert (await browser.post("logout", {}))[0] == 200
        await is_stale(client, before)


async def is_stale(client: Client, cookies: dict[str, str]) -> None:
    async with (
        aiohttp.ClientSession(cookies=cookies) as stale,
        stale.get(f"{client.url}/console/keys") as answer,
    ):
        assert 'name="key"' in await answer.text()


async def test_a_cookie_that_is_no_id_is_replaced(settings: Settings) -> None:
    """So that not every cookie is a query, and forms still have a token."""
    assert is_id(new_id())
    async with console(settings) as (client, _):
        for value, replaced in ((new_id(), False), ("x" * 42, True), ("\u00e9" * 43, True)):
            cookie = {"Cookie": f"toolgate={value}"}
            async with client.http.get(f"{client.url}/console/tools", headers=cookie) as answer:
                assert ("set-cookie" in answer.headers) is replaced, value


async def test_a_cookie_that_no_login_gave_costs_no_query(settings: Settings) -> None:
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    async with console(settings, auth=keyed) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        _, secret = await ApiKeys(database.pool, HOST).create("all", None, ["admin"], [])
        forged = [new_id(), f"{new_id()}.{'0' * 32}", f"{new_id()}.", ".", "\u00e9." * 20]
        doors = client.gateway.console._doors  # type: ignore[union-attr]
        assert [await doors.session_id(one) for one in forged] == [""] * 5

        async def is_in() -> bool:
            await browser.get("login")
            return (await browser.post("login", {"key": secret}))[0] == 200

        await polling.until(is_in)
        (cookie,) = (one.value for one in browser._http.cookie_jar if one.key == "toolgate")
        session_id = await doors.session_id(cookie)
        assert session_id
        assert await doors.session_id(f"{cookie}0") == ""
        await browser.post("logout", {})
        async with client.http.get(
            f"{client.url}/console/tools", headers={"Cookie": f"toolgate={cookie}"}
        ) as answer:
            assert "set-cookie" in answer.headers
        assert await doors.session_id(cookie) == ""  # it is known to have ended


async def test_an_operation_of_a_wing_is_open_only_to_admitted_visitors(
    settings: Settings,
) -> None:
    with wings():
        async with console(with_toy(settings, enabled=True)) as (client, _):
            desk = await visitor_of(client)
            assert desk.may("toy_add")
            assert (await desk.run("toy_add", body=[1])).status == 422
            nobody = ConsoleOperations(desk._parts, NOBODY, caller=NOBODY, client="")
            assert not nobody.may("toy_add")


async def a_key_is_made_once(browser: Browser) -> None:
    """However often the button was pressed."""
    _, text = await browser.get("do/createKey")
    key = re.findall(r'name="idempotency_key" value="([^"]*)"', text)[0]
    fields = {"view": "form", "/name": "ci", "idempotency_key": key, "act": "do"}
    status, first = await browser.post("do/createKey", fields)
    assert (status, "tgk_" in first.split("<main")[1]) == (200, True)
    status, again = await browser.post("do/createKey", fields)
    assert (status, "tgk_" in again.split("<main")[1]) == (200, False)
    _, text = await browser.get("keys")
    assert text.count(">ci<") == 1


async def test_a_form_of_a_wing_begins_with_the_stored_object(settings: Settings) -> None:
    """So that members that it does not change stay, and two who edit it see both."""
    knowledge = replace(settings.knowledge, enabled=True)
    async with console(settings, knowledge=knowledge) as (client, browser):
        put, form = "do/knowledge_put_collection", {"view": "form", "act": "do"}
        named = {"name.collection": "talks"}

        async def is_made() -> bool:
            await browser.get("policy")
            fields = {"/kind": '"conversation"', "/description": "What was said."}
            status, _ = await browser.post(put, {**form, **named, **fields})
            return status == 200

        await polling.until(is_made)
        _, text = await browser.get(f"{put}?name.collection=talks")
        assert "What was said." in text
        tag = re.findall(r'name="if_match" value="([^"]+)"', text)[0]
        changed = {**form, **named, "/kind": '"conversation"', "if_match": tag}
        shared = {**changed, "/description": "Mine.", "/grants": '{"agent:clerk": "read"}'}
        status, text = await browser.post(put, shared)
        assert status == 200, text
        status, text = await browser.post(put, {**changed, "/description": "Other."})
        assert status == 412
        assert "agent:clerk" in text
        assert "Other." in text
        unnamed = {**form, **named, "/kind": '"mixed"'}  # as of a new one, whose name is taken
        assert (await browser.post(put, unnamed))[0] == 412
        _, text = await browser.get("collections/talks?format=json")
        assert "Mine." in text
        desk = await visitor_of(client)
        for limit, status in (("5", 200), ("x", 400)):  # URLs have texts
            answer = await desk.run("knowledge_names", query={"limit": limit})
            assert answer.status == status
        answer = await desk.run(
            "knowledge_get_collection", {"collection": "talks"}, body={"collection": "others"}
        )
        assert answer.value["name"] == "talks"  # which the visitor has confirmed


async def visitor_of(client: Client) -> ConsoleOperations:
    """What a visitor of an open gateway may do."""
    made = client.gateway.console
    assert made is not None
    identity, caller = await made._doors.identities("")
    assert identity is not None
    assert caller is not None
    return ConsoleOperations(made._parts, identity, caller=caller, client="")


async def test_pages_of_a_wing_closed_to_the_visitor_audit_no_denial(
    settings: Settings,
) -> None:
    """Opening a page is no call, so that the audit log has no denial of it (mending 43)."""
    memory = replace(settings.memory, enabled=True)
    called: list[str] = []

    async def call(_context: Context, name: str, _arguments: Mapping[str, Any]) -> ToolResult:
        called.append(name)
        return ToolResult(())

    async with console(settings, memory=memory) as (client, _):
        desk = await visitor_of(client)
        await polling.until(lambda: is_there(desk, "memory_list"))
        ann = Identity(Principal("ann", HOST, frozenset({"admin"})), verified=True)
        parts = dataclasses.replace(desk._parts, call=call)
        answer = await ConsoleOperations(parts, ann, caller=ann, client="").run("memory_list")
        assert (answer.status, "memory:read" in answer.problem) == (403, True)
        assert called == []


async def test_pages_name_hidden_rules_and_refused_keys(settings: Settings) -> None:
    """Rules of the settings that a visitor may not see, and requests that no rule denied."""
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    policy = replace(settings.policy, rules={"all": Rule("allow")})
    async with console(settings, auth=keyed, policy=policy) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        _, secret = await ApiKeys(database.pool, HOST).create("admin", None, ["admin"], [])

        async def is_in() -> bool:
            await browser.get("login")
            return (await browser.post("login", {"key": secret}))[0] == 200

        await polling.until(is_in)
        async with client.http.get(f"{client.url}/admin/v1/keys") as answer:
            assert answer.status == 401
        _, text = await browser.get("policy")
        assert "They are shown to the role operator." in text
        assert (await browser.get("chat"))[0] == 404  # there is no agent

        async def tells_the_reason() -> bool:
            _, text = await browser.get("")
            assert "Denied by a rule" not in text
            return "The key or token was not accepted." in text

        await polling.until(tells_the_reason)


async def is_there(desk: ConsoleOperations, operation: str) -> bool:
    return desk.operation(operation) is not None


async def test_the_page_of_rules_counts_the_tools_that_each_may_match(settings: Settings) -> None:
    """Conditions of a rule about the tool count, not its patterns alone (mending 43)."""
    rules = {
        "all": Rule("approve", when="arguments.id == 1"),
        "reads": Rule("deny", when="tool.readOnly"),
        "harms": Rule("approve", destructive=True),
        "none": Rule("deny", tools=("nothing*",)),
    }
    policy = replace(settings.policy, rules=rules)
    async with console(settings, policy=policy) as (client, browser):
        tools = client.gateway.catalogs.of(HOST).tools
        reads = sum(tool.annotations.read_only_hint is True for tool in tools)
        assert 0 < reads < len(tools)
        _, text = await browser.get("policy")
        row = r'<bdi>(\w+)</bdi></span>.*?data-label="Tools">(.*?)</td>'
        rows = dict(re.findall(row, text, re.DOTALL))
        form = {"view": "form", "act": "match", "/effect": '"deny"'}
        _, about = await browser.post("do/putRule", {**form, "/when": "tool.readOnly"})
        _, part = await browser.post(
            "do/putRule", {**form, "/tools": "list*"}, **{"HX-Target": "#matches"}
        )
        _, later = await browser.post("do/putRule", {**form, "/when": "arguments.id == 1"})
        _, wrong = await browser.post("do/putRule", {**form, "/when": "1 +"})
    served = len(tools)
    assert rows["all"] == f"{served} of {served}"
    assert rows["reads"] == f"{reads} of {served}"
    assert rows["harms"] == f"{served - reads} of {served}"
    assert "matches nothing" in rows["none"]
    assert f"{reads} of {served} tools" in about
    assert "<html" not in part
    assert "listPets" in part
    assert "deletePet" not in part
    assert "decided with each call" in later
    assert "CEL" in wrong or "condition" in wrong


async def test_pages_of_wings_have_the_same_order_at_each_start() -> None:
    """The menu does not change with the order in which wings open (mending 43)."""
    desk = SimpleNamespace(may=lambda _: True, is_operator=True)
    page = ResourceView(title="T", path="p", lists="l", columns=())
    offers = {
        name: WingContributions(operations=(), pages=[page]) for name in reversed(list(WINGS))
    }
    parts = SimpleNamespace(offers=offers, settings=lambda: load(None, {}))
    titles = [title for title, _ in navigation(parts, desk)]  # type: ignore[arg-type]
    assert titles[-len(WINGS) :] == [title_of_wing(name) for name in WINGS]


async def test_pages_of_wings_answer_while_their_tools_are_disabled(settings: Settings) -> None:
    """A disabled tool is named on the page of its wing; it is no internal error."""
    wings = ("knowledge", "memory", "events", "agent", "notifications", "code", "a2a")
    on = {name: replace(getattr(settings, name), enabled=True) for name in wings}
    async with console(settings, **on) as (client, browser):

        async def is_open() -> bool:
            return (await browser.get("ask?q=cat"))[0] == 200

        await polling.until(is_open)
        desk = await visitor_of(client)
        catalog = client.gateway.catalogs.of(desk.tenant)
        names = [tool.name for tool in catalog.tools if tool.source in wings]
        assert len(names) > 40
        for name in names:
            assert (await desk.run("disableTool", {"tool": name})).ok
        assert client.gateway.console is not None
        for _, places in navigation(client.gateway.console._parts, desk):
            for place in places:
                status, text = await browser.get(place.path)
                assert status < 500, (place.path, text)
        assert "knowledge_collections" in (await browser.get("ask?q=cat"))[1]
        assert (await desk.run("enableTool", {"tool": "knowledge_collections"})).ok

        async def is_named() -> bool:
            status, text = await browser.get("ask?q=cat")
            return (status, "knowledge_query" in text) == (400, True)

        await polling.until(is_named)


async def test_a_reader_of_chats_has_no_form_to_send(settings: Settings) -> None:
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    agent = replace(settings.agent, enabled=True)
    async with console(settings, auth=keyed, agent=agent) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        _, secret = await ApiKeys(database.pool, HOST).create("r", None, ["agent:read"], [])

        async def is_in() -> bool:
            await browser.get("login")
            return (await browser.post("login", {"key": secret}))[0] == 200

        await polling.until(is_in)
        status, text = await browser.get("chat")
        assert (status, "Required scope: agent:write." in text) == (200, True)
        assert "<textarea" not in text
