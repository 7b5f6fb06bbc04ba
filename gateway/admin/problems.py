"""What is wrong with a request, as RFC 9457 has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from msgspec import UNSET, Struct, UnsetType

MEDIA_TYPE = "application/problem+json"


class Mistake(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong, and where."""

    detail: str
    pointer: str | UnsetType = UNSET  # into the body (RFC 6901)
    parameter: str | UnsetType = UNSET  # of the query
    header: str | UnsetType = UNSET


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """RFC 9457. `type` is relative to the API; `instance` is the id of the request, as in the
    gateway's log."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: tuple[Mistake, ...] = ()


@dataclass(eq=False)
class ProblemDetails(Exception):
    """Why a request is not served; public. Not frozen: whoever passes it on notes where."""

    status: int
    kind: str  # stands in `type`
    detail: str
    errors: tuple[Mistake, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, request_id: str) -> bytes:
        title = HTTPStatus(self.status).phrase
        return msgspec.json.encode(
            ProblemDocument(
                f"problems/{self.kind}", title, self.status, self.detail, request_id, self.errors
            )
        )


def sentence(error: Exception) -> str:
    """What the registry says as half a sentence, whole."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def bad_request(detail: str, *errors: Mistake) -> ProblemDetails:
    return ProblemDetails(400, "bad-request", detail, errors)


def invalid(detail: str, *errors: Mistake) -> ProblemDetails:
    """The request can be read, and asks for what cannot be."""
    return ProblemDetails(422, "invalid", detail, errors)


def not_found(what: str, name: str) -> ProblemDetails:
    return ProblemDetails(404, "not-found", f"There is no {what} {name[:100]!r}.")


def conflict(detail: str) -> ProblemDetails:
    return ProblemDetails(409, "conflict", detail)


def changed() -> ProblemDetails:
    """What If-Match names is not there any longer."""
    return ProblemDetails(
        412, "precondition-failed", "It is not as the condition says: read it again."
    )


def unavailable(detail: str) -> ProblemDetails:
    return ProblemDetails(503, "unavailable", detail, headers={"Retry-After": "1"})
