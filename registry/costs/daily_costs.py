"""Daily sums of tokens and money: added to by all processes, read by operations, and pruned."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, LiteralString, NamedTuple

from psycopg import sql

from registry.database.postgres import borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables

Kind = Literal["model", "definitions", "answers"]
Dimension = Literal["day", "caller", "toolset", "model"]
DIMENSIONS: tuple[Dimension, ...] = ("day", "caller", "toolset", "model")
OTHERS = "_OTHER"  # caller of sums that are nobody's alone
MICROS = 1_000_000


class CostKey(NamedTuple):
    """Primary key of a sum."""

    tenant: str
    day: date  # UTC
    kind: Kind
    caller: str  # "": work in the background
    toolset: str = ""  # "": all tools
    model: str = ""  # STRATEGY/MODEL, of the kind `model`
    currency: str = ""  # "": without a price


@dataclass(slots=True)
class CostSum:
    requests: int = 0
    tokens_in: int = 0  # that a model read
    tokens_out: int = 0  # that a model wrote, or a client was sent
    money_micros: float = 0.0

    def add(self, more: "CostSum") -> None:
        self.requests += more.requests
        self.tokens_in += more.tokens_in
        self.tokens_out += more.tokens_out
        self.money_micros += more.money_micros


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuery:
    """Days, first and last included, and the dimensions that sums are grouped by."""

    first: date
    last: date
    by: Collection[Dimension] = ()
    caller: str | None = None  # None: all
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedCosts:
    """A sum; its dimensions are None where the query does not group by them."""

    day: date | None
    caller: str | None
    toolset: str | None
    model: str | None
    requests: int  # to models
    tokens_in: int
    tokens_out: int
    unpriced: int  # of the tokens of models
    definitions: int  # tokens that clients were sent
    answers: int
    money: Mapping[str, int] = field(default_factory=dict)  # millionths by currency


class DailyCosts(Tables):
    """All methods raise `psycopg.Error` and `PoolTimeout`."""

    async def add(self, sums: Mapping[CostKey, CostSum]) -> None:
        """Add to the sums of the database, which may lack a tenant: it need not have a source."""
        # in one order, or processes that add to the same rows could deadlock
        rows = [
            (*key, total.requests, total.tokens_in, total.tokens_out, round(total.money_micros))
            for key, total in sorted(sums.items())
        ]
        values = [list(column) for column in zip(*rows, strict=True)]
        async with borrow(self._pool) as connection:
            await connection.execute(_ADD_TENANTS, [sorted({key.tenant for key in sums})])
            await connection.execute(_ADD, values)

    async def sums(self, host_id: str, query: CostQuery) -> Sequence[SummedCosts]:
        """The newest days first, then those with the most tokens."""
        values = {
            "host": host_id, "first": query.first, "last": query.last,
            "caller": query.caller, "limit": query.limit,
        }  # fmt: skip
        columns: list[sql.Composable] = [
            sql.Identifier(name) if name in query.by else sql.SQL("NULL::{} AS {}").format(
                sql.SQL("date" if name == "day" else "text"), sql.Identifier(name)
            )
            for name in DIMENSIONS
        ]  # fmt: skip
        statement = compose(_SUMS, columns=sql.SQL(", ").join(columns))
        return await self._fetch_rows(SummedCosts, statement, values)

    async def erase(self, host_id: str, caller: str) -> None:
        """Forget whose the sums of a caller were."""
        await self._execute(_ERASE, {"host": host_id, "caller": caller, "others": OTHERS})

    async def prune(self, days: int) -> None:
        """Delete sums of all tenants that are older than `days`."""
        await self._execute(_PRUNE, {"days": days})


_MERGE = sql.SQL("""
ON CONFLICT (host_id, day, kind, caller, toolset, model, currency) DO UPDATE SET
    requests = own.requests + excluded.requests,
    tokens_in = own.tokens_in + excluded.tokens_in,
    tokens_out = own.tokens_out + excluded.tokens_out,
    money_micros = own.money_micros + excluded.money_micros
""")
_ADD_TENANTS = """
INSERT INTO host_t (host_id, name)
SELECT host_id, host_id FROM unnest(%s::uuid[]) AS added (host_id)
ON CONFLICT DO NOTHING
"""
_ADD = compose(
    """
INSERT INTO cost_t AS own (host_id, day, kind, caller, toolset, model, currency, requests,
                           tokens_in, tokens_out, money_micros)
SELECT host_id, day, kind, caller, toolset, model, currency, requests, tokens_in, tokens_out,
       money_micros
  FROM unnest(
    %s::uuid[], %s::date[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]
) WITH ORDINALITY AS added (host_id, day, kind, caller, toolset, model, currency, requests,
                            tokens_in, tokens_out, money_micros, place)
ORDER BY place
{merge}""",
    merge=_MERGE,
)
_ERASE = compose(
    """
WITH erased AS (
    DELETE FROM cost_t WHERE host_id = %(host)s AND caller = %(caller)s RETURNING *
)
INSERT INTO cost_t AS own
SELECT host_id, day, kind, %(others)s, toolset, model, currency, sum(requests), sum(tokens_in),
       sum(tokens_out), sum(money_micros)
  FROM erased GROUP BY 1, 2, 3, 4, 5, 6, 7
{merge}""",
    merge=_MERGE,
)
_PRUNE = """
DELETE FROM cost_t USING host_t WHERE cost_t.host_id = host_t.host_id
   AND day < (now() AT TIME ZONE 'UTC')::date - %(days)s::int
"""
_SUMS: LiteralString = """
WITH summed AS (
    SELECT {columns}, currency,
           sum(requests) FILTER (WHERE kind = 'model') AS requests,
           sum(tokens_in) AS tokens_in,
           sum(tokens_out) FILTER (WHERE kind = 'model') AS tokens_out,
           sum(tokens_in + tokens_out) FILTER (WHERE kind = 'model' AND currency = '') AS unpriced,
           sum(tokens_out) FILTER (WHERE kind = 'definitions') AS definitions,
           sum(tokens_out) FILTER (WHERE kind = 'answers') AS answers,
           sum(money_micros)::bigint AS money
      FROM cost_t
     WHERE host_id = %(host)s AND day BETWEEN %(first)s AND %(last)s
       AND (%(caller)s::text IS NULL OR caller = %(caller)s)
     GROUP BY 1, 2, 3, 4, 5
)
SELECT day, caller, toolset, model,
       coalesce(sum(requests), 0)::bigint AS requests,
       coalesce(sum(tokens_in), 0)::bigint AS tokens_in,
       coalesce(sum(tokens_out), 0)::bigint AS tokens_out,
       coalesce(sum(unpriced), 0)::bigint AS unpriced,
       coalesce(sum(definitions), 0)::bigint AS definitions,
       coalesce(sum(answers), 0)::bigint AS answers,
       coalesce(jsonb_object_agg(currency, money) FILTER (WHERE currency <> ''), '{{}}') AS money
  FROM summed GROUP BY 1, 2, 3, 4
 ORDER BY day DESC NULLS LAST,
       coalesce(sum(tokens_in), 0) + coalesce(sum(tokens_out), 0)
       + coalesce(sum(definitions), 0) + coalesce(sum(answers), 0) DESC, 2, 3, 4
 LIMIT %(limit)s
"""
