"""Entry point of `toolgate`, and `python -m gateway`.

The product is four top-level packages with everyday names. A project's own `config.py` or
`schemas/` on the path must not shadow them, so they are pinned before any import of them.
"""

import importlib.machinery
import importlib.util
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("schemas", "config", "registry")


def pin_packages() -> None:
    """Import our packages from the folder of this one, whatever else `sys.path` has."""
    for name in PACKAGES:
        if name in sys.modules:
            continue
        spec = importlib.machinery.PathFinder.find_spec(name, [str(ROOT)])
        if spec is None or spec.loader is None:
            sys.exit(f"toolgate: the package {name!r} is missing beside {ROOT / 'gateway'}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def main() -> None:
    interruption = signal.getsignal(signal.SIGINT)
    if interruption is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback out of an import
    pin_packages()
    from config.telemetry import disable_telemetry  # only now may our packages be imported
    from gateway.cli.main import main as run

    disable_telemetry()
    signal.signal(signal.SIGINT, interruption)
    run()


if __name__ == "__main__":
    main()
