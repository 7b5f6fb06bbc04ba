"""The library of CEL without its command line.

Its package imports a command line of its own at once, and with it prompt_toolkit, typer, pygments
and rich: a twelfth of the time in which a gateway, and each of its commands, starts.
"""

import sys
from types import ModuleType

sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

import cel  # noqa: E402  (after the line above, which keeps `cel` from importing it)

__all__ = ["cel"]
