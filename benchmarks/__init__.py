"""Benchmarks of the promised numbers, in one run on loopback. Not part of the distribution."""
