"""t2t-datagen for WMT 2014 refuses an archive that differs from the published one."""

from __future__ import annotations

from pathlib import Path

from programs import refused, run


def test_a_truncated_archive_is_named_and_nothing_is_written_or_downloaded(tmp_path: Path) -> None:
    archive = tmp_path / "tmp" / "dev.tgz"
    archive.parent.mkdir()
    archive.write_bytes(b"cut short")
    result = run("datagen", "--problem=wmt_ende", f"--tmp_dir={archive.parent}", f"--data_dir={tmp_path / 'data'}")
    refused(result, f"{archive}: 9 bytes, but the published archive has 38,654,961; get it again from http://")
    assert {path.name for path in tmp_path.rglob("*")} == {"tmp", archive.name}
