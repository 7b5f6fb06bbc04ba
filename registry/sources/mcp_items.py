"""Prompts, resources and resource templates of other MCP servers: named, and written."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.types.json import Json

from registry.importers.drafts import ItemDraft
from registry.names.tool_names import Candidates, Naming
from schemas.mcp.snapshot import Eras, ItemKind

KINDS: tuple[ItemKind, ...] = ("prompt", "resource", "template")


class ItemsSaved(Struct, frozen=True):
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    names: Mapping[str, str] = {}  # id of the draft -> name
    refused: Mapping[str, str] = {}  # id -> name that another source has


class _Row(Struct, frozen=True):
    kind: ItemKind
    key: str
    name: str
    definition: dict[str, Any]
    eras: Eras


class ItemSaving:
    """Saves the items of one source during an import, in the caller's transaction."""

    def __init__(self, connection: AsyncConnection, host_id: str, api_id: str) -> None:
        self._connection = connection
        self._values = {"host": host_id, "api": api_id}

    async def run(self, naming: Naming, drafts: Sequence[ItemDraft]) -> ItemsSaved:
        """Replace the items of the source by these; unchanged rows are not written."""
        before, taken_names = await self._load_known()
        names = await to_thread.run_sync(_assign_all, naming, drafts, before, taken_names)
        named_items = [draft for draft in drafts if draft.id in names]
        removed = await self._remove(named_items)
        added, updated = await self._write(
            [
                _Row(item.kind, item.key, names[item.id], item.definition, eras=item.eras)
                for item in named_items
            ]
        )
        refused = {draft.id: draft.name for draft in drafts if draft.id not in names}
        return ItemsSaved(
            added,
            updated,
            len(named_items) - added - updated,
            removed,
            names=names,
            refused=refused,
        )

    async def _load_known(self) -> tuple[dict[str, str], dict[str, set[str]]]:
        """Names of this source's items by id, and of other sources' items by kind."""
        rows = await self._connection.execute(
            "SELECT kind, key, name, api_id = %(api)s FROM mcp_item_t WHERE host_id = %(host)s",
            self._values,
        )
        before: dict[str, str] = {}
        taken_names: dict[str, set[str]] = {kind: set() for kind in KINDS}
        async for kind, key, name, is_own in rows:
            if is_own:
                before[f"{key}@{kind}"] = name
            else:
                taken_names[kind].add(_fold(kind)(name))
        return before, taken_names

    async def _remove(self, items: Sequence[ItemDraft]) -> int:
        removed = await self._connection.execute(
            """
            DELETE FROM mcp_item_t
            WHERE host_id = %(host)s AND api_id = %(api)s AND key || '@' || kind <> ALL(%(kept)s)
            """,
            self._values | {"kept": [draft.id for draft in items]},
        )
        return removed.rowcount

    async def _write(self, rows: Sequence[_Row]) -> tuple[int, int]:
        """How many items are new, and how many have changed."""
        written = await self._connection.execute(
            """
            INSERT INTO mcp_item_t AS old (host_id, api_id, kind, key, name, definition, eras)
            SELECT %(host)s, %(api)s, kind, key, name, definition, eras
            FROM json_to_recordset(%(rows)s) AS item (
                kind text, key text, name text, definition json, eras text)
            ON CONFLICT (host_id, api_id, kind, key) DO UPDATE SET
                name = excluded.name, definition = excluded.definition, eras = excluded.eras,
                aggregate_version = old.aggregate_version + 1, update_ts = current_timestamp,
                update_user = session_user
            WHERE (old.name, old.definition::text, old.eras)
                <> (excluded.name, excluded.definition::text, excluded.eras)
            RETURNING xmax = 0
            """,
            self._values | {"rows": Json(rows, dumps=msgspec.json.encode)},
        )
        new = [added async for (added,) in written]
        return sum(new), len(new) - sum(new)


def _assign_all(
    naming: Naming,
    drafts: Sequence[ItemDraft],
    before: Mapping[str, str],
    taken_names: Mapping[str, set[str]],
) -> dict[str, str]:
    names: dict[str, str] = {}
    for kind in KINDS:
        of_kind = [draft for draft in drafts if draft.kind == kind]
        names |= _assign(naming, of_kind, before, taken_names[kind])
    return names


def _assign(
    naming: Naming, drafts: Sequence[ItemDraft], before: Mapping[str, str], taken_names: set[str]
) -> dict[str, str]:
    candidates: dict[str, Candidates] = {
        draft.id: partial(naming.names, draft.name, draft.key)
        if draft.kind == "prompt"
        else partial(naming.uris, draft.name)
        for draft in drafts
    }
    fold = _fold(drafts[0].kind if drafts else "prompt")
    return naming.assign(candidates, before, lambda name: fold(name) in taken_names)


def _fold(kind: str) -> Any:
    """Comparison key of a name: prompts as tools are, URIs exactly."""
    return str.casefold if kind == "prompt" else str
