"""Reproducible training of the bundled embedding model, as commands; see README.md.

`python -m registry.embedding.training --help`. Needs the dependency group `training`; the product
imports nothing from here.
"""
