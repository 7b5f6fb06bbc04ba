"""`toolgate skills import | export`: skills as directories."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark, say
from registry.skills.folders import SkillFolder, read_folders, write_folder
from registry.skills.snapshot import Skill, SkillSnapshot
from registry.skills.store import SavedSkill, SkillStore


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


@click.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Import nothing if a named tool does not exist.")
@click.option("--dry-run", is_flag=True, help="Print the outcome for each skill; import nothing.")
@json_option
@settings_option
def import_(
    settings: Settings, directory: Path, strict: bool, dry_run: bool, as_json: bool
) -> None:
    """Import the skill in DIRECTORY, or all skills below it: all of them or none.

    Changed contents make a new version; older versions are kept. The tools of `allowed-tools` are
    linked with the access level that they need.

    \b
    Examples:
      toolgate skills import skills/
      toolgate skills import skills/refunds --strict
    """
    folders, saved = run(_import(settings, directory, strict, dry_run))
    print_saved(saved, as_json, dry_run=dry_run)
    for folder in folders:
        place = Path(folder.where).absolute().parent
        if not as_json:
            _print_inner(folder, place)
        if place.name != folder.document.name:
            remark(f"{folder.where}: its directory should be called {folder.document.name}, too.")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--force", is_flag=True, help="Replace existing directories.")
@settings_option
def export(settings: Settings, directory: Path, names: tuple[str, ...], force: bool) -> None:
    """Write skills as directories below DIRECTORY.

    The default is all skills. The files have the imported bytes; tools that were linked by command
    are not part of them.
    """
    for place in run(_export(settings, directory, names, force)):
        say(str(place))


def print_saved(saved: list[SavedSkill], as_json: bool, *, dry_run: bool = False) -> None:
    """Print the outcome for each skill, or the expected one with `dry_run`."""
    if as_json:
        print_json(saved)
        return
    for skill in saved:
        tools = f"{len(skill.tools)} tool{'' if len(skill.tools) == 1 else 's'}"
        outcome = f"would be {skill.outcome}" if dry_run else skill.outcome
        say(f"{skill.name}: {outcome}, version {skill.version}, {tools}")
        if skill.missing:
            named = ", ".join(skill.missing)
            say(f"  unknown tools (the client may have them): {named}", "yellow")


def _print_inner(folder: SkillFolder, place: Path) -> None:
    name = folder.document.name
    for path in folder.inner:
        inner = Path(path).parent
        say(f"{name}: {path} is a file of this skill, not a skill", "yellow")
        say(f"  to import it as one, place {inner.name} beside {place.name}", "yellow")


async def _import(
    settings: Settings, directory: Path, strict: bool, dry_run: bool
) -> tuple[list[SkillFolder], list[SavedSkill]]:
    folders = read_folders(directory, settings.skills)
    act = None if dry_run else Act("importSkills", str(directory))
    async with open_skills(settings, act) as opened:
        store, host_id = opened.store, opened.host_id
        return folders, await store.save(host_id, folders, strict=strict, dry_run=dry_run)


async def _export(
    settings: Settings, directory: Path, names: tuple[str, ...], force: bool
) -> list[Path]:
    async with open_skills(settings) as opened:
        skills = (await opened.read()).of(None)
        wanted = [await opened.find_skill(name) for name in dict.fromkeys(names)] or [
            *skills.values()
        ]
        if not wanted:
            fail("there are no skills to export")
        return [
            write_folder(
                directory,
                skill.name,
                skill.text,
                await opened.store.files(opened.host_id, skill),
                replace=force,
            )
            for skill in wanted
        ]
