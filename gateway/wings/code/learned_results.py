"""Schemas of answers that tools do not describe, learned from those that programs have had.

They hold no values, and are shown only to who has had the answers: what somebody may not read is
not told by its shape either.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
from msgspec import UNSET, Raw

from gateway.context import Principal
from gateway.wings.code.result_shapes import Shape, merge, shape_of
from registry.database.postgres import AWAY, Pool, borrow
from registry.database.tables import Tables
from schemas.errors import Unavailable
from schemas.tool import Tool, ToolResult

ANSWER_BYTES = 256 << 10  # of an answer that is looked at
SHAPE_BYTES = 16 << 10
SHAPES_REMEMBERED = 1000  # shapes that this process knows to be stored

Key = tuple[str, str, str, str]  # tenant, principal, id and digest of a tool


class LearnedResults(Tables):
    def __init__(self, pool: Pool, most: int) -> None:
        """`most`: tools of a principal; the oldest are forgotten. 0: nothing is learned."""
        self._pool = pool
        self._most = most
        self._known: OrderedDict[Key, Shape] = OrderedDict()

    async def learn(self, principal: Principal, tool: Tool, result: ToolResult) -> None:
        content = result.structured_content
        if not self._most or tool.output_schema is not None or content is UNSET:
            return
        if len(content) > ANSWER_BYTES:
            return
        try:
            shape = shape_of(msgspec.json.decode(content))
        except (msgspec.DecodeError, RecursionError):
            return
        key = (principal.tenant, principal.id, tool.id, tool.digest)
        learned_shape = self._known.get(key)
        if learned_shape is not None and merge(learned_shape, shape) == learned_shape:
            return
        with suppress(Unavailable, *AWAY):
            self._remember(key, await self._store(key, shape))

    async def complete(self, principal: Principal, tools: Sequence[Tool]) -> list[Tool]:
        """The tools, with what is learned of their results as their output schemas."""
        missing = [tool.id for tool in tools if tool.output_schema is None]
        shapes: Mapping[tuple[str, str], bytes] = {}
        if self._most and missing:
            with suppress(Unavailable, *AWAY):
                shapes = await self._read(principal, missing)
                for tool in tools:
                    if (tool.id, tool.digest) not in shapes:  # another gateway forgot it, perhaps
                        self._known.pop((*principal.key, tool.id, tool.digest), None)
        return [
            tool if shape is None else replace(tool, output_schema=Raw(shape))
            for tool in tools
            for shape in (shapes.get((tool.id, tool.digest)),)
        ]

    async def _read(
        self, principal: Principal, tool_ids: Sequence[str]
    ) -> Mapping[tuple[str, str], bytes]:
        rows = await self._fetch(
            "SELECT tool_id, digest, shape FROM code_shape_t"
            " WHERE host_id = %s AND principal = %s AND tool_id = ANY(%s)",
            [principal.tenant, principal.id, [*tool_ids]],
        )
        return {(id_, digest): shape for id_, digest, shape in rows}

    async def _store(self, key: Key, shape: Shape) -> Shape:
        """The shape with that of the database, which is there then."""
        host_id, principal, tool_id, digest = key
        async with borrow(self._pool) as connection, connection.transaction():
            row = await connection.execute(
                "SELECT digest, shape FROM code_shape_t"
                " WHERE host_id = %s AND principal = %s AND tool_id = %s FOR UPDATE",
                [host_id, principal, tool_id],
            )
            stored = await row.fetchone()
            if stored is not None and stored[0] == digest:
                shape = merge(msgspec.json.decode(stored[1]), shape)
            encoded = msgspec.json.encode(shape)
            if len(encoded) > SHAPE_BYTES:
                shape, encoded = {}, b"{}"
            await connection.execute(
                "INSERT INTO code_shape_t (host_id, principal, tool_id, digest, shape)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (host_id, principal, tool_id) DO UPDATE"
                " SET digest = excluded.digest, shape = excluded.shape, updated_ts = now()",
                [host_id, principal, tool_id, digest, encoded],
            )
            forgotten = await connection.execute(
                "DELETE FROM code_shape_t WHERE (host_id, principal, tool_id) IN ("
                " SELECT host_id, principal, tool_id FROM code_shape_t"
                "  WHERE host_id = %s AND principal = %s ORDER BY updated_ts DESC OFFSET %s)"
                " RETURNING tool_id, digest",
                [host_id, principal, self._most],
            )
            for old in await forgotten.fetchall():
                self._known.pop((host_id, principal, *old), None)
        return shape

    def _remember(self, key: Key, shape: Shape) -> None:
        self._known[key] = shape
        self._known.move_to_end(key)
        if len(self._known) > SHAPES_REMEMBERED:
            self._known.popitem(last=False)
