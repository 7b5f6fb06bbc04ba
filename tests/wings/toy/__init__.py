"""A wing as somebody adds it: notes, each a line of text of one owner.

Its folder has what a folder of `gateway/wings/` has. Its settings are added by `tests.wings.rig`.
"""
