"""Language-neutral test vectors, played to any server that speaks the dialects of light-hybrid-4j.

Vectors are read (`vectors`), sent with the tokens that they name (`tokens`, `send`, `play`), judged
by what they expect (`judge`) or compared with another server (`compare`), and reported (`report`).
Independent of the rest of the gateway: the target is an address.
"""
