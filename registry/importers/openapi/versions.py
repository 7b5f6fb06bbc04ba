"""Which version of OpenAPI a document is of, or what else it is."""

import re
from typing import Any

from schemas.errors import ImportRejected


def version_of(root: dict[str, Any]) -> tuple[int, int]:
    """(2, 0), (3, 0), (3, 1) or (3, 2). Raises `ImportRejected`."""
    supported = "Supported: Swagger 2.0, OpenAPI 3.0, 3.1 and 3.2"
    stated, swagger = root.get("openapi"), root.get("swagger")
    # unquoted in YAML, `openapi: 3.1` and `swagger: 2.0` are numbers
    if match := re.match(r"3\.([012])(\.|-|$)", str(stated).strip()):
        return 3, int(match[1])
    if re.fullmatch(r"2(\.0)*", str(swagger).strip()):
        return 2, 0
    if stated is not None:
        raise ImportRejected(f"This is OpenAPI {str(stated)[:40]!r}. {supported}.")
    if swagger is not None:
        raise ImportRejected(f"This is Swagger {str(swagger)[:40]!r}. {supported}.")
    raise ImportRejected(_unversioned(root, supported))


def _unversioned(root: dict[str, Any], supported: str) -> str:
    if _is_hybrid(root):
        return (
            "This describes a hybrid service: `toolgate import hybrid` reads it, and `hybrid:` in "
            "the settings."
        )
    if "overlay" in root and "actions" in root:
        return (
            "This is an OpenAPI Overlay, which says what to change in a description. Apply it "
            "first, and import what comes out."
        )
    return (
        f"This is no OpenAPI description: `openapi` is missing, and `swagger` as well. {supported}."
    )


def _is_hybrid(root: dict[str, Any]) -> bool:
    """Whether it is a spec.yaml or a schema.json of light-hybrid-4j."""
    ids = (key for key in root if key.count("/") == 3 and not key.startswith("/"))
    return {"host", "service", "action"} <= root.keys() or next(ids, None) is not None
