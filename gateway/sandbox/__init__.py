"""Sandbox for source code from the registry, which is treated as hostile.

`jail.py` is a small launcher outside the gateway that sets up the isolation; `filter.py` defines
the denied system calls; `runner.py` has the commands and visible files of the languages, and runs
the launcher. If any layer of isolation cannot be set up, no code is run.
"""
