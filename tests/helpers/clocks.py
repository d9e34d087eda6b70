"""A clock that a test sets, in place of the module `time`."""


class Clock:
    """Fake `time` module. Tests set the time by assigning to `now`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now
