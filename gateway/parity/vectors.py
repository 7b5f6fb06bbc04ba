"""Format of vectors: the requests, the expected answers, intended differences.

It is described in tests/vectors/hybrid/README.md.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from schemas.errors import ToolgateError
from schemas.hybrid import split

Target = Literal["command", "query", "rpc"]
Mode = Literal["strict", "spec"]
Evidence = Literal["test", "code", "inferred", "design"]

TOKENS = "tokens.json"
CHECKOUT = Path(__file__).parents[2] / "tests" / "vectors" / "hybrid"
SHIPPED_VECTORS = Path(__file__).with_name("shipped")

KEY = Path("keys", "public-test-key.pem")
STRANGER_BITS = 2048


class VectorRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Request of a vector. At most one of `body`, `text`, `parts` and `base64` is set."""

    target: Target | tuple[Target, ...]  # several: the vector is played to each
    method: str = "POST"
    query: str | dict[str, Any] = ""  # literal, or members to be encoded
    headers: dict[str, str | None] = field(default_factory=dict)  # None: not sent
    token: str | None = "valid"  # noqa: S105 - the name of one
    scope_token: str | None = None
    body: Any = UNSET  # JSON
    text: str | None = None
    parts: tuple[tuple[str, int], ...] | None = None  # each text so many times
    base64: str | None = None


class Expect(Struct, frozen=True, forbid_unknown_fields=True):
    """Expected answer. At most one of `body`, `match`, `text` and `empty` is set."""

    status: int | tuple[int, ...]
    headers: dict[str, Any] = field(default_factory=dict)
    body: Any = UNSET  # exactly this JSON
    match: Any = UNSET  # at least this JSON
    text: Any = UNSET
    empty: bool = False


class VectorStep(Struct, frozen=True, forbid_unknown_fields=True):
    given: VectorRequest
    expect: Expect


class Ledger(Struct, frozen=True, forbid_unknown_fields=True):
    """An intended difference from light-hybrid-4j."""

    was: str
    now: str
    reason: str
    setting: str | None = None  # the setting that controls it
    legacy: Expect | tuple[Expect, ...] | None = None  # one for each step; None: not known


class Vector(Struct, frozen=True, forbid_unknown_fields=True):
    """Vector: either `given` and `expect`, or `steps`, played in their order."""

    id: str
    title: str
    modes: tuple[Mode, ...]
    given: VectorRequest | None = None
    expect: Expect | None = None
    steps: tuple[VectorStep, ...] = ()
    ledger: Ledger | None = None
    evidence: Evidence | None = None  # source of light-hybrid-4j's behaviour

    @property
    def all_steps(self) -> tuple[VectorStep, ...]:
        if self.given is None or self.expect is None:
            return self.steps
        return (VectorStep(self.given, self.expect),)


class General(Struct, frozen=True, forbid_unknown_fields=True):
    """A difference that no single vector shows."""

    id: str
    was: str
    now: str
    reason: str
    setting: str | None = None


class VectorFile(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    vectors: tuple[Vector, ...]
    general: tuple[General, ...] = ()
    needs: str | None = None  # a read-only action: called first, to check that it exists


@dataclass(frozen=True, slots=True)
class VectorRun:
    """Run of a vector on one target."""

    label: str  # L1, or L1@rpc where a vector has several targets
    vector: Vector
    steps: tuple[VectorStep, ...]  # each with one target

    @property
    def mode_free(self) -> bool:
        """Whether the run calls only /rpc, which has one mode."""
        return all(step.given.target == "rpc" for step in self.steps)

    def due(self, compat: Mode) -> bool:
        return ("spec" if self.mode_free else compat) in self.vector.modes


@dataclass(frozen=True, slots=True)
class Suite:
    folder: Path
    files: tuple[VectorFile, ...]

    @property
    def vectors(self) -> Iterator[Vector]:
        return (vector for file in self.files for vector in file.vectors)

    @property
    def runs(self) -> Iterator[VectorRun]:
        return (run for vector in self.vectors for run in _runs(vector))


def load(folder: Path | None = None) -> Suite:
    """The vectors in `folder`; by default those of the checkout, else those in the package. Raises
    ToolgateError that names the file."""
    directory = folder or next(
        (candidate for candidate in (CHECKOUT, SHIPPED_VECTORS) if candidate.is_dir()), None
    )
    if directory is None:
        raise ToolgateError("No vectors came with this installation: name a folder of them")
    if not directory.is_dir():
        raise ToolgateError(f"{directory}: there is no such folder")
    paths = sorted(path for path in directory.glob("*.json") if path.name != TOKENS)
    if not paths:
        raise ToolgateError(f"{directory}: no vectors (*.json) are in there")
    suite = Suite(directory, tuple(map(_file, paths)))
    twice = [
        id_ for id_, count in Counter(vector.id for vector in suite.vectors).items() if count > 1
    ]
    if twice:
        raise ToolgateError(f"{directory}: several vectors have the id {twice[0]}")
    return suite


def _file(path: Path) -> VectorFile:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=VectorFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolgateError(f"{path}: {error}") from error
    if file.needs is not None and split(file.needs) is None:
        raise ToolgateError(f"{path}: expected host/service/action/version in `needs`")
    for vector in file.vectors:
        if problem := _problem(vector):
            raise ToolgateError(f"{path}: {vector.id}: {problem}")
    return file


def _problem(vector: Vector) -> str | None:
    """The violation of a constraint that types cannot express, if any."""
    steps = vector.all_steps
    single = vector.given is not None and vector.expect is not None
    if (vector.given is None) != (vector.expect is None) or single == bool(vector.steps):
        return "expected either `given` and `expect`, or `steps`"
    if not vector.modes:
        return "`modes` is empty: expected strict, spec or both"
    for step in steps:
        if _several(step.given, _NO_BODY, ("body", "text", "parts", "base64")):
            return "expected at most one of body, text, parts and base64"
        if _several(step.expect, _NO_ANSWER, ("body", "match", "text", "empty")):
            return "expected at most one of body, match, text and empty"
    return _legacy_problem(vector.ledger, len(steps))


_NO_BODY, _NO_ANSWER = VectorRequest("rpc"), Expect(200)


def _several(struct: Struct, blank: Struct, names: Sequence[str]) -> bool:
    return sum(getattr(struct, name) is not getattr(blank, name) for name in names) > 1


def _legacy_problem(ledger: Ledger | None, steps: int) -> str | None:
    legacy = ledger.legacy if ledger else None
    if isinstance(legacy, tuple) and len(legacy) != steps:
        return f"`ledger.legacy` has {len(legacy)} expectations for {steps} steps"
    if isinstance(legacy, Expect) and steps > 1:
        return "`ledger.legacy` must be a list, with an expectation for each step"
    return None


def _runs(vector: Vector) -> Iterator[VectorRun]:
    steps = vector.all_steps
    targets = steps[0].given.target
    if isinstance(targets, str) or len(steps) > 1:
        yield VectorRun(vector.id, vector, steps)
        return
    [step] = steps
    for target in targets:
        targeted = replace(step, given=replace(step.given, target=target))
        yield VectorRun(f"{vector.id}@{target}", vector, (targeted,))


class TokenSpec(Struct, frozen=True, forbid_unknown_fields=True):
    claims: dict[str, Any]
    lifetime_s: int  # negative: it has expired
    signer: Literal["key", "stranger", "nobody"] = "key"


class TokenFile(Struct, frozen=True, forbid_unknown_fields=True):
    kid: str
    algorithm: str
    tokens: dict[str, TokenSpec]


def mint(suite: Suite, key_file: Path | None) -> dict[str, str]:
    """The tokens of `suite` by name, signed with `key_file`, else with the key beside the vectors.
    Raises ToolgateError for missing files, and for a token that vectors name without a
    definition."""
    file = _read(suite.folder / TOKENS)
    for vector in suite.vectors:
        for step in vector.all_steps:
            for name in (step.given.token, step.given.scope_token):
                if name is not None and name not in file.tokens:
                    raise ToolgateError(f"{vector.id}: {TOKENS} has no token {name!r}")
    key = _key(key_file or suite.folder / KEY, is_given=key_file is not None)
    return {name: _mint(token, file, key) for name, token in file.tokens.items()}


def _mint(token: TokenSpec, file: TokenFile, key: Any) -> str:
    now = int(time.time())
    expires = now + token.lifetime_s
    claims = {"iat": min(now, expires) - 1, "exp": expires, **token.claims}
    headers = {"kid": file.kid}
    if token.signer == "nobody":
        return jwt.encode(claims, "", "none", headers)
    signer = key if token.signer == "key" else _stranger()
    return jwt.encode(claims, signer, file.algorithm, headers)


def _read(path: Path) -> TokenFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=TokenFile)
    except OSError as error:
        raise ToolgateError(f"{path}: {error.strerror}; it describes the tokens") from error
    except msgspec.DecodeError as error:
        raise ToolgateError(f"{path}: {error}") from error


def _key(path: Path, *, is_given: bool) -> Any:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        hint = "" if is_given else ". Name the private key that the target trusts: --key FILE"
        raise ToolgateError(f"{path}: {error.strerror}{hint}") from error
    except (ValueError, TypeError) as error:
        raise ToolgateError(f"{path}: expected a private key in PEM, without a password") from error


@cache
def _stranger() -> rsa.RSAPrivateKey:
    """An untrusted key."""
    return rsa.generate_private_key(65537, STRANGER_BITS)
