"""Sessions of onnxruntime, which is imported here and, apart from training, nowhere else.

Its wheels report each process that imports them to Microsoft, with the id of a device that they
keep in a cache folder; `disable_telemetry_events()` comes too late to stop that.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.telemetry import disable_telemetry

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def make_session(file: Path, *, disabled_optimizers: Sequence[str] = ()) -> "InferenceSession":
    """The model in `file`, on the CPU. Raises what onnxruntime raises.

    One thread for each run: two concurrent runs are a third faster than one run in two threads.
    """
    disable_telemetry()
    import onnxruntime  # a tenth of a second and 15 MB

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(
        file,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=[*disabled_optimizers],
    )
