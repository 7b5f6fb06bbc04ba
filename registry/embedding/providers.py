"""Which embedder the settings mean. Each is imported when it is made, and loads even later."""

from importlib.util import find_spec

from msgspec.structs import replace

from config.settings import EmbeddingSettings
from registry.embedding.abc import Embedder
from registry.embedding.labels import by_name


def make_embedder(settings: EmbeddingSettings) -> Embedder | None:
    """The embedder that new texts go to; None: embeddings are disabled.

    It loads nothing and connects to nothing before its first text. Raises EmbeddingFailed, which
    names the setting, where one is missing or names nothing.
    """
    match settings.provider:
        case "bundled":
            return _bundled(settings)
        case "sentence-transformers":
            from registry.embedding.sentence_transformers import SentenceTransformers

            return SentenceTransformers(settings)
        case "openai-compatible":
            from registry.embedding.remote import openai_compatible

            return openai_compatible(settings)
        case "local-http":
            from registry.embedding.remote import local_http

            return local_http(settings)
        case "disabled":
            return None


def embedder_for(settings: EmbeddingSettings, label: str) -> Embedder | None:
    """The embedder that made the vectors labelled `label`, where these settings still reach it.

    That is the configured one; the bundled one always; another model of sentence-transformers, if
    that is installed; and another model of the configured openai-compatible service. None:
    nothing here can embed a query for those vectors. `query_prefix` belongs to the configured
    model alone.
    """
    configured = make_embedder(settings)
    if configured is not None and configured.model == label:
        return configured
    bundled = _bundled(settings)
    if bundled.model == label:
        return bundled
    provider, model = by_name(label)
    library = provider == "sentence-transformers" and find_spec("sentence_transformers")
    service = provider == settings.provider == "openai-compatible"
    if model and (library or service):
        other = replace(settings, provider=provider, model=model, query_prefix="")
        return make_embedder(other)
    return None


def _bundled(settings: EmbeddingSettings) -> Embedder:
    from registry.embedding.bundled import Bundled

    return Bundled(settings.batch_size, settings.threads)
