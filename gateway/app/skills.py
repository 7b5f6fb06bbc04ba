"""What there is of skills, wired."""

from collections.abc import Awaitable, Callable

import psycopg
from psycopg_pool import PoolTimeout

from config.settings import Settings
from gateway.methods.lists import Lists
from gateway.methods.search_tools import Find
from gateway.methods.skills.agents import Agents
from gateway.methods.skills.files import SkillFiles
from gateway.methods.skills.handles import Handles
from gateway.methods.skills.list_skills import ListSkills
from gateway.methods.skills.use_skill import ReadFile, SkillLimits, UseSkill
from gateway.protocol.sealed import Sealer
from gateway.state.sessions import Sessions
from registry.database.postgres import Pool
from registry.skills.loading import file_content
from registry.skills.snapshot import Skill
from schemas.errors import Unavailable

AWAY = "The registry cannot be read now"


class SkillParts:
    def __init__(
        self,
        settings: Settings,
        lists: Lists,
        sealer: Callable[[], Awaitable[Sealer]],
        sessions: Sessions,
        find: Find,
        read_file: ReadFile,
    ) -> None:
        own, search = settings.skills, settings.search
        agents = Agents(own.agent_claim)
        limits = SkillLimits(search.answer_tokens, own.instructions_tokens, own.handle_s)
        self.handles = Handles(agents, sealer, own.handle_s)
        self.listing = ListSkills(lists, agents, find, search.limit, search.answer_tokens)
        self.using = UseSkill(
            lists, agents, self.handles, limits, read_file, sessions.change, sessions.tell
        )
        self.files = SkillFiles(lists, agents, read_file)


def file_reader(pool: Callable[[], Pool | None]) -> ReadFile:
    async def read(tenant: str, skill: Skill, path: str) -> bytes | None:
        opened = pool()
        if opened is None:
            raise Unavailable(AWAY)
        try:
            return await file_content(opened, tenant, skill, path)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise Unavailable(AWAY) from error

    return read
