"""OpenAPI 3.x to tools: parse, normalise, map, report. Pure: bytes in, drafts and outcomes out.

`output_schema` of a draft stays None: output schemas, Swagger 2.0, documents in several files and
security schemes are read by later versions of this package.
"""

from registry.importers.imported import Imported
from registry.importers.openapi.load import parse
from registry.importers.openapi.read import read
from registry.importers.openapi.selection import Options

__all__ = ["Imported", "Options", "parse", "read"]
