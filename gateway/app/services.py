"""The services written in Python, loaded as the settings name them."""

from collections.abc import Mapping

from config.sources import SourceSettings
from gateway import hybrid
from schemas.errors import ToolgateError

_NONE: Mapping[str, hybrid.Service] = {}


def load_services(
    sources: Mapping[str, SourceSettings], loaded: Mapping[str, hybrid.Service] = _NONE
) -> dict[str, hybrid.Service]:
    """The services written in Python. Raises ToolgateError that names every source that fails."""
    services: dict[str, hybrid.Service] = {}
    broken: list[str] = []
    for name, source in sources.items():
        if source.python is not None:
            known = loaded.get(name)
            try:
                if known is None or known.target != source.python:
                    known = hybrid.load(source.python)
                services[name] = known
            except ToolgateError as error:
                broken.append(f"sources.{name}.python: {error}")
    if broken:
        raise ToolgateError("\n  ".join(broken))
    return services
