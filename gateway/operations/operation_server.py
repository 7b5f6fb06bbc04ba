"""Serves operations: preconditions, idempotency and responses, the same for every front."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec
import psycopg
from msgspec import Struct

from gateway.context import Principal
from gateway.operations.job_declarations import RESPOND_ASYNC, JobView, prefers_async
from gateway.operations.operation import (
    Operation,
    OperationInput,
    OperationOutput,
    TaggedView,
    allows,
)
from gateway.operations.problems import (
    MEDIA_TYPE,
    Mistake,
    ProblemDetails,
    bad_request,
    changed_problem,
    exists_problem,
    invalid,
    not_found,
    sentence,
    unavailable,
)
from gateway.operations.request_parsing import Headers, tags
from gateway.state.idempotency import (
    IdempotencyKeys,
    KeyScope,
    NoDatabase,
    OtherRequest,
    StillRunning,
)
from registry.database.postgres import AWAY, unavailability
from registry.database.shared_pool import borrow_for
from registry.skills.skill_errors import NoSuchEntry
from registry.tools.tool_errors import NoSuchTool, ToolChanged
from schemas.errors import Fault, ToolgateError, TooManyRequests

log = logging.getLogger("toolgate.admin")


@dataclass(frozen=True, slots=True)
class OperationResponse:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    text: str = ""  # of the tool's result; "": the body
    cause: BaseException | None = None  # of a problem, for callers in this process


def problem_response(problem: ProblemDetails, request_id: str) -> OperationResponse:
    return OperationResponse(
        problem.status,
        problem.encode(request_id),
        problem.headers,
        MEDIA_TYPE,
        cause=problem.__cause__,
    )


def tag_of(value: Any) -> str:
    """The entity tag of a representation: equal for equal bytes (RFC 9110, 8.8.3), except for the
    members that a TaggedView leaves out."""
    tagged = value
    if isinstance(value, TaggedView):
        members = msgspec.structs.asdict(value)
        tagged = {name: member for name, member in members.items() if name not in value.untagged}
    return f'"{hashlib.sha256(msgspec.json.encode(tagged)).hexdigest()[:32]}"'


KEY = re.compile(r"[\x21-\x7e]{1,128}")


class _Kept(Struct):
    status: int
    body: str
    headers: dict[str, str]
    media_type: str
    text: str = ""


_response_decoder = msgspec.json.Decoder(_Kept)

Both = tuple[OperationResponse, OperationResponse]  # the response, and the one for repetitions
Defer = Callable[[Operation, OperationInput, Headers], Awaitable[JobView]]
"""Stores the request as a job."""


class IdempotentRunner:
    def __init__(self, once: IdempotencyKeys) -> None:
        self._once = once

    async def run(
        self,
        key: str,
        principal: Principal,
        *,
        action: str,
        request: bytes,
        work: Callable[[], Awaitable[Both]],
    ) -> OperationResponse:
        """Do `work`, or return its recorded response. Raises ProblemDetails, and what `work`
        raises: then the key is released."""
        if not KEY.fullmatch(key):
            text = "expected 1 to 128 visible ASCII characters"
            raise bad_request("The key cannot be used.", Mistake(text, header="Idempotency-Key"))
        owner = KeyScope(principal.tenant, principal.id[:256], f"admin {action}", key)
        try:
            earlier = await self._once.claim(owner, request)
        except OtherRequest as error:
            text = "The Idempotency-Key was used for a different request."
            raise ProblemDetails(422, "idempotency-key-reused", text) from error
        except StillRunning as error:
            text = "A request with this Idempotency-Key still runs, or its outcome is not known."
            raise ProblemDetails(409, "idempotency-key-in-use", text) from error
        except (*AWAY, NoDatabase) as error:
            raise unavailable(f"{unavailability(error)}; nothing was done.") from error
        if earlier is not None:
            return _decode_response(earlier)
        # A cancelled `work` would leave its outcome unknown.
        with anyio.CancelScope(shield=True):
            return await self._first(owner, work)
        raise AssertionError  # a scope that is never cancelled swallows nothing

    async def _first(
        self, owner: KeyScope, work: Callable[[], Awaitable[Both]]
    ) -> OperationResponse:
        try:
            output, again = await work()
        except BaseException:
            await self._settle(owner, None)
            raise
        await self._settle(owner, again if again.status < 500 else None)
        return output

    async def _settle(self, owner: KeyScope, again: OperationResponse | None) -> None:
        try:
            if again is None:
                await self._once.release(owner)
            else:
                await self._once.record(owner, _encode_response(again))
        except (*AWAY, NoDatabase):
            log.exception("idempotency_key_not_stored")


def _encode_response(response: OperationResponse) -> bytes:
    headers = dict(response.headers)
    stored_response = _Kept(
        response.status, response.body.decode(), headers, response.media_type, text=response.text
    )
    return msgspec.json.encode(stored_response)


def _decode_response(data: bytes) -> OperationResponse:
    stored_response = _response_decoder.decode(data)
    body = stored_response.body.encode()
    return OperationResponse(
        stored_response.status,
        body,
        stored_response.headers,
        stored_response.media_type,
        text=stored_response.text,
    )


class OperationServer:
    """The table of operations, by id and by path, and how one is answered."""

    def __init__(
        self,
        operations: Sequence[Operation],
        repeats: IdempotentRunner,
        root: str,
        defer: Defer | None = None,
    ) -> None:
        """`root` is the path below which the operations are served over HTTP. Without `defer` all
        answer at once."""
        self._repeats = repeats
        self._defer = defer
        self._root = root
        self.by_id: Mapping[str, Operation] = {operation.id: operation for operation in operations}
        self.routes: dict[tuple[str, ...], dict[str, Operation]] = {}
        for operation in operations:
            if not operation.path:
                continue
            self.routes.setdefault(operation.parts, {})[operation.method] = operation

    def admits(self, request: OperationInput, operation: Operation) -> bool:
        """Whether the caller of a job has the scope of its operation."""
        return allows(request.principal, operation.scope)

    def read_by(self, operation: Operation) -> Operation:
        """The operation whose ETag the If-Match of another one names."""
        return self.by_id[operation.of] if operation.of else self.routes[operation.parts]["GET"]

    async def answer(
        self,
        operation: Operation,
        request: OperationInput,
        *,
        headers: Headers,
        body: bytes,
        request_id: str,
    ) -> OperationResponse:
        """The response, problems of its handler included; `headers` by lower-case names, `body`
        unparsed. What is read is not recorded for its key. Raises ProblemDetails for a key in
        use."""
        key = headers.get("idempotency-key")

        async def work() -> Both:
            try:
                return await self._run(operation, request, headers)
            except ProblemDetails as problem:
                refused = problem_response(problem, request_id)
                return refused, refused

        if key is None or not operation.keeps_answers:
            return (await work())[0]
        action = f"{operation.id} {'/'.join(request.names.values())}"
        return await self._repeats.run(
            key, request.principal, action=action, request=body, work=work
        )

    async def perform(
        self, operation: Operation, request: OperationInput, headers: Headers
    ) -> OperationResponse:
        """The response of an operation that runs as a job, without secrets. Raises
        ProblemDetails."""
        return (await self._answer_once(operation, request, headers))[1]

    async def _run(self, operation: Operation, request: OperationInput, headers: Headers) -> Both:
        as_job = operation.job
        if self._defer is None or as_job is None:
            return await self._answer_once(operation, request, headers)
        if not as_job.always and not prefers_async(headers):
            return await self._answer_once(operation, request, headers)
        await self._present(operation, request, headers)
        view = await self._defer(operation, request, headers)
        also = {"Location": f"{self._root}/jobs/{view.job}", "Preference-Applied": RESPOND_ASYNC}
        accepted = OperationResponse(202, msgspec.json.encode(view), also)
        return accepted, accepted

    async def _answer_once(
        self, operation: Operation, request: OperationInput, headers: Headers
    ) -> Both:
        present = await self._present(operation, request, headers)
        output = await answering(operation, replace(request, present=present))
        return self._encode_output(operation, output, headers)

    async def _present(
        self, operation: Operation, request: OperationInput, headers: Headers
    ) -> Any:
        """The resource to change, if the request has a precondition. Raises ProblemDetails: 428,
        412."""
        etag = headers.get("if-match")
        new_only = operation.creates and headers.get("if-none-match") == "*"
        if not operation.match or (etag is None and not new_only):
            if operation.match == "required":
                new = ", or If-None-Match: * for what is new" if operation.creates else ""
                text = f"Expected If-Match with the ETag of the resource{new}."
                raise ProblemDetails(428, "precondition-required", text)
            return None
        try:
            present = await answering(self.read_by(operation), request)
        except ProblemDetails as problem:
            if problem.status != 404 or not operation.creates:
                raise
            present = None
        tag = None if present is None else tag_of(value_of(present))
        if not _holds(tag, etag, "*" if new_only else None):
            raise exists_problem() if new_only and etag is None else changed_problem()
        return value_of(present)

    def _encode_output(self, operation: Operation, value: Any, headers: Headers) -> Both:
        output = value if isinstance(value, OperationOutput) else OperationOutput(value)
        status = output.status or operation.status
        if output.value is None:
            empty = OperationResponse(status, text=output.text)
            return empty, empty
        body = msgspec.json.encode(output.value)
        also = {"Location": self._root + output.location} if output.location else {}
        if operation.method in {"GET", "PUT"}:
            also["ETag"] = tag_of(output.value)
            partly = isinstance(output.value, TaggedView)  # its tag does not cover the whole body
            unless = None if partly else headers.get("if-none-match")
            if operation.method == "GET" and unless and not _holds(also["ETag"], None, unless):
                unchanged = OperationResponse(304, headers=also)
                return unchanged, unchanged
        response = OperationResponse(status, body, also, text=output.text)
        if output.untold is None:
            return response, response
        return response, replace(response, body=msgspec.json.encode(output.untold))


def _holds(tag: str | None, match: str | None, unless: str | None) -> bool:
    """Whether the preconditions hold (RFC 9110, 13.1) for this tag; None: there is no
    representation."""
    if match is not None:
        named = tags(match)
        if tag is None or ("*" not in named and tag not in named):  # strong comparison
            return False
    if unless is not None:
        named = tuple(tag.removeprefix("W/") for tag in tags(unless))
        if tag is not None and ("*" in named or tag in named):
            return False
    return True


async def answering(operation: Operation, request: OperationInput) -> Any:
    """The result of the operation; its errors become ProblemDetails."""
    try:
        with borrow_for(request.principal.key):
            return await operation.handle(request)
    except AWAY as error:
        raise unavailable(f"{unavailability(error)}; try again later.") from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        log.warning(
            "operation_not_stored",
            extra={"operation": operation.id, "reason": type(error).__name__},
        )
        raise invalid("A value of the request cannot be stored.") from error
    except NoSuchTool as error:
        raise not_found("tool", error.name) from error
    except ToolChanged as error:
        raise changed_problem() from error
    except NoSuchEntry as error:
        if error.name in request.names.values():
            raise not_found(error.kind, error.name) from error
        raise invalid(sentence(error)) from error
    except TooManyRequests:
        raise  # with its delay
    except Fault as fault:
        if fault.status == 503:
            raise unavailable(fault.message) from fault
        raise invalid(fault.message) from fault
    except ToolgateError as error:
        raise invalid(str(error)) from error


def value_of(output: Any) -> Any:
    """The body of an answer."""
    return output.value if isinstance(output, OperationOutput) else output
