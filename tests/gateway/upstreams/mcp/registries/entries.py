"""Entries and plans of tests."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from gateway.upstreams.mcp.registries.installed_packages import InstalledPackages
from gateway.upstreams.mcp.registries.registry_reader import Entry, document_digest
from gateway.upstreams.mcp.registries.server_plans import Draft, PlanRequest, make_plan
from schemas.mcp.registry_entries import OfficialMeta, ServerDetail
from tests.servers.mcp_registry import server_json

DIGEST = "sha256:" + "a" * 64
IMAGE = f"ghcr.io/ada/weather:1.0.0@{DIGEST}"


def settings(folder: Path | None = None, **packages: Any) -> Settings:
    """Settings that allow loopback."""
    whole = load(None, {})
    more = {"folder": str(folder or "/nowhere"), **packages}
    return replace(
        whole,
        imports=replace(whole.imports, private_networks=True),
        packages=replace(whole.packages, **more),
    )


def entry_of(document: dict[str, Any], **meta: Any) -> Entry:
    server = msgspec.convert(document, ServerDetail)
    return Entry("own", server, OfficialMeta(**meta), document, document_digest(document))


def package(kind: str = "oci", identifier: str = IMAGE, **more: Any) -> dict[str, Any]:
    return {
        "registryType": kind,
        "identifier": identifier,
        "transport": {"type": "stdio"},
        **more,
    }


async def plan_of(document: dict[str, Any], whole: Settings | None = None, **members: Any) -> Draft:
    secrets = members.pop("secrets", {})
    stored = members.pop("stored", ())
    request = PlanRequest(name=document["name"], **members)
    packages = InstalledPackages(whole or settings())
    return await make_plan(
        entry_of(document), request, packages, secrets=secrets, stored_names=stored
    )


async def plan_package(described: dict[str, Any], **members: Any) -> Draft:
    return await plan_of(server_json(packages=[described]), **members)
