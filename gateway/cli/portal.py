"""`toolgate portal`: the move of light-4j's portals to JSON-RPC 2.0."""

from datetime import UTC, datetime, timedelta

import click

from config.settings import Settings
from gateway.audit.queries import LegacyClient, legacy_clients
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import DURATION, json_option, tenant_option
from gateway.cli.common.output import print_json, print_rows, remark

COMMANDS = {
    "legacy-report": ("gateway.cli.portal:legacy_report", "Report who sends legacy payloads."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def portal() -> None:
    """Look after the move of portals from the legacy payload to JSON-RPC 2.0."""


@click.command(name="legacy-report")
@click.option(
    "--since",
    "span",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Only payloads of this time.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most callers."
)
@tenant_option
@json_option
@settings_option
def legacy_report(
    settings: Settings, *, span: timedelta, limit: int, tenant: str | None, as_json: bool
) -> None:
    """Report the callers that still send legacy payloads, those with the most first.

    The report is read from the audit log, where every payload is recorded unless audit.mode is
    never. A pipe gets one line for each caller: principal, address, number of payloads, time of the
    last one, actions.
    """
    clients = run(_clients(settings, tenant, span, limit))
    if as_json:
        print_json(clients)
        return
    print_rows(
        ("principal", "address", "payloads", "last", "actions"),
        [_row(client) for client in clients],
    )
    if not clients:
        remark("Nobody did.")


async def _clients(
    settings: Settings, tenant: str | None, span: timedelta, limit: int
) -> list[LegacyClient]:
    since = datetime.now(UTC) - span
    async with open_registry(settings) as registry:
        tenant = tenant or settings.tenant.host_id
        return await legacy_clients(registry.database.pool, tenant, since, limit)


def _row(one: LegacyClient) -> tuple[str, ...]:
    last = one.last_ts.astimezone(UTC).isoformat(" ", "seconds")
    return (one.principal, one.client, str(one.requests), last, ", ".join(one.actions))
