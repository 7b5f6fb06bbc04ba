"""Definitions and what their documentation says first, in each language."""

import pytest

from benchmarks.definitions import CodeFile, stripped_of

TYPESCRIPT = """/** Licence. */

/**
 * @name addDays
 * @category Days
 * @summary Add the {@link Days | number} of `days` to a date. Not more.
 */
export function addDays(date: Date) {}

/**
 * @deprecated Use another limit of the nest.
 */
export const LIMIT = 5;

// eslint-disable-next-line
/** Greatest number of eggs in a nest. */
export const CAPACITY = 5;

class Nest {
  /**
   * Adds an egg to the nest:
   * ```ts
   * nest.add(egg)
   * ```
   */
  add(egg: Egg) {}
}
"""
RUST = """/// Greatest number of [eggs] in a nest.
pub const CAPACITY: u8 = 5;

/// Checks that a nest has room.
const _: () = assert!(CAPACITY > 0);

// Not a documentation of this.
fn lay() {}
"""


@pytest.mark.parametrize(
    ("media_type", "text", "queries"),
    [
        (
            "text/x-typescript",
            TYPESCRIPT,
            {
                "addDays": "Add the Days of days to a date.",
                "CAPACITY": "Greatest number of eggs in a nest.",
                "Nest.add": "Adds an egg to the nest:",
            },
        ),
        (
            "text/x-rust",
            RUST,
            {
                "CAPACITY": "Greatest number of [eggs] in a nest.",
            },
        ),
    ],
)
def test_first_sentences_are_asked_and_documentations_taken_out(
    media_type: str, text: str, queries: dict[str, str]
) -> None:
    file, definitions = stripped_of(CodeFile("nest", media_type, text))
    assert {definition.symbol: definition.query for definition in definitions} == queries
    assert not any(query in file.text for query in queries.values())
    assert ("Licence." in file.text, "@deprecated" in file.text) == (
        media_type == "text/x-typescript",
        False,
    )
