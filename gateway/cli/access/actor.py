"""Who types a command, as records of it say."""

import getpass


def actor() -> str:
    """The user of the operating system; no principal of a token is called like this."""
    return f"{getpass.getuser()} (command line)"
