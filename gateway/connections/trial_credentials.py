"""Credentials on trial: used by one call of their person, before they are stored."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from config.sources import SchemeSettings
from registry.connections.accounts import Owner

Trial = tuple[Owner, Mapping[str, SchemeSettings]]

_TRIAL: ContextVar[Trial | None] = ContextVar("trial", default=None)


@contextmanager
def trying(owner: Owner, entries: Mapping[str, SchemeSettings]) -> Iterator[None]:
    """Calls inside are made with these entries at the owner's source."""
    token = _TRIAL.set((owner, entries))
    try:
        yield
    finally:
        _TRIAL.reset(token)


def trial_of(owner: Owner) -> Mapping[str, SchemeSettings] | None:
    """The entries on trial, if those of `owner` are."""
    trial = _TRIAL.get()
    return trial[1] if trial is not None and trial[0] == owner else None
