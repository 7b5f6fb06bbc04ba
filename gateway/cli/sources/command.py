"""`toolgate sources list | show | prune`."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any

import click
from rich.text import Text

from config.settings import Settings
from config.sources import SourceSettings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import CommandFailure, fail
from gateway.cli.common.lazy import import_later
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from gateway.cli.common.text import time_text
from gateway.cli.imports.report import ITEMS, count_noun, spoken_revisions
from gateway.cli.operations import Connect, client_option, hinting
from gateway.cli.running.client import MissingOperation, OperationRefused
from schemas.source import STDIO, facts_of
from schemas.urls import without_credentials

Json = Mapping[str, Any]

# Only sources of the settings that wait for their import need it.
configured_import = import_later("registry.sources.import_specs:configured_import")


@click.command(name="list")
@client_option("sources:SourceOperations")
@json_option
def list_(settings: Settings, connect: Connect, as_json: bool) -> None:
    """List the sources: location of the description and target of calls.

    A pipe gets one line for each: name, number of tools, base URL, location of the description,
    kind, and origin of the import: settings, example, cli, admin or -. "left over" marks sources
    that were in the settings once and are no longer, "not imported" those of the settings whose
    import has not succeeded yet, which `updated` of --json says, too; "failed" has the reason why
    the last import by a gateway failed.
    """
    stored, failures = run(_sources_and_failures(connect))
    sources = [{**source, "failure": failures.pop(source["name"], None)} for source in stored]
    waiting = _waiting_sources(settings, {source["name"] for source in sources}, failures)
    if as_json:
        print_json([*sources, *waiting])
    elif out.is_terminal:
        for source in sources:
            _print_source(source)
    else:
        rows = [
            (
                *(source["name"], str(source["tools"]), source["base_url"] or "-"),
                *(source["location"] or "-", source["kind"] or "-", _origin(source)),
            )
            for source in (*sources, *waiting)
        ]
        print_rows(("name", "tools", "base URL", "description", "kind", "origin"), rows)
    for absent in waiting:
        remark(_not_imported(absent["name"], absent["kind"], absent["failure"]))
    if not sources and not waiting:
        remark("No sources yet. Try: toolgate import openapi YOUR-API.yaml --name api")


@click.command()
@click.argument("name")
@client_option("sources:SourceOperations")
@json_option
def show(settings: Settings, connect: Connect, name: str, as_json: bool) -> None:
    """Show the source NAME: its description, the target of its calls, and the facts that an MCP
    server announced.

    The option --json prints all details.
    """
    try:
        source = run(_detail(connect, name))
    except CommandFailure as failure:
        is_absent = isinstance(failure.__cause__, OperationRefused)
        if is_absent and (stated := _imports_of(settings).get(name)):
            _, failures = run(_sources_and_failures(connect))
            spec = configured_import(name, stated)
            fail(_not_imported(name, spec.kind if spec else None, failures.get(name)))
        raise
    if as_json:
        schemes = {each["scheme"]: each["configured"] for each in source["credentials"]}
        print_json({**source, **source["items"], "credentials": schemes})
        return
    _print_source(source)
    for line in (*_server_lines(source), *_credential_lines(source), *_aliases(source)):
        say(f"  {line}")
    for held in source["held"]:
        say(f"  held  {held}: see `toolgate tools accept {held} --diff`", "yellow")


def _server_lines(source: Json) -> Iterator[str]:
    """Additional lines about an MCP server."""
    if source["server"] is None:
        return
    items, options = source["items"], source["options"]
    yield f"has   {', '.join(count_noun(kind, items[kind]) for kind in ITEMS)}"
    info = source["server"].get("info", {})
    yield f"is    {info.get('name', 'nameless')} {info.get('version', '')}".rstrip()
    yield f"names prefix {options.get('prefix', 'conditional')}"
    if options.get("own_sessions"):
        yield "calls each client session has its own session at the server"
    if options.get("pin"):
        yield "pins  new and changed tools wait to be accepted"


def _credential_lines(source: Json) -> Iterator[str]:
    for each in source["credentials"]:
        state = "configured" if each["configured"] else "not configured"
        yield f"wants {each['scheme']}: {each['place']}, {state}"
    if source["advice"]:
        yield source["advice"]


def _aliases(source: Json) -> Iterator[str]:
    """Former names that still call a tool."""
    for alias, name in source["aliases"].items():
        yield f"alias {alias} calls {name}"


def _imports_of(settings: Settings) -> Mapping[str, SourceSettings]:
    """Sources of the settings that are imported; none for `--url`: that gateway has its own."""
    if click.get_current_context().params["url"] is not None:
        return {}
    return {name: source for name, source in settings.sources.items() if source.is_imported}


def _waiting_sources(
    settings: Settings, stored_names: Set[str], failures: Mapping[str, str]
) -> list[Json]:
    """The sources that were never imported, with the members of the others: those of the settings,
    and by `--url` those that failed at that gateway."""
    specs = {
        name: spec
        for name, source in _imports_of(settings).items()
        if name not in stored_names and (spec := configured_import(name, source)) is not None
    }
    return [
        _waiting_source(name, specs.get(name), failures.get(name))
        for name in sorted({*specs, *failures})
    ]


def _waiting_source(name: str, spec: Any, failure: str | None) -> Json:
    """`spec`: its `ImportSpec`; None: only the gateway at the URL knows it."""
    return {
        "name": name,
        "kind": spec and spec.kind,
        "location": spec and without_credentials(spec.location),
        "base_url": spec and spec.base_url and without_credentials(spec.base_url),
        "title": None,
        "version": None,
        "include": spec.include if spec else (),
        "exclude": spec.exclude if spec else (),
        "tools": 0,
        "updated": None,
        "number": None,
        "rolled_back_from": None,
        "guarded": False,
        "in_settings": True,
        "origin": spec.origin if spec else "settings",
        "removed_from_settings": False,
        "options": {},
        "server": None,
        "failure": failure,
    }


def _not_imported(name: str, kind: str | None, failure: str | None) -> str:
    """A source of the settings that was never imported: the reason, and the command that imports
    it."""
    failed = f"the last import failed: {failure.rstrip('.')}" if failure else "not imported yet"
    loaded = kind is not None and facts_of(kind).loaded
    way = "`toolgate serve` does it." if loaded else f"Now: toolgate sources refresh {name}"
    return f"{name} is in the settings, but {failed}. {way}"


def _origin(source: Json) -> str:
    states = {
        "left over": source["removed_from_settings"],
        "not imported": source["updated"] is None,
        f"failed: {source['failure']}": source["failure"],
    }
    return ", ".join(
        (source["origin"] or "-", *(state for state, holds in states.items() if holds))
    )


def _print_source(source: Json) -> None:
    name = source["name"]
    version = f", version {source['version']}" if source["version"] else ""
    imported = time_text(source["updated"])
    tools = count_noun("tool", source["tools"])
    facts = f"  {source['kind']}, {tools}{version}, imported {imported}"
    out.print(Text(name, "bold").append(facts, "not bold"))
    say(f"  from  {source['location']}")
    say(f"  calls {_where(source)}")
    if source["server"] is not None:
        say(f"  speaks {spoken_revisions(source['server'])}")
    if source.get("failure"):
        say(f"  failed to be imported again: {source['failure']}", "yellow")
    if source["rolled_back_from"] is not None:
        say(
            f"  is rolled back to version {source['number']}, from {source['rolled_back_from']}; "
            f"to end that: toolgate sources refresh {name}",
            "yellow",
        )
    if source["removed_from_settings"]:
        say(
            "  left over: the settings have it no longer, so its calls are sent without headers "
            "and credentials of the settings; to remove it: toolgate sources prune",
            "yellow",
        )


def _where(source: Json) -> str:
    if facts_of(source["kind"]).loaded:
        return "Python code in the gateway"
    if source["location"].startswith(STDIO):
        return f"a process: {source['location'].removeprefix(STDIO)}"
    return source["base_url"] or "no address: set its base_url"


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@yes_option
@client_option("sources:SourceOperations")
def prune(_settings: Settings, connect: Connect, dry_run: bool, yes: bool) -> None:
    """Remove the sources that left the settings, and their tools.

    These sources were imported from a settings file, and the current settings do not have them.
    Sources that a command or the admin API imported stay. To keep a source, import it by command
    under its name first.
    """
    sources = [source for source in run(_sources(connect)) if source["removed_from_settings"]]
    if not sources:
        say("No source is left over from earlier settings.")
        return
    names = ", ".join(source["name"] for source in sources)
    target = f"{names} and {count_noun('tool', sum(source['tools'] for source in sources))}"
    if dry_run:
        say(f"Would remove {target}.")
        return
    if not yes:
        ask("remove", target)
    run(_prune(connect, [source["name"] for source in sources]))
    for source in sources:
        say(f"Removed {source['name']} and its {count_noun('tool', source['tools'])}.")


async def _sources_and_failures(
    connect: Connect,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The stored sources, and the reasons of failed imports by name, of which older gateways do not
    tell."""
    async with connect() as client:
        sources, failures = await client.items("listSources", {}), []
        with suppress(MissingOperation):
            failures = await client.items("listImportFailures", {})
    return sources, {failure["source"]: failure["reason"] for failure in failures}


async def _sources(connect: Connect) -> list[dict[str, Any]]:
    async with connect() as client:
        return await client.items("listSources", {})


async def _detail(connect: Connect, name: str) -> Json:
    arguments = {"source": name}
    async with connect() as client:
        source: Json = (
            await hinting(client, arguments, partial(client.call, "getSource", arguments))
        ).value
        return source


async def _prune(connect: Connect, names: Sequence[str]) -> None:
    async with connect() as client:
        for name in names:
            await client.call("deleteSource", {"source": name})
