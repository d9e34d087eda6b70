"""t2t-datagen with Apache Beam writes the same bytes as without, whatever the text, the runner and
the kills.
"""

import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_bucket import bucket  # noqa: F401, a fixture
from folders import contents
from programs import refused, run, succeed, write_pairs
from t2t_repro.beam import datagen
from t2t_repro.beam.datagen import Task
from t2t_repro.corpora import parts
from t2t_repro.data import shards
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.errors import UserError
from t2t_repro.files import textfile
from t2t_repro.problems.text_files import TextFiles
from user_errors import user_error

BEAM = "--beam_options=--runner=FnApiRunner"
CODE = """
import os, signal
from t2t_repro.corpora import parts
from t2t_repro.data import shards
parts.PART_LINES, shards.PAIRS_PER_SHARD = 100, 90
replace = os.replace
def replace_or_die(source, target):
    if str(target).endswith("-00-00003"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = replace_or_die
from t2t_repro.bin.t2t_datagen import run
run()
"""
"""Runs t2t-datagen, but kills it while it encodes the fourth shard."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts text into parts, blocks and shards of a few lines, and samples the text of the
    vocabulary.
    """
    monkeypatch.setattr(parts, "PART_LINES", 100)
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 90)
    monkeypatch.setattr(textfile, "BLOCK", 500)
    monkeypatch.setattr("t2t_repro.beam.datagen.BUCKET_PAIRS", 150)
    monkeypatch.setattr(sentencepiece.sample, "__defaults__", (9000,))
    monkeypatch.setattr(sentencepiece, "MAX_TRAINING_BYTES", 9000)


def assert_equal(tmp_path: Path, *flags: str, beam: str = BEAM) -> None:
    """Asserts that both ways of t2t-datagen write the same files and messages."""
    local = succeed("datagen", *flags, f"--data_dir={tmp_path}/local", cwd=tmp_path)
    with_beam = succeed("datagen", *flags, f"--data_dir={tmp_path}/beam", beam, cwd=tmp_path)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    assert with_beam.stderr.replace(f"{tmp_path}/beam", f"{tmp_path}/local") == local.stderr


def write_corpora(folder: Path) -> list[str]:
    """Writes corpora of all kinds of files, with repeats within and between them. Returns the
    flags.
    """
    train = write_pairs(folder, "train", [*range(450), *range(130), 7, 7])
    dev = write_pairs(folder, "dev", range(40, 60))
    source, target = train.split(",")
    sides = [Path(path).read_text().splitlines() for path in (source, target)]
    lines = list(zip(*sides, strict=True))
    Path(source).write_bytes(b"\xef\xbb\xbf" + Path(source).read_bytes().replace(b"\n", b"\r\n"))
    Path(target).write_text("".join(f" {line}\n" for _, line in lines).rstrip("\n"))
    news = [(f"{one} again", f"{other} noch") for one, other in lines[:90]]
    tsv = "".join(f"{one}\t{other}\n" for one, other in [*lines[20:230], *news, *news[:9]])
    (folder / "b.tsv.gz").write_bytes(gzip.compress(tsv.encode()))
    rows = [{"inputs": f"{one} !", "targets": other} for one, other in lines[:250]]
    (folder / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [
        "--problem=text_files",
        f"--train={train};b.tsv.gz;c.jsonl",
        f"--dev={dev}",
        "--vocab_size=400",
    ]


@pytest.mark.parametrize(
    "more",
    [
        ["--clean_duplicates", "--clean_max_words=5", "--corpus_temperature=2"],
        ["--clean_max_ratio=2", "--separate_vocabularies"],
    ],
)
def test_all_kinds_of_text_give_the_bytes_of_a_local_run(tmp_path: Path, more: list[str]) -> None:
    assert_equal(tmp_path, *write_corpora(tmp_path), *more)


def test_several_processes_and_target_languages(tmp_path: Path) -> None:
    for name, numbers in (("x", range(300)), ("y", range(200, 420)), ("dev", range(30))):
        write_pairs(tmp_path, name, numbers)
    (tmp_path / "y.de").rename(tmp_path / "y.fr")
    flags = [
        "--train=x.en,x.de;y.en,y.fr",
        "--problem=text_files",
        "--targets=de,fr",
        "--dev=dev.en,dev.de",
        "--vocab_size=400",
    ]
    processes = "--beam_options=--direct_num_workers=2 --direct_running_mode=multi_processing"
    assert_equal(tmp_path, *flags, "--clean_duplicates", beam=processes)


def test_text_may_be_on_a_file_system_of_beam(tmp_path: Path, bucket: Callable[[str], str]) -> None:  # noqa: F811
    train, dev = (write_pairs(tmp_path / "bucket", name, range(250)) for name in ("train", "dev"))
    listing = {"toy": {"files": [bucket("train.en"), bucket("train.de")]}}
    (tmp_path / "corpora.json").write_text(json.dumps(listing))
    flags = ["--problem=text_files", "--vocab_size=400", BEAM]
    local = [f"--train={train}", f"--dev={dev}", f"--data_dir={tmp_path}/local"]
    urls = [flag.replace(f"{tmp_path}/bucket/", bucket("")) for flag in local[:2]]
    listed = [f"--train={tmp_path}/corpora.json", urls[1]]
    for files in (
        local,
        [*urls, f"--data_dir={tmp_path}/beam"],
        [*listed, f"--data_dir={tmp_path}/listed"],
    ):
        succeed("datagen", *flags, *files)
    for path in (tmp_path / "local").glob("text_files-*"):
        assert (tmp_path / "beam" / path.name).read_bytes() == path.read_bytes()
        assert (tmp_path / "listed" / path.name).read_bytes() == path.read_bytes()
    refused(run("datagen", *flags, *urls, f"--data_dir={bucket('D')}"), bucket("D"))
    nowhere = [flag.replace("bucket://b", "nowhere://b") for flag in urls]
    for files in (nowhere, [nowhere[0], local[1]]):
        refused(run("datagen", *flags, *files, f"--data_dir={tmp_path}/new"), "nowhere://b")


def test_a_kill_changes_nothing_and_finished_files_stay(tmp_path: Path) -> None:
    flags = [*write_corpora(tmp_path), "--clean_duplicates"]
    command = [sys.executable, "-c", CODE, *flags, f"--data_dir={tmp_path}/beam", BEAM]
    killed = subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=False, cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    work = tmp_path / "beam" / "text_files.beam"
    finished = {
        path: path.stat().st_mtime_ns
        for path in work.rglob("*")
        if path.suffix in (".json", ".txt")
    }
    assert any(path.name.endswith("-00-00002.json") for path in finished)

    kept: dict[Path, int] = {}
    rmtree = shutil.rmtree
    with pytest.MonkeyPatch.context() as patch:

        def delete(path: Any, **options: Any) -> None:
            kept.update((path, path.stat().st_mtime_ns) for path in finished if path.exists())
            rmtree(path, **options)

        patch.setattr(shutil, "rmtree", delete)
        assert_equal(tmp_path, *flags)
    assert finished.items() <= kept.items()


def test_mistakes_are_one_line_and_leave_finished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*write_corpora(tmp_path), f"--data_dir={tmp_path}/beam", BEAM]
    (tmp_path / "c.jsonl").write_text((tmp_path / "c.jsonl").read_text() + "oops\n")
    refused(run("datagen", *flags, cwd=tmp_path), "c.jsonl:251:")
    assert list((tmp_path / "beam" / "text_files.beam").rglob("00-00000.json"))
    with open(tmp_path / "train.en", "ab") as file:
        file.write(b"one more\n")
    refused(run("datagen", *flags, cwd=tmp_path), "train.en", "583 and 582 lines")
    (tmp_path / "beam" / "text_files.beam" / "thesis.txt").touch()
    refused(run("datagen", *flags, cwd=tmp_path), "text_files.beam: ")
    other = Task(str(tmp_path), "", "text_files", {}, "", ("0.9", "0.1"))
    assert "0.9" in user_error(other.load_problem)


@pytest.mark.parametrize("method", ["parts", "read_part"])
def test_text_that_changes_while_it_is_cut_or_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    flags = [*write_corpora(tmp_path), f"--data_dir={tmp_path}/beam", BEAM]
    original = getattr(TextFiles, method)

    def changing(*arguments: Any) -> Any:
        with open(tmp_path / "b.tsv.gz", "ab") as file:
            file.write(gzip.compress(b"one\teins\n"))
        return original(*arguments)

    monkeypatch.setattr(TextFiles, method, changing)
    refused(run("datagen", *flags, cwd=tmp_path), "changed while it was read")


PROBLEM = """
from t2t_repro.problem import Problem
from t2t_repro.registry import register_problem

@register_problem
class Split(Problem):
    is_self_contained = True
    def generate(self, split, tmp_dir):
        for part in range(3):
            yield from self.read_part(part, split, 0, tmp_dir)
    def parts(self, split, number, tmp_dir):
        return [0, 1, 2]
    def read_part(self, part, split, number, tmp_dir):
        for row in range(40):
            yield {"inputs": f"WORD {part}\\n{row} {split}", "targets": f"other {part} {row}"}
        FAIL
"""


def write_problem(folder: Path, word: str, fail: str) -> list[str]:
    """Writes a package with the problem. Returns the flags."""
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(PROBLEM.replace("WORD", word).replace("FAIL", fail))
    return ["--problem=split", f"--t2t_usr_dir={folder}", "--vocab_size=300"]


def test_parts_that_other_code_wrote_are_not_used(tmp_path: Path) -> None:
    usr_dir = tmp_path / "usr_dir_of_parts"
    flags = write_problem(usr_dir, "one", "if part == 2 and split == 'train': yield 'no pair'")
    refused(run("datagen", *flags, f"--data_dir={tmp_path}/beam", BEAM), "'no pair'")
    assert_equal(tmp_path, *write_problem(usr_dir, "three", ""))


CALLS: list[Any] = []
read = datagen.read_part
"""Names in this module, because Beam copies the variables of functions inside a test."""


def fail(*call: Any) -> None:
    CALLS.append(call)
    if call[0].corpus == 2:
        raise UserError("killed")
    read(*call)


def read_late(*call: Any) -> None:
    """First does the work of the calls of an earlier run."""
    while CALLS:
        with contextlib.suppress(UserError):  # the folder of that run may be gone
            read(*CALLS.pop())
    read(*call)


def test_workers_of_a_killed_run_do_not_disturb_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = write_corpora(tmp_path)
    monkeypatch.setattr(datagen, "read_part", fail)
    refused(run("datagen", *flags, f"--data_dir={tmp_path}/beam", BEAM, cwd=tmp_path), "killed")
    assert len(CALLS) > 3
    monkeypatch.setattr(datagen, "read_part", read_late)
    assert_equal(tmp_path, *flags, "--clean_max_words=3")
    assert not CALLS


def test_a_process_encodes_with_the_vocabulary_of_its_run(tmp_path: Path) -> None:
    flags = write_corpora(tmp_path)[:-1]
    for name, numbers in (("a", range(100)), ("b", range(300, 500))):
        text = write_pairs(tmp_path, name, numbers)
        files = [f"--train={text}", f"--dev={text}", f"--data_dir={tmp_path}/{name}"]
        succeed("datagen", "--problem=text_files", "--vocab_size=380", *files)
        (vocabulary,) = (tmp_path / name).glob("vocab.*")
        assert_equal(tmp_path, *flags, f"--vocab_file={vocabulary}", "--overwrite")


def test_a_disk_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagen, "kept_pairs", lambda *piece: os.listdir(tmp_path / "gone"))
    flags = [*write_corpora(tmp_path), f"--data_dir={tmp_path}/beam", BEAM]
    refused(run("datagen", *flags, cwd=tmp_path), "gone")


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    assert str(tmp_path) in user_error(Task(str(tmp_path), "", "text_files", {}, "").load_problem)


def test_data_that_is_not_replaced_stays_as_it_is(tmp_path: Path) -> None:
    flags = [*write_corpora(tmp_path), f"--data_dir={tmp_path}/beam", BEAM]
    succeed("datagen", *flags, cwd=tmp_path)
    before = contents(tmp_path / "beam")
    refused(run("datagen", *flags, "--clean_max_words=5", cwd=tmp_path), "--clean_max_words=0")
    assert contents(tmp_path / "beam") == before
