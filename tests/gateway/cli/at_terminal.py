"""`toolgate` at a terminal: `python -m tests.gateway.cli.at_terminal TERMINAL ARGUMENT...`.

The process has to lead a session; the terminal becomes that of the session.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    os.close(os.open(sys.argv.pop(1), os.O_RDWR))
    runpy.run_module("gateway", run_name="__main__", alter_sys=True)
