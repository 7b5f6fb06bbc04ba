"""`toolgate skills import | export`: skills as directories."""

from pathlib import Path

import click

from config.settings import Settings
from gateway.cli.access.acts import Act
from gateway.cli.common.database import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.common.settings import settings_option
from gateway.cli.skills.command import open_skills
from registry.skills.folders import SkillFolder, read_folders, write_folder
from registry.skills.store import SavedSkill


@click.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Import nothing if a tool that is named is not here.")
@click.option("--dry-run", is_flag=True, help="Only tell what would become of the skills.")
@json_option
@settings_option
def import_(
    settings: Settings, directory: Path, strict: bool, dry_run: bool, as_json: bool
) -> None:
    """Import the skill that DIRECTORY is, or all skills in it: all of them, or none.

    What has other contents than before is a new version; the older ones are kept. Tools that
    `allowed-tools` names are linked with the access level that they need.

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
@click.option("--force", is_flag=True, help="Replace directories that are there already.")
@settings_option
def export(settings: Settings, directory: Path, names: tuple[str, ...], force: bool) -> None:
    """Write skills as directories below DIRECTORY.

    All of them, or those named; each as it was imported, byte by byte. What was linked by command
    is not in there.
    """
    for place in run(_export(settings, directory, names, force)):
        say(str(place))


def print_saved(saved: list[SavedSkill], as_json: bool, *, dry_run: bool = False) -> None:
    """What became of skills that were saved, or would."""
    if as_json:
        print_json(saved)
        return
    for one in saved:
        tools = f"{len(one.tools)} tool{'' if len(one.tools) == 1 else 's'}"
        outcome = f"would be {one.outcome}" if dry_run else one.outcome
        say(f"{one.name}: {outcome}, version {one.version}, {tools}")
        if one.missing:
            named = ", ".join(one.missing)
            say(f"  no such tools here (the client may have them): {named}", "yellow")


def _print_inner(folder: SkillFolder, place: Path) -> None:
    name = folder.document.name
    for path in folder.inner:
        inner = Path(path).parent
        say(f"{name}: {path} is a file of it and no skill", "yellow")
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
        found = (await opened.read()).of(None)
        wanted = [await opened.named(name) for name in dict.fromkeys(names)] or [*found.values()]
        if not wanted:
            fail("There are no skills to export.")
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
