"""Agents in the registry, and the skills granted to them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from uuid import uuid4

from psycopg import AsyncConnection

from registry.database.postgres import Pool, borrow
from registry.database.tenants import lock_tenant
from registry.skills.rows import raise_missing
from registry.skills.skill_errors import NoSuchEntry, SkillRefused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,125}")


@dataclass(frozen=True, slots=True)
class AgentDraft:
    """An agent as entered; None: the field is not given."""

    name: str
    description: str = ""
    model_provider: str | None = None
    model_name: str | None = None
    temperature: Decimal | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class GrantedSkills:
    skill: str
    priority: int
    sequence: int


class AgentStore:
    """Agents of all tenants. All methods raise `psycopg.OperationalError`; writers raise
    SkillRefused, with no rows written."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def add(self, host_id: str, agent: AgentDraft) -> bool:
        """Add the agent, or replace the description of the one of this name; returns whether it is
        new."""
        if not NAME.fullmatch(agent.name):
            raise SkillRefused(
                f"{agent.name[:80]!r} is no name of an agent: at most 126 letters, digits and . _ -"
                " that begin with a letter or a digit"
            )
        async with self._writing(host_id) as (connection, ids_by_name):
            values = [
                agent.description,
                agent.model_provider,
                agent.model_name,
                agent.temperature,
                agent.max_tokens,
                host_id,
                ids_by_name.get(agent.name) or str(uuid4()),
                agent.name,
            ]
            await connection.execute(
                """
                INSERT INTO agent_definition_t AS old (description, model_provider, model_name,
                    temperature, max_tokens, host_id, agent_def_id, name)
                VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (host_id, agent_def_id) DO UPDATE SET
                    description = excluded.description, model_provider = excluded.model_provider,
                    model_name = excluded.model_name, temperature = excluded.temperature,
                    max_tokens = excluded.max_tokens,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user
                """,
                values,
            )
            return agent.name not in ids_by_name

    async def agents(self, host_id: str) -> list[tuple[AgentDraft, list[GrantedSkills]]]:
        """Agents by name, with the skills of each, most important first."""
        async with borrow(self._pool) as connection, connection.transaction():
            rows = await connection.execute(
                "SELECT agent_def_id, name, description, model_provider, model_name, temperature,"
                " max_tokens FROM agent_definition_t WHERE host_id = %s AND active"
                ' ORDER BY name COLLATE "C"',
                [host_id],
            )
            agents = {id_: (AgentDraft(*rest), list[GrantedSkills]()) async for id_, *rest in rows}
            granted = await connection.execute(
                """
                SELECT agent_def_id, skill.name, priority, sequence_id
                FROM agent_skill_t AS granted JOIN skill_t AS skill USING (host_id, skill_id)
                WHERE host_id = %s AND granted.active AND skill.active
                ORDER BY priority DESC, sequence_id, skill.name COLLATE "C"
                """,
                [host_id],
            )
            async for id_, *grant in granted:
                if id_ in agents:
                    agents[id_][1].append(GrantedSkills(*grant))
        return list(agents.values())

    async def remove(self, host_id: str, name: str) -> None:
        async with self._writing(host_id) as (connection, ids_by_name):
            await connection.execute(
                "DELETE FROM agent_definition_t WHERE (host_id, agent_def_id) = (%s, %s)",
                [host_id, _id(ids_by_name, name)],
            )

    async def grant(
        self, host_id: str, name: str, *, skills: list[str], priority: int, sequence: int | None
    ) -> None:
        """Grant an agent skills, in this order: the first has `sequence`, by default the next one
        after its existing skills."""
        async with self._writing(host_id) as (connection, ids_by_name):
            values = {
                "host": host_id,
                "agent": _id(ids_by_name, name),
                "priority": priority,
                "first": sequence,
                "ids": await _skill_ids(connection, host_id, list(dict.fromkeys(skills))),
            }
            await connection.execute(
                """
                INSERT INTO agent_skill_t AS old (host_id, agent_def_id, skill_id, priority,
                    sequence_id)
                SELECT %(host)s, %(agent)s, named.skill_id, %(priority)s, n - 1 + coalesce(
                    %(first)s, (SELECT max(sequence_id) + 1 FROM agent_skill_t
                        WHERE (host_id, agent_def_id) = (%(host)s, %(agent)s)), 0)
                FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS named (skill_id, n)
                ON CONFLICT (host_id, agent_def_id, skill_id) DO UPDATE SET
                    priority = excluded.priority, sequence_id = excluded.sequence_id, active = true,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user
                """,
                values,
            )

    async def revoke(self, host_id: str, name: str, skills: list[str]) -> None:
        async with self._writing(host_id) as (connection, ids_by_name):
            ids = await _skill_ids(connection, host_id, skills)
            rows = await connection.execute(
                "DELETE FROM agent_skill_t WHERE (host_id, agent_def_id) = (%s, %s)"
                " AND skill_id = ANY(%s::uuid[]) RETURNING skill_id::text",
                [host_id, _id(ids_by_name, name), ids],
            )
            gone = {id_ async for (id_,) in rows}
            lacking = [name for name, id_ in zip(skills, ids, strict=True) if id_ not in gone]
            if lacking:
                text = f"{name} has no skill {', '.join(lacking)}"
                raise NoSuchEntry("skill", lacking[0], text)

    @asynccontextmanager
    async def _writing(self, host_id: str) -> AsyncIterator[tuple[AsyncConnection, dict[str, str]]]:
        """A write transaction, with the ids of the agents, by name."""
        async with borrow(self._pool) as connection:
            await lock_tenant(connection, host_id)
            rows = await connection.execute(
                "SELECT name, agent_def_id::text FROM agent_definition_t"
                " WHERE host_id = %s AND active",
                [host_id],
            )
            yield connection, {name: id_ async for name, id_ in rows}


def _id(ids_by_name: dict[str, str], name: str) -> str:
    return ids_by_name[name] if name in ids_by_name else raise_missing("agent", name, ids_by_name)


async def _skill_ids(connection: AsyncConnection, host_id: str, names: list[str]) -> list[str]:
    rows = await connection.execute(
        "SELECT name, skill_id::text FROM skill_t WHERE host_id = %s AND active", [host_id]
    )
    ids = {name: id_ async for name, id_ in rows}
    return [ids[name] if name in ids else raise_missing("skill", name, ids) for name in names]
