"""Telemetry of libraries, which no process of the product lets them send."""

import os

SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime: read when it is imported, and at no other time
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # the hub's client, below sentence-transformers
    "DO_NOT_TRACK": "1",
}


def disable_telemetry() -> None:
    """Switch it off for this process and its children, whatever the environment says."""
    os.environ.update(SWITCHES)
