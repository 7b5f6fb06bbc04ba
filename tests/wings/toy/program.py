"""The command line with the toy: `python -m tests.wings.toy.program worker`."""

from gateway.cli.main import main
from tests.wings.rig import wings

if __name__ == "__main__":
    with wings():
        main()
