"""Errors of tools that people make, change or name."""

from schemas.errors import ToolgateError


class ToolRefused(ToolgateError):
    """The reason that a tool cannot be made or changed so. No rows were written."""


class ToolChanged(ToolRefused):
    """Version conflict: the tool is not at the version that the caller saw."""


class NoSuchTool(ToolgateError):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tool {name!r}.")
        self.name = name
