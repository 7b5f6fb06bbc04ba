"""`toolgate export` and `toolgate apply`."""

import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO
from urllib.parse import quote

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, CommandFailure, fail, warn
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import note, print_json, say
from gateway.cli.operations import Connect, client_option
from gateway.cli.stored.document import SECRETS, Document, DocumentError, Sections, dump
from gateway.cli.stored.plan import (
    SECTIONS,
    TOOL_SECTIONS,
    Change,
    Changes,
    Present,
    Section,
    compare,
    read_document,
    read_gateway,
    sections,
)

NOT_EXPORTED = (
    "Not exported: users, targets of notifications, webhooks of events, entries of the MCP"
    " registry, tracked sources of the librarian, and contents such as memories and documents;"
    " `toolgate backup` has them."
)

ONLY = click.option(
    "--only",
    "names",
    type=click.Choice(SECTIONS),
    multiple=True,
    help="Only this section; may be repeated.",
)


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@ONLY
@client_option()
def export(
    _settings: Settings, connect: Connect, *, file: Path | None, names: tuple[str, ...]
) -> None:
    """Write everything that is stored to FILE, or standard output, for Git.

    \b
      toolgate export gateway.yaml
      toolgate export --url https://gateway.example --key-file a.key all.yaml

    These are sources that were imported, manual tools, skills, agents, toolsets, rules and API
    keys; what the settings say is in the settings file. Users, webhooks, entries of the MCP
    registry, tracked sources and what wings hold are not exported: `toolgate backup` has them. The
    same things give the same file, byte by byte.
    Stored secrets are never in it: credentials are named, and keys have what they permit. Addresses
    and code of tools are, with whatever was written into them. Entries that cannot be made again,
    as sources of uploaded descriptions, are named on standard error.
    """
    present = run(_read(connect, sections(names or SECTIONS)))
    note("" if names else NOT_EXPORTED)
    text = dump({**present.entries, SECRETS: present.secrets})
    for (section, name), reason in present.left_out.items():
        warn(f"left out: {section} {name}: {reason}")
    if file is None:
        click.echo(text, nl=False)
        return
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    note(f"Wrote {file}: {sum(map(len, present.entries.values()))} entries.")


@click.command()
@click.argument("file", type=click.File("rb"))
@ONLY
@click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@click.option(
    "--prune", is_flag=True, help="Remove entries that are not in the file, of its sections."
)
@click.option(
    "--keys-to",
    "folder",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where new API keys are written, a file NAME.key for each.",
)
@yes_option
@json_option
@client_option()
def apply(
    settings: Settings,
    connect: Connect,
    *,
    file: IO[bytes],
    names: tuple[str, ...],
    dry_run: bool,
    prune: bool,
    folder: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Bring a gateway to what FILE has; - reads standard input.

    \b
      toolgate apply gateway.yaml --dry-run
      toolgate apply gateway.yaml --keys-to keys

    FILE is as `toolgate export` writes it, and checked as a whole first. The plan has + for new
    entries, ~ for changed ones, and with --prune - for those that are not in the file. Sections
    that the file lacks are left as they are. Entries are made one after another, by the operations
    of the admin API; after a failure run it again, as what is done already is no change.
    """
    place = getattr(file, "name", "<stdin>")
    try:
        limit_bytes = settings.imports.document_limit_bytes
        text = file.read(limit_bytes + 1)
        if len(text) > limit_bytes:
            fail(
                f"{place} has more than {limit_bytes} bytes, which is imports.document_limit_bytes",
                USAGE,
            )
        document = Document(place, text.decode())
        target = read_document(document, sections(SECTIONS), settings.policy)
    except DocumentError as error:
        fail(str(error), USAGE)
    except UnicodeDecodeError:
        fail(f"{place} is not text in UTF-8", USAGE)

    def confirm(changes: Sequence[Change], present: Present) -> bool:
        """Print the plan; whether it is to be carried out."""
        if as_json:
            print_json([_as_json(change) for change in changes])
        else:
            _print_plan(changes, present, target, prune)
        if changes and not dry_run:
            _check(changes, folder, yes=yes)
        return bool(changes) and not dry_run

    kinds = sections(names or SECTIONS)
    present = run(_apply(connect, kinds, target, prune=prune, confirm=confirm, folder=folder))
    _print_missing(document, present)


async def _apply(
    connect: Connect,
    kinds: Sequence[Section],
    target: Sections,
    *,
    prune: bool,
    confirm: Callable[[Sequence[Change], Present], bool],
    folder: Path | None,
) -> Present:
    async with connect() as client:
        present = await read_gateway(client, kinds)
        changes = compare(kinds, present, target, prune=prune)
        if confirm(changes, present):
            await _make(Changes(client, present), changes, folder)
        return present


async def _read(connect: Connect, kinds: Sequence[Section]) -> Present:
    async with connect() as client:
        return await read_gateway(client, kinds)


async def _make(maker: Changes, changes: Sequence[Change], folder: Path | None) -> None:
    done, at = 0, changes[0]
    try:
        await maker.read_links(changes)
        for (name, removes), group in groupby(changes, lambda c: (c.section.name, c.sign == "-")):
            batch = list(group)
            if removes:  # entries that others of their section need can be removed without links
                for at in batch:
                    await maker.link(at)
            try:
                for at in batch:
                    await maker.make(at)
                    done += 1
                    _write_keys(maker.secrets, folder)
            finally:
                if name in TOOL_SECTIONS and not removes:
                    await maker.restore_links()
            if not removes:
                for at in batch:
                    await maker.link(at)
    except CommandFailure as error:
        raise CommandFailure(
            f"{at.section.name} {at.name}: {error.message.rstrip('.')}. Done: {done} of "
            f"{len(changes)} changes; run it again for the others",
            error.exit_code,
        ) from error


def _write_keys(secrets: dict[str, str], folder: Path | None) -> None:
    """Write each new key to a file for its owner only."""
    while secrets and folder is not None:
        name, secret = secrets.popitem()
        file = folder / f"{quote(name, safe=' ')}.key"
        file.unlink(missing_ok=True)  # a file that is there may have another mode
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{secret}\n")
        say(f"Wrote {file}.")


def _check(changes: Sequence[Change], folder: Path | None, *, yes: bool) -> None:
    """Fail before anything is changed where keys would be lost, and ask before removals."""
    keys = [c.name for c in changes if c.section.stored.prints and c.sign != "-"]
    if keys and folder is None:
        fail(
            f"new API keys are given once ({', '.join(keys)}): name a folder for them with "
            "--keys-to, or leave them out with --only",
            USAGE,
        )
    if keys and folder is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            fail(f"--keys-to {folder}: {error.strerror}", USAGE)
        if not os.access(folder, os.W_OK):
            fail(f"--keys-to {folder}: it cannot be written to", USAGE)
    removed = [c for c in changes if c.sign == "-" or (c.sign == "~" and not c.section.replaces)]
    if removed and not yes:
        ask("remove", ", ".join(f"{change.section.name} {change.name}" for change in removed))


def _print_plan(changes: Sequence[Change], present: Present, target: Sections, prune: bool) -> None:
    for (section, name), reason in present.left_out.items():
        if name in target.get(section, {}):
            warn(f"not compared: {section} {name}: {reason}")
    for change in changes:
        say(str(change))
    if not changes:
        say("Nothing to change.")
    extra = sum(
        len(entries.keys() - target[section].keys())
        for section, entries in present.entries.items()
        if section in target
    )
    if extra and not prune:
        note(f"{extra} entries are not in the file; --prune removes them.")


def _as_json(change: Change) -> dict[str, str]:
    return {"sign": change.sign, "section": change.section.name, "name": change.name}


def _print_missing(document: Document, present: Present) -> None:
    """Name the secrets that the file refers to, and the gateway lacks."""
    for source, schemes in (document.sections.get(SECRETS) or {}).items():
        for scheme in schemes or {}:
            if scheme not in present.secrets.get(source, {}):
                warn(f"missing: toolgate secrets set {source} {scheme}")
