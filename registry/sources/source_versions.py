"""Versions of a source: stored, compared with a new description, and rolled back to.

The difference of a description from the served version: tools added, changed and removed, and
which changes are breaking.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import msgspec
from anyio import to_thread
from msgspec import Raw, Struct

from config.settings import Imports
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tool_and_source_rows import options_of
from registry.importers.drafts import ImportedDescription
from registry.sources.compatibility import (
    SOURCE_VISIT_LIMIT,
    SchemaChange,
    comparison_budget,
    input_changes,
    output_changes,
)
from registry.sources.import_plan import Changes, Row
from registry.sources.import_specs import ImportSpec
from registry.sources.import_writer import Check, PreviousImport, Progress, RollbackTarget
from registry.sources.imports import ImportReport, draft_source
from registry.sources.source_reader import Lister, Origins, find, reread
from registry.sources.tool_store import ServedOperation, SourceDraft, ToolStore
from schemas.binding import (
    Binding,
    Credential,
    GraphQLBinding,
    HybridBinding,
    OpenAPIBinding,
    PythonBinding,
    ServiceBinding,
)
from schemas.errors import ImportRejected
from schemas.source import RolledBack, Source, Version, is_importable
from schemas.tool import Tool


def request_changes(before: Binding, after: Binding) -> Iterator[SchemaChange]:
    """Changes of an operation's request: argument locations and required credentials."""
    compare = COMPARISONS.get(type(before))
    if compare is not None and compare is COMPARISONS.get(type(after)):
        yield from compare(before, after)
    elif type(before) is not type(after):
        yield SchemaChange("wire", "", False, "called by another protocol")


def _openapi_changes(before: OpenAPIBinding, after: OpenAPIBinding) -> Iterator[SchemaChange]:
    yield from _moved_arguments(_argument_locations(before), _argument_locations(after))
    yield from _media_types(before, after)
    yield from _security(before.security, after.security)
    if before.server != after.server:
        servers = (binding.server or "the source's" for binding in (before, after))
        yield SchemaChange("wire", "", False, "server was {}, is {}".format(*servers))


def _graphql_changes(before: GraphQLBinding, after: GraphQLBinding) -> Iterator[SchemaChange]:
    if before.selection != after.selection:
        yield SchemaChange("wire", "", False, "other fields are selected")


def _argument_locations(binding: OpenAPIBinding) -> dict[str, str]:
    """The location of each argument, in words."""
    locations = {
        parameter.argument: f"{parameter.location} {parameter.name}"
        for parameter in binding.parameters
    }
    if binding.body:
        locations |= {
            name: f"body {property_}" for name, property_ in binding.body.properties or ()
        }
        if binding.body.argument:
            locations[binding.body.argument] = "body"
    return locations


def _moved_arguments(before: dict[str, str], after: dict[str, str]) -> Iterator[SchemaChange]:
    for name in sorted(before.keys() & after.keys() - {""}):
        if before[name] != after[name]:
            yield SchemaChange("wire", name, False, f"was {before[name]}, is {after[name]}")


def _media_types(before: OpenAPIBinding, after: OpenAPIBinding) -> Iterator[SchemaChange]:
    was, is_ = (binding.body.media_type if binding.body else None for binding in (before, after))
    if was != is_ and was and is_:
        yield SchemaChange("wire", "", False, f"body was {was}, is {is_}")


Alternatives = tuple[tuple[Credential, ...], ...]


def _security(before: Alternatives, after: Alternatives) -> Iterator[SchemaChange]:
    """Changes of the credentials. Breaking if a caller that satisfied one of the old alternatives
    now satisfies none."""
    was, now = _requirements(before), _requirements(after)
    if was == now:
        return
    narrower = not all(any(need <= had for need in now) for had in was)
    yield SchemaChange(
        "security",
        "",
        narrower,
        f"needed {_alternatives_text(was)}, needs {_alternatives_text(now)}",
    )


def _requirements(alternatives: Alternatives) -> list[frozenset[tuple[str, str]]]:
    """The requirements of each alternative: schemes, and their scopes."""
    return [
        frozenset(
            (alternative.scheme, scope)
            for alternative in needed
            for scope in ("", *alternative.scopes)
        )
        for needed in alternatives or ((),)
    ]


def _alternatives_text(alternatives: list[frozenset[tuple[str, str]]]) -> str:
    texts = [
        " and ".join(f"{scheme} {scope}".strip() for scheme, scope in sorted(needed))
        for needed in alternatives
    ]
    return " or ".join(text or "nothing" for text in texts)


def _service_changes(before: ServiceBinding, after: ServiceBinding) -> Iterator[SchemaChange]:
    """Changes of the scopes of a service. Breaking unless every caller that was allowed still is;
    any one of the scopes suffices."""
    was, now = _scopes(before), _scopes(after)
    if was != now:
        wider = now is None or (was is not None and (not now or (was and was <= now)))
        text = f"was for {_callers(was)}, is for {_callers(now)}"
        yield SchemaChange("security", "", not wider, text)


def _scopes(binding: ServiceBinding) -> frozenset[str] | None:
    """The scopes of which callers need one; empty: of none. None: not even a token is required."""
    return None if binding.skip_auth else frozenset((binding.scope or "").split())


def _callers(scopes: frozenset[str] | None) -> str:
    if scopes is None:
        return "all"
    return f"the scope {' or '.join(sorted(scopes))}" if scopes else "all with a token"


COMPARISONS: dict[type[Binding], Callable[[Any, Any], Iterator[SchemaChange]]] = {
    OpenAPIBinding: _openapi_changes,
    GraphQLBinding: _graphql_changes,
    HybridBinding: _service_changes,
    PythonBinding: _service_changes,
}
"""What compares two bindings of a kind; of a kind that is not here, nothing is told."""


ChangeStatus = Literal["added", "changed", "removed"]


class ToolChange(Struct, frozen=True):
    """The change of one tool."""

    status: ChangeStatus
    name: str  # its new name; of a removed tool, its last one
    operation: str  # its key: /pets/{id}@get
    breaking: bool
    changes: tuple[SchemaChange, ...]


class Difference(Struct, frozen=True):
    """The changes of a whole source, the breaking ones first."""

    source: str
    tools: tuple[ToolChange, ...]
    unchanged: int

    @property
    def breaking(self) -> bool:
        return any(tool.breaking for tool in self.tools)


def difference(source: str, before: Sequence[ServedOperation], changes: Changes) -> Difference:
    """The difference of `changes` from the tools served `before`."""
    tools_by_id = {served_tool.tool.id: served_tool for served_tool in before}
    with comparison_budget(SOURCE_VISIT_LIMIT):
        tool_changes = [*_removals(before, changes), *_additions_and_changes(tools_by_id, changes)]
    order = {"removed": 0, "changed": 1, "added": 2}
    tool_changes.sort(key=lambda change: (not change.breaking, order[change.status], change.name))
    added = sum(change.status == "added" for change in tool_changes)
    changed = sum(change.status == "changed" for change in tool_changes)
    return Difference(source, tuple(tool_changes), len(changes.saved.names) - added - changed)


def _removals(before: Sequence[ServedOperation], changes: Changes) -> Iterator[ToolChange]:
    removed_ids = set(changes.removed)
    for served_tool in before:
        if served_tool.endpoint_id in removed_ids:
            change = SchemaChange("operation", "", True, "removed")
            yield ToolChange(
                "removed", served_tool.tool.name, served_tool.key, True, changes=(change,)
            )


def _additions_and_changes(
    tools_by_id: Mapping[str, ServedOperation], changes: Changes
) -> Iterator[ToolChange]:
    for row in changes.rows:
        was = tools_by_id.get(row.tool_id)
        if was is None:
            yield ToolChange("added", row.name, row.endpoint, False, changes=())
        elif schema_changes := tuple(_changes(was, row, changes)):
            breaking = any(change.breaking for change in schema_changes)
            yield ToolChange("changed", row.name, row.endpoint, breaking, changes=schema_changes)


def _changes(was: ServedOperation, row: Row, changes: Changes) -> Iterator[SchemaChange]:
    tool = was.tool
    yield from _rename_change(tool, row, changes)
    if was.key != row.endpoint:
        yield SchemaChange("wire", "", False, f"was {was.key}, is {row.endpoint}")
    yield from input_changes(_object(tool.input_schema), _as_stored(row.input_schema))
    yield from request_changes(tool.binding, row.binding)
    before = None if tool.output_schema is None else _object(tool.output_schema)
    yield from output_changes(before, _as_stored(row.output_schema))
    yield from _hints(tool, row)
    if (tool.title, tool.description) != (row.title, row.description):
        yield SchemaChange("description", "", False, "described otherwise")
    if tool.toolsets != row.toolsets:
        texts = [", ".join(names) or "none" for names in (tool.toolsets, row.toolsets)]
        yield SchemaChange("annotation", "", False, f"toolsets were {texts[0]}, are {texts[1]}")


def _rename_change(tool: Tool, row: Row, changes: Changes) -> Iterator[SchemaChange]:
    if tool.name == row.name:
        return
    if tool.name in changes.aliases:
        yield SchemaChange("name", "", False, f"was {tool.name}, which still calls it")
    else:
        yield SchemaChange("name", "", True, f"was {tool.name}, which no longer calls it")


def _hints(tool: Tool, row: Row) -> Iterator[SchemaChange]:
    before = msgspec.to_builtins(tool.annotations)
    after = msgspec.to_builtins(row.annotations)
    for hint in sorted(before.keys() | after.keys()):
        if before.get(hint) != after.get(hint):
            texts = [
                msgspec.json.encode(annotations.get(hint)).decode()
                for annotations in (before, after)
            ]
            yield SchemaChange("annotation", hint, False, f"was {texts[0]}, is {texts[1]}")


def _object(raw: Raw) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(raw)
    return document


def _as_stored(schema: Any) -> Any:
    """`value` as JSON stores it: a tuple becomes a list."""
    return msgspec.json.decode(msgspec.json.encode(schema))


class Versions(Tables):
    """Stored versions of sources. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_versions(self, host_id: str, source: str) -> list[Version]:
        """All versions, newest first; empty when there is no such source."""
        rows = await self._fetch(
            """
            SELECT version.number, version.created_ts, version.title, version.api_version,
                coalesce(version.document_digest, version.digest), version.outcomes,
                version.current, version.document IS NOT NULL, version.spec
            FROM api_t AS api JOIN api_version_t AS version USING (host_id, api_id)
            WHERE host_id = %s AND api.name = %s
            ORDER BY version.number DESC
            """,
            [host_id, source],
        )
        return [_version(row) for row in rows]

    async def document(self, host_id: str, source: str, number: int) -> bytes | None:
        """The description that this version was imported from, as long as it is stored."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT version.document FROM api_t AS api"
                " JOIN api_version_t AS version USING (host_id, api_id)"
                " WHERE host_id = %s AND api.name = %s AND version.number = %s",
                [host_id, source, number],
                binary=True,
            )
            row = await rows.fetchone()
        return await to_thread.run_sync(zlib.decompress, row[0]) if row and row[0] else None


def _version(row: tuple[Any, ...]) -> Version:
    number, imported, title, version, digest, outcomes, current, has_document, spec = row
    return Version(
        number=number,
        imported=imported.isoformat(),
        title=title,
        version=version,
        digest=digest,
        outcomes=outcomes or {},
        current=current,
        kept=has_document,
        spec=spec,
    )


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """The result of a rollback: the version that is served again."""

    version: Version
    report: ImportReport
    difference: Difference


@dataclass(eq=False)
class History:
    """Differences and rollbacks of one tenant's sources."""

    store: ToolStore
    versions: Versions
    host_id: str
    limits: Imports
    _: KW_ONLY
    lister: Lister | None = None

    async def difference(self, spec: ImportSpec) -> Difference:
        """The changes that an import would make, as a dry run. Raises ImportRejected."""
        source = await find(spec, self.limits, Origins(lister=self.lister))
        imported = await asyncio.to_thread(source.read)
        return await self._compare_drafts(draft_source(spec, source, imported), imported)

    async def roll_back(
        self, name: str, to: int | None = None, progress: Progress | None = None
    ) -> RollbackResult:
        """Serve version `to` again, or the previous one, with the options that it had then.

        The rollback lasts until the location has a description other than the current one, or the
        source is refreshed. Raises LookupError for an unknown source, and ImportRejected.
        """
        source = await self.store.source(self.host_id, name)
        if source is None:
            raise LookupError(name)
        if final := source.facts.final:
            raise ImportRejected(f"{name} {final}.")
        versions = {
            version.number: version
            for version in await self.versions.list_versions(self.host_id, name)
        }
        version = _version_to_restore(name, versions, to)
        document = await self.versions.document(self.host_id, name, version.number)
        if document is None:
            raise ImportRejected(_not_stored(name, version.number))
        spec = _spec(source, version)
        location = reread(spec, document, self.limits)
        imported = await asyncio.to_thread(location.read)
        draft = replace(draft_source(spec, location, imported), **_base_url_fields(version))
        changed = await self._compare_drafts(draft, imported)
        held_version = await self._held_back_version(source, versions, version)
        saved = await self.store.save(
            self.host_id,
            draft,
            imported.drafts,
            progress=progress,
            versions_kept=self.limits.versions_kept,
            rollback=RollbackTarget(version.number, held_version),
            check=_check_current(name, versions),
        )
        report = ImportReport(
            draft, imported.outcomes, saved, imported.notes, drafts=imported.drafts
        )
        return RollbackResult(version, report, changed)

    async def _compare_drafts(
        self, draft: SourceDraft, description: ImportedDescription
    ) -> Difference:
        changes, served = await self.store.compare(self.host_id, draft, description.drafts)
        return await asyncio.to_thread(difference, draft.name, served, changes)

    async def _held_back_version(
        self, source: Source, versions: Mapping[int, Version], to: Version
    ) -> RolledBack | None:
        """The version not to import during the rollback: the one now at the source's location.
        None when that is `to` itself."""
        rolled_back = source.rolled_back
        if rolled_back is None:
            current = next(version for version in versions.values() if version.current)
            document = await self.versions.document(self.host_id, source.name, current.number)
            digest = hashlib.sha256(document).hexdigest() if document else None
            rolled_back = RolledBack(current.number, digest, dict(current.spec))
        return None if rolled_back.version == to.number else rolled_back


def _version_to_restore(name: str, versions: Mapping[int, Version], to: int | None) -> Version:
    current = next((version.number for version in versions.values() if version.current), 0)
    if to is None:
        before = [n for n, version in versions.items() if n < current and version.kept]
        if not before:
            raise ImportRejected(f"{name} has no version before {current} that is kept.")
        return versions[max(before)]
    if to not in versions:
        numbers = ", ".join(map(str, sorted(versions)))
        raise ImportRejected(f"{name} has no version {to}; it has {numbers}.")
    if to == current:
        raise ImportRejected(f"Version {to} of {name} is the one that is served.")
    if not versions[to].kept:
        raise ImportRejected(_not_stored(name, to))
    return versions[to]


def _check_current(name: str, versions: Mapping[int, Version]) -> Check:
    """Check that the version held back is still the one served when the rollback is written."""
    current = next((version.number for version in versions.values() if version.current), None)

    def check(before: PreviousImport | None) -> None:
        if before is None or before.version != current:
            raise ImportRejected(
                f"{name} changed while it was rolled back; nothing was written. Try again."
            )

    return check


def _not_stored(name: str, number: int) -> str:
    return f"The description of version {number} of {name} is not kept: see imports.versions_kept."


def _spec(source: Source, version: Version) -> ImportSpec:
    """The import spec of a version. Raises ImportRejected for a kind that only a newer release
    knows."""
    name, spec = source.name, version.spec
    if not is_importable(spec.get("kind")):
        raise ImportRejected(
            f"Version {version.number} of {name} is of a kind that is not known here: "
            f"{spec.get('kind')}."
        )
    return ImportSpec(
        name,
        spec["location"],
        base_url=spec["base_url"] if spec["base_url_trusted"] else None,
        include=tuple(spec["include"]),
        exclude=tuple(spec["exclude"]),
        kind=spec["kind"],
        options=options_of(name, spec["kind"], spec["options"]),
        origin=source.origin,
    )


def _base_url_fields(version: Version) -> dict[str, Any]:
    return {key: version.spec[key] for key in ("base_url", "base_url_trusted")}
