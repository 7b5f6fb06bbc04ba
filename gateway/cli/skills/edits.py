"""`toolgate skills`: the commands that change skills, and import and export of their folders."""

from pathlib import Path

import click

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.skills.command import open_skills
from registry.skills.document import LEVELS, MEANING, Access
from registry.skills.folders import SkillFolder, read_folders, write_folder
from registry.skills.generated import generate_skills, tag_texts
from registry.skills.store import RelatedSkills, SavedSkill


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


_LEVELS = "; ".join(f"{level}: {meaning}" for level, meaning in MEANING.items())


@click.command()
@click.option("--source", required=True, metavar="NAME", help="Source of the tools.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only this tag; repeatable.")
@click.option("--dry-run", is_flag=True, help="Print the skills; save nothing.")
@json_option
@settings_option
def generate(
    settings: Settings, source: str, tags: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Generate a skill from each tag of a source.

    Tags come from the operations of its description. The instructions list the tools of the tag:
    tools that read first, destructive tools last. A repetition makes a new version; tools that
    were linked by command stay.
    """
    folders, saved = run(_generate(settings, source, tags, dry_run))
    if dry_run and not as_json:
        for folder in folders:
            say(folder.document.text)
        return
    print_saved(saved, as_json, dry_run=dry_run)


@click.command()
@click.argument("skill")
@click.argument("tools", nargs=-1, required=True, metavar="TOOL...")
@click.option(
    "--access",
    type=click.Choice(LEVELS),
    help=f"Access level ({_LEVELS}) [default: the level that each tool needs].",
)
@json_option
@settings_option
def link(
    settings: Settings, skill: str, tools: tuple[str, ...], access: Access | None, as_json: bool
) -> None:
    """Link one or more tools to SKILL.

    The access level is compared with the annotations of a tool when it is linked and at each call:
    a tool that becomes destructive is withheld from a skill that may only write.
    """

    async def work() -> dict[str, Access]:
        async with open_skills(settings, Act("linkTools", skill)) as opened:
            return await opened.store.link(opened.host_id, skill, tools, access)

    levels = run(work())
    if as_json:
        print_json(levels)
        return
    for name, level in levels.items():
        say(f"{skill} may use {name}: {level}")


@click.command()
@click.argument("skill")
@click.argument("tools", nargs=-1, required=True, metavar="TOOL...")
@settings_option
def unlink(settings: Settings, skill: str, tools: tuple[str, ...]) -> None:
    """Unlink one or more tools from SKILL.

    A tool that its SKILL.md names is linked again by the next import; remove it there.
    """

    async def work() -> list[str]:
        async with open_skills(settings, Act("unlinkTools", skill)) as opened:
            return await opened.store.unlink(opened.host_id, skill, tools)

    say(f"Unlinked from {skill}: {', '.join(run(work()))}")


@click.command()
@click.argument("skill")
@click.argument("on")
@click.option("--optional", is_flag=True, help="Only mention the skill; do not load it.")
@click.option("--remove", is_flag=True, help="Remove the dependency.")
@settings_option
def depend(settings: Settings, skill: str, on: str, optional: bool, remove: bool) -> None:
    """Make SKILL depend on the skill ON, which is then loaded before it.

    A cycle is refused; the message names its chain.
    """
    if optional and remove:
        fail("--optional and --remove exclude each other", USAGE)

    async def work() -> None:
        async with open_skills(settings, Act("dependSkill", skill)) as opened:
            if remove:
                await opened.store.undepend(opened.host_id, skill, on)
            else:
                await opened.store.depend(opened.host_id, skill, on, required=not optional)

    run(work())
    verb = "depends no longer on" if remove else "names" if optional else "requires"
    say(f"{skill} {verb} {on}.")


@click.command()
@click.argument("skill")
@click.argument("number", type=int)
@json_option
@settings_option
def rollback(settings: Settings, skill: str, number: int, as_json: bool) -> None:
    """Serve version NUMBER of SKILL again; `toolgate skills show SKILL` lists the numbers.

    Its tools are those that this version names, and those linked by command. The next import of
    other contents makes a new version.
    """

    async def work() -> SavedSkill:
        async with open_skills(settings, Act("rollBackSkill", skill)) as opened:
            return await opened.store.rollback(opened.host_id, skill, number)

    saved = run(work())
    print_saved([saved], as_json)


@click.command()
@click.argument("skill")
@yes_option
@settings_option
def remove(settings: Settings, skill: str, yes: bool) -> None:
    """Remove SKILL with all its versions.

    The command is refused while other skills require SKILL. Skills below it move to the top level.
    """
    if not yes:
        ask("remove", f"{skill} and its versions")

    async def work() -> RelatedSkills:
        async with open_skills(settings, Act("deleteSkill", skill)) as opened:
            return await opened.store.remove(opened.host_id, skill)

    freed = run(work())
    say(f"Removed {skill}.")
    if freed.below:
        say(f"  now at the top level: {', '.join(freed.below)}")
    if freed.naming:
        say(f"  no longer suggest it: {', '.join(freed.naming)}")


async def _generate(
    settings: Settings, source: str, tags: tuple[str, ...], dry_run: bool
) -> tuple[list[SkillFolder], list[SavedSkill]]:
    async with open_registry(settings) as registry:
        known = await registry.store.sources(registry.host_id)
        if source not in {source.name for source in known}:
            no_such("source", source, [source.name for source in known])
        stored = await registry.store.document(registry.host_id, source)
        tools = await registry.store.tools(registry.host_id)
    async with open_skills(settings) as opened:
        tagged = await opened.store.tools_by_tag(opened.host_id, source)
    about = tag_texts(stored[0], source) if stored else {}
    folders = generate_skills(source, tools, tagged, about, wanted=tags)
    if not folders:
        fail(
            f"no tool of {source} has {'one of these tags' if tags else 'a tag'}; "
            "tags come from the `tags` of operations"
        )
    act = None if dry_run else Act("generateSkills", source)
    async with open_skills(settings, act) as opened:
        saved = await opened.store.save(
            opened.host_id, folders, f"generated:{source}", dry_run=dry_run
        )
    if not dry_run:
        remark("To change them: toolgate skills export, edit the files, toolgate skills import.")
    return folders, saved
