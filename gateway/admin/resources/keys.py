"""API keys for machines, and revocation of tokens."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from config.value_types import END, ScopeName
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import KEY_ROTATION, NEW_KEY, REVOCATION
from gateway.admin.scopes import check_scopes, known_scopes, scopes_of_settings
from gateway.context import Principal
from gateway.operations.operation import (
    ALL,
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
    Time,
    allows,
    check_time,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import (
    Mistake,
    ProblemDetails,
    conflict,
    lacks_scope,
    not_found,
    sentence,
)
from registry.access.api_keys import (
    NAME_LIMIT,
    PRINCIPAL_LIMIT,
    WORDS_LIMIT,
    ApiKey,
    ApiKeys,
    KeyExists,
    KeyRefused,
    earlier_mark,
)
from registry.access.revocations import Revocation, Revocations

READ, WRITE = "admin:keys:read", "admin:keys:write"

PRINTABLE_TEXT = r"^[!-~]([ -~]*[!-~])?" + END
Name = Annotated[
    str,
    Meta(max_length=NAME_LIMIT, pattern=PRINTABLE_TEXT, description="printable ASCII, on one line"),
]
Who = Annotated[
    str,
    Meta(
        max_length=PRINCIPAL_LIMIT,
        pattern=PRINTABLE_TEXT,
        description="the id of a principal, of printable ASCII",
    ),
]
Overlap = Annotated[int, Meta(ge=0, le=31_536_000, description="seconds, within a year")]
Words = Annotated[tuple[ScopeName, ...], Meta(max_length=WORDS_LIMIT)]


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key and what it permits."""

    name: Name
    principal: Annotated[
        Who | None,
        Meta(
            description="principal of its callers; by default key:NAME, or a new one if an earlier "
            "key used that"
        ),
    ] = None
    scopes: Annotated[Words, Meta(description="scopes, of those of its creator")] = ()
    roles: Annotated[Words, Meta(description="roles, of those of its creator")] = ()
    expires: Annotated[
        Time | None, Meta(description="end of its life; without it, it has none")
    ] = None
    any_scope: Annotated[bool, Meta(description="allow scopes that nothing asks for yet")] = False

    def __post_init__(self) -> None:
        check_time(self.expires)


class KeyRotation(Struct, frozen=True, forbid_unknown_fields=True):
    """The lives of the earlier key and of the new one."""

    overlap_s: Annotated[Overlap, Meta(description="how long the earlier key is valid, a day")] = (
        86_400
    )
    expires: Annotated[
        Time | None, Meta(description="end of the new key; by default as of the earlier one")
    ] = None

    def __post_init__(self) -> None:
        check_time(self.expires)


class KeyRevocation(Struct, frozen=True, forbid_unknown_fields=True):
    """The extent of a revocation."""

    earlier: Annotated[
        bool, Meta(description="revoke the keys, too, that it replaced and that are still valid")
    ] = False


class MadeKey(Struct, frozen=True):
    """`secret` is the key to send; it is returned once, and not for a repeated request."""

    key: ApiKey
    secret: str | None


class NewRevocation(Struct, frozen=True, forbid_unknown_fields=True):
    """Revokes one token by its `jti`, or all tokens of `subject` issued before a time. `expires`:
    when the revoked tokens have expired anyway."""

    expires: Time
    jti: Who | None = None
    subject: Who | None = None
    issued_before: Time | None = None
    reason: Line = ""

    def __post_init__(self) -> None:
        check_time(self.expires)
        check_time(self.issued_before)


Reload = Callable[[str], Awaitable[None]]


class KeyOperations:
    def __init__(
        self, dependencies: OperationDependencies, reload: Reload, scopes: Collection[str] = ()
    ) -> None:
        """`reload` makes a change of keys or revocations count in this process. `scopes`: those
        that the settings ask for."""
        self._dependencies = dependencies
        self._reload = reload
        self._scopes = scopes

    @classmethod
    def of(cls, parts: RegistryParts) -> "KeyOperations":
        return cls(parts.dependencies, parts.reload, scopes_of_settings(parts.settings))

    @property
    def operations(self) -> Sequence[Operation]:
        key, revocation = "/keys/{key}", "/revocations/{revocation}"
        withheld = "its answer holds a key, which no model is to see"
        return (
            Operation(
                "listKeys", "GET", "/keys", "List the keys.", READ, self.list, ListPage[ApiKey],
                query=Paging,
            ),
            Operation(
                "createKey", "POST", "/keys", "Create an API key.", WRITE, self.create, MadeKey,
                201, body=NewKey, members=NEW_KEY, no_tool=withheld,
            ),
            Operation("getKey", "GET", key, "Show a key.", READ, self.get, ApiKey),
            Operation(
                "rotateKey", "POST", f"{key}/rotations",
                "Replace an API key by a new one of its principal.", WRITE, self.rotate, MadeKey,
                201, body=KeyRotation, members=KEY_ROTATION,
                optional_body=True, problems=(409,), no_tool=withheld,
            ),
            Operation(
                "revokeKey", "DELETE", key, "Revoke an API key permanently.", WRITE,
                self.revoke, status=204, query=KeyRevocation,
            ),
            Operation(
                "listRevocations", "GET", "/revocations", "List the revoked tokens.", READ,
                self.revocations, ListPage[Revocation], query=Paging,
            ),
            Operation(
                "revokeTokens", "POST", "/revocations",
                "Revoke a token, or all tokens of a principal.", WRITE, self.revoke_tokens,
                Revocation, 201, body=NewRevocation, members=REVOCATION, destroys=True,
            ),
            Operation(
                "getRevocation", "GET", revocation, "Show a revocation.", READ,
                self.revocation, Revocation,
            ),
            Operation(
                "deleteRevocation", "DELETE", revocation, "Delete a revocation.", WRITE,
                self.forget, status=204,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[ApiKey]:
        keys = await self._keys(request).all()
        return self._dependencies.pages.page(
            request.query, keys, lambda key: f"{key.name} {key.id}"
        )

    async def get(self, request: OperationInput) -> ApiKey:
        key = await self._keys(request).get(request.names["key"])
        if key is None:
            raise not_found("key", request.names["key"])
        return key

    async def create(self, request: OperationInput) -> OperationOutput:
        body: NewKey = request.body
        check_given(request.principal, body.scopes, body.roles, self._dependencies.operator_role)
        check_principal(request, body.principal)
        if body.scopes and not body.any_scope:
            pool = self._dependencies.pool
            check_scopes(body.scopes, await known_scopes(pool, request.tenant, self._scopes))
        try:
            key, secret = await self._keys(request).create(
                body.name,
                body.principal,
                body.scopes,
                body.roles,
                expires=body.expires,
                makers=request.principal.people,
            )
        except KeyExists as error:
            raise conflict(sentence(error)) from error
        return await self._issue(key, secret)

    async def rotate(self, request: OperationInput) -> OperationOutput:
        body: KeyRotation = request.body or KeyRotation()
        caller, earlier = request.principal, await self.get(request)
        check_given(caller, earlier.scopes, earlier.roles, self._dependencies.operator_role)
        # its only maker knows the secret already
        if caller.id not in earlier.makers or not caller.people.issuperset(earlier.makers):
            check_principal(request, earlier.principal)
        try:
            key, secret = await self._keys(request).rotate(
                earlier.id,
                timedelta(seconds=body.overlap_s),
                expires=body.expires,
                makers=caller.people,
            )
        except KeyRefused as error:
            raise conflict(sentence(error)) from error
        return await self._issue(key, secret)

    async def _issue(self, key: ApiKey, secret: str) -> OperationOutput:
        await self._reload("keys")  # or its bearer would be refused at first
        return OperationOutput(
            MadeKey(key, secret), location=f"/keys/{key.id}", untold=MadeKey(key, None)
        )

    async def revoke(self, request: OperationInput) -> None:
        keys, key = self._keys(request), await self.get(request)
        await keys.revoke(key.id)  # idempotent: an earlier revocation is as good
        for earlier in await keys.all() if request.query.earlier else ():
            if earlier.revoked is None and earlier.name.startswith(earlier_mark(key.name)):
                await keys.revoke(earlier.id)
        await self._reload("keys")

    async def revocations(self, request: OperationInput) -> ListPage[Revocation]:
        revocations = await self._revocations(request).all()
        return self._dependencies.pages.page(request.query, revocations, lambda row: row.id)

    async def revocation(self, request: OperationInput) -> Revocation:
        revocation = await self._revocations(request).get(request.names["revocation"])
        if revocation is None:
            raise not_found("revocation", request.names["revocation"])
        return revocation

    async def revoke_tokens(self, request: OperationInput) -> OperationOutput:
        body: NewRevocation = request.body
        revocation = Revocation(
            body.jti,
            body.subject,
            issued_before=body.issued_before,
            expires=body.expires,
            reason=body.reason,
        )
        await self._revocations(request).add(revocation)
        return OperationOutput(revocation, location=f"/revocations/{revocation.id}")

    async def forget(self, request: OperationInput) -> None:
        if not await self._revocations(request).remove(request.names["revocation"]):
            raise not_found("revocation", request.names["revocation"])

    def _keys(self, request: OperationInput) -> ApiKeys:
        return ApiKeys(self._dependencies.pool, request.tenant)

    def _revocations(self, request: OperationInput) -> Revocations:
        return Revocations(self._dependencies.pool, request.tenant)


def check_principal(request: OperationInput, principal: str | None) -> None:
    """Forbids keys of another principal: their holder could approve their own calls. Raises
    Problem."""
    caller = request.principal
    if principal not in (None, caller.id) and ALL not in caller.scopes:
        raise lacks_scope(ALL, action="A key of another principal")


def check_given(
    caller: Principal,
    scopes: Sequence[str],
    roles: Sequence[str],
    operator_role: str,
    *,
    of: str = "key",
) -> None:
    """Limits a key, or a user, to the scopes and roles of its creator; `admin` may grant all but
    the operator role. Raises Problem."""
    has_all = ALL in caller.scopes
    mistakes = [
        *(
            _too_much("scopes", at, scope)
            for at, scope in enumerate(scopes)
            if not (has_all or allows(caller, scope))
        ),
        *(
            _too_much("roles", at, role)
            for at, role in enumerate(roles)
            if role not in caller.roles and not (has_all and role != operator_role)
        ),
    ]
    if mistakes:
        text = f"A {of} gets no more scopes and roles than its maker has."
        raise ProblemDetails(403, "insufficient-scope", text, tuple(mistakes))


def _too_much(member: str, at: int, word: str) -> Mistake:
    detail = f"{word[:100]!r} is none of your {member}"
    return Mistake(detail, pointer=f"/{member}/{at}")
