"""Every table distributes by tenant: docs/scaling.md says how, and these tests read it."""

import ast
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from registry.database.postgres import Database

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CHAPTER = (ROOT / "docs" / "scaling.md").read_text()
BLOCKS = re.findall(r"```sql distribute(?: (\w+))?\n(.*?)```", CHAPTER, re.DOTALL)
STATEMENTS = "\n".join(text for _, text in BLOCKS)
WINGS = [wing for wing, _ in BLOCKS if wing]
REFERENCE = set(re.findall(r"create_reference_table\('(\w+)'\)", STATEMENTS))
LOCAL = set(
    re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`procras.*?|`job_t`) \|", CHAPTER, re.M)))
)
CROSSING = set(re.findall(r"`((?:gateway|registry)\.[\w.]+)`", CHAPTER))


@dataclass(frozen=True)
class Distributed:
    column: str
    group: str  # tables of one group have the rows of one value on one node


def _distributed_tables() -> dict[str, Distributed]:
    tables: dict[str, Distributed] = {}
    for table, column, beside in re.findall(
        r"create_distributed_table\('(\w+)', '(\w+)'(?:, colocate_with => '(\w+)')?\)", STATEMENTS
    ):
        group = table if beside in ("", "none") else tables[beside].group
        tables[table] = Distributed(column, group)
    return tables


DISTRIBUTED = _distributed_tables()


@asynccontextmanager
async def _connect_with_wings(database: Database) -> AsyncIterator[AsyncConnection]:
    """A connection that sees the tables of the wings, too."""
    async with database.connect() as connection, connection.transaction(force_rollback=True):
        for wing in WINGS:
            for file in sorted((ROOT / "gateway" / "wings" / wing / "sql").glob("*.sql")):
                await connection.execute(file.read_bytes())
        yield connection


async def _rows(connection: AsyncConnection, statement: bytes) -> list[tuple[object, ...]]:
    found = await connection.execute(statement)
    return await found.fetchall()


async def test_each_table_has_one_place(database: Database) -> None:
    async with _connect_with_wings(database) as connection:
        rows = await _rows(
            connection,
            b"SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            b" AND relkind IN ('r', 'p') AND NOT relispartition",
        )
    assert {name for (name,) in rows} == DISTRIBUTED.keys() | REFERENCE | LOCAL
    assert not DISTRIBUTED.keys() & REFERENCE
    assert not (DISTRIBUTED.keys() | REFERENCE) & LOCAL


async def test_unique_keys_hold_the_column_that_their_table_distributes_by(
    database: Database,
) -> None:
    async with _connect_with_wings(database) as connection:
        rows = await _rows(
            connection,
            b"SELECT indrelid::regclass::text, indexrelid::regclass::text, ARRAY("
            b" SELECT attname::text FROM unnest(indkey[:indnkeyatts - 1]) AS key"
            b" JOIN pg_attribute ON attrelid = indrelid AND attnum = key)"
            b" FROM pg_index JOIN pg_class ON pg_class.oid = indrelid"
            b" WHERE indisunique AND relnamespace = current_schema()::regnamespace",
        )
    lacking = [
        index
        for table, index, columns in rows
        if table in DISTRIBUTED and DISTRIBUTED[str(table)].column not in columns  # type: ignore[operator]
    ]
    assert lacking == []


async def test_foreign_keys_stay_on_one_node(database: Database) -> None:
    async with _connect_with_wings(database) as connection:
        rows = await _rows(
            connection,
            b"SELECT conname, conrelid::regclass::text, confrelid::regclass::text, ARRAY("
            b" SELECT own.attname || ' ' || other.attname"
            b" FROM unnest(conkey, confkey) AS key (a, b)"
            b" JOIN pg_attribute AS own ON (own.attrelid, own.attnum) = (conrelid, a)"
            b" JOIN pg_attribute AS other ON (other.attrelid, other.attnum) = (confrelid, b))"
            b" FROM pg_constraint WHERE contype = 'f' AND conparentid = 0"
            b" AND connamespace = current_schema()::regnamespace",
        )
    crossing = [
        name
        for name, own, other, columns in rows
        if not _stays(str(own), str(other), columns)  # type: ignore[arg-type]
    ]
    assert crossing == []
    assert len(rows) > 20


def _stays(own: str, other: str, columns: list[str]) -> bool:
    """Whether a foreign key is between rows of one node."""
    if own in LOCAL or other in LOCAL:
        return own in LOCAL and other in LOCAL
    if own in REFERENCE or other in REFERENCE:
        return other in REFERENCE
    a, b = DISTRIBUTED[own], DISTRIBUTED[other]
    return a.group == b.group and f"{a.column} {b.column}" in columns


async def test_the_statements_of_the_chapter_run_up_to_citus(database: Database) -> None:
    """With functions in place of those of Citus that check what it checks of columns."""
    async with _connect_with_wings(database) as connection:
        await connection.execute(
            "CREATE FUNCTION create_reference_table(regclass) RETURNS void LANGUAGE sql"
            " RETURN NULL::void"
        )
        await connection.execute(
            "CREATE FUNCTION create_distributed_table(regclass, name, colocate_with text = '')"
            " RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
            " ASSERT EXISTS (SELECT FROM pg_attribute WHERE (attrelid, attname) = ($1, $2)"
            " AND attnotnull), $1 || ' lacks ' || $2; END $$"
        )
        await connection.execute(STATEMENTS.encode())
        rows = await _rows(
            connection,
            b"SELECT attrelid::regclass::text FROM pg_attribute"
            b" WHERE attidentity <> '' AND atttypid <> 'bigint'::regtype",
        )
    assert rows == []


_SQL = re.compile(r"\b(?:sql|SELECT|FROM|INTO|UPDATE|JOIN|WHERE|AND)\b")
_TABLES = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN)\s+(?:ONLY\s+)?([a-z_]+_t)\b")
_IN_PARTS = {  # statements of several texts, of which another names the tenant
    "gateway.wings.events.outbox._END",
    "gateway.wings.memory.erasure.Eraser.forget",
    "gateway.wings.memory.memory_store.MemoryStore.counts",
    "gateway.wings.memory.memory_store.MemoryStore.get",
    "gateway.wings.memory.memory_store.MemoryStore.history",
    "gateway.wings.memory.memory_store.MemoryStore.update",
    "registry.embedding.queue._DELETE",
    "registry.embedding.queue._FINISH",
    "registry.embedding.queue._BLANK",
    "registry.embedding.queue._RELEASE",
    "registry.embedding.queue._FAIL",
    "registry.search.statements._exact",
    "registry.search.statements._near",
    "registry.search.statements._looked_up",
    "registry.search.statements._sentences",
}


def _template(node: ast.AST) -> str | None:
    """The text of `sql.SQL(text).format(name=part)`, or of `compose(text, name=part)`, with the
    expressions of its parts."""
    match node:
        case (
            ast.Call(
                func=ast.Attribute(
                    attr="format",
                    value=ast.Call(
                        func=ast.Attribute(attr="SQL"), args=[ast.Constant(value=str(text))]
                    ),
                ),
                keywords=parts,
            )
            | ast.Call(
                func=ast.Name(id="compose"),
                args=[ast.Constant(value=str(text))],
                keywords=parts,
            )
        ):
            names = {f"{{{part.arg}}}": f"{{{ast.unparse(part.value)}}}" for part in parts}
            return re.sub(r"\{\w+\}", lambda match: names.get(match[0], match[0]), text)
    return None


def _texts(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Texts of a module, each with the name of what it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*names, child.name)
        elif isinstance(child, ast.Assign) and not names:
            inner = (ast.unparse(child.targets[0]),)
        elif isinstance(child, ast.AnnAssign) and not names:
            inner = (ast.unparse(child.target),)
        if isinstance(child, ast.Constant) and isinstance(child.value, str | bytes):
            text = child.value
            yield ".".join(inner), text if isinstance(text, str) else text.decode(errors="replace")
        elif isinstance(child, ast.JoinedStr):
            yield ".".join(inner), ast.unparse(child)
        elif (template := _template(child)) is not None:
            yield ".".join(inner), template
            for keyword in child.keywords:
                yield from _texts(keyword, inner)
        else:
            yield from _texts(child, inner)


@cache
def _modules() -> Mapping[str, list[tuple[str, str]]]:
    """The texts of each module with words of SQL, by its name."""
    files = (file for package in ("gateway", "registry") for file in (ROOT / package).rglob("*.py"))
    sources = {file: file.read_text() for file in sorted(files)}
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): list(_texts(ast.parse(source)))
        for file, source in sources.items()
        if _SQL.search(source)
    }


@cache
def _texts_by_name() -> Mapping[str, str]:
    """The texts that statements are made of, by their names."""
    texts = (text for texts in _modules().values() for text in texts)
    return {name: text for name, text in texts if name.isupper()}


def _whole(text: str, own: Mapping[str, str]) -> str:
    """A text with the named ones that it is made of."""

    def named_text(match: re.Match[str]) -> str:
        return own.get(match[1], _texts_by_name().get(match[1], ""))

    return re.sub(r"\{(_?[A-Z_]+)\}", named_text, text)


def _crossing() -> Iterator[str]:
    """Statements on distributed tables that name no value of the column they distribute by."""
    for module, texts in _modules().items():
        own = dict(texts)
        for name, part in texts:
            text = _whole(_whole(part, own), own)
            columns = {
                DISTRIBUTED[one].column for one in _TABLES.findall(text) if one in DISTRIBUTED
            }
            said = re.search(r"\b(?:WHERE|ON|USING|INSERT INTO)\b(.*)", text, re.DOTALL)
            if columns and not (said and any(re.search(rf"\b{one}\b", said[1]) for one in columns)):
                yield f"{module}.{name}"


def test_statements_that_cross_tenants_are_listed_with_their_reason() -> None:
    found = set(_crossing())
    assert found - _IN_PARTS == CROSSING
    assert found >= _IN_PARTS
