"""Live views that are open in this process, by tenant and person."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from config.access import ConsoleSettings
from gateway.context import Principal
from gateway.operations.problems import ProblemDetails


class LiveViews:
    def __init__(self) -> None:
        self._by_person: Counter[tuple[str, str]] = Counter()

    def check_room(self, principal: Principal, settings: ConsoleSettings) -> None:
        """Raises ProblemDetails where a person or a tenant has as many views as it may."""
        tenant = sum(count for (of, _), count in self._by_person.items() if of == principal.tenant)
        for count, limit in (
            (self._by_person[principal.key], "live_views_per_person"),
            (tenant, "live_views_per_tenant"),
        ):
            if count >= getattr(settings, limit):
                text = f"There are {count} live views already (console.{limit}): close one."
                raise ProblemDetails(429, "too-many-views", text)

    @contextmanager
    def open(self, principal: Principal, settings: ConsoleSettings) -> Iterator[None]:
        """Count a view as long as it is open. Raises as `check_room` does."""
        self.check_room(principal, settings)
        self._by_person[principal.key] += 1
        try:
            yield
        finally:
            self._by_person[principal.key] -= 1
            self._by_person += Counter()  # forget those at 0
