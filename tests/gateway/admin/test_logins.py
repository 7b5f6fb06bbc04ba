"""Operations on users of the gateway's own, on people, and on their logins."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from config.settings import DatabaseSettings
from registry.access.api_keys import ApiKeys
from registry.login.logins_and_grants import Consent, Logins
from registry.login.registered_clients import Clients, StoredClient
from tests.fixtures_database import HOST
from tests.gateway.login.company import REDIRECT, browsing, company
from tests.gateway.login.test_password_logins import NEW, PASSWORD, Town, log_in, set_password, town

pytestmark = pytest.mark.anyio

Ask = Callable[..., Awaitable[tuple[int, Any]]]
ROOT = "/admin/v1"


async def asking(made: Town, *scopes: str, roles: tuple[str, ...] = ()) -> Ask:
    """Requests with a new key of these scopes."""
    name = f"key {' '.join((*scopes, *roles))}"
    keys = ApiKeys(made.users._pool, made.tenant)
    _, secret = await keys.create(name, None, scopes, roles)
    await made.gateway.access.reload("keys")
    headers = {"Authorization": f"Bearer {secret}"}

    async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        url = f"{made.url}{ROOT}{path}"
        async with made.http.request(method, url, json=body, headers=headers) as answer:
            text = await answer.read()
            return answer.status, await answer.json(content_type=None) if text else None

    return ask


async def test_operators_make_users_and_end_their_logins(
    database_settings: DatabaseSettings,
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        ask = await asking(made, "admin")
        status, answer = await ask("POST", "/users", {"name": "ann", "roles": ["clerk"]})
        assert (status, answer["user"]["has_password"]) == (201, False)
        assert (await set_password(browser, answer["invitation"])).status == 303
        assert (await ask("POST", "/users", {"name": "ann"}))[0] == 409
        _, listed = await ask("GET", "/users")
        (user,) = listed["items"]
        assert (user["principal"], user["has_password"], user["roles"]) == (
            "user:ann",
            True,
            ["clerk"],
        )
        assert not {"password", "invitation"} & set(user)
        client, tokens = await made.grant_tokens(browser)
        assert (await ask("POST", "/users/ann/disable"))[0] == 200
        assert await made.status(tokens["access_token"]) == 401
        assert (await made.refresh(client, tokens["refresh_token"]))[0] == 400
        assert (await ask("POST", "/users/ann/enable"))[1]["disabled"] is None
        _, tokens = await made.grant_tokens(browser)
        status, user = await ask("PUT", "/users/ann/roles", {"roles": ["reader"]})
        assert (status, user["roles"]) == (200, ["reader"])
        assert await made.status(tokens["access_token"]) == 401
        status, answer = await ask("POST", "/users/ann/invitations")
        assert (await set_password(browser, answer["invitation"], NEW)).status == 303
        assert (await log_in(browser, f"{made.url}/login", password=NEW)).status == 303
        assert (await ask("DELETE", "/users/ann"))[0] == 204
        assert (await ask("GET", "/users/ann"))[0] == 404
        assert (await ask("POST", "/users", {"name": "ann"}))[0] == 409
        assert (await ask("POST", "/users", {"name": "ann", "again": True}))[0] == 201
        for name in ("", "Ann", "a b", "a/b", "-a", "x" * 65, "a\n"):
            assert (await ask("POST", "/users", {"name": name}))[0] in {400, 422}


async def test_nobody_gets_more_rights_by_a_user_of_their_own(
    database_settings: DatabaseSettings,
) -> None:
    """Who makes a user, or invites one again, could be that user: this takes `admin`, and for the
    operators' role that role."""
    async with town(database_settings) as made:
        operator = await asking(made, "admin", roles=("operator",))
        body = {"name": "boss", "roles": ["operator"]}
        admin, writer = await asking(made, "admin"), await asking(made, "admin:logins:write")
        assert (await admin("POST", "/users", body))[0] == 403
        assert (await operator("POST", "/users", body))[0] == 201
        assert (await admin("POST", "/users/boss/invitations"))[0] == 403
        assert (await admin("POST", "/users", {"name": "ann"}))[0] == 201
        assert (await admin("PUT", "/users/ann/roles", {"roles": ["operator"]}))[0] == 403
        for method, path, sent in (
            ("POST", "/users", {"name": "eve"}),
            ("POST", "/users/ann/invitations", None),
            ("PUT", "/users/ann/roles", {"roles": []}),
            ("GET", "/users", None),
        ):
            assert (await writer(method, path, sent))[0] == 403, path
        assert (await writer("POST", "/users/ann/disable"))[0] == 200


async def test_operators_see_people_and_end_logins(database_settings: DatabaseSettings) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        ask = await asking(made, "admin:logins:read", "admin:logins:write")
        _, tokens = await made.grant_tokens(browser)
        _, people = await ask("GET", "/people")
        (person,) = people["items"]
        assert (person["principal"], person["provider"]) == ("user:ann", "user")
        assert (await ask("GET", "/logins?principal=user:ben"))[1]["items"] == []
        _, logins = await ask("GET", "/logins?principal=user:ann")
        (program,) = [row for row in logins["items"] if row["client"]]
        assert (await ask("DELETE", f"/logins/{program['id']}"))[0] == 204
        assert await made.status(tokens["access_token"]) == 401
        assert (await ask("DELETE", f"/logins/{program['id']}"))[0] == 404
        assert (await browser.get(f"{made.url}/login/sessions")).status == 200
        path = f"/people/{person['id']}"
        assert (await ask("POST", f"{path}/disable"))[1]["disabled"]
        assert (await browser.get(f"{made.url}/login/sessions")).status == 303
        refused = await log_in(browser, f"{made.url}/login", password=PASSWORD)
        assert (refused.status, "disabled" in refused.text) == (403, True)
        assert (await ask("POST", f"{path}/enable"))[1]["disabled"] is None
        assert (await log_in(browser, f"{made.url}/login", password=PASSWORD)).status == 303
        assert (await ask("POST", "/people/nobody/disable"))[0] == 404


async def test_operations_are_there_while_their_settings_are_on(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made:
        admin = made.gateway.admin
        assert admin is not None
        assert "listPeople" in admin.operations.by_id
        assert "listUsers" not in admin.operations.by_id


async def test_users_of_another_tenant_are_not_there(database_settings: DatabaseSettings) -> None:
    async with town(database_settings) as made:
        assert made.tenant == HOST
        other = "00000000-0000-0000-0000-000000000002"
        await made.users.add(other, "zoe", (), 600, again=False)
        ask = await asking(made, "admin")
        assert (await ask("GET", "/users"))[1]["items"] == []
        for method, path, body in (
            ("GET", "/users/zoe", None),
            ("POST", "/users/zoe/invitations", None),
            ("POST", "/users/zoe/disable", None),
            ("PUT", "/users/zoe/roles", {"roles": []}),
            ("DELETE", "/users/zoe", None),
        ):
            assert (await ask(method, path, body))[0] == 404, path
        user = await made.users.find("zoe")
        assert user is not None
        assert user.disabled is None


async def test_operators_remove_clients_with_their_grants(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-19: clients belong to no tenant, so that their list is for operators."""
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        client, tokens = await made.grant_tokens(browser)
        ask = await asking(made, "admin:logins:read", "admin:logins:write", roles=("operator",))
        other, kept = await made.grant_tokens(browser)
        _, listed = await ask("GET", "/clients")
        views = {view["client_id"]: view for view in listed["items"]}
        view = views[client]
        assert (view["name"], view["kind"], view["grants"]) == ("Test", "registered", 1)
        assert view["redirects"] == [REDIRECT]
        assert not {"secret", "document"} & set(view)
        path = f"/clients/{view['id']}"
        assert (await ask("GET", path))[1] == view
        for scopes, roles in ((("admin",), ()), (("admin:logins:read",), ("operator",))):
            stranger = await asking(made, *scopes, roles=roles)
            assert (await stranger("DELETE", path))[0] == 403, scopes
            assert (await stranger("GET", "/clients"))[0] == (200 if roles else 403)

        assert (await ask("DELETE", path))[0] == 204
        assert await made.status(tokens["access_token"]) == 401
        status, answer = await made.refresh(client, tokens["refresh_token"])
        assert (status, answer["error"]) == (401, "invalid_client")
        assert (await browser.get(made.authorize(client))).status == 400
        assert (await ask("DELETE", path))[0] == 404
        assert await made.status(kept["access_token"]) == 200
        assert (await made.refresh(other, kept["refresh_token"]))[0] == 200
        assert (await browser.get(f"{made.url}/login/sessions")).status == 200


async def test_a_removed_document_asks_people_again(
    database_settings: DatabaseSettings,
) -> None:
    """CIMD: the client is known again when it comes back, without what people allowed."""
    async with town(database_settings) as made:
        document = {"client_name": "Pad", "redirect_uris": ["https://pad.example/back"]}
        host_id, pool = made.tenant, made.users._pool
        stored = StoredClient("https://pad.example/client.json", "document", document)
        await Clients(pool, host_id).put_document(stored, 10)
        target, resource = "pad.example", f"{made.url}/mcp"
        consent = Consent(made.tenant, "user:ann", stored.client_id, target, resource, ())
        await Logins(pool, host_id).add_consent(consent)
        ask = await asking(made, "admin", roles=("operator",))
        (view,) = (await ask("GET", "/clients"))[1]["items"]
        assert (view["name"], view["kind"], view["used"]) == ("Pad", "document", None)
        assert (await ask("DELETE", f"/clients/{view['id']}"))[0] == 204
        assert not await Logins(pool, host_id).has_consent(consent)
