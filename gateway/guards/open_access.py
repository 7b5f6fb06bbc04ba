"""Access without authentication (`auth.mode: none`): every caller is anonymous.

It loads no library of tokens.
"""

from starlette.types import Scope

from gateway.context import Identity, Principal
from registry.database.postgres import Pool


class OpenAccess:
    """Stands in for an `Authenticator`: it has no keys and no tokens."""

    keys = None

    def __init__(self, tenant: str) -> None:
        self._anonymous = Identity(Principal("anonymous", tenant))

    async def identify(self, _scope: Scope) -> Identity:
        return self._anonymous

    async def run(self) -> None:
        """There is no key set to refresh."""

    def reload(self) -> None:
        """There is no key file to read again."""

    async def load_revocations(self, _pool: Pool) -> None:
        """There are no tokens to revoke."""

    async def tidy(self, _pool: Pool) -> None:
        """There is nothing to write or to remove."""
