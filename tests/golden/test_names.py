"""Version 1.x has all names and defaults of the last release, as docs/versions.md promises."""

from pathlib import Path

from public_names import names


def test_no_name_or_default_of_the_last_release_is_missing() -> None:
    (recorded,) = (Path(__file__).parent / "data").glob("names_1.*.txt")
    assert {*recorded.read_text("utf-8").splitlines()} - {*names()} == set()
