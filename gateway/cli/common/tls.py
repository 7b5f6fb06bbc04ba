"""TLS of the listener: the certificate that new connections are shown, read again on SIGHUP."""

import ssl

from config.settings import ListenerTls
from schemas.errors import ToolgateError


class CertificateUnusable(ToolgateError):
    """The files of server.tls are not a certificate and its key."""


class ListenerCertificate:
    """The context of all handshakes; running connections keep what they began with."""

    def __init__(self, settings: ListenerTls) -> None:
        """Raises CertificateUnusable."""
        self._settings = settings
        self.context = _context(settings)

    def reload(self) -> None:
        """Read the files again. Raises CertificateUnusable, before anything has changed."""
        _context(self._settings)  # a failed load would leave half of a pair in the context in use
        self.context.load_cert_chain(self._settings.cert, self._settings.key)


def _context(settings: ListenerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # without a password, OpenSSL would ask for one at the terminal
        context.load_cert_chain(settings.cert, settings.key, password=_no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        text = f"server.tls: {settings.cert} and {settings.key} cannot be used: {reason}"
        raise CertificateUnusable(text) from error
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; expected one without a password")


def trusting(settings: ListenerTls) -> ssl.SSLContext:
    """The context of a client on this machine: it trusts the listener's own certificate, whatever
    names that has."""
    context = ssl.create_default_context(cafile=settings.cert)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
