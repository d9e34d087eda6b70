"""t2t-translate-beam translates each line like t2t-decoder, no matter how Beam distributes the
lines.
"""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from beam_bucket import bucket  # noqa: F401, a fixture
from programs import TrainedModel, refused, run, succeed
from t2t_repro.errors import UserError

pytestmark = pytest.mark.usefixtures("no_graphs")

LONG = "one thousand, nine hundred. two. " * 20
ODD = ["one thousand and two", "", "x\ry\u0085 one \u2028z", "  ", LONG, "", "seven"]


def decode(model: str, source: Path, hparams: str) -> bytes:
    """Returns the bytes that t2t-decoder prints for a source file."""
    flags = [f"--output_dir={model}", f"--decode_from_file={source}", f"--decode_hparams={hparams}"]
    return succeed("decoder", *flags).stdout.encode()


def concatenated(folder: Path, pattern: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob(pattern)))


def test_workers_sample_the_same_outputs_as_the_decoder(
    trained: TrainedModel, tmp_path: Path
) -> None:
    texts = tmp_path / "x-1.en.gz"
    plain = tmp_path / "plain"
    plain.write_bytes((trained.text / "dev.en").read_bytes() + "\n".join(ODD).encode())
    texts.write_bytes(gzip.compress(plain.read_bytes()))
    for name, content in (("0.en", ""), ("2.en", "one\n")):
        (tmp_path / f"x-{name}").write_text(content)
    usr_dir = tmp_path / "usr_dir_for_beam"  # its code adds the importing process's id to a file
    usr_dir.mkdir()
    (usr_dir / "__init__.py").write_text(
        f"import os; open('{tmp_path}/pids', 'a').write(f'{{os.getpid()}} ')"
    )
    hparams = "extra_length=3,sampling_method=random,sampling_seed=3,n=2"
    result = succeed(
        "translate-beam",
        f"--output_dir={trained.folder}",
        f"--decode_from_file={tmp_path}/x-*.en*",
        f"--decode_to_file={tmp_path / 'new' / 'x.de'}",
        f"--decode_hparams={hparams}",
        "--batch_lines=19",
        f"--t2t_usr_dir={usr_dir}",
        "--beam_options=--direct_num_workers=1 --direct_running_mode=multi_processing",
    )
    assert result.stdout == ""
    assert result.stderr.endswith("x.de-*: lines: 58, shards: 4, translated in segments: 1\n"), (
        result.stderr[-3000:]
    )
    assert result.stderr.count("\n") == 2  # without the log of the worker
    names = [f"x.de-00001-{start:012d}" for start in (0, 19, 38)] + [f"x.de-00002-{0:012d}"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [*names, "x.de.settings"]
    assert concatenated(tmp_path / "new", "x.de-00001-*") == decode(
        str(trained.folder), plain, hparams
    )
    launcher, worker = map(int, (tmp_path / "pids").read_text().split())
    assert launcher == os.getpid() != worker


def test_an_ensemble_translates_the_same_even_if_beam_repeats_batches(
    trained: TrainedModel, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "m")
    ensemble = f"{trained.folder},{tmp_path / 'm'}"
    hparams = "extra_length=3,beam_size=2,write_beam_scores=true"
    source = tmp_path / "x"
    source.write_text("".join(f"{text}\n" for text in ("one", "", "one thousand and two", "nine")))
    succeed(
        "translate-beam",
        f"--output_dir={ensemble}",
        f"--decode_from_file={source}",
        f"--decode_to_file={tmp_path}/y",
        f"--decode_hparams={hparams}",
        "--beam_options=--direct_runner_bundle_repeat=1",
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "m",
        "x",
        "y-00000-000000000000",
        "y.settings",
    }
    assert concatenated(tmp_path, "y-*") == decode(ensemble, source, hparams)


def test_rows_of_json_with_prefixes_give_the_rows_of_the_decoder(
    trained: TrainedModel, tmp_path: Path
) -> None:
    texts = ["one thousand", "", "nine", 'se"ven two']
    prefixes = ["ein", "", "", "acht"]
    rows = [
        json.dumps({"source": text, "prefix": prefix})
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    for name, lines in (("x", texts), ("p", prefixes)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    flags = [f"--output_dir={trained.folder}", "--output_format=jsonl"]
    search = "--decode_hparams=beam_size=2,extra_length=3,n=2"
    succeed(
        "translate-beam",
        *flags,
        f"--decode_from_file={tmp_path}/x.jsonl.gz",
        f"--decode_to_file={tmp_path}/y",
        search,
    )
    expected = succeed(
        "decoder", *flags, f"--decode_from_file={tmp_path}/x", f"{search},prefix_file={tmp_path}/p"
    )
    assert concatenated(tmp_path, "y-*").decode() == expected.stdout
    (tmp_path / "bad.jsonl").write_text('{"source": "one"}\n{"source": 1}\n')
    refused(
        run(
            "translate-beam",
            *flags,
            f"--decode_from_file={tmp_path}/bad.jsonl",
            f"--decode_to_file={tmp_path}/z",
        ),
        "bad.jsonl:2: ",
    )


def test_a_model_folder_may_be_on_a_file_system_of_beam(
    trained: TrainedModel,
    tmp_path: Path,
    bucket: Callable[[str], str],  # noqa: F811
) -> None:
    shutil.copytree(trained.folder, tmp_path / "bucket" / "m")
    (tmp_path / "bucket" / "x").write_text("one\nnine\n")
    flags = ["--decode_hparams=beam_size=2,extra_length=3", f"--decode_from_file={bucket('x')}"]
    succeed(
        "translate-beam", f"--output_dir={bucket('m')}", f"--decode_to_file={bucket('y')}", *flags
    )
    shards = concatenated(tmp_path / "bucket", "y-*")
    assert shards == decode(
        str(trained.folder), tmp_path / "bucket" / "x", "beam_size=2,extra_length=3"
    )
    resumed = [
        "translate-beam",
        f"--output_dir={trained.folder}",
        f"--decode_to_file={bucket('y')}",
        *flags,
        "--resume",
    ]
    assert "nothing to do" in succeed(*resumed).stderr
    refused(
        run(
            "translate-beam",
            f"--output_dir={bucket('none')}",
            f"--decode_to_file={bucket('z')}",
            *flags,
        ),
        "none: ",
    )


def test_an_export_translates_as_the_model_does(
    trained: TrainedModel,
    tmp_path: Path,
    bucket: Callable[[str], str],  # noqa: F811
) -> None:
    hparams = "beam_size=2,extra_length=3"
    flags = [
        f"--output_dir={trained.folder}",
        f"--export_dir={tmp_path}/e",
        f"--decode_hparams={hparams}",
    ]
    succeed("exporter", *flags)
    shutil.copytree(tmp_path / "e" / "1", tmp_path / "e" / "10")
    (tmp_path / "e" / "1").rename(tmp_path / "e" / "9")
    (tmp_path / "e" / ".unfinished").mkdir()
    (tmp_path / "e" / ".unfinished" / "saved_model.pb").touch()
    shutil.rmtree(tmp_path / "e" / "9" / "variables")  # only the latest version is read
    shutil.copytree(tmp_path / "e", tmp_path / "bucket" / "e")
    (tmp_path / "bucket" / "x").write_text("one\n\nnine\n")
    flags = [f"--decode_from_file={bucket('x')}", f"--decode_to_file={bucket('y')}"]
    succeed("translate-beam", f"--export_dir={bucket('e')}", *flags)
    assert concatenated(tmp_path / "bucket", "y-*") == decode(
        str(trained.folder), tmp_path / "bucket" / "x", hparams
    )
    local = f"--export_dir={tmp_path}/e/10"
    assert "nothing to do" in succeed("translate-beam", local, *flags, "--resume").stderr
    flags[1] = f"--decode_to_file={tmp_path}/z"
    refused(run("translate-beam", local, *flags, "--target_language=de"), "--target_language")
    refused(
        run("translate-beam", local, *flags, "--decode_hparams=alpha=1"),
        "--decode_hparams has no effect",
    )
    refused(run("translate-beam", f"--export_dir={tmp_path}/none", *flags), "none: ")
    (tmp_path / "x.jsonl").write_text('{"source": "one", "prefix": "ein"}\n')
    refused(
        run("translate-beam", local, f"--decode_from_file={tmp_path}/x.jsonl", flags[1]), "prefixes"
    )
    assert not list(tmp_path.glob("z*"))


def test_a_corpus_of_augmented_text_is_that_of_a_local_run(
    trained: TrainedModel, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("one\n\nnine\nthree\nseven two\n")
    flags = [
        f"--output_dir={trained.folder}",
        f"--text={tmp_path}/x",
        "--decode_hparams=beam_size=2,extra_length=3",
        "--shard_lines=2",
    ]
    with_beam = [
        "augment",
        *flags,
        f"--corpus_dir={tmp_path}/beam",
        "--beam_options=--runner=FnApiRunner",
    ]
    with mock.patch("t2t_repro.beam.pipeline.run", side_effect=UserError("a worker is lost")):
        refused(run(*with_beam), "a worker is lost")
    assert json.loads((tmp_path / "beam" / "augment.json").read_text())["finished_shards"] == 0
    for command in (["augment", *flags, f"--corpus_dir={tmp_path}/local"], with_beam):
        assert "4 pairs of 5 lines, 1 dropped" in succeed(*command).stderr
    names = ["00000.tsv.gz", "00001.tsv.gz", "00002.tsv.gz", "augment.json"]
    complete = {name: (tmp_path / "local" / name).read_bytes() for name in names}
    assert {name: (tmp_path / "beam" / name).read_bytes() for name in names} == complete

    (tmp_path / "beam" / "00001.tsv.gz").unlink()
    state = json.loads(complete["augment.json"]) | {"finished_shards": 0, "pairs": 0, "dropped": 0}
    (tmp_path / "beam" / "augment.json").write_text(json.dumps(state))  # as after a kill
    succeed(*with_beam)
    assert {name: (tmp_path / "beam" / name).read_bytes() for name in names} == complete


def test_an_interrupted_run_resumes(trained: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "x-1").write_text("one\ntwo\nthree\n")
    (tmp_path / "x-2").write_bytes(b"four\n\xff\n")
    flags = [
        f"--output_dir={trained.folder}",
        f"--decode_from_file={tmp_path}/x-*",
        f"--decode_to_file={tmp_path}/y",
        "--decode_hparams=beam_size=1,extra_length=3",
        "--batch_lines=2",
    ]
    # Refuses x-2, which is not UTF-8, before it translates.
    assert run("translate-beam", *flags).returncode == 2
    assert {path.name for path in tmp_path.iterdir()} == {"x-1", "x-2"}
    (tmp_path / "x-2").write_bytes(b"four\nfi\n")
    succeed("translate-beam", *flags)
    complete = {path.name: path.read_bytes() for path in tmp_path.glob("y-*")}
    assert len(complete) == 3

    (tmp_path / "y-00000-000000000000").unlink()
    (tmp_path / "y-00000-000000000002").write_text("as it was\n")
    assert run("translate-beam", *flags).returncode == 2
    resumed = succeed("translate-beam", *flags, "--resume")
    assert resumed.stderr.endswith("y-*: lines: 2, shards: 1, existing shards: 2\n")
    outputs = {path.name: path.read_bytes() for path in tmp_path.glob("y-*")}
    assert outputs == complete | {"y-00000-000000000002": b"as it was\n"}
    assert "nothing to do" in succeed("translate-beam", *flags, "--resume").stderr
    (tmp_path / "x-1").write_text("one\ntwo\neight\n")
    refused(run("translate-beam", *flags, "--resume"), "y-00000-000000000000", "another run")


def test_a_line_that_is_too_long_is_named(trained: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one thousand\n")
    files = [f"--decode_from_file={tmp_path}/x", f"--decode_to_file={tmp_path}/y"]
    limit = ["--long_lines=error", "--decode_hparams=max_input_size=2"]
    refused(
        run("translate-beam", f"--output_dir={trained.folder}", *files, *limit),
        f"{tmp_path}/x:1: ",
        "--long_lines",
    )
    assert {path.name for path in tmp_path.iterdir()} == {"x"}
