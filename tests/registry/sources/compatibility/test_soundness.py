"""Where nothing is said to break, nothing does: judged by the validator that checks the calls."""

import copy
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from registry.sources.compatibility import input_changes
from tests.properties import examples
from tests.registry.sources.compatibility.schemas import change_schema, value, whole

WIDE = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def _judge(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=False)


@WIDE
@given(st.data())
def test_arguments_that_were_right_stay_right_where_no_change_is_breaking(
    data: st.DataObject,
) -> None:
    before = data.draw(whole())
    after = data.draw(change_schema(before))
    found = input_changes(before, after)
    event("breaking" if any(one.breaking for one in found) else f"{bool(found)} harmless")
    assume(not any(one.breaking for one in found))
    was, now = _judge(before), _judge(after)
    for _ in range(8):
        arguments = data.draw(value(before, before))
        if was.is_valid(arguments):
            now.validate(arguments)


@WIDE
@given(whole())
def test_a_schema_breaks_nothing_beside_its_own_copy(schema: dict[str, object]) -> None:
    assert input_changes(schema, copy.deepcopy(schema)) == []


@WIDE
@given(st.data())
def test_changes_are_found_in_both_directions(data: st.DataObject) -> None:
    before = data.draw(whole())
    after = data.draw(change_schema(before))
    forth, back = input_changes(before, after), input_changes(after, before)
    assert bool(forth) == bool(back)
