"""`toolgate doctor SOURCE`: the way of a person to their account at a source, step by step."""

import os
from collections.abc import AsyncIterator

import click

from config.load import load
from config.settings import Settings
from config.sources import SourceSettings
from gateway.cli.common.checks import Check, print_check
from gateway.cli.common.database import Registry, open_present_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED
from gateway.cli.common.options import config_option, json_option
from gateway.cli.common.output import print_json
from gateway.cli.common.settings import named_file
from gateway.cli.doctor.local_checks import reachable
from gateway.connections.oauth_accounts import OAuthAccounts
from gateway.connections.required_accounts import most_needed
from schemas.errors import ToolgateError
from schemas.similar_names import did_you_mean
from schemas.source import Source


@click.command()
@click.argument("name", metavar="SOURCE")
@config_option
@json_option
def source(name: str, config_file: str | None, as_json: bool) -> None:
    """Walk the way of a person to their account at SOURCE.

    Names the first step that fails, and the setting that mends it: where people log in, the
    metadata of that server, how the gateway gets known there, and whether its secret is right.
    Nobody logs in, and nothing is stored. `toolgate doctor SOURCE` is short for it.

    \b
    Examples:
      toolgate doctor github
      toolgate doctor source linear --json
    """
    settings = load(named_file(config_file), os.environ)
    checks = run(_walk(name, settings, as_json))
    if as_json:
        print_json(checks)
    if checks[-1].status == "failed":
        click.get_current_context().exit(FAILED)


async def _walk(name: str, settings: Settings, as_json: bool) -> list[Check]:
    checks: list[Check] = []
    async with open_present_registry(settings) as registry:
        async for check in _steps(name, settings, registry):
            checks.append(check)
            if not as_json:
                print_check(check)
    return checks


async def _steps(name: str, settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    adjusted = settings.sources.get(name, SourceSettings())
    source = await registry.store.source(registry.host_id, name)
    if source is None and adjusted.mcp:  # its import may need the account that is examined here
        source = Source("", name, "mcp", adjusted.mcp, adjusted.mcp, base_url_trusted=True)
    if source is None:
        names = {each.name for each in await registry.store.sources(registry.host_id)}
        hint = did_you_mean(name, sorted(names | settings.sources.keys()))
        hint = hint or "`toolgate sources list` lists the sources."
        yield Check("source", "failed", f"{name}: it is not imported. {hint}")
        return
    yield reachable(name, source.tool_count, source.base_url)
    connect = adjusted.connect
    if not connect.has_page:
        text = f"sources.{name}.connect is {connect.mode}: nobody connects an account there"
        yield Check("connect", "ok", text)
        return
    tools = [each for each in await registry.store.tools(registry.host_id) if each.source == name]
    needs = most_needed(source, tools, connect, adjusted.credentials)
    if not needs:
        text = f"no tool asks for an account of a person: see sources.{name}.connect.schemes"
        yield Check("schemes", "failed", text)
        return
    schemes = ", ".join(f"{each.scheme} ({each.kind})" for each in needs)
    yield Check("schemes", "ok", schemes)
    accounts = OAuthAccounts(lambda: settings, lambda: registry.database.pool)
    if not accounts.host_of(source, needs):
        text = "people type what they have from the service into a form"
        for login in (source.logins[each.scheme] for each in needs if each.scheme in source.logins):
            text += (
                f"; the login at {' and '.join(login.urls)} is that of the description alone: "
                f"name it in sources.{name}.connect, as issuer, or authorization_url and token_url"
            )
        yield Check("form", "ok", text)
        return
    try:
        async for step in accounts.examine(source, needs):
            yield Check(step.name, "failed" if step.failed else "ok", step.detail)
    except ToolgateError as error:
        yield Check("accounts", "failed", str(error))
