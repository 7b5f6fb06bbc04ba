"""Hybrid actions among the tools, found by their ids."""

import logging
from collections.abc import Sequence
from typing import cast

from schemas.binding import PythonBinding, ServiceBinding
from schemas.tool import Tool

log = logging.getLogger("toolgate.catalog")

TWICE_SHOWN = 20  # ids in one warning


def by_service(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools that call hybrid actions, by the ids of those; `tools` are in the order of their
    names. Of several for one id, one serves it, and the log says which."""
    claims: dict[str, list[Tool]] = {}
    for tool in tools:
        if isinstance(tool.binding, ServiceBinding):
            claims.setdefault(tool.binding.service, []).append(tool)
    found = {id_: min(claiming, key=_is_elsewhere) for id_, claiming in claims.items()}
    twice = [_told(found[id_], claiming) for id_, claiming in claims.items() if len(claiming) > 1]
    if twice:
        log.warning("service_twice", extra={"services": twice[:TWICE_SHOWN]})
    return found


def _told(serving: Tool, claiming: Sequence[Tool]) -> str:
    """Which source serves an id, and which others have it too."""
    others = ", ".join(tool.source for tool in claiming if tool is not serving)
    binding = cast("ServiceBinding", serving.binding)
    return f"{binding.service} served by {serving.source}, not by {others}"


def _is_elsewhere(tool: Tool) -> bool:
    """Whether what `tool` calls is behind the gateway: what runs inside goes first."""
    return not isinstance(tool.binding, PythonBinding)
