"""How the bundled model was made, as commands that anybody can run again; see README.md.

`python -m registry.embedding.training --help`. Needs the dependency group `training`; the product
imports nothing from here.
"""
