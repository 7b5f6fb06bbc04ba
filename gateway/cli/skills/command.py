"""`toolgate skills`: instructions for a kind of work with the tools for it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import first_line, out, print_json, print_rows, remark, say
from registry.skills.document import FILE
from registry.skills.snapshot import Skill, SkillSnapshot
from registry.skills.store import SkillStore, SkillVersion
from registry.tools.store import ManualTools

COMMANDS = {
    "list": ("gateway.cli.skills.command:list_", "List the skills."),
    "show": ("gateway.cli.skills.command:show", "Show a skill, its tools and its versions."),
    "import": ("gateway.cli.skills.edits:import_", "Import directories with a SKILL.md."),
    "generate": ("gateway.cli.skills.edits:generate", "Generate skills from the tags of a source."),
    "export": ("gateway.cli.skills.edits:export", "Write skills as directories with a SKILL.md."),
    "link": ("gateway.cli.skills.edits:link", "Link tools to a skill."),
    "unlink": ("gateway.cli.skills.edits:unlink", "Unlink tools from a skill."),
    "depend": ("gateway.cli.skills.edits:depend", "Make a skill depend on another."),
    "rollback": ("gateway.cli.skills.edits:rollback", "Serve an older version again."),
    "remove": ("gateway.cli.skills.edits:remove", "Remove a skill."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def skills() -> None:
    """Import, generate, list, show, link, export and remove skills.

    A skill is a directory in the format of agentskills.io: SKILL.md, whose front matter has a name
    and a description, and other files. `allowed-tools` names the tools of the skill.

    \b
    Toolgate reads these members of its `metadata`:
      toolgate-requires    names of skills that are loaded before it
      toolgate-suggests    names of skills that it mentions
      toolgate-parent      the skill that it is listed below
      toolgate-access      TOOL=read, TOOL=write or TOOL=execute
    """


@dataclass(frozen=True, slots=True)
class Opened:
    """Access to skills in an open registry."""

    store: SkillStore
    host_id: str

    async def read(self) -> SkillSnapshot:
        return await self.store.skills(self.host_id)

    async def find_skill(self, name: str) -> Skill:
        skills = await self.read()
        return skills.get(name) or no_such("skill", name, skills.of(None))


@asynccontextmanager
async def open_skills(settings: Settings, act: Act | None = None) -> AsyncIterator[Opened]:
    async with open_registry(settings, act) as registry:
        yield Opened(SkillStore(registry.database.pool, settings.skills), registry.host_id)


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the skills, each below its parent.

    A pipe gets one line for each: name, version, number of tools, description.
    """
    skills = run(_list(settings))
    if as_json:
        print_json([_summary(skill) for skill in skills.values()])
        return
    rows = [
        (
            f"{'  ' * _level(skill, skills)}{skill.name}",
            skill.version,
            str(len(skill.tools)),
            first_line(skill.description),
        )
        for skill in skills.values()
    ]
    print_rows(("name", "version", "tools", "description"), rows)
    if skills:
        remark(f"{len(skills)} skills. Details of one: toolgate skills show NAME")
    else:
        remark("No skills yet. Try: toolgate skills import DIRECTORY")


@click.command()
@click.argument("name")
@click.option(
    "--version", "number", type=int, metavar="N", help="Show the SKILL.md of version number N."
)
@json_option
@settings_option
def show(settings: Settings, name: str, number: int | None, as_json: bool) -> None:
    """Show the skill NAME: its description, tools, required skills and versions.

    The option --json prints all details.
    """
    if number is not None:
        text = run(_text(settings, name, number))
        print_json({"name": name, "number": number, "text": text}) if as_json else say(text)
        return
    skill, versions, disabled = run(_show(settings, name))
    if as_json:
        more = {"disabled": disabled, "versions": versions}
        print_json({**_summary(skill), **_detail(skill), **more})
        return
    out.print(Text(skill.name, "bold").append(f"  version {skill.version}", "not bold"))
    say(skill.description)
    marks = dict.fromkeys(disabled, ", disabled")
    print_rows(
        ("tool", "access"),
        [(f"  {tool.name}", f"{tool.access}{marks.get(tool.name, '')}") for tool in skill.tools],
    )
    for line in _lines(skill):
        say(f"  {line}")
    for version in versions:
        mark = "served" if version.current else "kept"
        say(
            f"  version {version.number} ({version.version}), "
            f"{version.created:%Y-%m-%d %H:%M}, {mark}"
        )


def _level(skill: Skill, found: Mapping[str, Skill]) -> int:
    level = 0
    while skill.parent is not None and skill.parent in found and level < len(found):
        skill, level = found[skill.parent], level + 1
    return level


def _summary(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "version": skill.version,
        "number": skill.number,
        "parent": skill.parent,
        "tools": {tool.name: tool.access for tool in skill.tools},
        "missing": _missing(skill),
    }


def _detail(skill: Skill) -> dict[str, Any]:
    return {
        "requires": skill.requires,
        "suggests": skill.suggests,
        "files": skill.files,
        "metadata": skill.metadata,
        "digest": skill.digest,
        "instructions": skill.instructions,
    }


def _lines(skill: Skill) -> list[str]:
    facts = {
        "below": [skill.parent] if skill.parent else [],
        "needs": skill.requires,
        "see also": skill.suggests,
        "files": [FILE, *(file.path for file in skill.files)],
        "not here": _missing(skill),
    }
    return [f"{label}: {', '.join(names)}" for label, names in facts.items() if names]


def _missing(skill: Skill) -> list[str]:
    linked = {tool.name for tool in skill.tools}
    return [name for name in skill.named if name not in linked]


async def _list(settings: Settings) -> Mapping[str, Skill]:
    async with open_skills(settings) as opened:
        return (await opened.read()).of(None)


async def _show(settings: Settings, name: str) -> tuple[Skill, list[SkillVersion], list[str]]:
    """The skill, its versions, and the names of its tools that are disabled."""
    async with open_registry(settings) as registry:
        pool, host_id = registry.database.pool, registry.host_id
        opened = Opened(SkillStore(pool, settings.skills), host_id)
        skill = await opened.find_skill(name)
        served = {tool.id for tool in await registry.store.tools(host_id)}
        standings = await ManualTools(pool, host_id).list_disabled()
        gone = {standing.name for standing in standings}  # another tool may have the name now
        disabled = [
            standing.name
            for standing in skill.tools
            if standing.name in gone and standing.id not in served
        ]
        return skill, await opened.store.versions(host_id, name), disabled


async def _text(settings: Settings, name: str, number: int) -> str:
    async with open_skills(settings) as opened:
        skill = await opened.find_skill(name)
        return (await opened.store.document(opened.host_id, skill, number)).text
