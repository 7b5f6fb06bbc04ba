"""The check of `toolgate doctor` of what tools are found by."""

from importlib.util import find_spec

from config.settings import EmbeddingSettings, Settings
from gateway.cli.common.database import Registry
from gateway.cli.doctor.local import Check
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.models import Models
from registry.embedding.providers import embedder_for, make_embedder
from registry.embedding.sentence_transformers import NOT_INSTALLED
from registry.embedding.status import EmbeddingStatus, status

NAME = "embeddings"


async def embeddings(settings: Settings, registry: Registry) -> Check:
    """Whether texts have vectors. The provider itself is not asked: that may cost money."""
    try:
        embedder = _made(settings.embedding)
    except EmbeddingFailed as error:
        return Check(NAME, "failed", str(error))
    if embedder is None:
        return Check(NAME, "ok", "disabled; tools are found by their words")
    found = await status(registry.database.pool, registry.host_id)
    return _of_texts(found, embedder.model, settings.embedding)


def mismatch(settings: EmbeddingSettings, models: Models) -> str | None:
    """What follows where the settings and the database name different models; None: nothing does.

    Raises EmbeddingFailed.
    """
    embedder = make_embedder(settings)
    if embedder is None:
        return None
    wanted, target, serving = embedder.model, models.target, models.serving
    if serving in (None, wanted) and target in (None, wanted):
        return None
    asked = serving is not None and _is_asked(settings, serving)
    if asked and target == wanted:
        return None  # the one takes over from the other, as it should
    other = target if serving in (None, wanted) else serving
    how = "the old vectors serve" if asked else "words alone find tools"
    until = f"{_who(settings)} or `toolgate embed backfill` has embedded all"
    return f"the settings name {wanted}, the database {other}: {how} until {until}"


def _made(settings: EmbeddingSettings) -> Embedder | None:
    """Raises EmbeddingFailed, also where its library is not there."""
    embedder = make_embedder(settings)
    if settings.provider == "sentence-transformers" and not find_spec("sentence_transformers"):
        raise EmbeddingFailed(NOT_INSTALLED, retryable=False)
    return embedder


def _is_asked(settings: EmbeddingSettings, label: str) -> bool:
    """Whether queries can be embedded for the vectors of this model."""
    try:
        return embedder_for(settings, label) is not None
    except EmbeddingFailed:
        return False


def _of_texts(found: EmbeddingStatus, model: str, settings: EmbeddingSettings) -> Check:
    own = [one for one in found.counts if one.model == model]
    if failed := sum(one.failed for one in own):
        why = "".join(one.error for one in found.failed[:1]).rstrip(".")
        hint = "`toolgate embed retry` tries again"
        said = _counted(failed, "has failed", "have failed")
        return Check(NAME, "warning", f"{said}: {why}. {hint}")
    if text := mismatch(settings, found.models):
        return Check(NAME, "warning", text)
    if waiting := sum(one.total - one.ready - one.blank for one in own or found.counts):
        hint = f"{_who(settings)} embeds them, or `toolgate embed backfill` now"
        return Check(NAME, "ok", f"{_counted(waiting, 'waits', 'wait')} for {model}; {hint}")
    ready = sum(one.ready for one in own)
    return Check(NAME, "ok", f"{_counted(ready, 'has a vector', 'have vectors')} of {model}")


def _counted(count: int, has: str, have: str) -> str:
    return f"1 text {has}" if count == 1 else f"{count} texts {have}"


def _who(settings: EmbeddingSettings) -> str:
    """Who embeds what is in the queue."""
    return "`toolgate serve`" if settings.workers else "`toolgate worker`"
