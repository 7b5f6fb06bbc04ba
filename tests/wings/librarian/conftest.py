"""The librarian reads databases that have the tables of the knowledge."""

from tests.wings.knowledge.conftest import database_settings, rig

__all__ = ["database_settings", "rig"]
