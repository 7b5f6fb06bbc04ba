"""Secrets: credentials of sources that the gateway stores. Write-only."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from msgspec import Meta, Struct

from config.sources import SchemeSettings, SourceSettings
from gateway.admin.registry_parts import JobParts
from gateway.admin.resources.member_texts import SECRET
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, conflict, not_found
from gateway.upstreams.auth.required_credentials import UnusedSecret, check_used
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys, Secrets, StoredSecret
from registry.sources.tool_store import ToolStore
from schemas.similar_names import did_you_mean

READ, WRITE = "admin:secrets:read", "admin:secrets:write"
MODELS = "models"  # the source of keys of chat models


class RotatedSecrets(Struct, frozen=True):
    """Number of secrets that had an earlier key."""

    encrypted: int


class ForceOption(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a secret that nothing uses is stored."""

    force: Annotated[
        bool, Meta(description="store it even if no security scheme requires it yet")
    ] = False


@dataclass(eq=False)
class SecretOperations:
    dependencies: OperationDependencies
    keys: Keys
    _: KW_ONLY
    host_id: str  # the gateway's own tenant, the only one whose secrets it reads
    settings_sources: Callable[[], Mapping[str, SourceSettings]]  # sources of the settings
    strategies: Collection[str] = ()  # chat models, whose keys have the source MODELS

    @classmethod
    def of(cls, parts: JobParts) -> "SecretOperations":
        dependencies, settings = parts.dependencies, parts.settings
        return cls(
            dependencies,
            Keys.of(settings.secrets),
            host_id=dependencies.host_id,
            settings_sources=parts.sources,
            strategies=settings.models.strategies,
        )

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/secrets/{source}/{scheme}"
        return (
            Operation(
                "listSecrets",
                "GET",
                "/secrets",
                "List the stored secrets, without their values.",
                READ,
                self.list,
                ListPage[StoredSecret],
                query=Paging,
            ),
            Operation(
                "putSecret",
                "PUT",
                item,
                "Store the secret for a security scheme of a source.",
                WRITE,
                self.put,
                StoredSecret,
                query=ForceOption,
                body=SchemeSettings, members=SECRET, secret=True,
                no_tool="its request holds a secret, which no model is to see",
            ),
            Operation(
                "deleteSecret",
                "DELETE",
                item,
                "Delete a secret.",
                WRITE,
                self.delete,
                status=204,
            ),
            Operation(
                "rotateSecrets", "POST", "/secrets/rotation",
                "Encrypt all secrets with the current key.", WRITE, self.rotate, RotatedSecrets,
                details="Every gateway keeps earlier keys in secrets.old_keys until then.",
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[StoredSecret]:
        secrets = await self._secrets(request.tenant).all()
        return self.dependencies.pages.page(request.query, secrets, _key)

    async def put(self, request: OperationInput) -> StoredSecret:
        source, scheme = request.names["source"], request.names["scheme"]
        if request.tenant != self.host_id:
            raise conflict("Secrets are stored for sources of the gateway's own tenant only.")
        if not request.query.force:
            await self._check(source, scheme)
        secrets = self._secrets(request.tenant)
        await secrets.put(source, scheme, request.body)
        for secret in await secrets.all():
            if (secret.source, secret.scheme) == (source, scheme):
                return secret
        raise not_found("secret", scheme)  # deleted concurrently

    async def delete(self, request: OperationInput) -> None:
        source, scheme = request.names["source"], request.names["scheme"]
        if not await self._secrets(request.tenant).delete(source, scheme):
            raise not_found("secret", f"{source}/{scheme}")

    async def rotate(self, request: OperationInput) -> RotatedSecrets:
        count = await self._secrets(request.tenant).rotate()
        return RotatedSecrets(
            count + await Vault(self.keys, request.tenant).rotate(self.dependencies.pool)
        )

    async def has_secrets(self, tenant: str, source: str) -> bool:
        """Whether a source has any secrets."""
        return any(secret.source == source for secret in await self._secrets(tenant).all())

    async def store(self, tenant: str, source: str, values: Mapping[str, str]) -> None:
        """Store headers or variables of a source that is imported with them. Raises
        ProblemDetails."""
        if values and tenant != self.host_id:
            raise conflict("Secrets are stored for sources of the gateway's own tenant only.")
        for scheme, value in values.items():
            await self._secrets(tenant).put(source, scheme, SchemeSettings(value=value))

    async def entries(self, tenant: str, source: str) -> Mapping[str, SchemeSettings]:
        """The decrypted secrets of a source by scheme; empty without any."""
        entries, _ = await self._secrets(tenant).read()
        return entries.get(source, {})

    async def forget(self, tenant: str, source: str) -> None:
        """Delete the secrets of a removed source: a namesake must not inherit them."""
        secrets = self._secrets(tenant)
        for secret in await secrets.all():
            if secret.source == source:
                await secrets.delete(source, secret.scheme)

    async def _check(self, source: str, scheme: str) -> None:
        store, configured = ToolStore(self.dependencies.pool), [*self.settings_sources(), MODELS]
        try:
            if source == MODELS and scheme not in self.strategies:
                hint = did_you_mean(scheme, self.strategies)
                text = f"There is no strategy {scheme!r} in models.strategies. {hint}".rstrip()
                raise UnusedSecret(text)
            await check_used(
                store, self.host_id, configured=configured, source=source, scheme=scheme
            )
        except UnusedSecret as error:
            text = f"{error} Add force=true to store it anyway."
            raise ProblemDetails(404, "not-found", text) from error

    def _secrets(self, tenant: str) -> Secrets:
        return Secrets(self.dependencies.pool, tenant, self.keys)


def _key(secret: StoredSecret) -> str:
    return f"{secret.source} {secret.scheme}"
