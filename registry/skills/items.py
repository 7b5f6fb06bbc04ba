"""Skills as prompts, as resources and as entries of `skills/list`. Pure.

The entries are those of the extension io.modelcontextprotocol/skills (SEP-2640): the front matter
verbatim, and every file with its digest, so that a client can verify what it reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Raw

from registry.names.tool_names import Naming
from registry.skills.document import FILE
from registry.skills.snapshot import SCHEME, Skill, SkillFile, SkillSnapshot
from schemas.jsonrpc import encode
from schemas.mcp.snapshot import SnapshotItem

OWN = ""  # the source of these items: the registry itself
DIRECTORY = "inode/directory"

Json = dict[str, Any]


def beside(items: Iterable[SnapshotItem], skills: SkillSnapshot) -> list[SnapshotItem]:
    """Items of other servers. A prompt with the name of a skill is prefixed with its source:
    clients know our skills by name, and no prompt may impersonate one."""
    found = list(items)
    if not skills.listed:
        return found
    own = set(map(str.casefold, skills.names))
    taken = own | {item.name.casefold() for item in found if item.kind == "prompt"}
    for at, item in enumerate(found):
        if item.kind == "prompt" and item.name.casefold() in own:
            names = Naming(item.source).names(item.name, item.key)
            name = next(one for one in names if one.casefold() not in taken)
            taken.add(name.casefold())
            found[at] = replace(item, name=name)
    return found


def prompts_of(skills: Iterable[Skill]) -> list[SnapshotItem]:
    return [
        SnapshotItem(
            "prompt",
            skill.name,
            skill.name,
            Raw(encode({"name": skill.name, "description": skill.description})),
            OWN,
        )
        for skill in skills
    ]


def resources_of(skills: Iterable[Skill]) -> list[SnapshotItem]:
    """The SKILL.md of each; its other files are found by links in that."""
    return [
        SnapshotItem("resource", skill.uri, skill.uri, Raw(_resource(skill)), OWN)
        for skill in skills
    ]


def entry_of(skill: Skill) -> Json:
    files = [
        {"uri": uri_of(skill, file.path), "digest": f"sha256:{file.digest}", "size": file.size}
        for file in skill.all_files
    ]
    return {"uri": skill.uri, "frontmatter": skill.metadata, "resources": files}


def uri_of(skill: Skill, path: str) -> str:
    return f"{SCHEME}{skill.name}/{quote(path)}"


def parsed(uri: str) -> tuple[str, str] | None:
    """The skill and the path that a URI refers to; "" is the skill's directory."""
    if not uri.startswith(SCHEME):
        return None
    name, _, path = uri.removeprefix(SCHEME).partition("/")
    return name, unquote(path)


def file_at(skill: Skill, path: str) -> SkillFile | None:
    return next((file for file in skill.all_files if file.path == path), None)


def children_of(skill: Skill, path: str) -> list[Json] | None:
    """Entries of a directory of the skill, ordered by name; None: there is no such directory."""
    before = f"{path}/" if path else ""
    found: dict[str, Json] = {}
    for file in skill.all_files:
        if file.path.startswith(before):
            name, _, below = file.path.removeprefix(before).partition("/")
            kind = DIRECTORY if below else file.media_type
            member = {"uri": uri_of(skill, before + name), "name": name, "mimeType": kind}
            found[name] = member if below else {**member, "size": file.size}
    return [found[name] for name in sorted(found)] or None


def _resource(skill: Skill) -> bytes:
    own = next(file for file in skill.all_files if file.path == FILE)
    members: Mapping[str, Any] = {
        "uri": skill.uri,
        "name": skill.name,
        "description": skill.description,
        "mimeType": own.media_type,
        "size": own.size,
    }
    return encode(members)
