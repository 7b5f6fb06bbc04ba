"""Inputs of a server.json as values: fixed, given or default ones, and templates filled with them.

Pure. Values are checked before they are used: choices, formats, and control characters, with which
a value could end a header or a line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import Input, InputWithVariables

VALUE_LIMIT = 8192  # characters
_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class InputQuestion(Struct, frozen=True, omit_defaults=True):
    """An input that a person may or has to give. `where`: what it becomes a part of."""

    name: str
    where: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    format: str = "string"
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    text: str
    is_secret: bool = False


@dataclass(slots=True)
class Inputs:
    """The inputs of one plan, by name. `given`: values of a person; `questions` and `missing` are
    complete once all inputs were read."""

    values: Mapping[str, str]
    questions: dict[str, InputQuestion] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    names_used: set[str] = field(default_factory=set)

    def read(self, name: str, input_: InputWithVariables, where: str) -> Value | None:
        """The value of an input; None where it is left out. A missing one stands as `{name}`."""
        if input_.value is None:
            return self._ask(name, input_, where, required=input_.is_required)
        text = input_.value
        variables = dict(self._variables(text, input_.variables))
        # a secret text of which no variable is named as the secret: each may be it
        secret = input_.is_secret and not any(each.is_secret for each in variables.values())
        values = {
            variable: self._ask(variable, each, where, required=input_.is_required, secret=secret)
            for variable, each in variables.items()
        }
        if any(value is None for value in values.values()):
            return None
        secret = input_.is_secret or any(value and value.is_secret for value in values.values())
        texts = {variable: value.text for variable, value in values.items() if value}
        return Value(_check(name, fill(text, texts)), secret)

    def variables(
        self, template: str, inputs: Mapping[str, Input], where: str
    ) -> Mapping[str, Value]:
        """The values of all variables in a template of a URL: each is needed."""
        return {
            name: self._ask(name, each, where, required=True) or Value("")
            for name, each in self._variables(template, inputs)
        }

    def check_used(self) -> None:
        """Raises ImportRejected for values that were given for nothing."""
        if unused := sorted(self.values.keys() - self.names_used):
            input_names = ", ".join(self.questions) or "none"
            raise ImportRejected(f"It has no input {unused[0]}; its inputs: {input_names}.")

    def _variables(self, template: str, inputs: Mapping[str, Input]) -> Iterator[tuple[str, Input]]:
        for name in dict.fromkeys(_TEMPLATE.findall(template)):
            if name in inputs:  # others stay as they are written
                yield name, inputs[name]

    def _ask(
        self, name: str, input_: Input, where: str, *, required: bool, secret: bool = False
    ) -> Value | None:
        secret = secret or input_.is_secret
        if input_.value is not None:
            return Value(_check(name, input_.value), secret)
        required = required or input_.is_required
        self.names_used.add(name)
        earlier = self.questions.get(name)
        if earlier is not None and earlier.secret != secret:
            raise ImportRejected(
                f"It asks for {name[:100]!r} as a secret, and openly in another place: refused."
            )
        self.questions[name] = InputQuestion(
            name, where, input_.description,
            required=required, secret=secret, default=None if secret else input_.default,
            choices=input_.choices, format=input_.format, placeholder=input_.placeholder,
        )  # fmt: skip
        text = self.values.get(name, input_.default)
        if text is not None:
            return Value(_check_value(name, text, input_), secret)
        if not required:
            return None
        self.missing[name] = None
        return Value(f"{{{name}}}", secret)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template, filled once: braces in values stay."""
    return _TEMPLATE.sub(lambda match: values.get(match[1], match[0]), template)


def _check_value(name: str, text: str, input_: Input) -> str:
    if input_.choices and text not in input_.choices:
        expected = ", ".join(input_.choices)
        raise ImportRejected(f"{name}: expected one of {expected}.")
    if input_.format == "number" and not _NUMBER.fullmatch(text):
        raise ImportRejected(f"{name}: expected a number.")
    if input_.format == "boolean" and text not in ("true", "false"):
        raise ImportRejected(f"{name}: expected true or false.")
    return _check(name, text)


def _check(name: str, text: str) -> str:
    """Raises ImportRejected, without the value, which may be a secret."""
    if _CONTROL.search(text):
        raise ImportRejected(f"{name}: expected a text without control characters.")
    if len(text) > VALUE_LIMIT:
        raise ImportRejected(f"{name}: expected at most {VALUE_LIMIT} characters.")
    return text
