"""Services written in Python: loaded, described, called."""

import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gateway import hybrid
from gateway.context import Principal
from gateway.hybrid import python_services
from schemas.errors import ToolgateError
from schemas.hybrid import Action

pytestmark = pytest.mark.anyio

RULE = "lightapi.net/rule/{}/0.1.0"
CALL = hybrid.Call(Principal("ada", "tenant"), "r-1", RULE.format("deleteRule"))
SPEC = """
    host: lightapi.net
    service: rule
    action:
      - name: deleteRule
        version: 0.1.0
        scope: portal.w
        request: {schema: {$ref: '#/schemas/deleteRuleRequest'}}
      - name: getRule
        version: 0.1.0
        skipAuth: true
      - name: unwritten
        version: 0.1.0
    schemas:
      deleteRuleRequest: {type: object, required: [ruleId]}
"""


def write_module(folder: Path, code: str, spec: str | None = None) -> str:
    """The path of a module with `code`."""
    if spec is not None:
        (folder / "spec.yaml").write_text(dedent(spec))
        code = f'HYBRID_SPEC = __import__("pathlib").Path(__file__).with_name("spec.yaml")\n{code}'
    path = folder / "rules.py"
    path.write_text(f"from gateway import hybrid\n{dedent(code)}")
    return str(path)


def code_of_actions(*names: str, **options: Any) -> str:
    said = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return "".join(
        f"@hybrid.action({RULE.format(name)!r}, {said})\nasync def {name}(data):\n    return data\n"
        for name in names
    )


def test_a_module_is_loaded_by_its_name_or_its_path(tmp_path: Path) -> None:
    by_path = python_services.load(write_module(tmp_path, code_of_actions("one", "two")))
    assert [action.id for action in by_path.actions] == [RULE.format("one"), RULE.format("two")]
    assert by_path.handlers.keys() == {RULE.format("one"), RULE.format("two")}
    by_name = python_services.load("tests.servers.rules")
    assert by_name.target == "tests.servers.rules"
    assert RULE.format("deleteRule") in by_name.handlers


def test_a_decorator_says_all_that_there_is_to_say(tmp_path: Path) -> None:
    schema = {"type": "object"}
    code = code_of_actions(
        "one", schema=schema, scope="a b", skip_auth=True, side="query", description="Does it.",
        positional=["x"], rest="more",
    )  # fmt: skip
    [action] = python_services.load(write_module(tmp_path, code)).actions
    assert action == Action(
        RULE.format("one"), "Does it.", schema, None, "a b", True, "query", ("x",), "more"
    )


def test_the_docstring_supplies_a_missing_description(tmp_path: Path) -> None:
    code = """
        @hybrid.action("a")
        def a(data):
            '''Does a.

            Well.
            '''
    """
    [action] = python_services.load(write_module(tmp_path, code)).actions
    assert action.description == "Does a.\n\nWell."


def test_two_files_of_one_name_are_two_services(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    loaded = [
        python_services.load(write_module(folder, code_of_actions(folder.name)))
        for folder in folders
    ]
    assert [service.actions[0].id for service in loaded] == [RULE.format("a"), RULE.format("b")]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "has no actions"),
        ("def f(data): pass", "has no actions"),
        ("1/0", "rules.py:2: ZeroDivisionError: "),
        ("def g(): 1/0\n\n\ng()", "rules.py:5: ZeroDivisionError: "),
        ("def f(:", "rules.py:2: SyntaxError: invalid syntax"),
        ("import no_such_module", "rules.py:2: ModuleNotFoundError: No module named 'no_such_mo"),
        ("raise SystemExit", "rules.py:2: SystemExit"),
        ("hybrid.Failure(1, '')", "rules.py:2: ValueError: the HTTP status of a Failure is"),
        ("@hybrid.action('')\ndef f(data): ...", "rules.py:2: ValueError: expected an id such as"),
    ],
)
def test_load_errors_name_module_line_and_reason(tmp_path: Path, code: str, text: str) -> None:
    target = write_module(tmp_path, code)
    with pytest.raises(ToolgateError) as caught:
        python_services.load(target)
    assert target in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/nowhere/rules.py", "/nowhere/rules.py: there is no such file"),
        ("no.such.module", "no.such.module: there is no module no; looked for in"),
        ("json", "json has no actions"),
    ],
)
def test_a_service_that_is_not_there(target: str, text: str) -> None:
    with pytest.raises(ToolgateError, match=text):
        python_services.load(target)


def test_an_id_has_one_function(tmp_path: Path) -> None:
    code = code_of_actions("one") + code_of_actions("two").replace(
        RULE.format("two"), RULE.format("one")
    )
    with pytest.raises(ToolgateError, match=r"lightapi\.net/rule/one/0\.1\.0"):
        python_services.load(write_module(tmp_path, code))


def test_a_spec_beside_the_code_describes_the_actions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = code_of_actions("deleteRule", side="command") + code_of_actions(
        "getRule", scope="not.this"
    )
    service = python_services.load(
        write_module(tmp_path, code + code_of_actions("undescribed"), SPEC)
    )
    delete, get = service.actions
    assert (delete.scope, delete.side) == ("portal.w", "command")
    assert delete.request_schema is not None
    assert delete.request_schema["required"] == ["ruleId"]
    assert (get.scope, get.skip_auth, get.request_schema) == (None, True, None)
    assert service.handlers.keys() == {delete.id, get.id}
    told = {record.message: record.__dict__["action"] for record in caplog.records}
    assert told == {
        "action_description_missing": RULE.format("undescribed"),
        "action_not_written": RULE.format("unwritten"),
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("- 1", " holds a list; expected the spec.yaml"),
        ("host: x", ": expected a hybrid spec.yaml"),
        ("{", ", line 2, column 1: not valid YAML"),
        ("host: a\nservice: b\naction: []", ": there are no actions in it"),
        ("host: a\nhost: b\n", ", line 2, column 7: the key 'host' stands twice"),
    ],
)
def test_a_spec_that_cannot_be_read_is_an_error(tmp_path: Path, spec: str, text: str) -> None:
    target = write_module(tmp_path, code_of_actions("deleteRule"), spec)
    with pytest.raises(ToolgateError) as caught:
        python_services.load(target)
    assert str(caught.value).startswith(f"HYBRID_SPEC: {tmp_path / 'spec.yaml'}{text}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'nowhere.yaml'", "HYBRID_SPEC: {folder}/nowhere.yaml: no such file or directory"),
        ("'.'", "HYBRID_SPEC: {folder}: is a directory"),
        ("5", "{folder}/rules.py: HYBRID_SPEC: expected a path, found 5"),
    ],
)
def test_a_spec_that_is_not_there_is_an_error(tmp_path: Path, value: str, text: str) -> None:
    target = write_module(tmp_path, f"HYBRID_SPEC = {value}\n" + code_of_actions("deleteRule"))
    with pytest.raises(ToolgateError) as caught:
        python_services.load(target)
    assert str(caught.value) == text.format(folder=tmp_path)


def test_a_relative_spec_is_beside_its_module_wherever_the_gateway_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spec.yaml").write_text(dedent(SPEC).replace("0.1.0", "'0.1.0'") + "shcemas: {}\n")
    target = write_module(
        tmp_path, "HYBRID_SPEC = 'spec.yaml'\n" + code_of_actions("deleteRule", "getRule")
    )
    monkeypatch.chdir("/")
    assert len(python_services.load(target).actions) == 2
    told = [vars(one) for one in caplog.records if one.message == "service_description_invalid"]
    assert [one["reason"] for one in told] == ["unknown key 'shcemas' (did you mean schemas?)"]


def test_an_action_whose_restriction_is_misspelled_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = SPEC.replace("scope: portal.w", "scpoe: portal.w")
    service = python_services.load(
        write_module(tmp_path, code_of_actions("deleteRule", "getRule"), spec)
    )
    assert list(service.handlers) == [RULE.format("getRule")]
    assert "action_description_invalid" in {record.message for record in caplog.records}


def test_a_spec_without_matching_actions_leaves_no_actions(tmp_path: Path) -> None:
    with pytest.raises(ToolgateError, match="no actions"):
        python_services.load(write_module(tmp_path, code_of_actions("other"), SPEC))


async def test_functions_of_every_shape(tmp_path: Path) -> None:
    code = """
        import threading

        @hybrid.action("a")
        async def a(data):
            return data, threading.get_ident()

        @hybrid.action("b")
        async def b(data, call):
            return call.service, threading.get_ident()

        @hybrid.action("c")
        def c(data):
            return data, threading.get_ident()

        @hybrid.action("d")
        def d(data, call: hybrid.Call):
            return call.request_id, threading.get_ident()
    """
    handlers = python_services.load(write_module(tmp_path, code)).handlers
    found = {id_: await handler("x", CALL) for id_, handler in handlers.items()}
    here = threading.get_ident()
    assert {id_: said for id_, (said, _) in found.items()} == {
        "a": "x", "b": CALL.service, "c": "x", "d": "r-1",
    }  # fmt: skip
    assert {id_: thread == here for id_, (_, thread) in found.items()} == {
        "a": True, "b": True, "c": False, "d": False,
    }  # fmt: skip


async def test_other_callables_are_actions_too(tmp_path: Path) -> None:
    code = """
        class Rule:
            async def __call__(self, data, call):
                return call.service

        rule = hybrid.action("a")(Rule())
        same = rule

        @hybrid.action("b")
        def b(data, *, more=1):
            return data
    """
    handlers = python_services.load(write_module(tmp_path, code)).handlers
    assert await handlers["a"]("x", CALL) == CALL.service
    assert await handlers["b"]("x", CALL) == "x"


async def test_a_second_parameter_with_a_default_is_not_taken_for_the_call(tmp_path: Path) -> None:
    code = """
        @hybrid.action("plain")
        async def plain(data, limit=7):
            return limit

        @hybrid.action("named")
        async def named(data, call=None):
            return call.service

        @hybrid.action("annotated")
        async def annotated(data, of: hybrid.Call | None = None):
            return of.service

        @hybrid.action("quoted")
        async def quoted(data, of: "hybrid.Call" = None):
            return of.service

        @hybrid.action("any")
        async def any_(*data):
            return len(data)
    """
    handlers = python_services.load(write_module(tmp_path, code)).handlers
    found = {id_: await handler("x", CALL) for id_, handler in handlers.items()}
    assert found == {
        "plain": 7, "named": CALL.service, "annotated": CALL.service, "quoted": CALL.service,
        "any": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "parameters", ["", "a, b, c", "*, data", "data, *, more", "**data", "a, b, c, d=1"]
)
def test_a_function_that_cannot_be_called_is_named(tmp_path: Path, parameters: str) -> None:
    target = write_module(tmp_path, f"@hybrid.action('a')\ndef broken({parameters}): ...\n")
    with pytest.raises(ToolgateError) as caught:
        python_services.load(target)
    assert str(caught.value) == (
        f"{target}: broken must take (data) or (data, call), not ({parameters})"
    )


@pytest.mark.parametrize(
    ("id_", "said", "text"),
    [
        (lambda data: data, {}, "@hybrid.action stands without its id: write @hybrid.action"),
        (5, {}, "expected an id such as .*, found 5"),
        (None, {}, "expected an id such as .*, found None"),
        ("", {}, "of 1 to 512 bytes, found ''"),
        (" ", {}, "of 1 to 512 bytes, found ' '"),
        ("a\0b", {}, "of 1 to 512 bytes"),
        ("ä" * 257, {}, "of 1 to 512 bytes"),
        ("a", {"side": "both"}, "a: side: expected None or one of .*, found 'both'"),
        ("a", {"skip_auth": "no"}, "a: skip_auth: expected True or False, found 'no'"),
        ("a", {"scope": ["x"]}, r"a: scope: expected None or scopes .*, found \['x'\]"),
        ("a", {"scope": " "}, "a: scope: expected None or scopes .*, found ' '"),
        ("a", {"description": None}, "a: description: expected text, found None"),
        ("a", {"positional": "xyz"}, "a: positional: expected a list of names, found 'xyz'"),
        ("a", {"positional": [1]}, r"a: positional: expected a list of names, found \[1\]"),
        ("a", {"rest": 1}, "a: rest: expected None or a name, found 1"),
        ("a", {"schema": {...}}, r"a: schema=\{\.\.\.\} is a placeholder: write a JSON Schema"),
        ("a", {"schema": "object"}, "a: schema: expected None or a JSON Schema such as .*'object'"),
        ("a", {"schema": {"type": "objct"}}, "a: schema: it is no valid JSON Schema: "),
        ("a", {"schema": {"type": ...}}, "a: schema: it is no valid JSON Schema: "),
        ("a", {"schema": {"$ref": "#/schemas/X"}}, "a: schema: no schema is called 'X'"),
    ],
)
def test_invalid_decorator_arguments_are_refused_at_once(
    id_: Any, said: dict[str, Any], text: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        hybrid.action(id_, **said)


@pytest.mark.parametrize("status", [399, 600, 200, 0])
def test_a_failure_requires_an_error_status(status: int) -> None:
    with pytest.raises(ValueError, match="400 to 599"):
        hybrid.Failure(status, "x")
