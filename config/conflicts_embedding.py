"""What is wrong with the settings of what makes vectors."""

from collections.abc import Iterator

from config.problem import Problem, Where, dotted
from config.settings import Settings

NEEDS = {
    "sentence-transformers": {"model": "the name of a model or a directory"},
    "openai-compatible": {"model": "the name of a model", "url": "the URL of a service"},
    "local-http": {"url": "the URL of a service"},
}
OF_OTHERS = ("model", "url", "api_key")  # than the bundled model


def embedding_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """`where` says where the first of some key paths stands that is no default."""
    found, provider = settings.embedding, ("embedding", "provider")
    for key, text in NEEDS.get(found.provider, {}).items():
        if not getattr(found, key):
            said = f"expected {text}: {found.provider} needs it"
            yield Problem(where(provider), dotted(("embedding", key)), said)
    for key in OF_OTHERS if found.provider == "bundled" else ():
        if getattr(found, key):
            path = ("embedding", key)
            text = "expected nothing, the bundled model has none; for another set"
            yield Problem(where(path), dotted(path), f"{text} embedding.provider")
    if found.provider == "disabled" and settings.disclosure.when_down == "fail_closed":
        path = ("disclosure", "when_down")
        text = "expected lexical: with embedding.provider disabled every search would fail"
        yield Problem(where(path, provider), dotted(path), text)
