"""`toolgate audit tail`, `verify` and `export`: what a person or a file gets of the audit log."""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import anyio
import click
import msgspec

from config.settings import Settings
from gateway.audit.queries import RecordedEntry
from gateway.audit.records import AuditEntry
from gateway.audit.verification import PROBLEMS
from gateway.cli.commands import RESOURCES
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED
from gateway.cli.common.operation_parameters import given_members, members_of_call, option
from gateway.cli.common.options import json_option, tenant_option
from gateway.cli.common.output import err, print_json, say
from gateway.cli.common.progress import JobBar, progress_bar
from gateway.cli.common.text import time_text
from gateway.cli.operations import Connect, client_option, declared_operations
from gateway.cli.running.client import OperationClient
from gateway.cli.running.jobs import finish, wait_for_job

RESOURCE = "audit:AuditOperations"
SEARCH = declared_operations((RESOURCES + RESOURCE,))["searchAudit"]
MEMBERS = {name: member for name, member in members_of_call(SEARCH).items() if name != "order"}
EVERY_S = 1.0  # polling interval for new records
PAGE = 500  # records that a follower reads at a time
RECORDS_REMEMBERED = 10_000  # records that a follower knows

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def _with_filters(command: click.Command) -> click.Command:
    """The command with the filters of `audit search`."""
    words = {"subject": "tool"}
    command.params += [option(member, words.get(name, "")) for name, member in MEMBERS.items()]
    return command


@_with_filters
@click.command()
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, RECORDS_REMEMBERED),
    default=20,
    show_default=True,
    help="Number of records.",
)
@click.option("-f", "--follow", "follows", is_flag=True, help="Show new records, until Ctrl-C.")
@tenant_option
@json_option
@client_option(RESOURCE)
def tail(
    _settings: Settings,
    connect: Connect,
    *,
    lines: int,
    follows: bool,
    tenant: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Show the last records, and with --follow new ones.

    Records that a gateway spooled to disk during an outage of the database appear late.
    """
    conditions = given_members(MEMBERS, values)
    run(_tail(connect, tenant, conditions, lines=lines, follows=follows, as_json=as_json))


@click.command(name="verify")
@json_option
@client_option(RESOURCE)
def verify_(_settings: Settings, connect: Connect, as_json: bool) -> None:
    """Verify that no record was changed, removed, inserted or reordered.

    The command lists each break of a hash chain, and fails if there are any. A chain has the
    records of one gateway process or one command. Store the heads that --json prints elsewhere, to
    detect a truncated chain later.
    """
    report = run(_verify(connect))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report["problems"]:
        raise click.exceptions.Exit(FAILED)


@_with_filters
@click.command(name="export")
@tenant_option
@client_option(RESOURCE)
def export_(_settings: Settings, connect: Connect, *, tenant: str | None, **values: Any) -> None:
    """Write records as JSON lines, oldest first.

    The hash of a record is SHA-256, or HMAC-SHA-256 with audit.key, over the bytes of the hash
    before it in its chain, followed by the line without its last member, `hash`.
    """
    count = run(_export(connect, tenant, given_members(MEMBERS, values)))
    if err.is_terminal:
        err.print(f"{count} records")


async def _tail(
    connect: Connect,
    tenant: str | None,
    conditions: Json,
    *,
    lines: int,
    follows: bool,
    as_json: bool,
) -> None:
    async with connect(tenant=tenant) as client:
        if not follows:
            last = await client.items(SEARCH.id, conditions, max(lines, 1))
            _print_lines(last[:lines][::-1], as_json)
            return
        places: dict[tuple[str, int], None] = {}
        last = await unknown_records(client, conditions, places, at_least=max(lines, PAGE))
        _print_lines(last[max(0, len(last) - lines) :], as_json)
        while True:
            _print_lines(await unknown_records(client, conditions, places), as_json)
            sys.stdout.flush()
            await anyio.sleep(EVERY_S)


async def unknown_records(
    client: OperationClient,
    conditions: Json,
    places: dict[tuple[str, int], None],
    *,
    at_least: int | None = None,
) -> list[Json]:
    """Records that are not among the `places` ones, the oldest first; they are added there. Pages
    are read until one has a known record: spooled records come late, and are found beside it.
    Records of a clock that is ahead of the gateway's stay on the first pages, and do not count for
    that.
    `at_least`: records that are enough where none is known yet."""
    records: list[Json] = []
    seen: list[tuple[str, int]] = []
    async for page in client.pages(SEARCH.id, {**conditions, "limit": PAGE}):
        now = await client.time()
        seen += map(_place, page)
        records += [record for record in page if _place(record) not in places]
        past = [record for record in page if _time_of(record) <= now]
        is_enough = at_least is not None and len(records) >= at_least
        if past and (is_enough or any(_place(record) in places for record in past)):
            break
    records.reverse()
    for place in reversed(seen):  # known ones, too: the first pages keep those of the future
        places.pop(place, None)
        places[place] = None
    for place in list(places)[: -max(RECORDS_REMEMBERED, len(seen))]:
        del places[place]
    return records


def _time_of(record: Json) -> datetime:
    return datetime.fromisoformat(record["entry"]["recorded_ts"])


def _place(record: Json) -> tuple[str, int]:
    return record["chain_id"], record["sequence"]


async def _verify(connect: Connect) -> Json:
    with progress_bar() as bar:
        job = JobBar(bar, bar.add_task("records", total=None), "records")
        async with connect(job=job) as client:
            answer = await client.call("verifyAudit", {})
            report: Json = answer.value
            if answer.is_job:
                ended = await wait_for_job(client, report["job"], cancels=True)
                if ended["state"] != "succeeded":
                    finish(ended)
                    raise click.exceptions.Exit(FAILED)
                report = ended["result"]
            return report


async def _export(connect: Connect, tenant: str | None, conditions: Json) -> int:
    count = 0
    async with connect(tenant=tenant) as client:
        async for page in client.pages(SEARCH.id, {**conditions, "order": "oldest", "limit": PAGE}):
            for record in page:
                sys.stdout.write(_exported_line(record) + "\n")
            count += len(page)
    return count


def _exported_line(record: Json) -> str:
    entry = msgspec.convert(record["entry"], AuditEntry)
    place = _place(record)
    return RecordedEntry(*place, entry, bytes.fromhex(record["hash"])).line().decode()


def _print_lines(records: Sequence[Json], as_json: bool) -> None:
    for record in records:
        if as_json:
            sys.stdout.write(_exported_line(record) + "\n")
        else:
            say("  ".join(_cells(record["entry"])))


def _print_report(report: Json) -> None:
    problems = report["problems"]
    for problem in problems:
        where = f"chain {problem['chain_id']}"
        where += "" if problem["sequence"] is None else f", record {problem['sequence']}"
        say(f"{where}: {problem['kind'].replace('_', ' ')}: {problem['text']}", "red")
    verdict = "All chains are intact."
    if problems:
        more = "at least " if len(problems) == PROBLEMS else ""
        breaks = f"{more}{len(problems)} breaks"
        verdict = f"{report['bad']} invalid, {report['missing']} missing, {breaks}."
    say(f"{report['records']} valid records in {len(report['heads'])} chains. {verdict}")


def _cells(entry: Json) -> tuple[str, ...]:
    decision = entry.get("decision") or "-"
    return (
        time_text(entry["recorded_ts"]),
        entry.get("principal") or "-",
        entry.get("method") or "-",
        entry.get("subject") or "-",
        f"{decision} ({entry['rule']})" if entry.get("rule") else decision,
        entry["outcome"],
    )
