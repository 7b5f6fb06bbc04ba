"""Operations of Swagger 2.0 in terms of OpenAPI 3."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, servers
from schemas.untrusted_json import mapping, sequence, text

# kept of a parameter, beside its schema
_OF_PARAMETER = frozenset(
    {"name", "in", "required", "description", "allowEmptyValue", "collectionFormat", "schema"}
    | {"x-toolgate", "x-example", "x-examples", "deprecated"}
)
_SAME = ("name", "in", "required", "description", "allowEmptyValue", "x-toolgate", "deprecated")
# style and explode; for `csv` in a path or a header, the default of 3.x
_FORMATS = {
    "multi": ("form", True),
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
}
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_FILE = {"type": "string", "format": "binary"}
_JSON = ("application/json",)

_Upgrade = tuple[dict[str, Any], dict[str, Any]]  # original and upgraded


@dataclass(frozen=True, slots=True)
class _Parameters:
    """Parameters split by location."""

    plain: dict[tuple[str, str], dict[str, Any]]  # upgraded, by name and location
    forms: dict[str, dict[str, Any]]  # not upgraded
    body: dict[str, Any] | None


class Swagger:
    """Upgrades the operations of one document."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._consumes = _types(document.root.get("consumes"), _JSON)
        self._produces = _types(document.root.get("produces"), _JSON)
        # by identity, with the object itself, which keeps its identity from being reused
        self._upgraded: dict[int, _Upgrade] = {}
        self._responses: dict[tuple[int, tuple[str, ...]], _Upgrade] = {}

    def operation(
        self, item: dict[str, Any], node: dict[str, Any], notes: list[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The upgraded path item and operation. Raises `SkipOperation`."""
        shared = self._parameters(item.get("parameters"), notes)
        own_parameters = self._parameters(node.get("parameters"), notes)
        upgraded = {
            **node,
            "parameters": list({**shared.plain, **own_parameters.plain}.values()),
            "responses": self._all_responses(node),
        }
        if body := self._body(
            shared, own_parameters, _types(node.get("consumes"), self._consumes), notes
        ):
            upgraded["requestBody"] = body
        if "schemes" in node and "servers" not in node:
            upgraded["servers"] = self._servers(node["schemes"])
        return {key: value for key, value in item.items() if key != "parameters"}, upgraded

    def _servers(self, schemes: object) -> list[dict[str, Any]]:
        """The operation's own servers, where the document's do not fit."""
        usual = sequence(self._document.root.get("servers"))
        return (
            []
            if usual[:1] == (declared := list(servers(self._document.root, schemes)))[:1]
            else declared
        )

    def _parameters(self, value: object, notes: list[str]) -> _Parameters:
        if value is not None and not isinstance(value, list):
            notes.append("`parameters` is not a list; ignored")
        parameters = _Parameters({}, {}, None)
        for raw in sequence(value):
            parameter = self._document.resolve(raw)
            name, location = parameter.get("name"), parameter.get("in")
            if location == "body":
                parameters = _Parameters(parameters.plain, parameters.forms, parameter)
            elif location == "formData":
                parameters.forms[str(name)] = parameter
            else:
                parameters.plain[str(name), str(location)] = self._parameter(parameter)
            if mapping(parameter.get("items")).get("type") == "array":
                notes.append(f"parameter {name}: arrays inside an array are sent as JSON")
        return parameters

    def _parameter(self, parameter: dict[str, Any]) -> dict[str, Any]:
        if id(parameter) not in self._upgraded:
            upgraded = {key: parameter[key] for key in _SAME if key in parameter}
            upgraded["schema"] = _schema(parameter)
            in_query = parameter.get("in") == "query"
            if _is_list(parameter) and (style := _style(parameter, in_query)):
                upgraded["style"], upgraded["explode"] = style
            self._upgraded[id(parameter)] = parameter, upgraded
        return self._upgraded[id(parameter)][1]

    def _body(
        self,
        path_parameters: _Parameters,
        own_parameters: _Parameters,
        consumes: tuple[str, ...],
        notes: list[str],
    ) -> dict[str, Any] | None:
        """The request body: from one body parameter, or from all form parameters."""
        body = own_parameters.body or (None if own_parameters.forms else path_parameters.body)
        forms = {**path_parameters.forms, **own_parameters.forms}
        if body is not None:
            if forms:
                notes.append("it has a body and form parameters; the form parameters are left out")
            return _whole(body, consumes)
        return _form(forms, consumes) if forms else None

    def _all_responses(self, node: dict[str, Any]) -> dict[str, Any]:
        produces = _types(node.get("produces"), self._produces)
        responses = {}
        for code, raw in mapping(node.get("responses")).items():
            try:
                responses[code] = self._response(self._document.resolve(raw), produces)
            except SkipOperation:
                responses[code] = raw  # reported where it is read
        return responses

    def _response(self, response: dict[str, Any], produces: tuple[str, ...]) -> dict[str, Any]:
        key = id(response), produces
        if key not in self._responses:
            self._responses[key] = response, _response(response, produces)
        return self._responses[key][1]


def _types(media_types: object, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Media types. An empty list would override the document's, which is never meant."""
    named = [name for name in sequence(media_types) if text(name)]
    return tuple(dict.fromkeys(named)) or usual


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Schema from the keywords that 2.0 has directly in a parameter."""
    stated = parameter.get("schema")  # as in 3.x, in many documents
    if isinstance(stated, dict) and "type" not in parameter:
        return stated
    schema = {key: value for key, value in parameter.items() if key not in _OF_PARAMETER}
    if parameter.get("type") == "file":
        schema.update(_FILE)
    if mapping(parameter.get("items")).get("type") == "file":
        schema["items"] = {**mapping(parameter.get("items")), **_FILE}
    if "x-example" in parameter:
        schema.setdefault("example", parameter["x-example"])
    return schema


def _is_list(parameter: Mapping[str, Any]) -> bool:
    return parameter.get("type") == "array" or "collectionFormat" in parameter


def _is_file(form: Mapping[str, Any]) -> bool:
    """Whether a form parameter is a file or a list of files; `format: binary` is 3.x's word."""
    value = mapping(form.get("items")) if form.get("type") == "array" else form
    return value.get("type") == "file" or value.get("format") == "binary"


def _style(parameter: Mapping[str, Any], form: bool) -> tuple[str, bool] | None:
    stated = text(parameter.get("collectionFormat")) or "csv"
    if stated == "csv" and not form:
        return None
    return _FORMATS.get(stated, (stated, False))


def _whole(body: Mapping[str, Any], consumes: Iterable[str]) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": body.get("schema", {})}
    if "x-example" in body:
        media["example"] = body["x-example"]
    return {**_about(body), "content": dict.fromkeys(consumes, media)}


def _about(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("description", "required", "x-toolgate") if key in body}


def _form(forms: Mapping[str, Mapping[str, Any]], consumes: tuple[str, ...]) -> dict[str, Any]:
    has_file = any(map(_is_file, forms.values()))
    usable = _FORMS[:1] if has_file else _FORMS
    stated = [name for name in consumes if name.partition(";")[0].strip().lower() in usable]
    if not stated:
        stated = [usable[-1]]
    required = [name for name, form in forms.items() if form.get("required") is True]
    schema = {
        "type": "object",
        "properties": {name: _property(form) for name, form in forms.items()},
        **({"required": required} if required else {}),
    }
    styles = {  # files are parts of their own, one each
        name: _style(form, form=True)
        for name, form in forms.items()
        if _is_list(form) and not _is_file(form)
    }
    encoding = {
        name: {"style": style[0], "explode": style[1]} for name, style in styles.items() if style
    }
    media = {"schema": schema, **({"encoding": encoding} if encoding else {})}
    return {"required": bool(required), "content": dict.fromkeys(stated, media)}


def _property(form: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: form[key] for key in ("description", "x-toolgate") if key in form}
    return {**_schema(form), **about}


def _response(response: Mapping[str, Any], produces: Iterable[str]) -> dict[str, Any]:
    converted = {key: value for key, value in response.items() if key not in ("schema", "headers")}
    if headers := mapping(response.get("headers")):
        converted["headers"] = {name: _header(mapping(header)) for name, header in headers.items()}
    if "content" not in converted and "schema" in response:
        schema = response["schema"]
        if mapping(schema).get("type") == "file":
            schema = {**mapping(schema), **_FILE}
        converted["content"] = {media_type: {"schema": schema} for media_type in produces}
    return converted


def _header(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": header.get("description", ""), "schema": _schema(header)}
