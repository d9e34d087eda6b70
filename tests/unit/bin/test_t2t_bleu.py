"""Tests that t2t-bleu prints one line per score, and reports wrong files and flags in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics.base import Signature

from programs import error, output, output_without_tensorflow, refused, run, succeed, write_lines
from t2t_repro.metrics import bleu

GERMAN = "--target_language=de"
REFERENCES = ["Der Hund lief über die Brücke.", "Die Haus-Tür war zu, sagte er."]
TRANSLATIONS = ["Der Hund lief über eine Brücke.", "Die Garten-Tür war zu, sagte sie."]


def test_each_score_is_printed_on_its_own_line(tmp_path: Path) -> None:
    translation, reference = write_lines(tmp_path / "x.de", TRANSLATIONS), write_lines(tmp_path / "ref.de", REFERENCES)
    lines = output("bleu", f"--translation={translation}", f"--reference={reference}", GERMAN).splitlines()
    assert [line[8:48].rstrip() for line in lines] == [
        "BLEU",
        "BLEU, lower-cased",
        "chrF",
        "chrF, lower-cased",
        "BLEU, the paper's way, as released",
        "BLEU, the paper's way, ASCII punctuation",
    ]
    assert float(lines[0][:6]) == round(sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score, 2)
    assert float(lines[2][:6]) == round(sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score, 2)
    assert all(line[50:].startswith("nrefs:1|case:") for line in lines)
    assert "-de-" in lines[4] and "-de-" in lines[5]


def test_a_translation_may_come_from_standard_input(tmp_path: Path) -> None:
    translation, reference = write_lines(tmp_path / "x.de", TRANSLATIONS), write_lines(tmp_path / "ref.de", REFERENCES)
    expected = succeed("bleu", f"--translation={translation}", f"--reference={reference}").stdout
    piped = [f"--reference={reference}", "--translation=-"]
    assert succeed("bleu", *piped, input="".join(f"{line}\n" for line in TRANSLATIONS)).stdout == expected
    refused(run("bleu", *piped, input=""), "/dev/stdin: empty; nothing to score")
    refused(run("bleu", *piped, input="one\n"), "/dev/stdin has 1 lines, ")


def test_the_language_selects_the_moses_rules(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.fr", ["Il n'y a rien."])
    files = [f"--translation={path}", f"--reference={path}"]
    lines = output("bleu", *files, "--target_language=fr").splitlines()
    assert all("-fr-escaped" in line and "compounds" not in line for line in lines[4:])
    message = error("bleu", *files, "--target_language=french")
    assert message.startswith("no Moses rules for language 'french', ") and "give one of as, bn, ca, " in message


def test_without_a_language_the_papers_bleu_is_not_printed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.de", ["Il n'y a rien."])
    result = succeed("bleu", f"--translation={path}", f"--reference={path}")
    assert len(result.stdout.splitlines()) == 4 and "sacremoses" not in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("BLEU, the paper's way: not computed") and "give --target_language" in line


@pytest.mark.parametrize("name", ["x.de", "x.de.gz"])
def test_only_line_feeds_end_lines(name: str, tmp_path: Path) -> None:
    lines = ["Ein\u0085Satz mit\u2028vielen\u2029Zeichen\x0b darin\x1c hier\r.", "Ende gut, alles ist gut."]
    translation = write_lines(tmp_path / name, lines)
    reference = write_lines(tmp_path / "ref.de", lines)
    assert [
        line[:6]
        for line in output("bleu", f"--translation={translation}", f"--reference={reference}", GERMAN).splitlines()
    ] == ["100.00"] * 6


def test_wrong_files_and_missing_flags_are_reported(tmp_path: Path) -> None:
    two, three = write_lines(tmp_path / "two", REFERENCES), write_lines(tmp_path / "three", [*REFERENCES, "Noch"])
    empty, absent, latin = write_lines(tmp_path / "empty", []), tmp_path / "absent", tmp_path / "latin"
    latin.write_bytes("Hund\nBrücke\n".encode("latin-1"))
    for flags, message in (
        ([f"--translation={two}", f"--reference={three}"], f"{two} has 2 lines, {three} has 3;"),
        ([f"--translation={empty}", f"--reference={two}"], f"{empty}: empty"),
        ([f"--translation={two}", f"--reference={empty}"], f"{empty}: empty"),
        ([f"--translation={two}"], "--reference is required"),
        ([f"--reference={two}"], "--translation is required"),
        ([f"--translation={two}", f"--reference={absent}"], f"{absent}: no such file"),
        ([f"--translation={absent}", f"--reference={two}"], f"{absent}: no such file"),
        ([f"--translation={latin}", f"--reference={two}"], f"{latin}:2: not UTF-8"),
    ):
        assert error("bleu", *flags).startswith(message)


def test_the_program_does_not_load_tensorflow(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.de", REFERENCES)
    shown = output_without_tensorflow("bleu", f"--translation={path}", f"--reference={path}", GERMAN)
    assert shown.startswith("100.00  BLEU  ")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes an English-German test set to sacreBLEU's folder, disables downloads, and returns the set's name."""
    dataset, home = DATASETS["wmt14/full"], tmp_path / "sacrebleu"
    monkeypatch.setattr(dataset, "_outdir", str(home))
    monkeypatch.setattr(dataset, "_rawdir", str(home / "raw"))
    monkeypatch.setattr(dataset, "data", ["file:///nowhere/test-nowhere.tgz"])
    home.mkdir()
    escaped = [line.replace("war zu,", "war zu & AT&amp;T,") for line in REFERENCES]
    for field in ("src", "ref", "docid", "genre", "origlang"):
        write_lines(home / f"wmt14_full.en-de.{field}", escaped)
    return "wmt14/full"


def test_a_published_test_set_is_scored_like_a_file(published: str, tmp_path: Path) -> None:
    unescaped = [line.replace("war zu,", "war zu & AT&T,") for line in REFERENCES]
    reference, translation = write_lines(tmp_path / "ref.de", unescaped), write_lines(tmp_path / "x.de", TRANSLATIONS)
    with_file = output("bleu", f"--translation={translation}", f"--reference={reference}", GERMAN)
    flags = [f"--translation={translation}", f"--test_set={published}", "--language_pair=en-de"]
    with_set = output("bleu", *flags)
    assert with_set.replace("|test:wmt14/full|lang:en-de", "") == with_file
    signature = str(Signature({"num_refs": 1, "test_set": published, "langpair": "en-de"}))
    assert all(signature.partition("|version")[0] in line for line in with_set.splitlines())
    assert output("bleu", *flags, GERMAN) == with_set


def test_a_test_set_in_a_language_without_moses_rules_is_scored(
    published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "moses_languages", lambda: {"en"})
    flags = [f"--translation={write_lines(tmp_path / 'x.de', TRANSLATIONS)}", f"--test_set={published}"]
    result = succeed("bleu", *flags, "--language_pair=en-de")
    assert len(result.stdout.splitlines()) == 4 and "Moses has no rules for language 'de'" in result.stderr
    assert "no Moses rules for language 'de'" in error("bleu", *flags, "--language_pair=en-de", GERMAN)


def test_test_sets_are_listed_by_language_pair() -> None:
    names = output("bleu", "--test_set=list", "--language_pair=en-fr").splitlines()
    assert {"wmt14", "wmt14/full", "mtnt2019"} <= set(names) and "wmt16" not in names


def test_wrong_flags_of_test_sets_are_reported(published: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.de", TRANSLATIONS[:1])
    by_set, by_file, pair = f"--test_set={published}", f"--reference={path}", "--language_pair=en-de"
    for flags, message in (
        ([by_set, pair], f"{path} has 1 lines, test set wmt14/full (en-de) has 2;"),
        ([by_file, by_set], f"flags reference={path}, test_set={published}: give one of them"),
        (["--test_set=wmt14full", pair], "unknown test set 'wmt14full'; did you mean 'wmt14/full'?"),
        ([by_set, "--language_pair=en-es"], "test set wmt14/full has no language pair 'en-es'"),
        ([by_set, "--language_pair=en-fr", GERMAN], "--target_language must be the target of --language_pair"),
        ([by_file, pair], "--language_pair and --test_set belong together; give both or neither"),
        ([by_set, GERMAN], "--language_pair and --test_set belong together; give both or neither"),
        (["--test_set=list", pair], "--translation has no effect with --test_set=list; omit one of them"),
        (["--test_set=list"], "--language_pair and --test_set belong together; give both or neither"),
    ):
        assert message in error("bleu", f"--translation={path}", *flags)
    listed = error("bleu", "--test_set=list", "--language_pair=ende")
    assert "--language_pair=ende: no test set has it; write it like en-de" in listed


def test_an_unavailable_test_set_is_reported(published: str, tmp_path: Path) -> None:
    (tmp_path / "sacrebleu" / "wmt14_full.en-de.ref").unlink()
    translation = write_lines(tmp_path / "x.de", TRANSLATIONS)
    message = error("bleu", f"--translation={translation}", f"--test_set={published}", "--language_pair=en-de")
    assert message.startswith("cannot download file:///nowhere/test-nowhere.tgz (")
    assert "put them into" in message and "$SACREBLEU" in message


def test_a_test_set_with_several_references_is_refused(tmp_path: Path) -> None:
    home, dataset = tmp_path / "sacrebleu", DATASETS["wmt14/full"]
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_outdir", str(home))
        patch.setattr(dataset, "langpairs", {"en-de": ["src.sgm", "ref1.sgm", "ref2.sgm"]})
        for field in ("src", "ref-0", "ref-1", "docid", "genre", "origlang"):
            write_lines(home / f"wmt14_full.en-de.{field}", REFERENCES)
        translation = write_lines(tmp_path / "x.de", TRANSLATIONS)
        message = error("bleu", f"--translation={translation}", "--test_set=wmt14/full", "--language_pair=en-de")
    assert "has 2 references per line" in message
