"""Descriptions, damaged in every way: the importer takes them or says what is wrong with them, and
what it makes of them can be called. `python -m tests.fuzz.documents --help`.

A mutant is a function of the excerpts, the seed and its number, so each can be made again.
"""
