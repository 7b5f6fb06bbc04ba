"""`toolgate audit tail`, `verify` and `export`: what reads the audit log without a page."""

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import click

from config.settings import Settings
from gateway.audit.queries import AuditQuery, RecordedEntry, ends, export, follow, search
from gateway.audit.verification import PROBLEMS, ChainReport, verify
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.options import json_option, seconds_of, tenant_option
from gateway.cli.common.output import err, print_json, say
from gateway.cli.common.progress import progress_bar

EVERY_S = 1.0  # polling interval for new records

Filters = dict[str, Any]


class _Time(click.ParamType[datetime]):
    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """`90m`, `2d`: relative to now; else an ISO 8601 time, UTC by default."""
        if isinstance(value, datetime):
            return value
        if (age_s := seconds_of(value)) is not None:
            return datetime.now(UTC) - timedelta(seconds=age_s)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time: expected 90m, 2d or 2026-11-22T08:00", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        tenant_option,
        click.option("--principal", metavar="ID", help="Only records of this caller."),
        click.option(
            "--tool", metavar="NAME", help="Only records of this tool, prompt or resource."
        ),
        click.option(
            "--decision",
            type=click.Choice(("allow", "deny", "approve")),
            help="Only this decision.",
        ),
        click.option(
            "--outcome",
            metavar="TEXT",
            help="Only this outcome: ok, tool_error, cancelled, crashed or an error code.",
        ),
        click.option(
            "--since", type=_Time(), help="Only records since then: 90m (ago), or a time."
        ),
        click.option("--until", type=_Time(), help="Only records before then."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    help="Number of records.",
)
@click.option("-f", "--follow", "follows", is_flag=True, help="Show new records, until Ctrl-C.")
@_filters
@json_option
@settings_option
def tail(settings: Settings, lines: int, follows: bool, as_json: bool, **filters: Any) -> None:
    """Show the last records, and with --follow new ones.

    Records that a gateway spooled to disk during an outage of the database appear late.
    """
    run(_tail(settings, filters, lines, follows, as_json))


@click.command(name="verify")
@json_option
@settings_option
def verify_(settings: Settings, as_json: bool) -> None:
    """Verify that no record was changed, removed, inserted or reordered.

    The command lists each break of a hash chain, and fails if there are any. A chain has the
    records of one gateway process or one command. Store the heads that --json prints elsewhere, to
    detect a truncated chain later.
    """
    report = run(_verify(settings))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report.problems:
        raise click.exceptions.Exit(FAILED)


@click.command(name="export")
@_filters
@settings_option
def export_(settings: Settings, **filters: Any) -> None:
    """Write records as JSON lines, oldest first.

    The hash of a record is SHA-256, or HMAC-SHA-256 with audit.key, over the bytes of the hash
    before it in its chain, followed by the line without its last member, `hash`.
    """
    count = run(_export(settings, filters))
    if err.is_terminal:
        err.print(f"{count} records")


def _tenant(settings: Settings, filters: Filters) -> str:
    return filters["tenant"] or settings.tenant.host_id


def _query(filters: Filters) -> AuditQuery:
    since, until = filters["since"], filters["until"]
    if since is not None and until is not None and since >= until:
        fail("--since must be earlier than --until", USAGE)
    return AuditQuery(
        principal=filters["principal"],
        subject=filters["tool"],
        decision=filters["decision"],
        outcome=filters["outcome"],
        since=since,
        until=until,
    )


async def _tail(
    settings: Settings, filters: Filters, lines: int, follows: bool, as_json: bool
) -> None:
    query, tenant = _query(filters), _tenant(settings, filters)
    async with open_registry(settings) as registry:
        pool = registry.database.pool
        known = await ends(pool)
        last = await search(pool, tenant, replace(query, limit=lines)) if lines else None
        seen = [] if last is None else reversed(last.records)
        _print_lines(
            [record for record in seen if record.sequence <= known.get(record.chain_id, 0)], as_json
        )
        while follows:
            async for record in follow(pool, tenant, query, known):
                _print_lines([record], as_json)
            sys.stdout.flush()
            await anyio.sleep(EVERY_S)


async def _verify(settings: Settings) -> ChainReport:
    async with open_registry(settings) as registry:
        with progress_bar() as bar:
            task = bar.add_task("records", total=None)
            return await verify(
                registry.database.pool,
                registry.host_id,
                settings.audit.key.encode(),
                lambda count, total: bar.update(task, completed=count, total=total),
            )


async def _export(settings: Settings, filters: Filters) -> int:
    query, tenant, count = _query(filters), _tenant(settings, filters), 0
    async with open_registry(settings) as registry:
        records: AsyncIterator[RecordedEntry] = export(registry.database.pool, tenant, query)
        async for record in records:
            sys.stdout.write(record.line().decode() + "\n")
            count += 1
    return count


def _print_lines(records: Any, as_json: bool) -> None:
    for record in records:
        if as_json:
            sys.stdout.write(record.line().decode() + "\n")
        else:
            say("  ".join(_row(record)))


def _print_report(report: ChainReport) -> None:
    for problem in report.problems:
        where = f"chain {problem.chain_id}"
        where += "" if problem.sequence is None else f", record {problem.sequence}"
        say(f"{where}: {problem.kind.replace('_', ' ')}: {problem.text}", "red")
    verdict = "All chains are intact."
    if report.problems:
        more = "at least " if len(report.problems) == PROBLEMS else ""
        verdict = (
            f"{report.bad} invalid, {report.missing} missing, {more}{len(report.problems)} breaks."
        )
    say(f"{report.records} valid records in {len(report.heads)} chains. {verdict}")


def _row(one: RecordedEntry) -> tuple[str, ...]:
    entry = one.entry
    return (
        entry.recorded_ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        entry.principal or "-",
        entry.method or "-",
        entry.subject or "-",
        f"{entry.decision} ({entry.rule})" if entry.rule else entry.decision or "-",
        entry.outcome,
    )
