"""Reproducible training of the bundled embedding model, as commands; see README.md.

`python -m benchmarks.training --help`. Needs the dependency group `training`; the product
imports nothing from here.
"""

from config.telemetry import disable_telemetry

disable_telemetry()  # before a module of this package imports onnxruntime
