"""Who hears where nobody listens."""

from typing import Any

from schemas.errors import MethodNotFound


class Nobody:
    """A Hearer that hears nothing, and cannot be asked."""

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        pass

    async def asked(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ARG002
        raise MethodNotFound(f"Nobody is here to be asked: {method[:100]}")
