"""Reasons why TLS refuses a certificate, and the remedy for one of an unknown issuer."""

_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})  # X509_V_ERR_* of OpenSSL


def certificate_reason(cause: Exception) -> str:
    """The reason of an error of `ssl`, such as SSLCertVerificationError."""
    reason = getattr(cause, "verify_message", "") or cause
    remedy = "; the variable SSL_CERT_FILE names a file with its issuer"
    is_unknown = getattr(cause, "verify_code", 0) in _UNKNOWN_ISSUER
    return f"its TLS certificate is not accepted ({reason})" + remedy * is_unknown
