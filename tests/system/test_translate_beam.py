"""t2t-translate-beam gives what t2t-decoder gives, line by line, however the lines are spread."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from programs import Road, here, refused
from t2t_repro.decoding.beam_pipeline import Job, Translate, unfinished
from t2t_repro.hparam import DecodeHParams, override
from t2t_repro.model_folder import open_folders

LONG = "one thousand, nine hundred. two. " * 20
ODD = ["one thousand and two", "", "x\ry\u0085 one \u2028z", "  ", LONG, "", "seven"]


def decoded(model: str, source: Path, hparams: str) -> bytes:
    """What t2t-decoder makes of a file."""
    target = source.with_name(f"{source.name}.expected")
    flags = [f"--output_dir={model}", f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert here("decoder", *flags, f"--decode_hparams={hparams}") == 0
    return target.read_bytes()


def together(folder: Path, pattern: str) -> bytes:
    """What `cat` gives."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob(pattern)))


def test_workers_draw_what_the_decoder_draws(road: Road, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers, empty, odd = (tmp_path / f"x-{name}" for name in ("1.en", "2.en", "3.en.gz"))
    numbers.write_bytes((road.text / "dev.en").read_bytes())
    empty.touch()
    odd.write_bytes(gzip.compress("\n".join(ODD).encode()))
    usr_dir = tmp_path / "usr_dir_for_beam"  # a user's own code, which says where it is imported
    usr_dir.mkdir()
    (usr_dir / "__init__.py").write_text(f"import os; open('{tmp_path}/pids', 'a').write(f'{{os.getpid()}} ')")
    hparams = "extra_length=3,sampling_method=random,sampling_seed=3,n=2"
    status = here(
        "translate-beam", f"--output_dir={road.model}", f"--decode_from_file={tmp_path}/x-*.en*",
        f"--decode_to_file={tmp_path / 'new' / 'x.de'}", f"--decode_hparams={hparams}", "--batch_lines=9",
        f"--t2t_usr_dir={usr_dir}",
        "--beam_options=--direct_num_workers=1 --direct_running_mode=multi_processing",
    )  # fmt: skip
    said = capfd.readouterr()
    assert status == 0, said.err[-3000:]
    assert said.out == ""
    assert said.err.rstrip().endswith("x.de-*: 57 lines, 7 shards, 1 translated in pieces"), said.err[-3000:]
    names = [f"x.de-00000-{first:012d}" for first in range(0, 50, 9)] + [f"x.de-00002-{0:012d}"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    assert together(tmp_path / "new", "x.de-00000-*") == decoded(str(road.model), numbers, hparams)
    assert together(tmp_path / "new", "x.de-00002-*") == decoded(str(road.model), odd, hparams)
    lines = together(tmp_path / "new", "x.de-00002-*").split(b"\n")[:-1]
    assert [not line for line in lines] == [not text.strip() for text in ODD]
    mine, theirs = map(int, (tmp_path / "pids").read_text().split())
    assert mine == os.getpid() != theirs


def test_a_process_loads_its_model_once(road: Road) -> None:
    (checkpoint,) = road.model.glob("model.ckpt-40.index")
    job = Job(str(road.model), str(checkpoint.with_suffix("")), DecodeHParams(), "x")
    sent = pickle.dumps(Translate(job))
    first, second = pickle.loads(sent), pickle.loads(sent)
    for each in (first, second):
        each.setup()
    assert first._loaded is second._loaded


def test_an_ensemble_and_batches_that_are_tried_twice(road: Road, tmp_path: Path) -> None:
    both, hparams = f"{road.model},{road.model}", "extra_length=3,beam_size=2,write_beam_scores=true"
    source = tmp_path / "x"
    source.write_text("".join(f"{text}\n" for text in ("one", "", "one thousand and two", "nine")))
    status = here(
        "translate-beam", f"--output_dir={both}", f"--decode_from_file={source}", f"--decode_to_file={tmp_path}/y",
        f"--decode_hparams={hparams}", "--beam_options=--direct_runner_bundle_repeat=1",
    )  # fmt: skip
    assert status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"x", "y-00000-000000000000"}
    assert together(tmp_path, "y-*") == decoded(both, source, hparams)


def test_what_was_ended_goes_on(road: Road, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x-1").write_text("one\ntwo\nthree\n")
    (tmp_path / "x-2").write_bytes(b"four\n\xff\n")
    flags = [f"--output_dir={road.model}", f"--decode_from_file={tmp_path}/x-*", f"--decode_to_file={tmp_path}/y",
             "--decode_hparams=beam_size=1", "--batch_lines=2"]  # fmt: skip
    assert here("translate-beam", *flags) == 2  # reads all before it translates
    assert {path.name for path in tmp_path.iterdir()} == {"x-1", "x-2"}
    (tmp_path / "x-2").write_bytes(b"four\nfi\n")
    assert here("translate-beam", *flags) == 0
    whole = {path.name: path.read_bytes() for path in tmp_path.glob("y-*")}
    assert len(whole) == 3

    for path in tmp_path.glob("y-*"):
        path.unlink()
    folders, checkpoints = open_folders(str(road.model))
    params = override(folders[0].problem.decode_hparams, "beam_size=1")
    job, paths = Job(str(road.model), checkpoints[0], params, f"{tmp_path}/y"), [f"{tmp_path}/x-1", f"{tmp_path}/x-2"]
    with pytest.raises(KeyboardInterrupt), unfinished(job, paths, 2):
        (tmp_path / "y-00000-000000000002").write_text("as it was\n")
        raise KeyboardInterrupt
    for other in ([], ["--resume", "--decode_hparams=beam_size=2"], ["--resume", "--batch_lines=3"]):
        assert here("translate-beam", *flags, *other) == 2
        assert {path.name for path in tmp_path.glob("y*")} == {"y.unfinished", "y-00000-000000000002"}
    capfd.readouterr()
    assert here("translate-beam", *flags, "--resume") == 0
    assert capfd.readouterr().err.endswith("y-*: 4 lines, 2 shards, 1 shards that were there\n")
    found = {path.name: path.read_bytes() for path in tmp_path.glob("y*")}
    assert found == whole | {"y-00000-000000000002": b"as it was\n"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--decode_from_file=/nowhere/x*"], ("--decode_from_file=/nowhere/x*", "no such file")),
        (["--decode_from_file=FOLDER/bad"], ("FOLDER/bad:2: not UTF-8",)),
        (["--decode_to_file="], ("--decode_to_file is required",)),
        (["--decode_to_file=FOLDER/good/y"], ("good/y.unfinished: cannot be written", "--decode_to_file")),
        (["--decode_to_file=FOLDER/old"], ("FOLDER/old-00000-000000000000: is there already", "--resume")),
        (
            ["--decode_to_file=FOLDER/old", "--resume"],
            ("old-00000-000000000000: is there", "not of an unfinished"),
        ),
        (["--batch_lines=0"], ("--batch_lines=0",)),
        (["--long_lines=error", "--decode_hparams=max_input_size=2"], ("FOLDER/good:1: ", "--long_lines")),
        (["--decode_hparams=prefix_file=x"], ("prefix_file",)),
        (["--beam_options=--runner=Nobody"], ("--beam_options", "Nobody", "FlinkRunner")),
        (["--beam_options=--direct_num_workers=x"], ("--beam_options", "--direct_num_workers", "'x'")),
        (["--beam_options='"], ("--beam_options", "quotation")),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    road: Road, tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "good").write_text("one thousand\n")
    (tmp_path / "bad").write_bytes(b"one\n\xff\n")
    (tmp_path / "old-00000-000000000000").touch()
    usual = [f"--decode_from_file={tmp_path}/good", f"--decode_to_file={tmp_path}/y", "--decode_hparams=beam_size=1"]
    given = [flag.replace("FOLDER", str(tmp_path)) for flag in flags]
    assert here("translate-beam", f"--output_dir={road.model}", *usual, *given) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    line = said.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("t2t-translate-beam: ")
    for word in words:
        assert word.replace("FOLDER", str(tmp_path)) in line
    assert {path.name for path in tmp_path.iterdir()} == {"good", "bad", "old-00000-000000000000"}


def test_without_beam_the_cure_is_named(road: Road) -> None:
    script = "import sys; sys.modules['apache_beam'] = None; from t2t_repro.bin.t2t_translate_beam import run; run()"
    flags = [f"--output_dir={road.model}", "--decode_from_file=x", "--decode_to_file=y"]
    result = subprocess.run([sys.executable, "-c", script, *flags], capture_output=True, text=True)
    refused(result, 'pip install "t2t_repro[beam]"')
