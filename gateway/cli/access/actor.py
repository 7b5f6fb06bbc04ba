"""The actor of a command, as recorded in the audit log."""

import getpass


def actor() -> str:
    """The operating-system user; the form cannot be a token's principal."""
    return f"{getpass.getuser()} (command line)"
