"""Whether what was found is new: compared with what is known of its source."""

import hashlib
from typing import Any

from registry.sources.drafting import said_base, same_origin
from registry.sources.source_reader import Found, ImportSpec
from registry.sources.store import SourceDraft
from registry.sources.write_version import asked_of, same_asked
from schemas.source import Source


def is_rolled_back(known: Source, spec: ImportSpec, found: Found) -> bool:
    """Whether this is what the source was rolled back from."""
    held = known.rolled_back
    if held is None or found.document is None:
        return False
    return same_asked(held.asked, _asked_for(spec, found)) and held.document == (
        hashlib.sha256(found.document).hexdigest()
    )


def is_current(known: Source, spec: ImportSpec, found: Found) -> bool:
    """Whether this is what the source has, and nothing is rolled back that it would end."""
    if known.rolled_back is not None or known.origin != spec.origin:
        return False
    if known.location != found.location:
        return False
    if not _same_target(known, spec):
        return False
    return known.digest == found.digest and same_asked(asked_of(known), _asked_for(spec, found))


def _asked_for(spec: ImportSpec, found: Found) -> dict[str, Any]:
    return asked_of(
        SourceDraft(
            spec.name,
            spec.kind,
            found.location,
            include=spec.include,
            exclude=spec.exclude,
            options=spec.options,
        )
    )


def _same_target(known: Source, spec: ImportSpec) -> bool:
    base_url = said_base(spec)
    if base_url is None:
        return not known.base_url_trusted or same_origin(spec.location, known.base_url)
    return known.base_url == base_url
