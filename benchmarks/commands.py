"""Function that runs a t2t program of the current Python environment, for the other benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(program: str, *arguments: str) -> tuple[str, str]:
    """Runs the program t2t-`program`. Returns its standard output and its standard error.

    Also prints the standard error while the program runs. Exits with the program's exit code if the program fails.
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
