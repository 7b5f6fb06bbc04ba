"""Shared by the import commands: their options, and the import itself."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from config.decode import kind_of
from config.settings import Settings
from config.value_types import SourceName
from gateway.cli.common.acts import Act
from gateway.cli.common.credentials import missing
from gateway.cli.common.database import run
from gateway.cli.common.failure import no_such
from gateway.cli.common.lister import open_asking, open_lister
from gateway.cli.common.progress import progress_bar
from gateway.cli.common.stored import Stored
from gateway.cli.imports.report import (
    F,
    ReportOptions,
    check,
    count_noun,
    print_markdown,
    print_report,
    print_report_json,
    print_table,
    telling_options,
)
from gateway.upstreams.mcp.stdio import NOT_STARTED
from registry.catalog.toolsets import unknown
from registry.sources.import_plan import SourceDraft
from registry.sources.import_specs import configured_import
from registry.sources.import_writer import Progress
from registry.sources.imports import ImportReport, Sources, preview
from registry.sources.source_reader import DETECTION_BYTES, IMPORTERS, ImportSpec, looks_like
from schemas.errors import ImportRejected
from schemas.source import Options as SourceOptions
from schemas.source import facts_of
from schemas.urls import without_credentials


class SettingType(click.ParamType):  # type: ignore[type-arg]  # click 8.2 has no arguments
    """Click type that accepts what the settings file accepts."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        self._kind = kind_of(annotation)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return msgspec.convert(value, self._kind.annotation)
        except msgspec.ValidationError:
            actual = without_credentials(str(value))
            hint = _file_hint(str(value)) if self.name == "url" else ""
            self.fail(f"expected {self._kind.expectation}, found {actual!r}{hint}", param, ctx)


def _file_hint(value: str) -> str:
    """Hint for a file given instead of a URL: the importer that takes it."""
    try:
        with Path(value).open("rb") as file:
            kind = looks_like(file.read(DETECTION_BYTES))
    except (OSError, ValueError):
        return ""
    what = (
        f" that looks like {IMPORTERS[kind].input_name}: use `toolgate import {kind}`"
        if kind
        else ""
    )
    return f", a file{what}"


name_option = click.option(
    "--name",
    required=True,
    type=SettingType("name", SourceName),
    help="Name of the source: lower-case letters, digits, _ and -.",
)
_include_option = click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Import only matching operations; repeatable.",
)
_exclude_option = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Skip matching operations; repeatable."
)
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the outcome; needs no database."
)


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """Options that all import commands share."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    dry_run: bool
    telling: ReportOptions

    def spec(
        self,
        name: str,
        location: str,
        kind: str,
        options: SourceOptions,
        base_url: str | None = None,
    ) -> ImportSpec:
        return ImportSpec(name, location, base_url, self.include, self.exclude, kind, options)


def import_options(command: F) -> F:
    """--include, --exclude, --dry-run and the options of reports; the command receives them as
    `choice`."""

    @wraps(command)
    def call_with_choice(*args: Any, telling: ReportOptions, dry_run: bool, **others: Any) -> Any:
        patterns = others.pop("include"), others.pop("exclude")
        choice = ImportChoice(*patterns, dry_run=dry_run, telling=telling)
        return command(*args, choice=choice, **others)

    decorated: Any = telling_options(call_with_choice)
    for option in (_dry_run_option, _exclude_option, _include_option):
        decorated = option(decorated)
    return cast("F", decorated)


def import_and_report(settings: Settings, spec: ImportSpec, choice: ImportChoice) -> None:
    report, stored = run((_preview if choice.dry_run else _import)(settings, spec))
    report_import(report, choice.telling, settings, stored)


def refresh_and_report(settings: Settings, name: str, telling: ReportOptions) -> None:
    """Import the source again; its settings take precedence."""
    report, stored = run(_refresh(settings, name))
    report_import(report, telling, settings, stored)


def report_import(
    report: ImportReport, telling: ReportOptions, settings: Settings, stored: Stored
) -> None:
    wants = missing(report, settings, stored)
    notes = (*report.notes, *_homeless(report, settings), *wants)
    report = replace(report, notes=notes, source=_with_base_url(report.source, settings))
    printers = {"table": print_table, "json": print_report_json, "md": print_markdown}
    printer = printers[telling.format] if telling.format else print_report
    printer(report)
    counts = Counter(outcome.status for outcome in report.outcomes)
    check(telling.fail_on, {status: counts[status] for status in ("degraded", "skipped")})


def _with_base_url(source: SourceDraft, settings: Settings) -> SourceDraft:
    """The source with the effective base URL of calls."""
    wanted = settings.sources.get(source.name)
    if wanted is None or wanted.base_url is None:
        return source
    return replace(source, base_url=wanted.base_url, base_url_trusted=True)


def _homeless(report: ImportReport, settings: Settings) -> Iterator[str]:
    """Hints about toolsets of the description that the settings lack."""
    names = (draft.toolsets for draft in report.drafts)
    for name, count in unknown(names, settings.toolsets).items():
        yield (
            f"{count_noun('tool', count)} would be in the toolset {name}, which the settings do "
            f"not have: add toolsets: {{{name}: {{}}}}"
        )


@contextmanager
def _advising(kind: str, name: str) -> Iterator[None]:
    """Adds advice to the error of an MCP server that cannot be imported."""
    try:
        yield
    except ImportRejected as error:
        advice = _advice(str(error), name) if facts_of(kind).server else ""
        raise ImportRejected(f"{error}{advice}") from error


def _advice(reason: str, name: str) -> str:
    if NOT_STARTED in reason:
        return "\nUse the whole path of the command, or add its folder to PATH."
    if "HTTP 401" in reason or "HTTP 403" in reason:
        return (
            f"\nThe server requires credentials: add them to the settings, as in\n"
            f'  sources: {{{name}: {{headers: {{Authorization: "Bearer ${{TOKEN}}"}}}}}}'
        )
    if "HTTP 4" in reason or "HTTP 5" in reason or "as an MCP server" in reason:
        return (
            "\nIs it the whole URL of an MCP endpoint (many end in /mcp or /sse), or a command "
            "that speaks MCP over its standard input and output?"
        )
    return ""


async def _preview(settings: Settings, spec: ImportSpec) -> tuple[ImportReport, Stored]:
    with progress_of(spec.name), _advising(spec.kind, spec.name):
        async with open_lister(settings) as lister:
            return await preview(spec, settings.imports, lister), {}


async def _import(
    settings: Settings, spec: ImportSpec, *, force: bool = False
) -> tuple[ImportReport, Stored]:
    with progress_of(spec.name) as advance, _advising(spec.kind, spec.name):
        async with open_asking(settings, Act("importSource", spec.name)) as (
            registry,
            lister,
            stored,
        ):
            limits = settings.imports
            sources = Sources(registry.store, registry.host_id, limits, lister=lister)
            return await sources.import_(spec, advance, force=force), stored


async def _refresh(settings: Settings, name: str) -> tuple[ImportReport, Stored]:
    wanted = settings.sources.get(name)
    if wanted and (spec := configured_import(name, wanted)):
        return await _import(settings, spec, force=True)
    with progress_of(name) as advance:
        async with open_asking(settings, Act("refreshSource", name)) as (registry, lister, stored):
            limits = settings.imports
            sources = Sources(
                registry.store,
                registry.host_id,
                limits,
                lister=lister,
                configured=settings.sources,
            )
            try:
                return await sources.refresh(name, advance), stored
            except LookupError:
                known = [source.name for source in await registry.store.sources(registry.host_id)]
                no_such("source", name, [*known, *settings.sources])


@contextmanager
def progress_of(name: str) -> Iterator[Progress]:
    """Progress bar on standard error at a terminal."""
    with progress_bar() as bar:
        task = bar.add_task(f"Reading {name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, description=f"Saving {name}", completed=done, total=total)

        yield advance
