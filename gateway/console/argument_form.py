"""The arguments that a page asks a visitor for: in fields, or as JSON."""

from collections.abc import Callable
from typing import Any

from gateway.console.forms import Form, FormField, Reading, chosen_in, example, read_json
from gateway.console.page_request import PageRequest
from gateway.console.rendering import in_lines

JSON_FIELD = "json"

Adapt = Callable[[FormField], FormField]
"""Changes a field of a form."""


class ArgumentForm:
    def __init__(self, visit: PageRequest, schema: Any) -> None:
        """The arguments of `schema`, as they were posted or as an example."""
        self._visit = visit
        self._form = Form(schema, chosen_in(visit.form))
        as_text = (visit.posted_value("view") or visit.query.get("view", "")) == JSON_FIELD
        reading = self._read() if visit.request.method == "POST" else Reading(example(schema))
        self.value, self.errors = reading.value, dict(reading.errors)
        self.act = visit.posted_value("act")
        if self.act in ("form", JSON_FIELD) and not self.errors:
            as_text = self.act == JSON_FIELD or (as_text and not self._form.holds(self.value))
        self._is_drawn = self._form.is_drawn and not as_text

    @property
    def is_complete(self) -> bool:
        """Whether the arguments can be sent."""
        return not self.errors and isinstance(self.value, dict)

    def page_values(self, adapt: Adapt | None = None) -> dict[str, Any]:
        """The values of `ui.body_form`; `adapt` changes its fields."""
        fields = self._form.fields(self.value, self.errors) if self._is_drawn else ()
        refused = self.errors and not self._is_drawn and self._visit.form
        text = self._visit.posted_value(JSON_FIELD) if refused else in_lines(self.value)
        return {
            "fields": fields if adapt is None else tuple(map(adapt, fields)),
            "is_drawn": self._is_drawn,
            "can_draw": self._form.is_drawn,
            "text": text,
            "errors": self.errors,
        }

    def _read(self) -> Reading:
        if self._visit.posted_value("view") == JSON_FIELD or not self._form.is_drawn:
            return read_json(self._visit.posted_value(JSON_FIELD))
        return self._form.read(self._visit.form)
