"""Files with keys: which serve, and what is said of the others."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from config.access import Auth
from gateway.guards.verification_keys import KeyRing, file_keys
from schemas.errors import ToolgateError
from tests.gateway.guards.signing import Signer, by_jwks, by_key, ed448_signer, signer

RS, ES, ED = signer("RS256", kid="rsa"), signer("ES256", kid="ec"), signer("EdDSA", kid="ed")


def certificate(key: Signer) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tokens.example.com")])
    first, last = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    public = key.private.public_key()
    builder = x509.CertificateBuilder(name, name, public, 1, first, last, extensions=[])
    return builder.sign(key.private, hashes.SHA256()).public_bytes(Encoding.PEM)


def load_keys(auth: Auth) -> KeyRing:
    setting = "jwks_file" if auth.jwks_file else "key_file"
    keys = file_keys(f"auth.{setting}", getattr(auth, setting), auth.algorithms)
    assert keys.ring is not None
    return keys.ring


def key(ring: KeyRing, **header: Any) -> Any:
    found = ring.find(header)
    assert found is not None
    return found.material


def refusal_of(auth: Any) -> str:
    with pytest.raises(ToolgateError) as caught:
        load_keys(auth)
    return str(caught.value)


def algorithms(ring: KeyRing) -> list[tuple[str, ...]]:
    return [key.algorithms for key in ring.keys]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (RS, ("RS256", "PS256")),
        (ES, ("ES256",)),
        (ED, ("EdDSA",)),
        (ed448_signer(), ("EdDSA",)),
    ],
)
def test_a_public_key_serves_for_the_accepted_algorithms_of_its_kind(
    tmp_path: Path, key: Signer, found: tuple[str, ...]
) -> None:
    assert algorithms(load_keys(by_key(tmp_path, key.pem))) == [found]
    assert algorithms(load_keys(by_jwks(tmp_path, [key.jwk()]))) == [found]


def test_a_certificate_is_taken_for_its_key_whatever_its_dates(tmp_path: Path) -> None:
    ring = load_keys(by_key(tmp_path, certificate(RS)))
    assert key(ring, alg="RS256") == RS.private.public_key()


def test_a_chain_of_certificates_is_taken_for_its_first(tmp_path: Path) -> None:
    ring = load_keys(by_key(tmp_path, certificate(ES) + certificate(RS)))
    assert key(ring, alg="ES256") == ES.private.public_key()


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (b"", "found neither, or one that cannot be read"),
        (b"a shared secret of many, many characters", "found neither"),
        (b"\xff\xfe\x00", "found neither"),
        (RS.pem.replace(b"M", b"*"), "found neither"),
        (RS.private_pem, "found a private key"),
        (RS.pem + ES.private_pem, "found a private key"),
        (RS.pem + ES.pem, "found several keys; a JWKS file (auth.jwks_file) can have them"),
        (
            Signer("RS256", rsa.generate_private_key(65537, 1024)).pem,
            "an RSA key needs 2048 bits, this has 1024",
        ),
        (Signer("", dsa.generate_private_key(1024)).pem, "it is a key of another kind"),
        (
            Signer("", ec.generate_private_key(ec.SECP256K1())).pem,
            "it is for none that we know, and auth.algorithms or its `alg` excludes that",
        ),
        (signer("ES384").pem, "it is for ES384, and auth.algorithms or its `alg` excludes that"),
    ],
)
def test_a_key_file_of_no_use_is_refused_with_the_reason(
    tmp_path: Path, pem: bytes, reason: str
) -> None:
    said = refusal_of(by_key(tmp_path, pem))
    assert said.startswith(f"auth.key_file: {tmp_path / 'key.pem'}: {reason}")
    assert said.endswith("; expected a PEM file with one public key, or with a certificate")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    auth = by_key(tmp_path, RS.pem)
    missing = str(tmp_path / "none")
    assert refusal_of(replace(auth, key_file=missing)).startswith(
        f"auth.key_file: {missing}: no such file or directory; expected a PEM file"
    )
    assert refusal_of(replace(auth, key_file="", jwks_file=str(tmp_path))).startswith(
        f"auth.jwks_file: {tmp_path}: is a directory; expected a JWKS file"
    )


def broken_key(**members: Any) -> dict[str, Any]:
    return ES.jwk(**members)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([], "found no usable key (there is none at all)"),
        ({}, "found `keys` that is no list of objects"),
        (["a"], "found `keys` that is no list of objects"),
        ([RS.private_jwk()], "found a private key (key 1)"),
        ([ES.jwk(), ED.private_jwk()], "found a private key (key 2)"),
        ([ES.jwk(), {"kty": "oct", "k": "c2VjcmV0"}], "found a symmetric key (key 2)"),
        ([RS.jwk(), RS.jwk(use="sig")], "found two keys with the same `kid`, or without one"),
        ([RS.jwk(kid=None), signer("RS256", "b").jwk()], "found two keys with the same `kid`"),
        ([RS.jwk(use="enc")], "found no usable key (key 1: it is not for signatures"),
        ([RS.jwk(key_ops=["encrypt"])], "found no usable key (key 1: it is not for signatures"),
        ([RS.jwk(key_ops="verify")], "found no usable key (key 1: it is not for signatures"),
        ([RS.jwk(alg="RSA-OAEP")], "found no usable key (key 1: it is for RS256"),
        ([RS.jwk(alg="RS512")], "found no usable key (key 1: it is for RS256"),
        ([RS.jwk(alg=["RS256"])], "found no usable key (key 1: it is for RS256"),
        ([RS.jwk(alg="HS256")], "found no usable key (key 1: it is for RS256"),
        ([RS.jwk(kid=7)], "found no usable key (key 1: its `kid` is no text"),
        ([broken_key(kty="none")], "found no usable key (key 1: its `kty` is none of RSA, EC, OKP"),
        ([broken_key(kty=["EC"])], "found no usable key (key 1: its `kty` is none of RSA, EC, OKP"),
        ([broken_key(kty="RSA")], "found no usable key (key 1: its members make no public key"),
        ([broken_key(x=None)], "found no usable key (key 1: its members make no public key"),
        ([broken_key(x=5)], "found no usable key (key 1: its members make no public key"),
        (
            [broken_key(x=ES.jwk()["y"])],
            "found no usable key (key 1: its members make no public key",
        ),
        ([broken_key(crv="P-384")], "found no usable key (key 1: its members make no public key"),
        ([RS.jwk(n="AQAB")], "found no usable key (key 1: "),
        ([ED.jwk(x="AAAA")], "found no usable key (key 1: its members make no public key"),
    ],
)
def test_a_jwks_of_no_use_is_refused_with_the_reason(
    tmp_path: Path, keys: Any, reason: str
) -> None:
    said = refusal_of(by_jwks(tmp_path, keys))
    assert said.startswith(f"auth.jwks_file: {tmp_path / 'jwks.json'}: {reason}")
    assert "expected a JWKS file" in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "found no JSON"),
        ("{", "found no JSON"),
        ("[" * 100_000, "found no JSON"),
        ("[]", "found other JSON"),
        ("5", "found other JSON"),
        ('"keys"', "found other JSON"),
        ("{}", "found other JSON"),
        (json.dumps(RS.jwk()), "found other JSON"),  # one key is no set
    ],
)
def test_invalid_jwks_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    auth = by_jwks(tmp_path, [])
    Path(auth.jwks_file).write_text(text)
    assert reason in refusal_of(auth)


def test_keys_for_other_ends_are_left_out_of_a_jwks(tmp_path: Path) -> None:
    keys = [signer("RS256", "b", "x").jwk(use="enc"), RS.jwk(use="sig"), {"kty": "new"}]
    ring = load_keys(by_jwks(tmp_path, keys))
    assert [key.id for key in ring.keys] == ["rsa"]


def test_the_algorithm_of_a_key_is_the_only_allowed_algorithm(tmp_path: Path) -> None:
    ring = load_keys(by_jwks(tmp_path, [RS.jwk(alg="PS256")]))
    assert algorithms(ring) == [("PS256",)]


def test_a_token_gets_the_key_of_its_kid(tmp_path: Path) -> None:
    other = signer("RS256", "other", "other")
    ring = load_keys(by_jwks(tmp_path, [RS.jwk(), other.jwk(), ES.jwk()]))
    assert key(ring, alg="RS256", kid="rsa") == RS.private.public_key()
    assert key(ring, alg="RS256", kid="other") == other.private.public_key()
    for header in (
        {"alg": "RS256", "kid": "third"},
        {"alg": "ES256", "kid": "rsa"},
        {"alg": "HS256", "kid": "rsa"},
        {"alg": "RS256"},  # two keys would do
        {"kid": "rsa"},
        {},
    ):
        assert ring.find(header) is None


def test_without_a_kid_the_only_key_that_suits_will_do(tmp_path: Path) -> None:
    ring = load_keys(by_jwks(tmp_path, [RS.jwk(), ES.jwk()]))
    assert key(ring, alg="ES256") == ES.private.public_key()


def test_the_key_of_a_key_file_matches_any_kid(tmp_path: Path) -> None:
    ring = load_keys(by_key(tmp_path, ES.pem))
    assert key(ring, alg="ES256", kid="2026-11") == ES.private.public_key()
