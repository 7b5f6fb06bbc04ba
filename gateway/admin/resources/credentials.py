"""Credentials of sources that the gateway keeps: written here, and never told."""

from collections.abc import Sequence

from config.settings import SchemeSettings
from gateway.admin.ground import Ground
from gateway.admin.operations import Asked, Operation, Paging
from gateway.admin.pages import Page
from gateway.admin.problems import conflict, not_found
from registry.secrets import Keys, Secrets, StoredSecret

READ, WRITE = "admin:credentials:read", "admin:credentials:write"


class CredentialOperations:
    def __init__(self, ground: Ground, keys: Keys, host_id: str) -> None:
        """`host_id`: the tenant of the gateway, the only one whose credentials it reads."""
        self._ground = ground
        self._keys = keys
        self._host_id = host_id

    @property
    def operations(self) -> Sequence[Operation]:
        one = "/credentials/{source}/{scheme}"
        return (
            Operation(
                "listCredentials",
                "GET",
                "/credentials",
                "List what there are credentials for.",
                READ,
                self.list,
                Page[StoredSecret],
                query=Paging,
            ),
            Operation(
                "putCredentials",
                "PUT",
                one,
                "Keep credentials for a security scheme of a source.",
                WRITE,
                self.put,
                StoredSecret,
                body=SchemeSettings,
                secret=True,
            ),
            Operation(
                "deleteCredentials",
                "DELETE",
                one,
                "Forget credentials.",
                WRITE,
                self.delete,
                status=204,
            ),
        )

    async def list(self, asked: Asked) -> Page[StoredSecret]:
        found = await self._secrets(asked.tenant).all()
        return self._ground.pages.page(asked.query, found, _key)

    async def put(self, asked: Asked) -> StoredSecret:
        source, scheme = asked.names["source"], asked.names["scheme"]
        if asked.tenant != self._host_id:
            raise conflict("Credentials are kept for sources of the gateway's own tenant only.")
        secrets = self._secrets(asked.tenant)
        await secrets.put(source, scheme, asked.body)
        for one in await secrets.all():
            if (one.source, one.scheme) == (source, scheme):
                return one
        raise not_found("credentials", scheme)  # somebody has deleted them since

    async def delete(self, asked: Asked) -> None:
        source, scheme = asked.names["source"], asked.names["scheme"]
        if not await self._secrets(asked.tenant).delete(source, scheme):
            raise not_found("credentials", f"{source}/{scheme}")

    async def of(self, tenant: str, source: str) -> bool:
        """Whether there are any for a source."""
        return any(one.source == source for one in await self._secrets(tenant).all())

    async def forget(self, tenant: str, source: str) -> None:
        """The source has gone: another one of its name is to have none of its credentials."""
        secrets = self._secrets(tenant)
        for one in await secrets.all():
            if one.source == source:
                await secrets.delete(source, one.scheme)

    def _secrets(self, tenant: str) -> Secrets:
        return Secrets(self._ground.pool, tenant, self._keys)


def _key(one: StoredSecret) -> str:
    return f"{one.source} {one.scheme}"
