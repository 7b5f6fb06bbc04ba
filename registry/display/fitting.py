"""Fits several tools into one answer, within a size limit. Pure.

Each tool has its name and a line. The remaining space is shared evenly: input schemas in a few
tokens for all before a whole one for any.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from registry.display.budgets import CHARACTERS
from registry.display.profiles import Chosen
from registry.display.shaping import Shaping
from registry.display.summaries import first_sentence
from schemas.jsonrpc import encode
from schemas.tool import Tool

SIZES = (100, 150, 200, 300, 400, 600, 800, 1200, 1600)  # tokens of a tool: few, so that folded
# tools are found in the cache
FEWEST = SIZES[0] * CHARACTERS
DESCRIBED = 1000  # characters of a description
LINE = 100  # characters of each tool's short description

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool, by its name in the client's list, and facts to show with it."""

    tool: Tool
    members: Json


@dataclass(frozen=True, slots=True)
class Fitted:
    entries: list[Json]
    folded: int  # of them without their input schema
    left_out: int  # no room at all


@dataclass(frozen=True, slots=True)
class Ceiling:
    tokens: int  # of all tools together
    shaping: Shaping
    chosen: Chosen
    describer: str  # name of the tool that describes what is left out

    def fitted(self, tools: Sequence[ListedTool], left: int, schemas: bool) -> Fitted:
        """The tools in at most `left` characters. Without `schemas`: names and lines alone."""
        entries: list[Json] = []
        for one in tools:
            line = {"name": one.tool.name, "description": _line(one.tool), **one.members}
            if length(line) > left:
                break
            left -= length(line)
            entries.append(line)
        unfolded = self._unfolded(tools[: len(entries)], entries, left) if schemas else {}
        for place, entry in unfolded.items():
            entries[place] = entry
        left_out = len(tools) - len(entries)
        return Fitted(entries, len(entries) - len(unfolded), left_out)

    def _unfolded(
        self, tools: Sequence[ListedTool], lines: Sequence[Json], left: int
    ) -> dict[int, Json]:
        """Entries with an input schema, by their positions in `lines`. Small ones are whole, and
        the space that they leave is shared by the large ones (max-min fairness), each of which is
        folded once: to fold a schema of megabytes takes long."""
        found: dict[int, Json] = {}

        def add(place: int, most: int) -> int:
            """Add an entry; returns the characters that it added."""
            entry = self._entry(tools[place], most)
            growth = length(entry) - length(lines[place]) if entry is not None else 0
            if entry is None or growth > left:
                return 0
            found[place] = entry
            return growth

        waiting = sorted(range(len(tools)), key=lambda place: -_need(tools[place].tool))
        while waiting and _need(tools[waiting[-1]].tool) <= left // len(waiting):
            left -= add(waiting.pop(), self.tokens)
        large = sorted(waiting)[: left // FEWEST]  # where few fit, the best
        while large:  # the last first: the rest of the space goes to the best
            share = left // len(large)
            place = large.pop()
            left -= add(place, _size(share + length(lines[place])))
        return found

    def _entry(self, one: ListedTool, most: int) -> Json | None:
        """The tool in about `most` tokens; None: the client's profile cannot express it."""
        shown = self.shaping.within(one.tool, self.chosen, most, self.describer)
        if shown.left_out is not None:
            return None
        return {
            "name": shown.tool.name,
            "description": shown.tool.description,
            **one.members,
            "inputSchema": shown.tool.input_schema,
        }


def _need(tool: Tool) -> int:
    """Approximate characters of a tool beyond its line."""
    return len(tool.input_schema) + min(len(tool.description), DESCRIBED)


def _size(characters: int) -> int:
    """The largest of `SIZES` that fits."""
    at = bisect_right(SIZES, characters // CHARACTERS)
    return SIZES[max(at - 1, 0)]


def _line(tool: Tool) -> str:
    return first_sentence(tool.description or tool.title or "", LINE)


def length(value: Any) -> int:
    """Characters of JSON, including the separator after it."""
    return len(encode(value).decode()) + 1
