"""`toolgate webhooks`: the webhooks that completions of invocations are sent to."""

import functools
from collections.abc import Callable
from typing import IO, Any

import click

from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, remark, say
from gateway.cli.common.text import one_line
from gateway.cli.events import ROOT
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway

COMMANDS = {
    "list": ("gateway.cli.webhooks:list_", "List the webhooks."),
    "add": ("gateway.cli.webhooks:add", "Add a webhook, or change its address."),
    "test": ("gateway.cli.webhooks:test", "Send a test event."),
    "rotate": ("gateway.cli.webhooks:rotate", "Give a webhook a new secret."),
    "remove": ("gateway.cli.webhooks:remove", "Remove a webhook."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def webhooks() -> None:
    """List, add, test, rotate and remove webhooks of a running gateway.

    Completions of invocations are sent to them (`replyTo: webhook:NAME`). The gateway needs
    events.enabled, and the key the scope events:admin.

    \b
    Example:
      toolgate webhooks add crm https://crm.example/hooks --key-file my.key
      toolgate webhooks test crm --key-file my.key
    """


def events_gateway(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--url`, `--key-file` and `--config`; pass the `RunningGateway` with the API of events as
    the first argument."""

    @functools.wraps(command)
    def call_with_gateway(
        settings: Settings, url: str | None, key_file: IO[str] | None, **more: Any
    ) -> None:
        command(running_gateway(settings, ROOT, url=url, key_file=key_file), **more)

    return gateway_options(key_required=False)(settings_option(call_with_gateway))


@click.command(name="list")
@json_option
@events_gateway
def list_(gateway: RunningGateway, as_json: bool) -> None:
    """List the webhooks, those of the settings too.

    A pipe gets one line for each: name, address, whether it was added or is one of the settings,
    and whether it is disabled, because it answered 410.
    """
    items = run(gateway.call("events_webhooks", {})).value["items"]
    if as_json:
        print_json(items)
        return
    rows = [
        (
            item["name"],
            item["url"],
            "added" if item["stored"] else "settings",
            "disabled" if item.get("disabled") else "enabled",
        )
        for item in items
    ]
    print_rows(("name", "address", "from", "state"), rows)


@click.command()
@click.argument("name")
@click.argument("address")
@events_gateway
def add(gateway: RunningGateway, name: str, address: str) -> None:
    """Add a webhook at an https ADDRESS, or change the address of one.

    The secret of a new one is printed, once. A disabled one is enabled.
    """
    _show(run(gateway.call("events_put_webhook", {"webhook": name, "url": address})).value)


@click.command()
@click.argument("name")
@events_gateway
def rotate(gateway: RunningGateway, name: str) -> None:
    """Give a webhook a new secret, and print it, once.

    Requests carry a signature of the one before, too, until the next rotation.
    """
    _show(run(gateway.call("events_rotate_webhook", {"webhook": name})).value)


def _show(made: dict[str, Any]) -> None:
    if "secret" in made:
        say(one_line(made["secret"]))
        remark(f"The secret of {made['name']}. Store it now: it is not shown again.")


@click.command()
@click.argument("name")
@events_gateway
def test(gateway: RunningGateway, name: str) -> None:
    """Send a test event, and tell whether it was taken."""
    told = run(gateway.call("events_test_webhook", {"webhook": name})).value
    if not told["done"]:
        fail(f"{name} did not take the event: {told['error']}")
    remark(f"{name} took the event.")


@click.command()
@click.argument("name")
@events_gateway
def remove(gateway: RunningGateway, name: str) -> None:
    """Remove a webhook that was added."""
    run(gateway.call("events_delete_webhook", {"webhook": name}))
