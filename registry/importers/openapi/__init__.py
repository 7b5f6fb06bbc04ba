"""OpenAPI 3.x and Swagger 2.0 to tools: parse, assemble files, normalise, map, report.

Pure: bytes in, drafts and outcomes out.
"""

from registry.documents.yaml_and_json import parse
from registry.importers.drafts import ImportedDescription
from registry.importers.openapi.import_options import OpenApiOptions
from registry.importers.openapi.import_pipeline import read
from registry.importers.openapi.x_toolgate import Overlay, overlay

__all__ = ["ImportedDescription", "OpenApiOptions", "Overlay", "overlay", "parse", "read"]
