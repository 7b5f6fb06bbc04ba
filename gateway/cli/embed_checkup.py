"""The check of `toolgate doctor` of what tools are found by."""

from config.settings import Settings
from gateway.cli.checkup import Check
from gateway.cli.database import Registry
from registry.embedding.abc import EmbeddingFailed
from registry.embedding.providers import make_embedder
from registry.embedding.status import status

NAME = "embeddings"


async def embeddings(settings: Settings, registry: Registry) -> Check:
    """Whether texts have vectors. The provider itself is not asked: that may cost money."""
    try:
        embedder = make_embedder(settings.embedding)
    except EmbeddingFailed as error:
        return Check(NAME, "failed", str(error))
    if embedder is None:
        return Check(NAME, "ok", "disabled; tools are found by their words")
    found = await status(registry.database.pool, registry.host_id)
    target = [one for one in found.counts if one.model == embedder.model]
    ready, failed = sum(one.ready for one in target), sum(one.failed for one in target)
    if failed:
        why = "".join(one.error for one in found.failed[:1]).rstrip(".")
        hint = "`toolgate embed retry` tries again"
        return Check(NAME, "warning", f"{failed} texts have failed: {why}. {hint}")
    if waiting := sum(one.total - one.ready - one.blank for one in found.counts if one.total):
        hint = "`toolgate serve` embeds them, or `toolgate embed backfill` now"
        return Check(NAME, "ok", f"{waiting} texts wait for {embedder.model}; {hint}")
    return Check(NAME, "ok", f"{ready} texts have vectors of {embedder.model}")
