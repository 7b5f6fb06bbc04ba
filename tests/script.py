"""`python FILE ARGUMENT...`, for the fork server: `python -m tests.script FILE ARGUMENT...`."""

import os
import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120 as Python does
    runpy.run_path(sys.argv[0], run_name="__main__")
