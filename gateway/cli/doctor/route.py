"""The way of a message through the gateway as these settings compose it, step by step with the file
of each: read from the composed parts, not written down beside them."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from config.settings import Settings
from gateway.app.gateway import Gateway
from gateway.cli.common.failure import USAGE, fail
from gateway.interfaces import Route
from gateway.protocol.dispatcher import METHODS, Dispatcher
from schemas.mcp.revisions import HANDSHAKE, V2024_11_05, V2026_07_28, Revision
from schemas.similar_names import did_you_mean

_ROOT = Path(__file__).resolve().parents[3]


class RouteStep(NamedTuple):
    stage: str
    name: str
    file: str  # with its line


def steps_of(settings: Settings, method: str, revision: str) -> list[RouteStep]:
    """The steps of a message of `method`, outermost first; of `tools/call` with all guards of
    calls, of which each tool passes those that apply to it. Fails for an unknown method or
    revision."""
    revisions = {**HANDSHAKE, V2026_07_28.name: V2026_07_28}
    if method not in METHODS:
        hint = did_you_mean(method, METHODS) or f"There are {', '.join(sorted(METHODS))}."
        fail(f"there is no route {method!r}. {hint}", USAGE)
    if revision not in revisions:
        fail(f"there is no revision {revision!r}: one of {', '.join(revisions)}", USAGE)
    return list(_steps(Gateway(settings), method, revisions[revision]))


def _steps(gateway: Gateway, method: str, revision: Revision) -> Iterator[RouteStep]:
    for layer in gateway.app().user_middleware:
        yield _step("http", layer.cls)
    path = "/mcp/sse" if revision is V2024_11_05 else "/mcp"
    yield _step(f"front {path}", type(gateway.fronts[path]))
    yield _step("dispatch", Dispatcher.outcome)
    for step in gateway.dispatcher.steps(Route(revision, method)):
        yield _step("message", step)
    if method == "tools/call":
        for guard in gateway.guards:
            yield _step("guard of calls", type(guard).guard)
        for upstream in dict.fromkeys(map(type, gateway.executors.values())):
            yield _step("upstream", upstream)


def _step(stage: str, part: Callable[..., Any] | type) -> RouteStep:
    code = inspect.unwrap(part)
    _, line = inspect.getsourcelines(code)
    file = Path(inspect.getsourcefile(code) or "")
    place = file.relative_to(_ROOT) if file.is_relative_to(_ROOT) else file.name
    name = f"{code.__module__}.{code.__qualname__}"
    return RouteStep(stage, name, f"{place}:{line}")
