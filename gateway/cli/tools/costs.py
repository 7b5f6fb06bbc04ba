"""Token costs of tools in a list, and the effect of a profile."""

from collections.abc import Iterator, Sequence
from typing import Any

from config.settings import Settings
from gateway.cli.common.checks import Check
from gateway.cli.common.failure import no_such
from gateway.cli.common.output import print_json, print_rows, remark
from gateway.cli.common.text import first_line
from registry.catalog.catalog import Catalog
from registry.catalog.tool_lists import ToolList
from registry.display.budgets import tokens
from registry.display.profiles import Profiles, SelectedProfile
from registry.display.tool_shaper import ToolShaper
from schemas.jsonrpc import encode
from schemas.tool import Tool

COLUMNS = ("tokens", "name", "source", "what it does")
SHOWN = 3  # tools that are named
LARGE = 100_000  # tokens of a list; half of the largest context windows in 2026


def tool_list(settings: Settings, tools: Sequence[Tool], profile: str | None = None) -> ToolList:
    """The tool list as clients of the profile get it."""
    shaper = ToolShaper(settings.budgets, Profiles(settings.profiles))
    return Catalog(tools, shaper=shaper).lists.tools(_chosen_profile(shaper.profiles, profile))


def print_costs(
    settings: Settings, tools: Sequence[Tool], profile: str | None, as_json: bool
) -> None:
    """Print the most expensive tools first, omitted ones last."""
    made = tool_list(settings, tools, profile)
    order = sorted(tools, key=lambda tool: (-made.costs.get(tool.name, 0), tool.name))
    if as_json:
        print_json([_facts(tool, made) for tool in order])
        return
    print_rows(COLUMNS, [_row(tool, made) for tool in order])
    shortened, left_out = len(made.shortened), len(made.left_out)
    remark(
        f"{len(made.costs)} tools, {made.tokens} tokens (characters / 4) as profile "
        f"{made.chosen.name} lists them; {shortened} shortened, {left_out} left out."
    )


def cost_of(settings: Settings, tool: Tool) -> str:
    """Token costs of a tool, in one line."""
    made = tool_list(settings, [tool])
    whole = tokens(bytes(tool.input_schema)) + tokens(encode(tool.description))
    if tool.name not in made.costs:
        return f"Left out of lists: {made.left_out[tool.name]}"
    more = f", shortened from about {whole}" if tool.name in made.shortened else ""
    return f"{made.costs[tool.name]} tokens (characters / 4) in a list{more}"


def check(settings: Settings, tools: Sequence[Tool]) -> Iterator[Check]:
    """Checks costs of lists, and tools that lists of limited clients omit."""
    made = tool_list(settings, tools)
    most = settings.budgets.catalog_tokens
    dear = sorted(made.costs, key=lambda name: (-made.costs[name], name))[:SHOWN]
    named = ", ".join(f"{name} {made.costs[name]}" for name in dear)
    detail = f"{made.tokens:,} tokens for {len(made.costs)} tools"
    detail += f"; most for {named}" if named else ""
    if made.shortened:
        detail += f"; {len(made.shortened)} shortened"
    large = made.tokens > LARGE
    if large:
        detail += (
            "; that is more than most models can read: serve parts of it as `toolsets`, or import "
            "less with `include` and `exclude` of sources"
        )
    over = bool(most) and made.level > 0
    if over:
        detail += f"; budgets.catalog_tokens is {most}, so all are shortened further"
    yield Check("lists", "warning" if over or large else "ok", detail)
    for chosen in Profiles(settings.profiles):
        left_out = tool_list(settings, tools, chosen.name).left_out
        for name, reason in list(left_out.items())[:1]:
            count = f"{len(left_out)} tools are" if len(left_out) > 1 else "a tool is"
            hint = f"toolgate tools list --profile {chosen.name}"
            text = f"{count} left out for clients of profile {chosen.name}: {name}: {reason}"
            yield Check("lists", "warning", f"{text}; see {hint}")


def _chosen_profile(profiles: Profiles, name: str | None) -> SelectedProfile:
    if name is None:
        return profiles.default
    chosen = profiles.chosen_profile(name)
    if chosen is None:
        no_such("profile", name, [profile.name for profile in profiles])
    return chosen


def _row(tool: Tool, made: ToolList) -> tuple[str, str, str, str]:
    if tool.name in made.left_out:
        return "", tool.name, tool.source, f"left out: {made.left_out[tool.name]}"
    shown = made.names.get(tool.name)
    name = f"{shown} ({tool.name})" if shown else tool.name
    cost = f"{made.costs[tool.name]}{'*' if tool.name in made.shortened else ''}"
    return cost, name, tool.source, first_line(tool.title or tool.description)


def _facts(tool: Tool, made: ToolList) -> dict[str, Any]:
    return {
        "name": tool.name,
        "shownAs": made.names.get(tool.name, tool.name),
        "source": tool.source,
        "tokens": made.costs.get(tool.name),
        "shortened": tool.name in made.shortened,
        "leftOut": made.left_out.get(tool.name),
    }
