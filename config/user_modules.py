"""Imports user modules; errors name the failing line."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from schemas.errors import ToolgateError

_OURS = (__file__, importlib.__file__)


def load_module(target: str) -> ModuleType:
    """The module, or the .py file, `target`. Raises ToolgateError."""
    is_file = target.endswith(".py")
    if is_file and not Path(target).is_file():
        raise ToolgateError(f"{target}: there is no such file")
    try:
        return _from_file(target) if is_file else importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise _unloadable(target, error) from error  # a missing dependency of it
        looked = ", ".join(dict.fromkeys(entry or str(Path.cwd()) for entry in sys.path))
        raise ToolgateError(
            f"{target}: there is no module {error.name}; looked for in {looked}. Set PYTHONPATH to "
            "the folder that has it"
        ) from error
    except (Exception, SystemExit) as error:  # any error during import
        raise _unloadable(target, error) from error


def load_function(target: str, setting: str) -> Any:
    """The function `module:function` of a setting. Raises ToolgateError."""
    name, _, attribute = target.partition(":")
    try:
        function = getattr(load_module(name), attribute, None)
    except ToolgateError as error:
        raise ToolgateError(f"{setting}: {error}") from error
    if not callable(function):
        raise ToolgateError(f"{setting}: the module {name} has no function {attribute}")
    return function


def _unloadable(target: str, error: BaseException) -> ToolgateError:
    return ToolgateError(f"{target} cannot be loaded: {_place(error)}{_error_text(error)}")


def _from_file(file: str) -> ModuleType:
    name = f"toolgate_service_{abs(hash(file)):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _place(error: BaseException) -> str:
    """ "file:line: " of the statement that failed; empty when no line of the module ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename not in _OURS and not frame.filename.startswith("<frozen "):
            return f"{frame.filename}:{frame.lineno}: "
    return ""


def _error_text(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
