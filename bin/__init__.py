"""The command-line programs. Only this package reads flags; each `main` then calls functions of the other packages."""

import sys
from types import TracebackType


def _end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Prints an error, but nothing after Ctrl-C, which `program.run` cannot handle while a program is imported."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = _end
