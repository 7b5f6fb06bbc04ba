"""Facts of certificates in PEM files."""

from datetime import datetime
from pathlib import Path

from cryptography import x509


def certificate_end(file: Path) -> datetime:
    """When the first certificate of a file ends, the one of a server. Raises OSError, and
    ValueError for a file without one."""
    return x509.load_pem_x509_certificates(file.read_bytes())[0].not_valid_after_utc
