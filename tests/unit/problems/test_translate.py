"""Tests of tensor2tensor's translation problems: their names, vocabularies and source files."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.problems.translate import TranslateProblem
from user_errors import user_error

SGM = '<srcset>\n<doc id="1">\n<seg id="1">A  &amp; b</seg>\n  <seg>c</seg>\n</doc>\n</srcset>\n'


@pytest.mark.parametrize(
    ("name", "language", "subwords"),
    [
        ("ende_wmt32k", "de", 32768),
        ("ende_wmt8k", "de", 8192),
        ("enfr_wmt32k", "fr", 32768),
        ("enfr_wmt8k", "fr", 8192),
        ("enfr_wmt_small32k", "fr", 32768),
        ("enfr_wmt_small8k", "fr", 8192),
    ],
)
def test_the_problems_are_tensor2tensors(name: str, language: str, subwords: int) -> None:
    problem = registry.problem(f"translate_{name}")
    assert problem.t2t_vocabularies == (f"vocab.translate_{name}.{subwords}.subwords",) * 2
    assert (problem.languages, problem.target_space_id) == (("en", language), 0)
    assert (problem.decode_hparams.beam_size, problem.decode_hparams.alpha) == (4, 0.6)
    assert f"--problem=wmt_en{language} generates data of this kind" in user_error(problem.check)


class Files(TranslateProblem):
    """Reads the sources in `sources`."""

    sources: Any

    def source_data_files(self, dataset_split: str) -> Any:
        return self.sources


def test_files_come_from_the_folder_or_from_an_archive(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "x.en").write_text(" one \n\ntwo\n")
    (tmp_path / "x.de").write_text("eins\nnichts\nzwei\n")
    for language in ("en", "de"):
        (tmp_path / f"y.{language}.sgm").write_text(SGM)
    with tarfile.open(tmp_path / "y.tgz", "w:gz") as archive:
        for language in ("en", "de"):
            archive.add(tmp_path / f"y.{language}.sgm", f"dev/y.{language}.sgm")
    problem = Files()
    problem.sources = [
        ["", ("x.en", "x.de")],
        ["http://host/y.tgz", ("dev/y.en.sgm", "dev/y.de.sgm")],
    ]
    assert list(problem.generate("train", str(tmp_path))) == [
        {"inputs": "one", "targets": "eins"},
        {"inputs": "", "targets": "nichts"},  # t2t-datagen drops and counts it
        {"inputs": "two", "targets": "zwei"},
        {"inputs": "A & b", "targets": "A & b"},
        {"inputs": "c", "targets": "c"},
    ]


def test_sources_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    problem = Files()
    for source, message in (
        (["", ("x.en", "x.de")], f"{tmp_path}/x.en: no such file"),
        (
            ["my.tgz", ("x.en", "x.de")],
            "cannot download my.tgz (unknown url type: 'my.tgz'); get these files and",
        ),
        (["http://host/x.tgz", ("tmx", "x.tmx.gz")], "problem files: source_data_files has ('tmx'"),
        (["http://host/x.tgz", ("tsv", 0, 1, "*.tsv")], "read other formats in generate_samples"),
    ):
        problem.sources = [source]
        assert message in user_error(lambda: list(problem.generate("train", str(tmp_path))))
    bare = TranslateProblem()
    assert "problem translate_problem: define source_data_files" in user_error(
        lambda: list(bare.generate("dev", ""))
    )
