"""How well tools are found: requests whose tools are known, searched for and scored.

What is measured is the product's own search on its own tables. Knows no command line.
"""
