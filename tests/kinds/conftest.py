"""The command line, as tests of it have it."""

from tests.gateway.cli.conftest import bare, folder, toolgate

__all__ = ["bare", "folder", "toolgate"]
