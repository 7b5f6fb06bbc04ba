"""`toolgate import`: make tools of a description. `toolgate sources refresh`: make them again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from config.decode import without_credentials
from config.kinds import kind_of
from config.settings import HttpUrl, Settings, SourceName
from gateway.cli.database import open_registry, run
from gateway.cli.failure import USAGE, fail, no_such
from gateway.cli.options import json_option
from gateway.cli.output import err
from gateway.cli.report import print_report, print_report_json
from gateway.cli.settings import settings_option
from registry.saving import Progress
from registry.sources import ImportSpec, Report, Sources, configured, preview
from schemas.hybrid import Side
from schemas.source import HybridOptions


class SettingType(click.ParamType):  # type: ignore[type-arg]  # click 8.2 has no arguments
    """A value that the settings file would take, too."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        self._kind = kind_of(annotation)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return msgspec.convert(value, self._kind.annotation)
        except msgspec.ValidationError:
            found = without_credentials(str(value))
            self.fail(f"expected {self._kind.expectation}, found {found!r}", param, ctx)


name_option = click.option(
    "--name",
    required=True,
    type=SettingType("name", SourceName),
    help="Name of the source: lower case, digits, _ and -.",
)
include_option = click.option(
    "--include", multiple=True, metavar="PATTERN", help="Import only what matches."
)
exclude_option = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Do not import what matches."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be imported; needs no database."
)


@click.group(name="import")
def import_() -> None:
    """Turn the description of a service into tools."""


@import_.command(short_help="Import an OpenAPI 3.0 or 3.1 description.")
@click.argument("source", type=click.Path())
@name_option
@click.option(
    "--base-url",
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Where calls go [default: the description's first server].",
)
@include_option
@exclude_option
@dry_run_option
@json_option
@settings_option
def openapi(
    settings: Settings,
    source: str,
    name: str,
    base_url: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the OpenAPI 3.0 or 3.1 description SOURCE: a path or a URL, JSON or YAML.

    Importing again updates: tools keep their identity, and those whose operation is gone from
    the description go too. It is all or nothing; a running gateway notices by itself.

    A PATTERN is a glob over the operation's id, its tool's name or its request line, as in
    'GET /path/{id}'; 'tag:NAME' matches a tag. Both options can be given several times.

    \b
    Examples:
      toolgate import openapi petshop.yaml --name pets \\
          --base-url http://localhost:8766
      toolgate import openapi https://example.com/openapi.json --name example \\
          --dry-run
      toolgate import openapi github.json --name github \\
          --include 'tag:issues' --exclude 'DELETE *'
    """
    spec = ImportSpec(name, source, base_url, include, exclude)
    report = run((_preview if dry_run else _import)(settings, spec))
    (print_report_json if as_json else print_report)(report)


@import_.command(short_help="Import a hybrid service's spec.yaml or schema.json.")
@click.argument("source", metavar="SPEC", type=click.Path())
@name_option
@click.option(
    "--base-url",
    required=True,
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Where the service is; a SPEC does not say.",
)
@click.option(
    "--side",
    type=click.Choice(["query", "command"]),
    help="Which portal path its actions answer on [default: both].",
)
@click.option(
    "--dialect",
    type=click.Choice(["jsonrpc", "legacy"]),
    default="jsonrpc",
    show_default=True,
    help="What its calls go out as.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Most calls that travel in one JSON-RPC batch.",
)
@include_option
@exclude_option
@dry_run_option
@json_option
@settings_option
def hybrid(
    settings: Settings,
    source: str,
    name: str,
    base_url: str,
    side: Side | None,
    dialect: Literal["jsonrpc", "legacy"],
    batch: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the actions of a hybrid service (light-hybrid-4j) from SPEC: a path or a URL of its
    spec.yaml, or of the older schema.json.

    Each action becomes a tool, rule_deleteRule for lightapi.net/rule/deleteRule/0.1.0, and can
    still be called by its id. Its schema, scope and skipAuth hold here as they do there. Importing
    again updates: tools keep their identity, and those whose action is gone go too.

    Calls go to /portal/query or /portal/command below the base URL, by --side, and to
    /portal/command where that is not said. A base URL with a path of its own is the whole address.

    --side query also says that the actions change nothing. --batch is for services that understand
    JSON-RPC batches; light-hybrid-4j itself does not.

    A PATTERN is a glob over an action's id or its tool's name. Both options can be given several
    times.

    \b
    Examples:
      toolgate import hybrid rule/spec.yaml --name rules \\
          --base-url http://localhost:8439 --side command
      toolgate import hybrid user/spec.yaml --name users \\
          --base-url http://localhost:8440 --side query --dialect legacy
      toolgate import hybrid spec.yaml --name rules --dry-run \\
          --base-url http://localhost:8439/api/json --include '*/delete*'
    """
    if dialect == "legacy" and batch > 1:
        fail(f"--batch {batch}: --dialect legacy has no batches; leave one of them out", USAGE)
    options = HybridOptions(side, dialect, batch)
    spec = ImportSpec(name, source, base_url, include, exclude, "hybrid", options)
    report = run((_preview if dry_run else _import)(settings, spec))
    (print_report_json if as_json else print_report)(report)


@click.command(short_help="Import a source again.")
@click.argument("name")
@settings_option
@json_option
def refresh(settings: Settings, name: str, as_json: bool) -> None:
    """Import the source NAME again, from where and as it was imported before.

    What the settings say about NAME comes first; so this also imports, without waiting for
    `toolgate serve`, what only the settings know yet.
    """
    report = run(_refresh(settings, name))
    (print_report_json if as_json else print_report)(report)


async def _preview(settings: Settings, spec: ImportSpec) -> Report:
    with _progress(spec.name):
        return await preview(spec, settings.imports)


async def _import(settings: Settings, spec: ImportSpec) -> Report:
    with _progress(spec.name) as advance:
        async with open_registry(settings) as registry:
            sources = Sources(registry.store, registry.host_id, settings.imports)
            return await sources.import_(spec, advance)


async def _refresh(settings: Settings, name: str) -> Report:
    wanted = settings.sources.get(name)
    if wanted and (spec := configured(name, wanted)):
        return await _import(settings, spec)
    with _progress(name) as advance:
        async with open_registry(settings) as registry:
            sources = Sources(registry.store, registry.host_id, settings.imports)
            try:
                return await sources.refresh(name, advance)
            except LookupError:
                known = [one.name for one in await registry.store.sources(registry.host_id)]
                no_such("source", name, [*known, *settings.sources])


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on standard error while somebody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(f"Reading {name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, description=f"Saving {name}", completed=done, total=total)

        yield advance
