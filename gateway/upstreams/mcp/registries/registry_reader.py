"""Reads registries of MCP servers (API v0.1, three GETs), those of the settings alone.

All answers are of strangers. They are bounded, checked against the schema, and cleaned of invisible
and control characters, which could rewrite a terminal.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct, field

from config.registries import RegistrySettings
from config.settings import Imports
from registry.documents.fetch import OF_DESCRIPTIONS, StatusRefused, fetch
from schemas.errors import ImportRejected
from schemas.invisible_characters import without_hidden_in
from schemas.mcp.registry_entries import (
    OFFICIAL,
    SCHEMA_VERSIONS,
    ListMetadata,
    OfficialMeta,
    ServerDetail,
    schema_version,
)

LATEST = "latest"
PAGE = 100  # most entries that registries give at once


class _Response(Struct, frozen=True):
    server: Raw
    meta: Mapping[str, Any] = field(name="_meta", default_factory=dict)


class _Page(Struct, frozen=True):
    servers: tuple[_Response, ...]
    metadata: ListMetadata = ListMetadata()


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a server, as a registry of the settings tells it."""

    registry: str
    server: ServerDetail
    meta: OfficialMeta
    document: Mapping[str, Any]  # server.json
    sha256: str  # of `document`: see `document_digest`

    @property
    def is_deprecated(self) -> bool:
        return self.meta.status == "deprecated"


@dataclass(frozen=True, slots=True)
class EntryPage:
    entries: Sequence[Entry]
    cursor: str  # of the next page; "": none
    unreadable: int  # entries that are left out


class EntryMissing(ImportRejected):
    """No registry that was asked has the name or the version."""


class RegistryReader:
    """All methods raise ImportRejected."""

    def __init__(self, registries: Mapping[str, RegistrySettings], limits: Imports) -> None:
        self._registries = registries
        self._limits = limits

    def names(self, registry: str = "") -> Sequence[str]:
        """The registries to ask: that one, or all of the settings."""
        if not self._registries:
            raise ImportRejected(
                "There is no registry to ask: name one in the settings, as in registries: "
                "{official: {url: https://registry.modelcontextprotocol.io}}."
            )
        if registry and registry not in self._registries:
            names = ", ".join(self._registries)
            raise ImportRejected(f"There is no registry {registry} in the settings, but {names}.")
        return (registry,) if registry else tuple(self._registries)

    async def search(self, registry: str, text: str, cursor: str, limit: int) -> EntryPage:
        """A page of the latest versions of servers whose names contain `text`."""
        query = {"search": text, "version": LATEST, "limit": min(limit, PAGE), "cursor": cursor}
        text = urlencode({name: value for name, value in query.items() if value})
        page = _decode(await self._get(registry, f"servers?{text}"), _Page, registry)
        entries: list[Entry] = []
        for answer in page.servers:
            try:
                entries.append(_entry(registry, answer))
            except ImportRejected:
                continue
        unreadable = len(page.servers) - len(entries)
        return EntryPage(entries, page.metadata.next_cursor or "", unreadable)

    async def versions(self, registry: str, name: str) -> Sequence[str]:
        page = _decode(await self._get(registry, _path(name)), _Page, registry)
        return [_entry(registry, answer).server.version for answer in page.servers]

    async def find(self, name: str, version: str = LATEST, registry: str = "") -> Entry:
        """The entry of exactly this name. Raises EntryMissing."""
        entries = []
        for each in self.names(registry):
            try:
                entries.append(await self._read(each, name, version))
            except StatusRefused as error:
                if error.status != 404:
                    raise
        if not entries:
            names = ", ".join(self.names(registry))
            named = name if version == LATEST else f"{name}@{version}"
            raise EntryMissing(f"There is no {named} in {names}: names are compared exactly.")
        if len(entries) > 1:
            both = " and ".join(entry.registry for entry in entries)
            first = entries[0].registry
            raise ImportRejected(f"{name} is in {both}: say which, as in --registry {first}.")
        return entries[0]

    async def _read(self, registry: str, name: str, version: str) -> Entry:
        path = f"{_path(name)}/{quote(version, safe='')}"
        entry = _entry(registry, _decode(await self._get(registry, path), _Response, registry))
        expected = (name, entry.server.version if version == LATEST else version)
        if (entry.server.name, entry.server.version) != expected:
            answer = f"{entry.server.name}@{entry.server.version}"
            raise ImportRejected(
                f"{registry} was asked for {'@'.join(expected)}, and gave {answer}."
            )
        return entry

    async def _get(self, registry: str, path: str) -> bytes:
        settings = self._registries[registry]
        token = (("Authorization", f"Bearer {settings.token}"),) if settings.token else ()
        answer = await fetch(
            f"{settings.url.rstrip('/')}/v0.1/{path}",
            limit_bytes=self._limits.document_limit_bytes,
            timeout_s=self._limits.fetch_timeout_s,
            private_networks=self._limits.private_networks,
            settings=replace(
                OF_DESCRIPTIONS, headers=(("Accept", "application/json"), *token), same_origin=True
            ),
        )
        return answer.data


def document_digest(document: Mapping[str, Any]) -> str:
    """The SHA-256 of a server.json, in whatever order and spacing a registry writes it."""
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()


def _path(name: str) -> str:
    return f"servers/{quote(name, safe='')}/versions"


def _decode(data: bytes, kind: type[Any], registry: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImportRejected(
            f"{registry} did not answer as a registry of v0.1: {error}."
        ) from error


def _entry(registry: str, answer: _Response) -> Entry:
    document = _decode(bytes(answer.server), dict[str, Any], registry)
    version = schema_version(document.get("$schema", ""))
    if version and version not in SCHEMA_VERSIONS:
        versions = ", ".join(sorted(SCHEMA_VERSIONS))
        text = f"{registry} has a server.json of the version {version}; known are {versions}."
        raise ImportRejected(without_hidden_in(text))
    try:
        server = msgspec.convert(without_hidden_in(document), ServerDetail)
        meta = msgspec.convert(without_hidden_in(answer.meta.get(OFFICIAL) or {}), OfficialMeta)
    except (msgspec.ValidationError, RecursionError) as error:
        name = without_hidden_in(str(document.get("name"))[:200])
        raise ImportRejected(
            f"{registry}: the server.json of {name} is invalid: {error}."
        ) from error
    return Entry(registry, server, meta, document, document_digest(document))
