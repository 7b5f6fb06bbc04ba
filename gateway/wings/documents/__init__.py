"""Documents for the wings that read them: fetching, parsing and chunking.

Knows no wing and no database.
"""
