"""The command-line programs. Only this package reads flags; each `main` then calls functions of the other packages."""

import sys
from typing import Any


def _print_error(kind: type[BaseException], *rest: Any) -> None:
    if kind is not KeyboardInterrupt:  # which `program.run` reports, except while Python imports the program
        sys.__excepthook__(kind, *rest)


sys.excepthook = _print_error
