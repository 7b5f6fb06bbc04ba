"""The tools of one catalog as the clients of one profile see them listed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from registry.catalog.listing import Listing, Page, encode_tool
from registry.display.budgets import LEVELS, tokens
from registry.display.describing import DESCRIBER
from registry.display.disclosing import DESCRIBES
from registry.display.profiles import Chosen
from registry.display.shaping import Shaping, Shown, shown_names
from schemas.mcp.revisions import V2026_07_28, Revision
from schemas.tool import Tool

RelaysTasks = Callable[[Tool], bool]


class ToolList:
    """Made when it is first asked for; what shaping takes long is kept by `Shaping`."""

    def __init__(
        self,
        tools: Sequence[Tool],
        shaping: Shaping,
        chosen: Chosen,
        relays_tasks: RelaysTasks,
    ) -> None:
        """`tools` in the order of their names."""
        self.chosen = chosen
        self._tools = tools
        self._shaping = shaping
        self._relays_tasks = relays_tasks
        self.names = shown_names([tool.name for tool in tools], chosen)
        self.level, shown, self.costs = self._fitting()
        self.tokens = sum(self.costs.values())
        self.left_out = {one.tool.name: one.left_out for one in shown if one.left_out is not None}
        listed = [one for one in shown if one.left_out is None]
        self.shortened = frozenset(one.tool.name for one in listed if one.shortened)
        self._listed = self._with_own([one.tool for one in listed])
        # the places in the list are those of the names in the catalog, which cursors have
        self._listing = Listing([tool.name for tool in self._listed], self._encoded)
        self._report()

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        return self._listing.page(revision, after, limit)

    def matching(
        self, texts: Sequence[str], revision: Revision, after: str | None, limit: int
    ) -> Page:
        """The same of the tools that have all of `texts` in their name, title, description or the
        name of their source, in any case of letters."""
        wanted = [text.casefold() for text in texts]
        told = enumerate(self._said)
        places = [n for n, one in told if one and all(text in one for text in wanted)]
        return self._listing.some(places, revision, after, limit)

    def these(self, names: Sequence[str], revision: Revision) -> Page:
        """The same of these tools, in this order."""
        return self._listing.these(names, revision)

    @cached_property
    def _said(self) -> list[str]:
        """What each of the list says, all of it; nothing of what is not a tool of a source."""
        whole = {tool.name: said(tool, self.names.get(tool.name, "")) for tool in self._tools}
        return [whole.get(one.name, "") for one in self._listed]

    def _fitting(self) -> tuple[int, list[Shown], dict[str, int]]:
        """The first level at which the list is within its budget, all tools at that, and the tokens
        of each that is listed, by its name in the catalog."""
        budgets = self._shaping.budgets
        most = budgets.catalog_tokens if budgets else 0
        for level in range(LEVELS if most else 1):
            shown = [
                self._shaping.shown(one, self.chosen, level, DESCRIBER.name) for one in self._tools
            ]
            costs = {
                one.tool.name: tokens(self._entry(one.tool, V2026_07_28))
                for one in shown
                if one.left_out is None
            }
            if sum(costs.values()) <= most:
                break
        return level, shown, costs

    def _with_own(self, listed: list[Tool]) -> list[Tool]:
        """With the tool that tells the rest, where that is wanted."""
        budgets = self._shaping.budgets
        if budgets is None or budgets.describe == "never":
            return listed
        if budgets.describe == "auto" and not self.shortened:
            return listed
        own = self._shaping.shown(DESCRIBER, self.chosen, 0, DESCRIBER.name).tool
        return sorted([*listed, own], key=lambda tool: tool.name)

    def _encoded(self, revision: Revision) -> list[bytes]:
        return [self._entry(tool, revision) for tool in self._listed]

    def _entry(self, tool: Tool, revision: Revision) -> bytes:
        name = self.names.get(tool.name)
        listed = tool if name is None else replace(tool, name=name)
        return encode_tool(listed, revision, self._relays_tasks(tool))

    def _report(self) -> None:
        """Say in the log what is not as it was wanted."""
        budgets, facts = self._shaping.budgets, {"profile": self.chosen.name}
        if self.level and budgets:
            within = self.tokens <= budgets.catalog_tokens
            event = "catalog_shortened" if within else "catalog_over_budget"
            limits = {"tokens": self.tokens, "limit": budgets.catalog_tokens, "level": self.level}
            self._shaping.warn(event, facts | limits)
        if self.left_out:
            name, reason = next(iter(self.left_out.items()))
            more = {"tool": name, "reason": reason, "tools": len(self.left_out)}
            self._shaping.warn("tools_left_out", facts | more)


def said(tool: Tool, shown: str = "") -> str:
    """What is looked through for a text, in lower case; `shown` is another name of the tool."""
    parts = (tool.name, shown, tool.title or "", tool.description, tool.source)
    return "\n".join(parts).casefold()


class ShortList:
    """Some tools, the gateway's own among them, as the clients of one profile see them listed."""

    def __init__(
        self,
        tools: Sequence[Tool],
        called: Mapping[str, str],
        shaping: Shaping,
        chosen: Chosen,
        relays_tasks: RelaysTasks,
    ) -> None:
        """`called` are the names that the profile has for tools that are not our own."""
        describer = next((tool.name for tool in tools if tool.name == DESCRIBES), DESCRIBER.name)
        each = (shaping.shown(tool, chosen, 0, describer) for tool in tools)
        listed = [one.tool for one in each if one.left_out is None]
        self._listed = sorted(listed, key=lambda tool: tool.name)
        self._called = called
        self._relays_tasks = relays_tasks
        self._listing = Listing([tool.name for tool in self._listed], self._encoded)

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        return self._listing.page(revision, after, limit)

    def _encoded(self, revision: Revision) -> list[bytes]:
        return [
            encode_tool(
                replace(tool, name=self._called.get(tool.name, tool.name)),
                revision,
                self._relays_tasks(tool),
            )
            for tool in self._listed
        ]
