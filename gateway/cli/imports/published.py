"""Servers of registries: the plan is shown, inputs are asked, then the server is added."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from config.settings import Settings
from gateway.cli.commands import RESOURCES
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import ask, check_terminal
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.common.tables import print_entry
from gateway.cli.common.text import one_line
from gateway.cli.imports.report import Json
from gateway.cli.imports.shared import ImportChoice, report_import, whole_report
from gateway.cli.operations import open_client
from gateway.cli.running.client import OperationClient

CATALOG = (RESOURCES + "catalog:CatalogOperations",)
STDIN = "-"  # value of a secret that stands on standard input
INPUT_LIMIT = 8192  # characters


@dataclass(slots=True)
class Values:
    """Values of inputs, those that are secrets apart."""

    pairs: dict[str, str]
    inputs: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[str]) -> "Values":
        """Of the options --set."""
        values: dict[str, str] = {}
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not (name and equals):
                fail(f"--set: expected NAME=VALUE, found {name!r}", USAGE)
            values[name] = _standard_input(name) if text == STDIN else text
        return cls(values)

    def sort(self, questions: Sequence[Json]) -> None:
        """Separate secrets from other inputs, as a plan describes them."""
        secret = {each["name"] for each in questions if each.get("secret")}
        self.secrets = {name: text for name, text in self.pairs.items() if name in secret}
        self.inputs = {name: text for name, text in self.pairs.items() if name not in secret}

    def ask(self, plan: Json) -> bool:
        """Ask for what is missing, in order; whether anything was."""
        by_name = {each["name"]: each for each in plan.get("questions", ())}
        for name in plan.get("missing", ()):
            check_terminal("ask for", f"{name} (or give it by --set {name}=VALUE)")
            described = by_name[name]
            if described.get("description"):
                remark(one_line(described["description"]))
            hidden = bool(described.get("secret"))
            prompt = one_line(f"{name} ({described['where']})")
            text = click.prompt(prompt, hide_input=hidden, err=True)
            self.pairs[name] = str(text)
        return bool(plan.get("missing"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedImport:
    """Arguments of `toolgate import mcp --from`."""

    server: str  # NAME or NAME@VERSION
    source: str
    registry: str
    choice: str | None
    values: Values
    allow: tuple[str, ...]
    unpinned: bool
    yes: bool

    def request(self, allow: Sequence[str]) -> dict[str, Any]:
        name, _, version = self.server.partition("@")
        request: dict[str, Any] = {"name": name, "allow": list(allow), "unpinned": self.unpinned}
        request |= {"version": version} if version else {}
        request |= {"registry": self.registry} if self.registry else {}
        return request | ({"choice": self.choice} if self.choice else {})


async def add_published(settings: Settings, wish: PublishedImport, choice: ImportChoice) -> None:
    opened = open_client(
        settings, url=None, key_file=None, resources=CATALOG, has_database=not choice.dry_run
    )
    async with opened as client:
        allow = list(wish.allow)
        plan = await _plan(client, wish, allow)
        if choice.dry_run:
            print_plan(plan, as_json=choice.telling.format == "json")
            return
        if wish.values.ask(plan):
            plan = await _plan(client, wish, allow)
        print_plan(plan)
        allow += confirm(plan, wish.source, yes=wish.yes)
        body = {
            **wish.request(allow),
            "source": wish.source,
            "sha256": plan["sha256"],
            "inputs": wish.values.inputs,
            "secrets": wish.values.secrets,
        }
        answer = await client.call("addServer", {"body": body, "report": True})
    report_import(whole_report(answer.value), choice.telling)


async def _plan(client: OperationClient, wish: PublishedImport, allow: Sequence[str]) -> Json:
    """The plan of the values that are known; secrets are planned with, and not kept."""
    body = {**wish.request(allow), "inputs": wish.values.pairs}
    plan: Json = (await client.call("planServer", {"body": body})).value
    wish.values.sort(plan.get("questions", ()))
    return plan


def print_plan(plan: Json, *, as_json: bool = False) -> None:
    if as_json:
        print_json(plan)
        return
    command = plan.get("command", ())
    view = {name: plan[name] for name in plan if name not in ("command", "questions", "choices")}
    print_entry({name: _flat(member) for name, member in view.items()})
    if command:
        say("\nruns (one argument a line, no shell):")
        for word in command:
            say(f"  {one_line(word)}")
    for each in plan.get("questions", ()):
        kinds = [kind for kind in ("required", "secret") if each.get(kind)]
        where = one_line("".join((each["where"], *(f", {kind}" for kind in kinds))))
        say(f"asks {one_line(each['name'])} ({where})")
    remark("The name proves who published it, not that it is harmless.")


def _flat(member: Any) -> Any:
    """A member whose texts have no lines of their own, which could pass for lines of the plan."""
    if isinstance(member, list):
        return [_flat(item) for item in member]
    return one_line(member) if isinstance(member, str) else member


def confirm(plan: Mapping[str, Any], source: str, *, yes: bool) -> list[str]:
    """Confirm a plan, and what it wants beyond it: that is never implied by --yes."""
    confirms: list[str] = list(plan.get("confirms", ()))
    for subject in confirms:
        if yes:
            fail(f"{subject} has to be allowed: add --allow={subject}", USAGE)
        ask("allow", subject)
    if not yes:
        ask("add", f"{plan['name']}@{one_line(plan['version'])} as the source {source}")
    return confirms


def _standard_input(name: str) -> str:
    text = sys.stdin.read(INPUT_LIMIT + 1).removesuffix("\n")
    if not text or len(text) > INPUT_LIMIT:
        fail(f"--set {name}=-: expected 1 to {INPUT_LIMIT} characters on standard input", USAGE)
    return text
