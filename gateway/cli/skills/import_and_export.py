"""`toolgate skills import | export`: skills as directories."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.operations import Connect, client_option, hinting
from gateway.cli.skills.directories import SkillDirectory, read_directories, write_directory
from schemas.skill_files import SKILL_FILE

RESOURCE = "skills:SkillOperations"

Json = Mapping[str, Any]


@click.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Import nothing if a named tool does not exist.")
@click.option("--dry-run", is_flag=True, help="Print the outcome for each skill; import nothing.")
@json_option
@client_option(RESOURCE)
def import_(
    settings: Settings,
    connect: Connect,
    directory: Path,
    strict: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the skill in DIRECTORY, or all skills below it: all of them or none.

    Changed contents make a new version; older versions are kept. The tools of `allowed-tools` are
    linked with the access level that they need.

    \b
    Examples:
      toolgate skills import skills/
      toolgate skills import skills/refunds --strict
    """
    saved = run(_import(settings, connect, directory, strict=strict, dry_run=dry_run))
    if as_json:
        print_json([skill for skill, _ in saved])
        return
    for skill, _ in saved:
        _print_saved(skill, dry_run=dry_run)
    for skill, source in saved:
        _print_place(skill["name"], source)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--force", is_flag=True, help="Replace existing directories.")
@client_option(RESOURCE)
def export(
    _settings: Settings, connect: Connect, directory: Path, names: tuple[str, ...], force: bool
) -> None:
    """Write skills as directories below DIRECTORY.

    The default is all skills. The files have the imported bytes; tools that were linked by command
    are not part of them.

    \b
    Example:
      toolgate skills export ./skills
    """
    for place in run(_export(connect, directory, names, force)):
        say(str(place))


def _print_saved(skill: Json, *, dry_run: bool) -> None:
    """Print the outcome for a skill, or the expected one with `dry_run`."""
    tools = f"{len(skill['tools'])} tool{'' if len(skill['tools']) == 1 else 's'}"
    outcome = f"would be {skill['outcome']}" if dry_run else skill["outcome"]
    say(f"{skill['name']}: {outcome}, version {skill['version']}, {tools}")
    if skill["missing"]:
        named = ", ".join(skill["missing"])
        say(f"  unknown tools (the client may have them): {named}", "yellow")


def _print_place(name: str, source: SkillDirectory) -> None:
    place = source.place.absolute()
    for path in source.inner:
        inner = Path(path).parent
        say(f"{name}: {path} is a file of this skill, not a skill", "yellow")
        say(f"  to import it as one, place {inner.name} beside {place.name}", "yellow")
    if place.name != name:
        remark(f"{source.place / SKILL_FILE}: its directory should be called {name}, too.")


async def _import(
    settings: Settings, connect: Connect, directory: Path, *, strict: bool, dry_run: bool
) -> Sequence[tuple[Json, SkillDirectory]]:
    sources = read_directories(directory, settings.skills)
    skills = [
        {
            "directory": str(source.place),
            "document": source.document,
            "files": [
                {"path": path, "content": b64encode(content).decode()}
                for path, content in source.files.items()
            ],
        }
        for source in sources
    ]
    async with connect() as client:
        arguments = {"skills": skills, "strict": strict, "dry_run": dry_run}
        saved = (await client.call("importSkills", arguments)).value["skills"]
    return list(zip(saved, sources, strict=True))


async def _export(
    connect: Connect, directory: Path, names: tuple[str, ...], force: bool
) -> list[Path]:
    async with connect() as client:
        listed = names or [skill["name"] for skill in await client.items("listSkills", {})]
        if not listed:
            fail("there are no skills to export")
        skills: list[Json] = []
        for name in dict.fromkeys(listed):
            arguments = {"skill": name}
            call = partial(client.call, "exportSkill", arguments)
            skills.append((await hinting(client, arguments, call)).value)
    return [
        write_directory(
            directory,
            skill["name"],
            skill["document"],
            {file["path"]: b64decode(file["content"]) for file in skill["files"]},
            replace=force,
        )
        for skill in skills
    ]
