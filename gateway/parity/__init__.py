"""Language-neutral test vectors, played to any server that speaks the dialects of light-hybrid-4j.

Vectors and their tokens are read (`vectors`), sent (`send`), played (`runner`), judged by what they
expect (`judge`), and reported, or compared with another server (`report`). Independent of the rest
of the gateway: the target is an address.
"""
