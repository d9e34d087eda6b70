"""Results file of a benchmark, so that a benchmark that was interrupted can continue."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_repro.files.output_files import write_file


class Results:
    """Measurements in a JSON file, {name of the run: its measurements}, one line per run.

    Several processes may use the same file.

    Args:
        path: path of the file, which may not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def read(self) -> dict[str, Any]:
        """Returns the content of the file; {} if it does not exist."""
        return json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}

    def measure(self, name: str, measure: Callable[[], Any]) -> Any:
        """Returns the measurements of run `name`. If the file does not have them, calls `measure`
        and adds its result.

        A lock file makes other processes wait while the result is added.
        """
        if name not in self.read():
            measurements = measure()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(f"{self._path}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                lines = [
                    f"{json.dumps(key)}: {json.dumps(value)}" for key, value in self.read().items()
                ]
                lines.append(f"{json.dumps(name)}: {json.dumps(measurements)}")
                write_file(self._path, "{\n" + ",\n".join(lines) + "\n}\n")
        return self.read()[name]
