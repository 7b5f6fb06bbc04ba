"""All cases."""

from tests.registry.importers.features import (
    answers,
    bodies,
    documents,
    layouts,
    parameters,
    security,
)

CASES = [
    *layouts.CASES,
    *documents.CASES,
    *parameters.CASES,
    *bodies.CASES,
    *security.CASES,
    *answers.CASES,
]
