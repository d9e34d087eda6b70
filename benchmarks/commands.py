"""Runs the t2t programs of the current Python environment, for benchmarks that time them or chain them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(program: str, *arguments: str) -> tuple[str, str]:
    """Runs t2t-PROGRAM, prints its standard error while it runs, and returns its standard output and standard error.

    Raises:
        SystemExit: the program failed.
    """
    command = [str(Path(sys.executable).parent / f"t2t-{program}"), *arguments]
    messages = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            messages.append(line)
        output = process.stdout.read()
    if process.returncode:
        sys.exit(process.returncode)
    return output, "".join(messages)
