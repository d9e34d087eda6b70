"""The command-line programs. Only this package reads flags; each `main` then calls functions of the
other packages.
"""

import sys
from pathlib import Path
from typing import Any

PROGRAMS = {
    path.stem.replace("_", "-"): path for path in sorted(Path(__file__).parent.glob("t2t_*.py"))
}
"""The file of each program's module, by the program's name."""


def _print_error(kind: type[BaseException], *rest: Any) -> None:
    if kind is not KeyboardInterrupt:  # Ctrl-C while Python imports the program prints nothing
        sys.__excepthook__(kind, *rest)


sys.excepthook = _print_error

if sys.platform == "win32":
    print("t2t_repro does not run on Windows; run it in WSL 2", file=sys.stderr)
    sys.exit(2)
