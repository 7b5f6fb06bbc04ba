"""Every feature: imported, called, and compared byte by byte, in the versions that are drawn."""

import json
from typing import Any

import pytest

from registry.sources.import_specs import configured_import
from registry.sources.imports import preview
from tests.registry.importers.features.case import Call, Case
from tests.registry.importers.features.cases import CASES_OF
from tests.registry.importers.features.conftest import Rig

pytestmark = pytest.mark.anyio

IN_VERSIONS = [
    pytest.param(version, case, id=f"{case.name}-{version}")
    for version, cases in CASES_OF.items()
    for case in cases
]


@pytest.mark.parametrize(("rig", "case"), IN_VERSIONS, indirect=["rig"], scope="package")
async def test_a_feature_has_its_described_effect(rig: Rig, case: Case) -> None:
    await _check_import(rig, case)
    await _check_offer(rig, case)
    for call in case.calls:
        await _check_call(rig, case, call)


async def _check_import(rig: Rig, case: Case) -> None:
    settings = rig.client.gateway.settings
    spec = configured_import(case.name, settings.sources[case.name])
    assert spec is not None
    report = await preview(spec, settings.imports)
    found = {one.reason for one in report.outcomes if one.status not in ("imported", "excluded")}
    assert found == set()


async def _check_offer(rig: Rig, case: Case) -> None:
    gateway = rig.client.gateway
    tool = gateway.catalogs.of(gateway.settings.tenant.host_id).get(case.name)
    if tool is None:
        assert all(call.tool for call in case.calls)
        return
    properties = json.loads(bytes(tool.input_schema)).get("properties", {})
    if case.offers is not None:
        assert properties.keys() == case.offers
    for name, schema in (case.schema or {}).items():
        assert properties[name] == schema
    if case.output is not None:
        assert tool.output_schema is not None
        assert json.loads(bytes(tool.output_schema)) == case.output


async def _check_call(rig: Rig, case: Case, call: Call) -> None:
    service = rig.service
    service.heard.clear()
    service.answer = call.answer
    arguments = json.loads(json.dumps(call.arguments).replace("ORIGIN", service.url))
    result = await rig.result(case.name + call.tool, arguments)
    said = json.dumps(result)
    if call.request is None:
        assert service.heard == [], said
    else:
        [heard] = service.heard or [pytest.fail(said)]
        method, _, target = call.request.partition(" ")
        assert heard.line == f"{method} /{case.name}{target}"
        assert {name: heard.headers.get(name) for name in call.headers} == call.headers
        assert heard.body == call.body
    _check_result(result, call)


def _check_result(result: dict[str, Any], call: Call) -> None:
    text = "\n".join(one.get("text", "") for one in result["content"])
    if call.error is None:
        assert not result.get("isError"), text
    else:
        assert result["isError"]
        assert call.error in text
    if call.content is not None:
        assert result["content"] == call.content
    if call.structured is not None:
        assert result["structuredContent"] == call.structured
    for name, value in (call.meta or {}).items():
        assert result.get("_meta", {}).get(name) == value
