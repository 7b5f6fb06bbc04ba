"""`toolgate events tail` and `show`: invocations as they change, and one in full."""

import time
from typing import IO, Any

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.output import print_json, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import harmless
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway

ROOT = "/events/v1"
EVERY_S = 1.0
FIRST_ENTRIES = 20  # at first
STATES_REMEMBERED = 10_000  # states that are remembered


@click.command()
@click.option("--everyone", is_flag=True, help="Invocations of all callers.")
@click.option("--once", is_flag=True, help="Print the newest ones, and stop.")
@gateway_options(key_required=False)
@settings_option
def tail(
    settings: Settings,
    *,
    everyone: bool,
    once: bool,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Print invocations as they change, until Ctrl-C.

    A line has the time, the state with its reason, the attempt, the skill and the correlation id.
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    state_by_id: dict[str, tuple[str, int]] = {}
    while True:
        for event in reversed(run(_newest(gateway, everyone))):
            state = (event["status"], event["attempt"])
            if state_by_id.get(event["id"]) != state:
                state_by_id[event["id"]] = state
                say(harmless(_line(event)))
        if once:
            return
        if len(state_by_id) > STATES_REMEMBERED:
            state_by_id.clear()
        time.sleep(EVERY_S)


@click.command()
@click.argument("invocation")
@gateway_options(key_required=False)
@settings_option
def show(settings: Settings, *, invocation: str, key_file: IO[str] | None, url: str | None) -> None:
    """Show one invocation, by id or correlation id, with all its errors."""
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    print_json(run(gateway.call("events_get", {"invocation": invocation})).value)


async def _newest(gateway: RunningGateway, everyone: bool) -> list[dict[str, Any]]:
    query = {"limit": FIRST_ENTRIES, **({"everyone": True} if everyone else {})}
    items: list[dict[str, Any]] = (await gateway.call("events_list", query)).value["items"]
    return items


def _line(run: dict[str, Any]) -> str:
    when = run.get("finished") or run["created"]
    state = f"{run['status']} {run['reason']}" if "reason" in run else run["status"]
    return f"{when}  {state:18} {run['attempt']}  {run['skillName']}  {run['correlationId']}"
