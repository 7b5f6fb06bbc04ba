"""Random JSON, valid and broken, to every front of real gateways: `python -m tests.fuzz --help`.

A case is a function of the seed and its number alone, so each one can be sent again by itself.
"""
