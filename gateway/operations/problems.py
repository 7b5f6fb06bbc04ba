"""Problems of operations: problem details for HTTP (RFC 9457), as exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from msgspec import UNSET, Struct, UnsetType

MEDIA_TYPE = "application/problem+json"
BODY_MISTAKEN = "The body is not as expected."
PARAMETER_MISTAKEN = "A parameter is not as expected."


class Mistake(Struct, frozen=True, omit_defaults=True):
    """One error of a request, and its place."""

    detail: str
    pointer: str | UnsetType = UNSET  # into the body (RFC 6901)
    parameter: str | UnsetType = UNSET  # of the query
    header: str | UnsetType = UNSET


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """Problem details of RFC 9457. `type` is relative to the API; `instance` is the request id, as
    in the gateway's log."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: tuple[Mistake, ...] = ()


@dataclass(eq=False)
class ProblemDetails(Exception):
    """A problem as an exception; public. Not frozen: raising sets its traceback."""

    status: int
    kind: str  # last part of `type`
    detail: str
    errors: tuple[Mistake, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, request_id: str) -> bytes:
        title = HTTPStatus(self.status).phrase
        return msgspec.json.encode(
            ProblemDocument(
                f"problems/{self.kind}",
                title=title,
                status=self.status,
                detail=self.detail,
                instance=request_id,
                errors=self.errors,
            )
        )


def sentence(error: Exception) -> str:
    """An error message of the registry as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def bad_request(detail: str, *errors: Mistake) -> ProblemDetails:
    return ProblemDetails(400, "bad-request", detail, errors)


def invalid(detail: str, *errors: Mistake) -> ProblemDetails:
    """422: the request is well-formed, but cannot be carried out."""
    return ProblemDetails(422, "invalid", detail, errors)


def not_found(kind: str, name: str) -> ProblemDetails:
    return ProblemDetails(404, "not-found", f"There is no {kind} {name[:100]!r}.")


def lacks_scope(
    scope: str,
    headers: Mapping[str, str] | None = None,
    *,
    is_admin: bool = False,
    action: str = "",
) -> ProblemDetails:
    """`is_admin`: the caller has the scope `admin`, and may expect that it permits everything.
    `action`: the part of the operation that needs it, such as "Acting for another user"."""
    text = f"Required scope: {scope}." + " The scope admin is that of the admin API." * is_admin
    text += f" {action} takes it." if action else ""
    return ProblemDetails(403, "insufficient-scope", text, headers=headers or {})


def conflict(detail: str) -> ProblemDetails:
    return ProblemDetails(409, "conflict", detail)


def changed_problem() -> ProblemDetails:
    """412: the resource no longer has the ETag of If-Match."""
    return ProblemDetails(
        412,
        "precondition-failed",
        "The resource has changed: read it again, and repeat the change with its new ETag.",
    )


def exists_problem() -> ProblemDetails:
    """412: a resource exists that If-None-Match: * was to create."""
    text = "The resource exists: to replace it, send If-Match with its ETag, or with *."
    return ProblemDetails(412, "precondition-failed", text)


def unavailable(detail: str) -> ProblemDetails:
    return ProblemDetails(503, "unavailable", detail, headers={"Retry-After": "1"})
