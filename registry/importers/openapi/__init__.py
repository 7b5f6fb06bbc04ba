"""OpenAPI 3.x and Swagger 2.0 to tools: parse, assemble files, normalise, map, report.

Pure: bytes in, drafts and outcomes out.
"""

from registry.importers.drafts import ImportedDescription
from registry.importers.openapi.extensions import Overlay, overlay
from registry.importers.openapi.load import parse
from registry.importers.openapi.operations import OpenApiOptions
from registry.importers.openapi.read import read

__all__ = ["ImportedDescription", "OpenApiOptions", "Overlay", "overlay", "parse", "read"]
