"""A small authority, and an HTTPS server that may want its clients' certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEAR = timedelta(days=365)
NO_USAGE = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip
AUTHORITY_USAGE = x509.KeyUsage(**(NO_USAGE | {"key_cert_sign": True}))
LEAF_USAGE = x509.KeyUsage(**(NO_USAGE | {"digital_signature": True}))


class Authority:
    """Writes its certificate, and those that it signs, as PEM into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = self._write_certificate(
            f"{name}.pem", self._sign_certificate(self._name, self._key, authority=True)
        )

    def sign(
        self,
        name: str,
        password: bytes | None = None,
        *,
        host: str = "127.0.0.1",
        until: timedelta = YEAR,
    ) -> tuple[Path, Path]:
        """Files of a certificate for `name` at the address `host`, good `until` from now, and of
        its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        kept = (
            serialization.BestAvailableEncryption(password)
            if password
            else (serialization.NoEncryption())
        )
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kept)
        file = self._folder / f"{name}.key"
        file.write_bytes(pem)
        return self._write_certificate(
            f"{name}.crt", self._sign_certificate(subject, key, host, until)
        ), file

    def _sign_certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        host: str = "127.0.0.1",
        until: timedelta = YEAR,
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - YEAR)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            # the next three, because Python 3.13 and newer check by RFC 5280 (X509_STRICT)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(AUTHORITY_USAGE if authority else LEAF_USAGE, critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(host))]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )

    def _write_certificate(self, name: str, certificate: x509.Certificate) -> Path:
        file = self._folder / name
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


@asynccontextmanager
async def https(
    files: tuple[Path, Path],
    wants: Path | None = None,
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    body: bytes = b"{}",
) -> AsyncIterator[tuple[str, list[str]]]:
    """The URL of a server that answers `body`, and the names in the certificates that it was shown;
    `wants` is the authority that clients must have theirs from."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    context.set_ciphers("ALL:@SECLEVEL=0")
    if wants is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(wants)
    shown: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            certificate = writer.get_extra_info("peercert")
            shown.append(str(dict(certificate["subject"][0])["commonName"]) if certificate else "")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", shown
    finally:
        server.close()
        await server.wait_closed()
