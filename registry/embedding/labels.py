"""Labels of models: they stand beside every vector and tell those apart that cannot be compared.

"<provider>/<name of the model>". What no name identifies ends in "@" and a hash: a directory, by
its files; a nameless service, by its address. A label that would be too long for its column ends
in "~" and a hash. Neither can be turned back into a model.
"""

import hashlib
from pathlib import Path

LONGEST = 128  # embedding_model_t.model
_HASH = 12  # hexadecimal digits: 48 bits tell a few models apart
_SAMPLE_BYTES = 65536  # from either end of a file; weights that were trained again differ there


def label(provider: str, model: str) -> str:
    """`model` is a name that identifies it wherever it is asked for."""
    whole = f"{provider}/{model}"
    if len(whole) <= LONGEST:
        return whole
    return f"{whole[: LONGEST - _HASH - 1]}~{_hash(whole.encode())}"


def nameless(provider: str, address: str) -> str:
    """The label of the only model that a service has. The address cannot be read from it."""
    return label(provider, f"@{_hash(address.encode())}")


def directory(provider: str, folder: Path) -> str:
    """The label of the model whose files lie in `folder`, the same wherever a copy of it lies.

    Raises OSError.
    """
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        found.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            found.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            found.update(file.read(_SAMPLE_BYTES))
    name = folder.resolve().name[: LONGEST - len(provider) - _HASH - 2]
    return f"{provider}/{name}@{found.hexdigest()[:_HASH]}"


def by_name(label: str) -> tuple[str, str]:
    """(provider, model) of a label; the model is "" where no name leads to it."""
    provider, _, model = label.partition("/")
    hashed = model[-_HASH - 1 : -_HASH] in ("@", "~")
    return provider, "" if hashed else model


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]
