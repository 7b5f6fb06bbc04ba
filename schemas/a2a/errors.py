"""Errors of Agent2Agent, with their codes of JSON-RPC, HTTP and google.rpc. The same codes mean
other things in MCP: nothing of this is for its endpoints."""

from typing import Any

from schemas.errors import Fault

DOMAIN = "a2a-protocol.org"


class A2AFault(Fault):
    """A request that an agent refuses; `reason` is that of google.rpc.ErrorInfo."""

    reason = "INTERNAL_ERROR"
    rpc_status = "INTERNAL"
    status = 500

    @property
    def details(self) -> list[dict[str, Any]]:
        info = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": DOMAIN,
        }
        return [info | ({"metadata": self.data} if self.data else {})]


class TaskNotFound(A2AFault):
    code, status, reason, rpc_status = -32001, 404, "TASK_NOT_FOUND", "NOT_FOUND"


class TaskNotCancelable(A2AFault):
    code, status, reason = -32002, 400, "TASK_NOT_CANCELABLE"
    rpc_status = "FAILED_PRECONDITION"


class PushNotSupported(A2AFault):
    code, status, reason = -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"
    rpc_status = "FAILED_PRECONDITION"


class UnsupportedOperation(A2AFault):
    code, status, reason = -32004, 400, "UNSUPPORTED_OPERATION"
    rpc_status = "FAILED_PRECONDITION"


class ContentTypeNotSupported(A2AFault):
    code, status, reason = -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"
    rpc_status = "INVALID_ARGUMENT"


class VersionNotSupported(A2AFault):
    code, status, reason = -32009, 400, "VERSION_NOT_SUPPORTED"
    rpc_status = "FAILED_PRECONDITION"


class InvalidParameters(A2AFault):
    code, status, reason = -32602, 400, "INVALID_PARAMS"
    rpc_status = "INVALID_ARGUMENT"


class ServiceUnavailable(A2AFault):
    """A retry may succeed."""

    code, status, reason, rpc_status = -32603, 503, "UNAVAILABLE", "UNAVAILABLE"


class UnknownMethod(A2AFault):
    code, status, reason, rpc_status = -32601, 404, "METHOD_NOT_FOUND", "NOT_FOUND"
