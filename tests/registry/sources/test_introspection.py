"""GraphQL endpoints, asked what they can do."""

import json
from typing import Any

import pytest

from registry.importers.graphql import read
from registry.sources.graphql_documents import introspect, is_endpoint
from schemas.errors import ImportRejected
from tests.servers.graphql import PetShop
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

TOKEN = {"Authorization": "Bearer t"}


async def ask(url: str, headers: dict[str, str] | None = None, limit_bytes: int = 2**24) -> bytes:
    return await introspect(url, headers or {}, limit_bytes=limit_bytes, timeout_s=30)


async def refusal(url: str, **limits: Any) -> str:
    with pytest.raises(ImportRejected) as caught:
        await ask(url, **limits)
    return str(caught.value)


async def test_introspection_reads_the_fields_of_an_endpoint(serve):
    shop = PetShop()
    url = f"{await serve(shop)}/graphql"
    found = read(await ask(url, TOKEN), url, endpoint=url)
    assert "addPet" in {draft.name for draft in found.drafts}
    assert found.servers == (url,)
    [asked] = shop.requests
    assert asked["operationName"] == "Introspection"
    assert shop.headers[0]["authorization"] == "Bearer t"


class Older(PetShop):
    """Knows nothing that came after 2018."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        for word in ("isOneOf", "specifiedByURL", "args(includeDeprecated"):
            if word in request["query"]:
                return {"errors": [{"message": f"Cannot query field {word}"}]}
        return super().answer(request)


async def test_an_older_server_is_asked_with_an_older_introspection_query(serve):
    shop = Older()
    url = f"{await serve(shop)}/graphql"
    assert len(read(await ask(url), url).drafts) == 10
    assert len(shop.requests) == 2


async def test_a_refused_introspection_suggests_an_alternative(serve):
    url = f"{await serve(PetShop(introspects=False))}/graphql"
    told = await refusal(url)
    assert told.startswith(f"{url} refuses introspection: Introspection is not allowed. ")
    assert "Save its schema as SDL" in told


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<html>", "did not answer as a GraphQL endpoint (HTTP 200)"),
        (404, b"", "did not answer as a GraphQL endpoint (HTTP 404)"),
        (200, b'{"data": {"__schema": null}}', "did not answer as a GraphQL endpoint"),
        (200, b'{"data": [1]}', "did not answer as a GraphQL endpoint"),
        (401, b"{}", "it wants credentials. Put them into the settings"),
        (302, b"", "redirects elsewhere (HTTP 302); name the address that it leads to"),
        (400, b'{"errors": [7, {"message": "No."}]}', "refuses introspection: No. "),
    ],
)
async def test_endpoints_without_graphql_are_reported(serve, status, body, expected):
    assert expected in await refusal(await serve(Recorder(status, body)))


async def test_an_answer_has_a_largest_size(serve):
    url = f"{await serve(PetShop())}/graphql"
    assert "is larger than 1,000 bytes" in await refusal(url, limit_bytes=1000)


async def test_a_redirect_is_not_followed_with_the_credentials(serve):
    elsewhere = Recorder(200, json.dumps({"data": {"__schema": {}}}).encode())
    moved = Recorder(307, b"", headers=(("location", await serve(elsewhere)),))
    await refusal(await serve(moved), headers=TOKEN)
    assert elsewhere.seen == []


async def test_credentials_do_not_stand_in_the_address():
    told = await refusal("http://user:hunter2@127.0.0.1:9/graphql")
    assert "expected a URL without credentials" in told
    assert "hunter2" not in told
    assert "hunter2" not in await refusal("http://user:hunter2@127.0.0.1:99999/graphql?k=a hunter2")


async def test_an_endpoint_that_is_away_is_told():
    assert "Cannot ask http://127.0.0.1:9/graphql" in await refusal("http://127.0.0.1:9/graphql")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://example.com/graphql", True),
        ("http://localhost:4000/", True),
        ("https://example.com/graphql/?v=1", True),
        ("https://example.com/schema.graphql", False),
        ("https://example.com/a/schema.JSON?raw=1", False),
        ("schema.graphql", False),
        ("/srv/graphql", False),
        ("file:///srv/graphql", False),
    ],
)
def test_a_url_that_names_no_file_is_an_endpoint(location: str, expected: bool):
    assert is_endpoint(location) is expected


@pytest.mark.parametrize(
    ("sent", "message", "expected"),
    [
        ("Bearer sk-live-4711", "no grant for Bearer sk-live-4711", "no grant for ***"),
        ("Bearer sk-live-4711", "bearer of sk-live-4711x", "bearer of ***x"),
        ("Bearer sk-live-4711", "no sk-live\x1b-47\u202e11", "no ***"),
        ("t", "not t: this token", "not ***: this token"),
        ("Bearer sk-live-4711", "Bearer expected", "Bearer expected"),
    ],
    ids=["whole", "behind its scheme", "hidden characters", "short", "scheme alone"],
)
async def test_a_refusal_shows_no_credential(serve, sent, message, expected):
    """An endpoint that echoes the credential that it was sent, perhaps with characters that nobody
    sees in it, has it masked in the refusal (mending 10)."""
    body = json.dumps({"errors": [{"message": message}]}).encode()
    url = await serve(Recorder(400, body))
    told = await refusal(url, headers={"X-Key": sent})
    assert f"refuses introspection: {expected}. " in told
