"""Skills as prompts, as resources, and by the methods of the extension
io.modelcontextprotocol/skills (SEP-2640, modelcontextprotocol/ext-skills).

The extension is declared and served in all revisions; it is specified for 2026-07-28, and in
earlier ones its results lack the members that are new there.
"""

import base64
from typing import Any

from msgspec import Raw

from gateway.context import Context
from gateway.methods.capabilities import require
from gateway.methods.lists import Lists
from gateway.methods.results_by_revision import ENCODED_SERVER, STAMP
from gateway.methods.skills.acting_agents import Agents, granted_tools
from gateway.methods.skills.use_skill import ReadFile, content_of, instructions_of
from gateway.protocol import cursors
from gateway.protocol.revision_adapter import Members, View
from registry.catalog.catalog import Catalog
from registry.skills.snapshot import Skill, SkillFile, children_of, entry_of, file_at, parse_uri
from schemas.errors import InvalidParams
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import ListParams, ResourceParams, read

PAGE_BYTES = 262_144  # of entries: a skill may have 512 files, each listed

Json = dict[str, Any]


class SkillFiles:
    def __init__(self, lists: Lists, agents: Agents, read_file: ReadFile) -> None:
        self.agents = agents
        self._lists = lists
        self._read_file = read_file

    async def list(self, context: Context, request: Request) -> Json:
        """Handle skills/list."""
        catalog = self._catalog(context, request)
        after = cursors.unseal(read(request.params, ListParams).cursor, "skills")
        skills = self.agents.skills(context, catalog)
        page: list[Raw] = []
        room, last, more = PAGE_BYTES, "", False
        for name in sorted(skills):
            if after is not None and name <= after:
                continue
            entry = encode(entry_of(skills[name]))
            room -= len(entry)
            if page and room < 0:
                more = True
                break
            page.append(Raw(entry))
            last = name
        cursor = {"nextCursor": cursors.seal(last, "skills")} if more else {}
        return {"skills": page, **cursor, **self._hold(context)}

    async def get(self, context: Context, request: Request) -> Json:
        """Handle skills/get."""
        catalog = self._catalog(context, request)
        uri = read(request.params, ResourceParams).uri
        found_file = self._find_file(context, catalog, uri)
        if found_file is None or found_file[0].uri != uri:
            raise InvalidParams("There is no such skill", {"uri": uri})
        return {"skill": entry_of(found_file[0]), **self._hold(context)}

    async def directory(self, context: Context, request: Request) -> Json:
        """Handle resources/directory/read."""
        catalog = self._catalog(context, request)
        uri = read(request.params, ResourceParams).uri
        place = parse_uri(uri)
        skill = self.agents.skills(context, catalog).get(place[0]) if place else None
        children = children_of(skill, place[1]) if skill is not None and place is not None else None
        if children is None:
            raise InvalidParams("There is no such directory", {"uri": uri})
        stamp = {"resultType": "complete", "_meta": STAMP} if context.revision.result_type else {}
        return {"resources": children, **stamp}

    async def read(self, context: Context, uri: str) -> Members | None:
        """The result of resources/read for a skill's file; None: `uri` is not of a known skill."""
        if parse_uri(uri) is None:
            return None
        catalog = self._lists.visible(context)
        found_file = self._find_file(context, catalog, uri) if catalog.skills.listed else None
        if found_file is None:
            return None
        skill, file = found_file
        content = await content_of(self._read_file, context.principal.tenant, skill, file)
        contents = [{"uri": uri, "mimeType": file.media_type, **_body(content)}]
        return View(context.revision, str, ENCODED_SERVER).read({"contents": Raw(encode(contents))})

    def prompt(self, context: Context, name: str) -> Members | None:
        """The result of prompts/get for a skill; None: no skill has this name."""
        catalog = self._lists.visible(context)
        agent = self.agents.agent(context, catalog)
        items = {item.name: item for item in catalog.lists.own_items("prompt", agent)}
        skill = catalog.skills.of(agent).get(items[name].key) if name in items else None
        if skill is None:
            return None
        text = {"type": "text", "text": instructions_of(granted_tools(skill, catalog))}
        messages = Raw(encode([{"role": "user", "content": text}]))
        members = {"description": Raw(encode(skill.description)), "messages": messages}
        return View(context.revision, str, ENCODED_SERVER).prompt_result(members)

    def _catalog(self, context: Context, request: Request) -> Catalog:
        catalog = self._lists.visible(context)
        require(catalog, "skills", request.method)
        return catalog

    def _find_file(
        self, context: Context, catalog: Catalog, uri: str
    ) -> tuple[Skill, SkillFile] | None:
        place = parse_uri(uri)
        skill = self.agents.skills(context, catalog).get(place[0]) if place else None
        file = file_at(skill, place[1]) if skill is not None and place is not None else None
        return (skill, file) if skill is not None and file is not None else None

    def _hold(self, context: Context) -> Json:
        if not context.revision.result_type:
            return {}
        ttl_ms = self._lists.ttl_ms(context)
        return {
            "resultType": "complete",
            "ttlMs": ttl_ms,
            "cacheScope": "private",
            "_meta": STAMP,
        }


def _body(content: bytes) -> Json:
    """Content as text if lossless, else base64: its bytes must match the announced digest."""
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"blob": base64.b64encode(content).decode()}
