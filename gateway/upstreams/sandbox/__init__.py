"""Runs source code that came from the registry, as if it were written by an enemy.

`jail.py` is a small launcher outside the gateway that builds the prison; `filter.py` says which
system calls there are in it, `languages.py` what of the file system, and `runs.py` is the gateway's
end. Where one of the walls cannot be built nothing is run.
"""
