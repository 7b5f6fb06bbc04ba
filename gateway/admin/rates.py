"""How often one caller may ask this gateway, counted before anything else is done for them."""

from config.access import Admin as Settings
from gateway.admin.problems import ProblemDetails
from gateway.context import Identity
from gateway.networks import network
from gateway.state.rates import LocalRates
from schemas.errors import whole_seconds


class RequestRates:
    def __init__(self, settings: Settings) -> None:
        self._most = settings.requests
        self._window_s = settings.per_s
        self._rates = LocalRates()

    def count(self, identity: Identity, client: str) -> None:
        """One request of a principal; strangers are told apart by address. Raises Problem."""
        if not self._most:
            return
        stranger = identity.refusal is not None
        key = ("", network(client)) if stranger else identity.principal.key
        wait_s = self._rates.take(key, self._most, self._window_s)
        if wait_s:
            raise _too_many(self._most, self._window_s, whole_seconds(wait_s))


def _too_many(most: int, window_s: float, wait_s: int) -> ProblemDetails:
    text = (
        f"Too many requests: at most {most} in {window_s:g} s (admin.requests); try again in "
        f"{wait_s} s."
    )
    return ProblemDetails(429, "too-many-requests", text, headers={"Retry-After": str(wait_s)})
