"""What the operations do. Each request and answer is checked against the description."""

import base64
import json
from dataclasses import replace as with_
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from openapi_spec_validator import validate

from config.access import Rule
from config.settings import Settings
from config.sources import SourceSettings
from gateway.admin.http_api import AdminAction
from gateway.app.admin import AdminParts, admin_api, operations_of
from gateway.audit.database_writer import store as store_audit
from gateway.audit.records import AuditEntry, Chain
from gateway.context import Principal
from gateway.policy.engine import Engine
from registry.access.approvals import ApprovalRequest, Approvals, HeldProgram
from registry.database.postgres import Database
from registry.skills.skill_md import compose
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from registry.tools.editable_columns import Address, NewTool
from registry.tools.tool_edits import ToolEdits
from schemas.binding import HybridBinding
from schemas.errors import ImportRejected
from schemas.mcp.revisions import HANDSHAKE
from schemas.source import stdio_location
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets
from tests.fixtures_servers import Serve
from tests.gateway.admin.client import Admin, bearer, open_admin
from tests.registry.servers import snapshot, spec, tool
from tests.registry.sources.test_mcp_sources import import_snapshot

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
PETS = {"kind": "openapi", "name": "pets", "base_url": "https://pets.example"}
ADA = Principal("ada", HOST)


def pets_upload(count: int = 0, **changes: Any) -> dict[str, Any]:
    return {**PETS, "document": json.dumps(pets(count)), **changes}


async def test_every_operation_is_called_and_has_the_described_effect(
    api: Admin, parts: AdminParts, database: Database, admin_actions: list[AdminAction]
) -> None:
    validate((await api("GET", "/openapi.json")).json)
    await sources_and_tools(api)
    await keys_and_revocations(api)
    await rules_and_approvals(api, database)
    await sessions(api, parts)
    await audit(api, database)
    await secrets(api, admin_actions)
    await metadata_and_embeddings(api)
    await skills_and_agents(api)
    await tools_by_hand(api, database)
    await several_tools(api)
    await explaining(api, parts, database)
    await trying(api)
    await servers_of_registries(api)
    await evaluating(api)
    await toolsets(api)
    await selections_and_sums(api)
    await erasures(api)
    assert (await api("GET", "/status")).json["ready"] is True
    assert [one["name"] for one in (await api("GET", "/toolsets")).json["items"]] == ["some"]
    assert (await api("GET", "/toolsets/some")).json["include"] == ["get*"]
    restarted = await api("POST", "/restart", **bearer(roles=["operator"]))
    assert restarted.json == {"restarts": "settings"}
    await import_snapshot(ToolStore(database.pool), snapshot(tool("a")), spec(pin=True))
    await accepting(api, database)
    assert api.called == {one.id for one in operations_of(parts)}


async def toolsets(api: Admin) -> None:
    """Effects on calls: tests/gateway/app/test_stored_toolsets.py."""
    reads = {"include": ["get*", "list*"]}
    preview = (await api("POST", "/toolset-previews", {"toolset": reads})).json
    made = await api("PUT", "/toolsets/reads", reads, **{"If-None-Match": "*"})
    assert (made.status, made.json["origin"], made.json["tools"]) == (
        201, "stored", preview["tools"],
    )  # fmt: skip
    assert (await api("GET", "/toolsets/reads/tools")).json["items"] == preview["items"]
    clients = (await api("GET", "/toolsets/reads/clients")).json
    assert clients["url"].endswith("/mcp/reads")
    assert "reads" in (await api("GET", "/toolset-exports")).json["yaml"]
    tag = (await api("GET", "/toolsets/reads")).tag
    assert (await api("DELETE", "/toolsets/reads", **tag)).status == 204


async def selections_and_sums(api: Admin) -> None:
    matches = (await api("POST", "/policy/matches", {"tools": ["get*"]})).json
    listed = (await api("GET", "/tools")).json["items"]
    assert matches["count"] == sum(tool["name"].startswith("get") for tool in listed)
    assert (await api("GET", "/audit/calls")).json["sums"]
    assert (await api("GET", "/costs/sums")).json["recording"] is False


async def erasures(api: Admin) -> None:
    """Effects: tests/wings/test_person_erasure.py."""
    report = await api("POST", "/erasures", {"person": "nobody", "dry_run": True})
    assert (report.status, report.json.get("id")) == (200, None)
    made = (await api("POST", "/erasures", {"person": "nobody", "confirm": "nobody"})).json
    assert [one["id"] for one in (await api("GET", "/erasures")).json["items"]] == [made["id"]]
    assert (await api("GET", f"/erasures/{made['id']}")).json["pseudonym"] == made["pseudonym"]


async def servers_of_registries(api: Admin) -> None:
    """No registry is in the settings, and no source is of one; tests/gateway/cli/test_registry.py
    has both."""
    named, digest = {"name": "io.github.ada/weather"}, {"sha256": "0" * 64}
    for method, path, body in (
        ("GET", "/catalog", None),
        ("GET", "/catalog/io.github.ada%2Fweather", None),
        ("POST", "/catalog/plan", named),
        ("POST", "/catalog", {**named, **digest, "source": "weather"}),
    ):
        refused = await api(method, path, body)
        assert (refused.status, b"registries" in refused.body) == (422, True), path
    assert (await api("GET", "/outdated")).json["items"] == []
    for path, body in (("update/plan", {}), ("update", digest)):
        refused = await api("POST", f"/sources/pets/{path}", body)
        assert (refused.status, b"not added from a registry" in refused.body) == (409, True)


async def sources_and_tools(api: Admin) -> None:
    made = await api("POST", "/sources", pets_upload())
    assert (made.status, made.json["counts"]) == (201, {"imported": 5})
    one = (await api("GET", "/sources/pets")).json
    assert (one["tools"], one["guarded"], one["location"]) == (5, True, "upload:pets")
    (listed,) = (await api("GET", "/sources")).json["items"]
    assert (await api("GET", "/imports/failures")).json == {"items": []}
    assert listed == {name: one[name] for name in listed}
    assert (one["items"], one["held"], one["credentials"]) == (
        {"prompt": 0, "resource": 0, "template": 0}, [], [],
    )  # fmt: skip
    assert (await api("POST", "/sources", pets_upload())).status == 409
    file = {"kind": "machine", "name": "f", "importer": "openapi", "location": "/etc/passwd"}
    refused = await api("POST", "/sources", file)
    assert (refused.status, b"machine" in refused.body) == (422, True)
    elsewhere = {"location": "/etc/passwd"}
    assert (await api("POST", "/sources/pets/difference", elsewhere)).status == 422
    assert (await api("POST", "/sources/pets/refresh")).status == 422

    names = ["createPet", "deletePet", "getPet", "listPets", "slow"]
    assert [one["name"] for one in (await api("GET", "/tools")).json["items"]] == names
    assert (await api("GET", "/tools/getPet")).json["input_schema"]["required"] == ["id"]
    said = await api("PUT", "/tools/getPet/description", {"text": "A pet."})
    assert (said.json["description"], said.json["override_user"]) == ("A pet.", "root")
    late = {"If-Match": '"x"'}
    assert (await api("PUT", "/tools/getPet/description", {"text": "x"}, **late)).status == 412
    assert (await api("DELETE", "/tools/getPet/description", **late)).status == 412
    assert (await api("DELETE", "/tools/getPet/description")).status == 204
    assert (await api("GET", "/tools/getPet")).json["description"] != "A pet."
    assert (await api("POST", "/tools/slow/disable")).json["state"] == "disabled"
    for query, found in [
        ("state=disabled", ["slow"]),
        ("state=served&name=PET", names[:4]),
        ("source=none", []),
    ]:
        items = (await api("GET", f"/tools?{query}")).json["items"]
        assert [one["name"] for one in items] == found
    assert (await api("POST", "/tools/slow/enable")).json["state"] == "served"

    assert (await api("GET", "/tools/slow/definitions")).json == {"items": []}  # not served here
    assert (await api("GET", "/tools/none/definitions")).status == 404

    document = {"document": json.dumps(pets(2))}
    new = {"kind": "openapi", "name": "new", **document}
    assert (await api("POST", "/imports/preview", new)).json["counts"] == {"imported": 7}
    assert (await api("GET", "/sources/new")).status == 404
    assert (await api("POST", "/sources/none/difference")).status == 404
    assert (await api("POST", "/sources/pets/difference")).status == 422  # it was uploaded
    assert (await api("PUT", "/sources/pets/document", document)).json["counts"] == {"imported": 7}
    versions = (await api("GET", "/sources/pets/versions")).json["items"]
    assert [(one["number"], one["current"]) for one in versions] == [(2, True), (1, False)]
    back = await api("POST", "/sources/pets/rollback", {"to": 1})
    assert (back.status, back.json["counts"]) == (200, {"imported": 5})
    assert (await api("GET", "/sources/pets")).json["rolled_back_from"] == 2
    assert (await api("POST", "/sources/pets/rollback", {"to": 9})).status == 422
    assert (await api("DELETE", "/sources/pets", **{"If-Match": '"x"'})).status == 412
    assert (await api("DELETE", "/sources/pets")).status == 204
    assert (await api("GET", "/tools")).json == {"items": []}
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/refresh"), ("GET", "/versions")]:
        assert (await api(method, f"/sources/pets{path}")).status == 404


async def metadata_and_embeddings(api: Admin) -> None:
    await api("POST", "/sources", pets_upload())
    said = {
        "tier": "confidential",
        "domain": "pets",
        "namespace": "pets.read",
        "weight": 2.5,
        "keywords": ["animal"],
        "cost": "low",
        "personas": "vets",
        "lifecycle": "deprecated",
    }
    changed = (await api("PUT", "/tools/getPet/metadata", said)).json
    assert {name: changed[name] for name in said} == said
    assert (changed["protocol"], changed["embedding"]["status"]) == ("openapi", "disabled")
    late = {"If-Match": '"x"'}
    assert (await api("PUT", "/tools/getPet/metadata", {}, **late)).status == 412
    wrong = await api("PUT", "/tools/getPet/metadata", {"tier": "top"})
    assert (wrong.status, wrong.json["errors"][0]["pointer"]) == (422, "/tier")
    for query, found in [
        ("tier=confidential", ["getPet"]),
        ("namespace=pets.read&protocol=openapi", ["getPet"]),
        ("domain=pets&protocol=graphql", []),
    ]:
        items = (await api("GET", f"/tools?{query}")).json["items"]
        assert [one["name"] for one in items] == found
    kept = (await api("PUT", "/tools/getPet/metadata", {"tier": "", "keywords": []})).json
    assert (kept["tier"], kept["keywords"], kept["domain"]) == (None, [], "pets")

    for among, hits in [({}, ["getPet"]), ({"protocol": "graphql"}, []), ({"domain": "x"}, [])]:
        wanted = {"query": "pet by its id", "limit": 1, **among}
        told = (await api("POST", "/search", wanted)).json
        assert [one["name"] for one in told["hits"]] == hits
        assert told["note"] == "searched by words only: embeddings are disabled"
    typed = {"query": "delPe", "words": True}
    hits = (await api("POST", "/search", typed)).json["hits"]
    assert [hit["name"] for hit in hits] == ["deletePet"]
    assert (await api("POST", "/search", {"query": " "})).status == 422
    known = {"requests": [{"query": "words of a service", "gold": ["none"]}]}
    evaluated = (await api("POST", "/search/evaluations", known)).json
    assert (evaluated["requests"], evaluated["unknown"]) == (1, ["none"])

    found = (await api("GET", "/embeddings")).json
    assert found["models"]["tools"]["target"] is None
    wanted = {"tools": ["getPet"], "force": True}
    assert (await api("POST", "/embeddings/refresh", wanted)).status == 200
    assert (await api("POST", "/embeddings/refresh", {"tools": ["none"]})).status == 404
    assert (await api("POST", "/embeddings/retry")).json == {"queued": 0}
    assert (await api("POST", "/embeddings/retry", {"tools": ["getPet"]})).json == {"queued": 0}
    assert (await api("POST", "/embeddings/backfill")).status == 403
    operator = bearer(roles=["operator"])
    assert (await api("POST", "/embeddings/backfill", **operator)).json == {"queued": 0}
    assert (await api("DELETE", "/sources/pets")).status == 204


MADE = {"name": "weather", "description": "The weather.", "tier": "public"}
WEATHER = {**MADE, "rest": "GET https://api.example.com/weather?city={city}"}


async def tools_by_hand(api: Admin, database: Database) -> None:
    made = await api("POST", "/tools", WEATHER)
    assert (made.status, made.headers["location"]) == (201, "/admin/v1/tools/weather")
    assert (made.json["manual"], made.json["tier"]) == (True, "public")
    assert made.json["input_schema"]["required"] == ["city"]
    assert made.json["source"] == "api-example-com"
    assert (await api("POST", "/tools", WEATHER)).status == 422
    assert (await api("POST", "/tools", {**WEATHER, "tier": "top"})).status == 422
    source = await ToolStore(database.pool).source(HOST, "api-example-com")
    assert source is not None
    assert (source.base_url_trusted, source.options.guarded) == (False, True)

    said = {"title": "Weather", "examples": [{"city": "Bern"}], "tags": ["sky"]}
    edited = await api("PUT", "/tools/weather", said, **(await api("GET", "/tools/weather")).tag)
    assert (edited.json["title"], edited.json["description"]) == ("Weather", "The weather.")
    assert edited.json["input_schema"]["examples"] == said["examples"]
    assert (await api("PUT", "/tools/weather", said, **{"If-Match": '"x"'})).status == 412
    await api("POST", "/sources", pets_upload())
    assert (await api("PUT", "/tools/getPet", said)).status == 422
    assert (await api("DELETE", "/tools/getPet")).status == 422
    assert (await api("DELETE", "/sources/pets")).status == 204
    for status in (204, 404):
        assert (await api("DELETE", "/tools/weather")).status == status
    assert (await api("PUT", "/tools/weather", said)).status == 404
    assert (await api("GET", "/sources")).json == {"items": []}


async def several_tools(api: Admin) -> None:
    """All tools of a request are made, or none; a dry run makes none."""
    first = {"name": "first", "description": "D.", "rest": "GET https://first.example/x"}
    second = {"name": "second", "description": "D.", "rest": "GET /x", "source": "nowhere"}
    assert (await api("POST", "/imports/tools", {"tools": [first, second]})).status == 422
    dry = await api("POST", "/imports/tools", {"tools": [first], "dry_run": True})
    assert [made["source"] for made in dry.json["tools"]] == ["first-example"]
    assert (await api("GET", "/tools/first")).status == 404
    assert (await api("POST", "/imports/tools", {"tools": [first]})).status == 200
    assert (await api("GET", "/tools/first")).json["manual"]
    wrong = {"tools": [{**first, "name": "third", "tier": "none"}]}
    refused = (await api("POST", "/imports/tools", wrong)).json
    assert refused["errors"][0]["pointer"] == "/tools/0/tier"


async def test_tools_keep_their_given_names_exactly(api: Admin) -> None:
    """Names of 128 characters, and of a pair (mending 22)."""
    long = "moon_phase_" * 11 + "at_date"
    for name in (long, "tidesAt", "tidesat"):
        made = await api("POST", "/tools", {**WEATHER, "name": name})
        assert (made.status, made.json["name"]) == (201, name)
        said = await api("PUT", f"/tools/{name}/description", {"text": f"About {name}."})
        assert (said.status, said.json["name"]) == (200, name)
    assert (await api("POST", "/tools", {**WEATHER, "name": "tidesat"})).status == 422
    refused = await api("POST", "/tools", {**WEATHER, "name": "x" * 129})
    assert refused.status == 422
    assert "at most 128" in json.dumps(refused.json)
    assert (await api("POST", "/tools/tidesat/disable")).json["state"] == "disabled"
    assert (await api("GET", "/tools/tidesAt")).json["state"] == "served"
    assert (await api("GET", "/tools/TIDESAT")).status == 404
    assert (await api("POST", f"/tools/{long.upper()}/disable")).status == 404
    assert (await api("GET", f"/tools/{long}")).json["state"] == "served"
    assert (await api("DELETE", "/tools/tidesAt")).status == 204
    listed = (await api("GET", "/tools")).json["items"]
    assert {one["name"]: one["description"] for one in listed} == {
        long: f"About {long}.",
        "tidesat": "About tidesat.",
    }


def skill(name: str, text: str = "Look.", **metadata: str) -> dict[str, Any]:
    front: dict[str, Any] = {"name": name, "description": f"About {name}."}
    front |= {"allowed-tools": "getPet other"} | ({"metadata": metadata} if metadata else {})
    note = base64.b64encode(b"# Notes").decode()
    return {"document": compose(front, text), "files": [{"path": "notes.md", "content": note}]}


async def skills_and_agents(api: Admin) -> None:
    await api("POST", "/sources", pets_upload())
    wanted = {"skills": [skill("care"), skill("sell", **{"toolgate-requires": "care"})]}
    assert (await api("POST", "/skills", {**wanted, "strict": True})).status == 422
    tried = (await api("POST", "/skills", {**wanted, "dry_run": True})).json["skills"]
    assert [(one["name"], one["outcome"]) for one in tried] == [
        ("care", "added"),
        ("sell", "added"),
    ]
    assert (await api("GET", "/skills")).json == {"items": []}
    saved = (await api("POST", "/skills", wanted)).json["skills"]
    assert (saved[0]["tools"], saved[0]["missing"]) == (["getPet"], ["other"])
    untagged = await api("POST", "/skills/generation", {"source": "pets", "dry_run": True})
    assert (untagged.status, "has a tag" in untagged.json["detail"]) == (422, True)
    assert (await api("POST", "/skills/generation", {"source": "none"})).status == 404
    twice = await api("POST", "/skills", {"skills": [skill("care"), skill("care")]})
    assert (twice.status, "called care, too" in twice.json["detail"]) == (422, True)
    outside = {"skills": [{**skill("bad"), "files": [{"path": "../x", "content": ""}]}]}
    assert (await api("POST", "/skills", outside)).status == 422

    rows = (await api("GET", "/skills")).json["items"]
    assert [(one["name"], one["tools"]) for one in rows] == [("care", 1), ("sell", 1)]
    care = (await api("GET", "/skills/care")).json
    assert (care["tools"], care["missing"]) == ({"getPet": "read"}, ["other"])
    given = (await api("GET", "/skills/care/export")).json
    assert given == {"name": "care", **wanted["skills"][0]}
    again = {"document": given["document"], "files": given["files"]}
    assert (await api("POST", "/skills", {"skills": [again]})).json["skills"][0]["number"] == 1

    refused = await api("POST", "/skills/care/tools", {"tools": ["deletePet"], "access": "read"})
    assert (refused.status, "needs the access level" in refused.json["detail"]) == (422, True)
    linked = await api("POST", "/skills/care/tools", {"tools": ["deletePet"]})
    assert linked.json["tools"]["deletePet"] == "execute"
    assert (await api("POST", "/skills/care/tools", {"tools": ["none"]})).status == 422
    for status in (204, 404):
        assert (await api("DELETE", "/skills/care/tools/deletePet")).status == status
    assert (await api("PUT", "/skills/care/dependencies/sell", {})).status == 422  # a circle
    assert (await api("DELETE", "/skills/sell/dependencies/care")).status == 204
    assert (await api("DELETE", "/skills/sell/dependencies/care")).status == 404
    on = await api("PUT", "/skills/sell/dependencies/care", {"required": True})
    assert on.json["requires"] == ["care"]

    await api("POST", "/skills", {"skills": [skill("care", "Look twice.")]})
    versions = (await api("GET", "/skills/care/versions")).json["items"]
    assert [(one["number"], one["current"]) for one in versions] == [(2, True), (1, False)]
    assert "Look twice" not in (await api("GET", "/skills/care/versions/1")).json["document"]
    assert (await api("GET", "/skills/care/versions/9")).status == 404
    assert (await api("POST", "/skills/care/rollback", {"to": 1})).json["number"] == 1
    assert (await api("POST", "/skills/care/rollback", {"to": 9})).status == 422

    await agents(api)
    assert (await api("DELETE", "/skills/care")).status == 422  # sell requires it
    assert (await api("DELETE", "/skills/sell")).json == {"below": [], "naming": []}
    assert (await api("DELETE", "/skills/care")).status == 200
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/export"), ("GET", "/versions")]:
        assert (await api(method, f"/skills/care{path}")).status == 404
    assert (await api("DELETE", "/sources/pets")).status == 204


async def agents(api: Admin) -> None:
    said = {"description": "Helps.", "model_name": "m", "temperature": 0.25, "max_tokens": 9}
    made = await api("PUT", "/agents/helper", said)
    assert (made.status, made.headers["location"]) == (201, "/admin/v1/agents/helper")
    assert {name: made.json[name] for name in said} == said
    assert (await api("PUT", "/agents/helper", said, **{"If-None-Match": "*"})).status == 412
    assert (await api("PUT", "/agents/helper", said, **made.tag)).status == 200
    granted = (await api("POST", "/agents/helper/skills", {"skills": ["sell", "care"]})).json
    assert [one["skill"] for one in granted["skills"]] == ["sell", "care"]
    assert (await api("GET", "/agents/helper")).json == granted
    assert (await api("GET", "/agents")).json == {"items": [granted]}
    assert (await api("POST", "/agents/helper/skills", {"skills": ["none"]})).status == 422
    for status in (204, 404):
        assert (await api("DELETE", "/agents/helper/skills/care")).status == status
    for status in (204, 404):
        assert (await api("DELETE", "/agents/helper")).status == status
    assert (await api("POST", "/agents/helper/skills", {"skills": ["sell"]})).status == 404


async def keys_and_revocations(api: Admin) -> None:
    wanted: dict[str, Any] = {"name": "ci", "scopes": ["a"], "expires": "2100-01-01T00:00:00Z"}
    refused = await api("POST", "/keys", wanted)
    assert (refused.status, "any_scope" in refused.json["detail"]) == (422, True)
    wanted["any_scope"] = True
    key = (await api("POST", "/keys", wanted)).json["key"]
    again = await api("POST", "/keys", wanted)
    assert (again.status, again.json["detail"][:15]) == (409, "There is a key ")
    assert (await api("GET", f"/keys/{key['id']}")).json == key
    assert (await api("GET", "/keys")).json == {"items": [key]}
    key = (await api("POST", f"/keys/{key['id']}/rotations")).json["key"]
    for _ in range(2):
        assert (await api("DELETE", f"/keys/{key['id']}")).status == 204
    assert (await api("GET", f"/keys/{key['id']}")).json["revoked"] is not None
    assert (await api("DELETE", "/keys/x")).status == 404

    one = (await api("POST", "/revocations", {"jti": "j", "expires": "2100-01-01T00:00:00Z"})).json
    assert (await api("GET", f"/revocations/{one['id']}")).json == one
    assert (await api("GET", "/revocations")).json == {"items": [one]}
    assert (await api("DELETE", f"/revocations/{one['id']}")).status == 204
    assert (await api("DELETE", f"/revocations/{one['id']}")).status == 404
    assert (await api("POST", "/revocations", {"expires": "2100-01-01T00:00:00Z"})).status == 422


async def rules_and_approvals(api: Admin, database: Database) -> None:
    wrong = {"effect": "deny", "when": "nobody.id == 1"}
    new = {"If-None-Match": "*"}
    assert (await api("PUT", "/policy/rules/a", wrong, **new)).status == 422
    made = await api("PUT", "/policy/rules/a", {"effect": "deny"}, **new)
    assert made.status == 201
    assert (await api("GET", "/policy/rules")).json["items"] == [made.json]
    assert (await api("GET", "/policy/rules/a")).json == made.json
    assert (await api("DELETE", "/policy/rules/a", **made.tag)).status == 204

    approvals = Approvals(database.pool, HOST)
    for who in ("ada", "bob", "root"):
        wanted = ApprovalRequest(who, str(await _id()), "deletePet", "pets", "0" * 64, "rule", "")
        await approvals.request(wanted, "{}", 60, 5)
    waiting = (await api("GET", "/approvals")).json["items"]
    assert [one["principal"] for one in waiting] == ["ada", "bob", "root"]
    at = [f"/approvals/{one['id']}" for one in waiting]
    shown = (await api("GET", at[0])).json
    assert shown == {**waiting[0], "code": "", "made": [], "pending": []}
    done = (await api("POST", f"{at[0]}/decision", {"approve": True})).json
    assert (done["state"], done["decided_by"]) == ("approved", "root")
    assert (await api("POST", f"{at[0]}/decision", {"approve": False})).status == 409
    assert (await api("POST", f"{at[1]}/decision", {"approve": False})).json["state"] == "denied"
    assert (await api("POST", f"{at[2]}/decision", {"approve": True})).status == 403  # one's own
    assert (await api("GET", f"/approvals/{OTHER}")).status == 404
    await calls_of_a_program(api, database)


async def calls_of_a_program(api: Admin, database: Database) -> None:
    """Approvers see the program, and may grant further calls of the tools that it wants to call."""
    made = [{"seq": 1, "tool": "listPets", "ok": True, "writes": False, "ms": 2}]
    view = json.dumps({"code": "delete()", "calls": made}).encode()
    program = HeldProgram(OTHER, b"c" * 32, "run_code_writing", view)
    call = ApprovalRequest("ada", await _id(), "deletePet", "pets", "0" * 64, "rule", "")
    calls = {2: (call, '{"id":1}'), 3: (call, '{"id":2}')}
    id_, _ = await Approvals(database.pool, HOST).request_together(program, calls, 60, 5)
    at = f"/approvals/{id_}"
    shown = (await api("GET", at)).json
    assert (shown["code"], shown["made"], shown["run"]) == ("delete()", made, OTHER)
    waiting = [(one["number"], one["tool"], one["arguments"]) for one in shown["pending"]]
    assert waiting == [(2, "deletePet", '{"id":1}'), (3, "deletePet", '{"id":2}')]
    grant = {"tool": "deletePet", "calls": 5}
    for wrong in (
        {"approve": False, "grants": [grant]},
        {"approve": True, "grants": [{**grant, "tool": "buyPet"}]},
        {"approve": True, "grants": [{**grant, "calls": 0}]},
    ):
        assert (await api("POST", f"{at}/decision", wrong)).status == 422
    done = (await api("POST", f"{at}/decision", {"approve": True, "grants": [grant]})).json
    assert done["state"] == "approved"
    granted = (await api("GET", at)).json["pending"][2]
    assert (granted["number"], granted["most"], granted["uses"]) == (None, 5, 0)
    assert granted["expires"] == done["expires"]


async def _id() -> str:
    return "00000000-0000-0000-0000-000000000009"


async def sessions(api: Admin, parts: AdminParts) -> None:
    open_ = parts.sessions.open
    client = {"name": "desk", "version": "1"}
    mine = await open_(HANDSHAKE["2025-06-18"], ADA, client, {})
    await open_(HANDSHAKE["2025-06-18"], Principal("ada", OTHER), client, {})
    found = (await api("GET", "/sessions")).json["items"]
    assert [(one["principal"], one["client"]) for one in found] == [("ada", "desk 1")]
    assert mine.id not in json.dumps(found)  # who has it could try it
    at = f"/sessions/{found[0]['id']}"
    assert (await api("GET", at)).json == found[0]
    assert (await api("GET", "/sessions?principal=bob")).json["items"] == []
    assert (await api("DELETE", at)).status == 204
    assert parts.sessions.find(mine.id, ADA) is None
    assert (await api("DELETE", at)).status == 404


async def audit(api: Admin, database: Database) -> None:
    chain = Chain(HOST, node="node", started=datetime.now(UTC), key=b"")
    entries = [
        AuditEntry(
            *(HOST, datetime.now(UTC)),
            principal=who,
            front=front,
            method="tools/call",
            decision="allow",
        )
        for who, front in (("ada", "hybrid"), ("bob", ""), ("ada", ""))
    ]
    await store_audit(database.pool, b"", chain.header, chain.link(entries))
    page = (await api("GET", "/audit?limit=2")).json
    assert [one["sequence"] for one in page["items"]] == [3, 2]
    rest = (await api("GET", f"/audit?limit=2&after={page['next']}")).json
    assert [one["sequence"] for one in rest["items"]] == [1]
    ever = "since=0001-01-01T00:00:00%2B23:59&until=9999-12-31T23:59:59-23:59"
    assert len((await api("GET", f"/audit?{ever}")).json["items"]) == 3
    query = "principal=bob&since=2020-01-01T00:00:00Z"
    assert [one["sequence"] for one in (await api("GET", f"/audit?{query}")).json["items"]] == [2]
    for path in ("audit", "keys", "tools"):
        for cursor in ("a", "_w", "AA"):
            answer = await api("GET", f"/{path}?after={cursor}")
            assert (answer.status, answer.json["errors"][0]["parameter"]) == (422, "after")
    assert (await api("GET", "/audit?after=YQ")).status == 422
    legacy = (await api("GET", "/audit/legacy-payloads?limit=5")).json
    assert [(one["principal"], one["requests"]) for one in legacy["clients"]] == [("ada", 1)]
    ahead = "/audit/legacy-payloads?since=9999-12-31T23:59:59-23:59"
    assert (await api("GET", ahead)).json["clients"] == []
    report = (await api("POST", "/audit/verification")).json
    assert (report["records"], report["problems"]) == (3, [])


async def secrets(api: Admin, done: list[AdminAction]) -> None:
    kept = (await api("PUT", "/secrets/pets/a%2Fb?force=true", {"token": "s3cret"})).json
    assert (kept["source"], kept["scheme"], kept["readable"]) == ("pets", "a/b", True)
    assert (await api("GET", "/secrets")).json == {"items": [kept]}
    assert "s3cret" not in json.dumps(kept)
    assert done[-2].operation == "putSecret"
    assert done[-2].body == b""  # a digest of it could be guessed
    assert (await api("POST", "/sources", pets_upload())).status == 409  # it would get them
    assert (await api("POST", "/secrets/rotation")).json == {"encrypted": 0}
    assert (await api("PUT", "/secrets/models/none", {"token": "s3cret"})).status == 404
    assert (await api("DELETE", "/secrets/pets/a%2Fb")).status == 204
    assert (await api("DELETE", "/secrets/pets/a%2Fb")).status == 404
    assert (await api("PUT", "/secrets/pets/key?force=true", {})).status == 422
    await api("POST", "/sources", pets_upload())
    astray = await api("PUT", "/secrets/pts/key", {"token": "s3cret"})
    assert (astray.status, (await api("GET", "/secrets")).json) == (404, {"items": []})
    assert "Did you mean pets?" in astray.json["detail"]
    assert "force=true" in astray.json["detail"]
    forced = await api("PUT", "/secrets/pts/key?force=true", {"token": "s3cret"})
    assert (forced.status, forced.json["source"]) == (200, "pts")
    assert (await api("DELETE", "/secrets/pts/key")).status == 204
    assert (await api("PUT", "/secrets/own/key", {"token": "s3cret"})).status == 200  # of settings
    assert (await api("DELETE", "/secrets/own/key")).status == 204
    await api("PUT", "/secrets/pets/key", {"token": "s3cret"})
    assert (await api("DELETE", "/sources/pets")).status == 204
    assert (await api("GET", "/secrets")).json == {"items": []}  # none for the next of the name


async def explaining(api: Admin, parts: AdminParts, database: Database) -> None:
    await api("POST", "/sources", pets_upload())
    await parts.catalogs.reload(ToolStore(database.pool), HOST)
    wanted = {"tool": "deletePet", "principal": "ada", "roles": ["r"], "arguments": {"id": 1}}
    told = (await api("POST", "/policy/explanations", wanted)).json
    assert (told["effect"], told["rule"], told["visible"]) == ("allow", "policy.default", True)
    for wrong in ({"tool": "none"}, {**wanted, "toolset": "none"}):
        assert (await api("POST", "/policy/explanations", wrong)).status == 404
    costs = (await api("GET", "/costs?source=pets")).json["items"]
    assert [cost["tool"] for cost in costs] == [
        *("createPet", "deletePet", "getPet", "listPets", "slow"),
    ]
    assert all(cost["tokens"] > 0 for cost in costs)
    assert (await api("GET", "/costs?profile=nobody")).status == 404
    query = {"query": "remove a pet", "mode": "lexical"}
    scored = (await api("POST", "/search/explanation", query)).json
    assert (scored["hits"][0]["name"], scored["path"]) == ("deletePet", "lexical")
    assert scored["parts"][0]["words"] == pytest.approx(scored["hits"][0]["score"])
    blind = await api("POST", "/search/explanation", {**query, "mode": "dense"})
    assert (blind.status, "by meaning" in blind.json["detail"]) == (409, True)


async def trying(api: Admin) -> None:
    body = {"rule": {"effect": "deny", "tools": ["deletePet"]}}
    told = (await api("POST", "/policy/trials", body)).json
    assert (told["matches"], told["undecided"]) == (0, [])
    broken = {"rule": {"effect": "deny", "when": "nothing == 1"}}
    refused = await api("POST", "/policy/trials", broken)
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/rule/when")


async def evaluating(api: Admin) -> None:
    body = {"requests": [{"query": "one pet", "gold": ["getPet", "nowhere"]}]}
    told = (await api("POST", "/search/evaluations", body)).json
    assert (told["requests"], told["unknown"], told["improvements"]) == (1, ["nowhere"], [])
    used = await api("POST", "/search/evaluations", {"from_usage": True}, "admin:registry:read")
    assert used.status == 403
    assert (await api("GET", "/search/requests")).status == 403
    operator = bearer(roles=["operator"])
    assert (await api("GET", "/search/requests", **operator)).json == {"items": []}


async def accepting(api: Admin, database: Database) -> None:
    """What a server says of a tool that was accepted is served when somebody has looked at it."""
    store = ToolStore(database.pool)
    await import_snapshot(store, snapshot(tool("a", description="New words")), spec(pin=True))
    (waits,) = (await api("GET", "/tools?state=held")).json["items"]
    at = f"/tools/{waits['name']}"
    looked_at = await api("GET", at)
    assert looked_at.json["held_reason"] == "description changed"
    assert looked_at.json["waiting"]["description"] == "New words"
    assert (await api("POST", f"{at}/accept")).status == 428
    await import_snapshot(store, snapshot(tool("a", description="Newer words")), spec(pin=True))
    assert (await api("POST", f"{at}/accept", **looked_at.tag)).status == 412
    tag = (await api("GET", at)).tag
    assert (await api("POST", f"{at}/accept", **tag)).json["state"] == "served"
    assert (await api("POST", f"{at}/accept", **{"If-Match": "*"})).status == 409


async def test_pages_lead_from_the_first_to_the_last(api: Admin, parts: AdminParts) -> None:
    await api("POST", "/sources", pets_upload(count=20))
    seen, after = [], ""
    while True:
        page = (await api("GET", f"/tools?limit=7{after}")).json
        seen += [one["name"] for one in page["items"]]
        assert len(page["items"]) <= 7
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert len(seen) == 25
    assert seen == sorted(set(seen))


async def test_pages_have_a_limit(parts: AdminParts, serve: Serve, api: Admin) -> None:
    few = replace(parts.settings.admin, page_size=2, page_limit=3)
    url = await serve(admin_api(with_(parts, settings=replace(parts.settings, admin=few))))
    other = await open_admin(url, api.http)
    await api("POST", "/sources", pets_upload())
    assert len((await other("GET", "/tools")).json["items"]) == 2
    assert len((await other("GET", "/tools?limit=100")).json["items"]) == 3


async def test_the_text_null_is_no_value_of_a_parameter(api: Admin) -> None:
    refused = await api("GET", "/tools?state=null")
    assert refused.status == 400
    assert refused.json["errors"][0]["parameter"] == "state"
    assert (await api("GET", "/tools?source=null")).json == {"items": []}  # any text is a name


async def test_tenants_neither_see_nor_change_foreign_resources(
    api: Admin, parts: AdminParts, serve: Serve, database: Database
) -> None:
    """Only the token says whose things are meant."""
    await api("POST", "/sources", pets_upload())
    key = (await api("POST", "/keys", {"name": "ci"})).json["key"]["id"]
    await api("PUT", "/policy/rules/a", {"effect": "deny"}, **{"If-None-Match": "*"})
    gone = {"jti": "j", "expires": "2100-01-01T00:00:00Z"}
    revocation = (await api("POST", "/revocations", gone)).json["id"]
    wanted = ApprovalRequest("ada", await _id(), "t", "s", "0" * 64, "rule", "")
    approval, _ = await Approvals(database.pool, HOST).request(wanted, "{}", 60, 5)
    await parts.sessions.open(HANDSHAKE["2025-06-18"], ADA, {}, {})
    session = (await api("GET", "/sessions")).json["items"][0]["id"]

    async def stranger(scope: Any) -> Any:
        identity = await parts.identify(scope)
        return with_(identity, principal=with_(identity.principal, tenant=OTHER))

    url = await serve(admin_api(with_(parts, identify=stranger)))
    other = await open_admin(url, api.http)
    await api("PUT", "/secrets/pets/key", {"token": "s3cret"})
    await api("POST", "/skills", {"skills": [skill("care")]})
    await api("PUT", "/agents/helper", {})
    for path in (
        "secrets",
        "sources",
        "tools",
        "keys",
        "revocations",
        "policy/rules",
        "approvals",
        "sessions",
        "audit",
        "skills",
        "agents",
    ):
        assert (await other("GET", f"/{path}")).json == {"items": []}, path
    present = {"If-Match": "*"}
    for method, path, body in [
        ("GET", "sources/pets", None),
        ("DELETE", "sources/pets", None),
        ("POST", "sources/pets/refresh", None),
        ("POST", "sources/pets/rollback", None),
        ("PUT", "sources/pets/document", {"document": "{}"}),
        ("GET", "tools/getPet", None),
        ("POST", "tools/getPet/disable", None),
        ("PUT", "tools/getPet/description", {"text": "x"}),
        ("GET", f"keys/{key}", None),
        ("DELETE", f"keys/{key}", None),
        ("DELETE", f"revocations/{revocation}", None),
        ("DELETE", "policy/rules/a", None),
        ("DELETE", "secrets/pets/key", None),
        ("GET", "skills/care", None),
        ("GET", "skills/care/export", None),
        ("DELETE", "skills/care", None),
        ("POST", "skills/care/tools", {"tools": ["getPet"]}),
        ("GET", "agents/helper", None),
        ("DELETE", "agents/helper", None),
        ("POST", "agents/helper/skills", {"skills": ["care"]}),
        ("GET", f"approvals/{approval}", None),
        ("POST", f"approvals/{approval}/decision", {"approve": True}),
        ("DELETE", f"sessions/{session}", None),
    ]:
        answer = await other(method, f"/{path}", body, **present)
        assert answer.status == 404, path
    assert (await api("GET", f"/keys/{key}")).json["revoked"] is None
    assert len((await api("GET", "/sessions")).json["items"]) == 1


async def test_servers_are_asked_for_the_tenant_of_the_gateway_alone(
    api: Admin, parts: AdminParts, serve: Serve
) -> None:
    """They would get what the gateway has for a source of that name, which is somebody else's."""
    asked: list[str] = []

    async def lister(spec: ImportSpec) -> bytes:
        asked.append(spec.name)
        raise ImportRejected("There is nothing.")

    async def stranger(scope: Any) -> Any:
        identity = await parts.identify(scope)
        return with_(identity, principal=with_(identity.principal, tenant=OTHER))

    server = {"name": "crm", "kind": "mcp", "url": "https://example.com/mcp"}
    callers: list[tuple[Any, list[str]]] = [(stranger, []), (parts.identify, ["crm"])]
    for identify, heard in callers:
        url = await serve(admin_api(with_(parts, identify=identify, lister=lister)))
        caller = await open_admin(url, api.http)
        refused = await caller("POST", "/sources", server)
        assert refused.status == 422
        assert asked == heard
        # it says whom it is for, to those whom it is not for (mending 9)
        assert ("own tenant" in str(refused.json)) == (heard == [])
        assert "process" not in refused.json["detail"]


async def test_a_key_is_rotated_with_its_principal(api: Admin, database: Database) -> None:
    """The earlier one goes on for the overlap, and the new key is told once (mending 41)."""
    wanted = {"name": "ci", "scopes": ["a"], "roles": ["r"], "any_scope": True}
    earlier = (await api("POST", "/keys", wanted)).json["key"]
    path, again = f"/keys/{earlier['id']}/rotations", {"Idempotency-Key": '"r1"'}
    made = await api("POST", path, {"overlap_s": 3600}, **again)
    assert made.status == 201, made.json
    key = made.json["key"]
    assert made.json["secret"].startswith(f"tgk_{key['id']}_")
    for member in ("name", "principal", "scopes", "roles"):
        assert key[member] == earlier[member]
    repeated = await api("POST", path, {"overlap_s": 3600}, **again)
    assert repeated.json == {"key": key, "secret": None}
    valid = (await api("GET", f"/keys/{earlier['id']}")).json
    assert valid["expires"] is not None
    assert valid["name"] != "ci"
    ended = await api("POST", f"/keys/{key['id']}/rotations", {"overlap_s": 0})
    assert ended.status == 201
    refused = await api("POST", f"/keys/{key['id']}/rotations")
    assert (refused.status, "no valid key" in refused.json["detail"]) == (409, True)
    assert (await api("POST", "/keys/x/rotations")).status == 404
    for body in ({"overlap_s": -1}, {"overlap_s": 10**9}, {"overlap": 1}):
        assert (await api("POST", path, body)).status == 422


async def test_nobody_becomes_another_by_rotating_a_key(api: Admin) -> None:
    """A rotation gives out a key: its caller could have made that key (mending 41)."""
    own = "admin:keys:write admin:keys:read pets.r"
    ann, bob = bearer("ann", scope=own, roles=["ops"]), bearer("bob", scope=own)
    body = {"name": "anns", "scopes": ["pets.r"], "roles": ["ops"], "any_scope": True}
    anns = (await api("POST", "/keys", body, **ann)).json["key"]["id"]
    machine = {"name": "roots", "principal": "machine"}
    roots = (await api("POST", "/keys", machine)).json["key"]["id"]
    bobs_too = bearer("bob", scope=own, roles=["ops"])
    for key, caller, status in (
        (anns, bob, 403),  # not its role
        (anns, bobs_too, 403),  # not its principal, nor its maker
        (roots, ann, 403),
        (roots, bearer("machine", scope=own), 201),
        (anns, ann, 201),
    ):
        made = await api("POST", f"/keys/{key}/rotations", **caller)
        assert made.status == status, made.json
    by_root = (await api("POST", "/keys", {**body, "name": "both"}, **ann)).json["key"]["id"]
    now = (await api("POST", f"/keys/{by_root}/rotations")).json["key"]
    assert set(now["makers"]) == {"ann", "root"}
    assert (await api("POST", f"/keys/{now['id']}/rotations", **ann)).status == 403


async def test_a_key_gets_no_more_than_its_maker_has(api: Admin) -> None:
    own = "admin:keys:write admin:registry:read admin:policy:read pets.r"
    maker = bearer(scope=own, roles=["ops"])
    for number, (given, refused) in enumerate([
        ({"scopes": ["admin:registry:read", "pets.r"], "roles": ["ops"]}, []),
        ({"scopes": ["admin"]}, ["/scopes/0"]),
        ({"scopes": ["pets.r", "admin:read"]}, ["/scopes/1"]),
        ({"scopes": ["admin:policy:write"]}, ["/scopes/0"]),
        ({"scopes": ["pets.w"], "roles": ["ops", "boss"]}, ["/scopes/0", "/roles/1"]),
    ]):  # fmt: skip
        wanted = {"name": f"k{number}", "any_scope": True, **given}
        made = await api("POST", "/keys", wanted, **maker)
        assert made.status == (403 if refused else 201)
        assert [one["pointer"] for one in made.json.get("errors", [])] == refused
        assert (await api("POST", "/keys", {**wanted, "name": f"root{number}"})).status == 201
    reader = bearer(scope="admin:keys:write admin:read")
    for scope, status in (("admin:secrets:read", 201), ("admin:secrets:write", 403)):
        wanted = {"name": scope[-6:], "scopes": [scope]}
        assert (await api("POST", "/keys", wanted, **reader)).status == status


async def test_a_key_names_its_makers(api: Admin) -> None:
    key = (await api("POST", "/keys", {"name": "ci"})).json["key"]
    assert (key["principal"], key["makers"]) == ("key:ci", ["root"])


async def test_makers_of_a_key_cannot_approve_its_calls(api: Admin, database: Database) -> None:
    made = frozenset({"root"})
    wanted = ApprovalRequest("key:ci", await _id(), "t", "s", "0" * 64, "rule", "", made)
    approval, _ = await Approvals(database.pool, HOST).request(wanted, "{}", 60, 5)
    decision = f"/approvals/{approval}/decision"
    refused = await api("POST", decision, {"approve": True})
    assert (refused.status, refused.json["type"]) == (403, "problems/own-call")
    other = bearer("bob")
    assert (await api("POST", decision, {"approve": True}, **other)).json["state"] == "approved"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("openapi", {}),
        ("graphql", {}),
        ("hybrid", {"base_url": "https://h.example"}),
    ],
)
async def test_nobody_makes_the_gateway_look_into_its_own_network(
    api: Admin, serve: Serve, kind: str, more: dict[str, Any]
) -> None:
    asked = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(pets()).encode()})

    port = (await serve(inside)).rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        for path in ("/a.json", "/graphql"):
            wanted = {"kind": kind, "name": "x", "url": f"http://{host}:{port}{path}", **more}
            answer = await api("POST", "/sources", wanted)
            assert answer.status == 422, host
    assert asked == []
    for url in ("file:///etc/passwd", "/etc/passwd", "http://user:pw@h.example/", "ftp://h/"):
        answer = await api("POST", "/sources", {"kind": kind, "name": "x", "url": url, **more})
        assert answer.status == 422
        assert "pw" not in answer.body.decode()


async def test_a_tool_made_by_hand_reaches_no_further_than_its_maker(
    api: Admin, parts: AdminParts, serve: Serve, database: Database
) -> None:
    """What only operators may reach, the tools of other admins do not reach."""
    operator = bearer(roles=["operator"])
    by_command = Address("inner", "http://10.0.0.1")
    draft = ToolDraft("", "inner", "Inner.", {"type": "object"}, HybridBinding("h/s/a/1"))
    await ToolEdits(database.pool, HOST).add([NewTool(draft, by_command)])
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    code = {"code": "def main(arguments): return 1", "language": "python"}
    ways: list[tuple[dict[str, Any], int]] = [
        ({"rest": "GET /all", "source": "inner"}, 201),
        ({"hybrid": "h/s/b/1", "source": "inner"}, 201),
        ({"rest": "GET https://evil.example/", "source": "own"}, 201),  # headers of the settings
        ({"function": "shout"}, 201),
        ({"function": "shout", "input_schema": schema}, 201),
        ({**code}, 409),  # scripts are off
        ({"script": "/etc/passwd", "language": "python"}, 422),  # no member
    ]
    for number, (way, by_operator) in enumerate(ways):
        wanted = {"name": f"t{number}", "description": "D.", **way}
        refused = await api("POST", "/tools", wanted)
        assert refused.status == (422 if "script" in way else 403), way
        assert (await api("POST", "/tools", wanted, **operator)).status == by_operator, way
    assert (await api("PUT", "/tools/t3", {"input_schema": schema})).status == 403
    assert (await api("PUT", "/tools/inner", {"input_schema": schema})).status == 403
    assert (await api("PUT", "/tools/t3", {"input_schema": schema}, **operator)).status == 200
    assert (await api("PUT", "/tools/t3", {"title": "Shout"})).status == 200

    await api("PUT", "/secrets/api-x-example/key?force=true", {"token": "s3cret"})
    wanted = {"name": "x", "description": "D.", "rest": "GET https://api.x.example/"}
    assert (await api("POST", "/tools", wanted)).status == 409

    async def stranger(scope: Any) -> Any:
        identity = await parts.identify(scope)
        return with_(identity, principal=with_(identity.principal, tenant=OTHER))

    other = await open_admin(await serve(admin_api(with_(parts, identify=stranger))), api.http)
    wanted = {"name": "x", "function": "shout"}
    assert (await other("POST", "/tools", wanted, **operator)).status == 403
    assert (await other("PUT", "/tools/inner", {"title": "x"}, **operator)).status == 404
    assert (await other("DELETE", "/tools/inner", **operator)).status == 404


async def test_descriptions_on_private_hosts_are_read_if_allowed(
    parts: AdminParts, serve: Serve, api: Admin
) -> None:
    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(pets()).encode()})

    imports = replace(parts.settings.imports, private_networks=True)
    settings = replace(parts.settings, imports=imports)
    other = await open_admin(await serve(admin_api(with_(parts, settings=settings))), api.http)
    url = f"{await serve(inside)}/pets.json"
    made = await other("POST", "/sources", {"kind": "openapi", "name": "in", "url": url})
    assert made.status == 201
    assert made.headers["location"] == "/admin/v1/sources/in"
    assert (await other("GET", "/sources/in")).json["guarded"] is False
    assert (await other("POST", "/sources/in/refresh")).status == 200


async def test_a_refresh_does_not_make_an_imported_source_trusted(
    api: Admin, database: Database
) -> None:
    """Its calls and its descriptions lead to public addresses, whoever has it read again."""
    await api("POST", "/sources", pets_upload(base_url="http://10.0.0.1"))
    store = ToolStore(database.pool)
    for document in (pets(1), pets(2)):
        source = await store.source(HOST, "pets")
        assert source is not None
        assert (source.base_url, source.base_url_trusted) == ("http://10.0.0.1", False)
        wanted = {"document": json.dumps(document)}
        assert (await api("PUT", "/sources/pets/document", wanted)).status == 200
    await api("POST", "/sources/pets/rollback")
    source = await store.source(HOST, "pets")
    assert source is not None
    assert not source.base_url_trusted
    assert source.options.guarded


async def test_sources_and_rules_of_the_settings_are_immutable(
    api: Admin, parts: AdminParts, serve: Serve
) -> None:
    """Credentials of the settings go where its address leads."""
    assert (await api("POST", "/sources", pets_upload(name="own"))).status == 409
    assert (await api("DELETE", "/sources/own")).status == 409
    assert (await api("PUT", "/sources/own/document", {"document": "{}"})).status == 409
    policy = replace(parts.settings.policy, rules={"fixed": Rule("deny")})
    settings = replace(parts.settings, policy=policy)
    other = await open_admin(await serve(admin_api(with_(parts, settings=settings))), api.http)
    operator = bearer(roles=["operator"])
    found = await other("GET", "/policy/rules/fixed", **operator)
    assert found.json["origin"] == "settings"
    rule, same = {"effect": "allow"}, {**operator, **found.tag}
    assert (await other("PUT", "/policy/rules/fixed", rule, **same)).status == 409
    assert (await other("DELETE", "/policy/rules/fixed", **same)).status == 409


async def test_only_so_many_rules_are_stored(api: Admin, parts: AdminParts, serve: Serve) -> None:
    policy = replace(parts.settings.policy, stored_rules=1)
    settings = replace(parts.settings, policy=policy)
    other = await open_admin(await serve(admin_api(with_(parts, settings=settings))), api.http)
    new = {"If-None-Match": "*"}
    assert (await other("PUT", "/policy/rules/a", {"effect": "deny"}, **new)).status == 201
    refused = await other("PUT", "/policy/rules/b", {"effect": "deny"}, **new)
    assert refused.status == 409
    assert "at most 1 may be stored (policy.stored_rules)" in refused.json["detail"]


async def test_an_admin_of_a_tenant_sees_only_the_tenant(
    api: Admin, parts: AdminParts, serve: Serve, database: Database
) -> None:
    rules = {"hush": Rule("deny", tools=("deletePet",), reason="the CEO said so")}
    policy = replace(parts.settings.policy, rules=rules)
    settings = replace(parts.settings, policy=policy)
    stored = {"ours": Rule("deny", tools=("slow",), reason="slow")}
    mine = with_(parts, settings=settings, engine=lambda _tenant: Engine(policy, stored))
    other = await open_admin(await serve(admin_api(mine)), api.http)
    await other("POST", "/sources", pets_upload())
    await parts.catalogs.reload(ToolStore(database.pool), HOST)
    new = {"If-None-Match": "*"}
    await other("PUT", "/policy/rules/ours", {"effect": "deny"}, **new)
    for who, rule, why in (("root", "hush", "the CEO said so"), ("key:x", "ours", "slow")):
        wanted = ApprovalRequest(who, await _id(), "t", "s", "0" * 64, rule, why)
        await Approvals(database.pool, HOST).request(wanted, "{}", 60, 5)
    told = [
        await other("GET", "/policy/rules"),
        await other("GET", "/policy/rules/hush"),
        await other("GET", "/approvals"),
        *[
            await other("POST", "/policy/explanations", {"tool": tool})
            for tool in ("deletePet", "slow")
        ],
        await other("PUT", "/policy/rules/hush", {"effect": "allow"}, **new),
    ]
    assert [one.status for one in told] == [200, 404, 200, 200, 200, 409]
    assert b"CEO" not in b"".join(one.body for one in told)
    assert [one["name"] for one in told[0].json["items"]] == ["ours"]
    assert [one["rule"] for one in told[2].json["items"]] == ["(operator)", "ours"]
    assert (told[3].json["effect"], told[3].json["rule"]) == ("deny", "(operator)")
    assert (told[4].json["effect"], told[4].json["rule"]) == ("deny", "ours")
    status = (await other("GET", "/status")).json
    assert (status["sessions"], status["streams"]) == (None, None)
    operator = bearer(roles=["operator"])
    assert b"CEO" in (await other("GET", "/approvals", **operator)).body
    assert (await other("GET", "/status", **operator)).json["sessions"] == 0


async def test_another_tenant_hears_nothing_of_the_settings_sources(
    api: Admin, parts: AdminParts, serve: Serve
) -> None:
    async def of_another(scope: Any) -> Any:
        identity = await parts.identify(scope)
        return with_(identity, principal=with_(identity.principal, tenant=OTHER))

    api = await open_admin(await serve(admin_api(with_(parts, identify=of_another))), api.http)
    theirs = bearer(roles=["operator"])
    assert (await api("POST", "/sources", pets_upload(name="own"), **theirs)).status == 201
    assert (await api("GET", "/sources/own", **theirs)).json["in_settings"] is False
    assert (await api("GET", "/toolsets/some", **theirs)).json["include"] == []
    assert (await api("GET", "/status", **theirs)).json["sources"] == {}
    assert (await api("DELETE", "/sources/own", **theirs)).status == 204


async def test_the_command_of_a_process_is_told_to_operators_alone(
    api: Admin, database: Database
) -> None:
    """Arguments of a command may be secrets: neither sources, nor versions, nor reports of imports
    tell them to others."""
    how = spec("local", command=("serve-notes", "--token", "t0p"))
    how = with_(how, location=stdio_location(("serve-notes", "--token", "t0p")))
    await import_snapshot(ToolStore(database.pool), snapshot(tool("a")), how)
    paths = ("/sources", "/sources/local", "/sources/local/versions")
    for path in paths:
        told = (await api("GET", path, **bearer(roles=["operator"]))).body
        assert told.count(b"t0p") == 2, path
        for scope in ("admin:registry:read", "admin:read", "admin"):
            hidden = (await api("GET", path, scope=scope)).body
            assert b"t0p" not in hidden, (path, scope)
            assert b"serve-notes" not in hidden, (path, scope)
            assert b"stdio:***" in hidden, (path, scope)


async def test_reasons_that_may_quote_a_command_are_told_to_operators_alone(
    api: Admin, database: Database
) -> None:
    """Also of sources that are not in the settings of this gateway."""
    store, how = ToolStore(database.pool), spec("local", command=("serve-notes",))
    await import_snapshot(
        store, snapshot(tool("a")), with_(how, location=stdio_location(("serve-notes",)))
    )
    await api("POST", "/sources", pets_upload())
    names = ("elsewhere", "local", "pets")
    for name in names:
        await store.record_failure(HOST, name, f"no {name}")

    async def reasons(**headers: Any) -> list[str]:
        items = (await api("GET", "/imports/failures", **headers)).json["items"]
        return [item["reason"] for item in items if item["reason"].startswith("no ")]

    assert await reasons(**bearer(roles=["operator"])) == [f"no {name}" for name in names]
    assert await reasons() == ["no pets"]


async def test_nobody_becomes_an_operator_by_a_key(api: Admin) -> None:
    wanted = {"name": "k", "roles": ["operator"]}
    assert (await api("POST", "/keys", wanted)).status == 403
    assert (await api("POST", "/keys", wanted, **bearer(roles=["operator"]))).status == 201


async def test_imports_wait_for_each_other(api: Admin) -> None:
    """There is room for some at a time."""
    statuses: list[int] = []

    async def make(number: int) -> None:
        wanted = pets_upload(count=50, name=f"s{number}")
        statuses.append((await api("POST", "/sources", wanted)).status)

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(make, number)
    assert set(statuses) <= {201, 429, 503}
    assert 201 in statuses
    assert len((await api("GET", "/sources")).json["items"]) == statuses.count(201)


__all__ = ["Settings", "bearer"]


async def test_only_an_admin_makes_a_key_of_somebody_else(api: Admin) -> None:
    for number, (principal, scope, status) in enumerate(
        [
            (None, "admin:keys:write", 201),
            ("root", "admin:keys:write", 201),
            ("ada", "admin:keys:write", 403),
            ("ada", "admin", 201),
        ]
    ):
        body = {"name": f"k{number}", "principal": principal}
        assert (await api("POST", "/keys", body, scope=scope)).status == status


async def test_stored_secrets_fill_no_arguments_of_sources_that_take_tokens_of_callers(
    parts: AdminParts, serve: Serve, api: Admin, database: Database, tmp_path: Path
) -> None:
    """A refresh by the API obeys the settings of the source, as one by command (mending 35)."""
    sources = {"rooms": SourceSettings(forward_token=True)}
    url = await serve(admin_api(with_(parts, sources=lambda: sources)))
    forwarding = await open_admin(url, api.http)
    token = {"name": "access_token", "in": "query", "schema": {"type": "string"}}
    paths = {"/rooms": {"get": {"operationId": "rooms", "parameters": [token], "responses": {}}}}
    path = tmp_path / "rooms.json"
    path.write_text(json.dumps({"openapi": "3.1.0", "info": {}, "paths": paths}))
    imports = Sources(ToolStore(database.pool), HOST, parts.settings.imports)
    await imports.import_(ImportSpec("rooms", str(path), base_url="https://rooms.example"))
    await api("PUT", "/secrets/rooms/access_token", {"token": "s3cret"})
    for caller, arguments in ((api, set()), (forwarding, {"access_token"})):
        assert (await caller("POST", "/sources/rooms/refresh")).status == 200
        schema = (await caller("GET", "/tools/rooms")).json["input_schema"]
        assert set(schema["properties"]) == arguments


async def test_an_explained_search_counts_tools_in_the_database(
    api: Admin, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is that of the served tools: neither those that wait nor those that are off."""
    await api("POST", "/sources", pets_upload(count=3))
    await import_snapshot(ToolStore(database.pool), snapshot(tool("a"), tool("b")), spec())
    await import_snapshot(
        ToolStore(database.pool), snapshot(tool("a", description="N")), spec(pin=True)
    )
    served = len(await ToolStore(database.pool).tools(HOST))
    await api("POST", "/tools/listPets/disable")

    async def read_all(*_given: Any, **_more: Any) -> Any:
        raise AssertionError("tools were read")

    monkeypatch.setattr(ToolStore, "tools", read_all)
    explained = await api("POST", "/search/explanation", {"query": "pet"})
    assert explained.json["tools"] == served - 1
