"""Sandbox for source code from the registry, which is treated as hostile.

`jail_launcher.py` is a small launcher outside the gateway that sets up the isolation;
`seccomp_filter.py` defines the denied system calls; `script_runner.py` has the commands and visible
files of the languages, and runs the launcher. If any layer of isolation cannot be set up, no code
is run.
"""
