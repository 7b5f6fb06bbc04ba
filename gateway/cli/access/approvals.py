"""`toolgate approvals`: calls that wait for approval."""

from datetime import UTC, datetime

import click

from config.settings import Settings
from gateway.cli.common.acts import Act, actor
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, remark, say
from registry.access.approvals import Approval, Approvals

COMMANDS = {
    "list": ("gateway.cli.access.approvals:list_", "List waiting calls."),
    "show": ("gateway.cli.access.approvals:show", "Show a call and its arguments."),
    "approve": ("gateway.cli.access.approvals:approve", "Approve a call."),
    "deny": ("gateway.cli.access.approvals:deny", "Deny a call."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def approvals() -> None:
    """List, approve and deny calls that wait for approval."""


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List waiting calls, oldest first: id, remaining time, caller, tool, arguments."""
    approvals = run(_waiting(settings))
    if as_json:
        print_json(approvals)
        return
    rows = [
        (approval.id, _time_left(approval), approval.principal, approval.tool, approval.arguments)
        for approval in approvals
    ]
    print_rows(("id", "waits", "caller", "tool", "arguments"), rows)
    if not approvals:
        remark("No call waits for an approval.")
    else:
        remark("To approve one: toolgate approvals approve ID")


@click.command()
@click.argument("approval_id", metavar="ID")
@json_option
@settings_option
def show(settings: Settings, approval_id: str, as_json: bool) -> None:
    """Show the call ID: caller, tool, arguments, and the rule that requires approval.

    Arguments that are secret, by their schema or their name, are masked.
    """
    approval = run(_get(settings, approval_id)) or _missing(approval_id)
    if as_json:
        print_json(approval)
        return
    say(f"{approval.principal} calls {approval.tool} of {approval.source or 'no source'}")
    say(f"arguments: {approval.arguments}")
    say(f"rule: {approval.rule}{f' ({approval.reason})' if approval.reason else ''}")
    decided = f" by {approval.decided_by}" if approval.decided_by else ""
    say(
        f"state: {approval.state}{decided}, "
        f"until {approval.expires.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    )


@click.command()
@click.argument("approval_id", metavar="ID")
@settings_option
def approve(settings: Settings, approval_id: str) -> None:
    """Approve the call ID.

    Its caller may repeat the call once with these arguments, within policy.approval_s seconds.
    """
    approval = run(_decide(settings, approval_id, approve=True))
    say(f"Approved: {approval.principal} may call {approval.tool} once.")


@click.command()
@click.argument("approval_id", metavar="ID")
@settings_option
def deny(settings: Settings, approval_id: str) -> None:
    """Deny the call ID. A repeated call waits for approval again."""
    approval = run(_decide(settings, approval_id, approve=False))
    say(f"Denied: {approval.principal} may not make this call of {approval.tool}.")


def _time_left(one: Approval) -> str:
    seconds = max(0, int((one.expires - datetime.now(UTC)).total_seconds()))
    return f"{seconds // 60}:{seconds % 60:02}"


def _missing(approval_id: str) -> Approval:
    fail(f"No call waits under {approval_id!r}. `toolgate approvals list` shows the waiting calls.")


async def _waiting(settings: Settings) -> list[Approval]:
    async with open_registry(settings) as registry:
        return await Approvals(registry.database.pool, registry.host_id).waiting()


async def _get(settings: Settings, approval_id: str) -> Approval | None:
    async with open_registry(settings) as registry:
        return await Approvals(registry.database.pool, registry.host_id).get(approval_id)


async def _decide(settings: Settings, approval_id: str, *, approve: bool) -> Approval:
    async with open_registry(settings, Act("decide", approval_id)) as registry:
        waiting = Approvals(registry.database.pool, registry.host_id)
        return await waiting.decide(approval_id, approve, actor()) or _missing(approval_id)
