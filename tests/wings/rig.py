"""What the product would have for the toy wing: its row of the table, and its section of the
settings. There is another section for a second wing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest

from config.settings import Settings
from gateway.cli.main import cli
from gateway.wings import table
from gateway.wings.table import WingRow
from tests.wings.toy.wing import LIFE, ToySettings

ROWS = {"toy": WingRow("tests.wings.toy.wing:WING", "Notes of a toy.", jobs=True)}
WithToy = msgspec.defstruct(
    "WithToy",
    [("toy", ToySettings, ToySettings()), ("second", ToySettings, ToySettings(enabled=True))],
    bases=(Settings,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)


def with_toy(settings: Settings, **toy: Any) -> Settings:
    """The settings with a section of the toy."""
    members = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    return cast("Settings", WithToy(**members, toy=ToySettings(**toy)))


@contextmanager
def wings(rows: Mapping[str, WingRow] = ROWS) -> Iterator[None]:
    """The product with these wings."""
    LIFE.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "WINGS", rows)
        patch.setattr("config.load.Settings", WithToy)
        for name in rows:
            patch.setitem(cli._targets, name, f"gateway.cli.wings:{name}")
        yield
