"""The numbers we promise, measured in one run on loopback. Not part of the distribution."""
