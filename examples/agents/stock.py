"""A skill of an office: how many boxes it has."""

import os
from pathlib import Path
from typing import Any

from gateway import hybrid

HYBRID_SPEC = Path(__file__).with_name("spec.yaml")
BOXES = {"north": 7, "south": 12}


@hybrid.action("example.com/stock/countBoxes/0.1.0", side="query")
async def count_boxes(_data: dict[str, Any]) -> dict[str, Any]:
    """Count the boxes of this office."""
    office = os.environ["OFFICE"]
    return {"office": office, "boxes": BOXES[office]}
