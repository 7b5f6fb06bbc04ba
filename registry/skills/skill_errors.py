"""Errors of skills and agents that people make, change or name."""

from schemas.errors import ToolgateError


class SkillRefused(ToolgateError):
    """A change to a skill, or an agent, is invalid."""


class NoSuchEntry(SkillRefused):
    """A skill, or an entry named with it, does not exist."""

    def __init__(self, kind: str, name: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
