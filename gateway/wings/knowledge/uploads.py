"""Files by PUT, with a limit of their own for the body: `/knowledge/files/COLLECTION/PATH`."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.context import new_request_id
from gateway.operations.operation import MEDIA_TYPE, ProblemDetails
from gateway.wings.knowledge.calls import ToolCalls, structured_body
from gateway.wings.knowledge.ingestion import Ingestion
from schemas.errors import Fault

FILES = "/knowledge/files"


class FileUploads:
    def __init__(self, calls: ToolCalls, ingestion: Ingestion) -> None:
        self._calls = calls
        self._ingestion = ingestion

    @property
    def app(self) -> Starlette:
        route = Route(f"{FILES}/{{collection}}/{{path:path}}", self.put, methods=["PUT"])
        return Starlette(
            routes=[route],
            exception_handlers={ProblemDetails: _error_response, Fault: _error_response},
        )

    async def put(self, request: Request) -> Response:
        """A file, or an archive, of which the files are stored."""
        await self._calls.context(request)
        names = request.path_params
        token = self._ingestion.hold(await request.body())
        arguments = {"collection": names["collection"], "path": names["path"], "upload": token}
        try:
            result = await self._calls.call(request, "knowledge_add_file", arguments)
        finally:
            self._ingestion.drop(token)
        return Response(structured_body(result), media_type="application/json")


async def _error_response(_request: Request, error: Exception) -> Response:
    if isinstance(error, Fault):
        error = ProblemDetails(
            error.status if error.status >= 400 else 422, "refused", error.message
        )
    if not isinstance(error, ProblemDetails):
        raise error
    return Response(error.encode(new_request_id()), error.status, error.headers, MEDIA_TYPE)
