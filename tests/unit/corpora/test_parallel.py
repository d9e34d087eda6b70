"""Tests that parallel text is read from two files."""

import gzip
import itertools
import json
import lzma
from pathlib import Path

import pytest

from t2t_repro.corpora.parallel import read_pairs, read_rows, read_targets, read_tsv
from t2t_repro.errors import UserError
from user_errors import user_error


def test_lines_are_paired(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"one\n\nthree\n")
    (tmp_path / "a.de.gz").write_bytes(gzip.compress("eins\nz\u2028w\u0085e\ri\ndrei".encode()))
    assert list(read_pairs(tmp_path / "a.en", tmp_path / "a.de.gz")) == [
        {"inputs": "one", "targets": "eins"},
        {"inputs": "", "targets": "z\u2028w\u0085e\ri"},
        {"inputs": "three", "targets": "drei"},
    ]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (0, 2), (2, 0), (1234, 1233)])
def test_different_numbers_of_lines_are_an_error_with_both(
    tmp_path: Path, source: int, target: int
) -> None:
    (tmp_path / "a").write_bytes(b"x\n" * source)
    (tmp_path / "b").write_bytes(b"y\n" * target)
    pairs = read_pairs(tmp_path / "a", tmp_path / "b")
    assert len(list(itertools.islice(pairs, min(source, target)))) == min(source, target)
    with pytest.raises(UserError) as error:
        next(pairs)
    assert str(error.value).startswith(
        f"{tmp_path}/a and {tmp_path}/b have {source:,} and {target:,} lines;"
    )


def test_segments_are_paired_by_document_and_number(tmp_path: Path) -> None:
    source = tmp_path / "a.sgm"
    target = tmp_path / "b.sgm.gz"
    source.write_text(
        '<doc docid="x"><seg id="1">one</seg>\n<seg id="2">\ntwo\n</seg></doc><doc '
        'docid="y"><seg id="1">three</seg>'
    )
    german = (
        '<doc docid="y"><seg id="1">drei</seg></doc><doc docid="x"><seg id="2">zwei</seg> <seg '
        'id="1">e\nins</seg>'
    )
    target.write_bytes(gzip.compress(german.encode()))
    assert list(read_pairs(source, target)) == [
        {"inputs": "one", "targets": "e ins"},
        {"inputs": "two", "targets": "zwei"},
        {"inputs": "three", "targets": "drei"},
    ]
    assert read_targets(source, target, []) == ["three", "two", "one"]
    for english in (
        '<doc docid="x"><seg id="1">one</seg><seg id="3">two</seg></doc>',
        german.replace('"y"', '"z"'),
        '<doc docid="x"><seg id="1">one</seg>',
    ):
        source.write_text(english)
        with pytest.raises(
            UserError, match=r"a\.sgm and .*b\.sgm\.gz: only one has segment \d of document"
        ):
            list(read_pairs(source, target))


def test_one_file_may_have_both_sides(tmp_path: Path) -> None:
    expected = [
        {"inputs": "just one", "targets": 'ei"ns\u2028'},
        {"inputs": "two", "targets": "zwei"},
    ]
    (tmp_path / "a.tsv.xz").write_bytes(
        lzma.compress('just one\tei"ns\u2028\r\ntwo\tzwei'.encode())
    )
    assert list(read_tsv(f"{tmp_path}/a.tsv.xz")) == expected
    rows = [
        *expected,
        {"en": "just\none", "de": expected[0]["targets"], "id": 3},
        {"translation": {"de": "zwei", "en": "two"}},
    ]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert list(read_rows(f"{tmp_path}/a.jsonl.gz", ("en", "de"))) == 2 * expected


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.tsv", "x"),
        ("a.tsv", ""),
        ("a.tsv", "x\ty\tz"),
        *(
            ("a.jsonl", line)
            for line in (
                "",
                "x",
                "[]",
                "{}",
                '"x"',
                '{"inputs": "x"}',
                '{"inputs": "x", "targets": 3}',
                '{"translation": []}',
                '{"en": "x", "fr": "y"}',
            )
        ),
    ],
)
def test_a_line_without_a_pair_is_named(tmp_path: Path, name: str, line: str) -> None:
    first = {"a.tsv": "a\tb", "a.jsonl": '{"en": "a", "de": "b"}'}[name]
    (tmp_path / name).write_text(f"{first}\n{line}\n{first}\n")
    path = f"{tmp_path}/{name}"
    pairs = read_tsv(path) if name == "a.tsv" else read_rows(path, ("en", "de"))
    assert next(pairs) == {"inputs": "a", "targets": "b"}
    assert user_error(next, pairs).startswith(f"{tmp_path}/{name}:2:")
