"""Script languages: the command for each, and the files that it needs."""

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.binding import Language

HERE = Path(__file__).parent
# of the C library and what is linked against it; some are links on most systems
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/urandom")
_NODE_MODULES = "/usr/share/nodejs"  # Debian's node keeps parts of itself there


@dataclass(frozen=True, slots=True)
class Runtime:
    """Command and visible files of an interpreter."""

    command: tuple[str, ...]
    environment: dict[str, str]
    paths: tuple[str, ...]  # visible, read-only; none lies in another
    links: dict[str, str]  # visible symbolic links
    hidden: tuple[str, ...]  # directories in `paths` that appear empty
    memory: Literal["RLIMIT_AS", "RLIMIT_DATA"]  # rlimit that bounds its memory


def runtime(language: Language, memory_bytes: int) -> Runtime | None:
    """None: this machine has no interpreter for it."""
    return _python() if language == "python" else _javascript(memory_bytes)


def python() -> str:
    """The interpreter outside any virtual environment."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    return str(Path(base).resolve())


def environment() -> dict[str, str]:
    """Environment variables that this interpreter needs to start."""
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED")
    return {"LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))} if shared else {}


def _python() -> Runtime:
    library = Path(sysconfig.get_path("stdlib", vars=_BASE)).resolve()
    shared = Path(str(sysconfig.get_config_var("LIBDIR"))).glob("libpython*.so*")
    packages = [library / name for name in ("site-packages", "dist-packages")]
    return Runtime(
        (python(), "-I", "-S", "-X", "utf8", "-c", (HERE / "run_python.py").read_text()),
        environment(),
        *_view(python(), str(library), *map(str, shared)),
        tuple(str(path) for path in packages if path.is_dir()),
        "RLIMIT_AS",
    )


_BASE = {"base": sys.base_prefix, "platbase": sys.base_prefix, "installed_base": sys.base_prefix}


def _javascript(memory_bytes: int) -> Runtime | None:
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        return None
    executable = str(Path(node).resolve())
    heap_mb = max(memory_bytes // 2**20 * 3 // 4, 16)
    return Runtime(
        (
            executable,
            f"--max-old-space-size={heap_mb}",
            "--disable-wasm-trap-handler",  # it reserves 10 GB of addresses for each memory
            "--no-warnings",
            "-e",
            (HERE / "run_javascript.js").read_text(),
        ),
        {},
        *_view(executable, _NODE_MODULES),
        (),
        "RLIMIT_DATA",  # V8 reserves far more addresses than it uses
    )


def _view(*wanted: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Existing paths and links, without paths inside others."""
    given = [Path(path) for path in (*_LIBRARIES, *_DEVICES, *wanted)]
    links = {str(path): str(path.readlink()) for path in given if path.is_symlink()}
    there = [path for path in given if path.exists() and not path.is_symlink()]
    return tuple(dict.fromkeys(_outermost(there))), links


def _outermost(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        if not any(other in path.parents for other in paths):
            yield str(path)
