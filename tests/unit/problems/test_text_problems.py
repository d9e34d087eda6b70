"""Tests that problem classes of tensor2tensor run here after a change of their import lines."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import error, succeed
from t2t_repro import problem, registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import Description
from t2t_repro.data.job import Options, prepare
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problems import text_problems, translate
from t2t_repro.tensor2tensor.names import ANSWERS
from user_errors import user_error


class Verses(text_problems.Text2TextProblem):
    """Twelve pairs, one for each number, that a single call yields for all splits."""

    is_generate_per_split = False
    dataset_splits = [  # noqa: RUF012
        {"split": problem.DatasetSplit.TRAIN, "shards": 2},
        {"split": problem.DatasetSplit.EVAL, "shards": 1},
    ]
    additional_reserved_tokens = ["<verse>"]  # noqa: RUF012

    def generate_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterator[dict[str, str]]:
        assert dataset_split == "train"
        for number in range(12):
            yield {"inputs": f"{number}", "targets": f"{number} {number}"}


def test_samples_of_all_splits_go_to_the_shards_in_turn() -> None:
    """tensor2tensor writes sample i to shard i mod 3; here the last of three shards is the dev
    split.
    """
    numbers = {
        split: [pair["inputs"] for pair in Verses().generate(split, "")]
        for split in ("train", "dev")
    }
    assert numbers == {
        "train": ["0", "1", "3", "4", "6", "7", "9", "10"],
        "dev": ["2", "5", "8", "11"],
    }


def test_attributes_of_tensor2tensor_have_their_effect() -> None:
    verses = Verses()
    assert (verses.name, verses.num_train_shards, verses.symbols) == ("verses", 2, ("<verse>",))
    assert (verses.settings.vocab_size, Verses({"vocab_size": 9}).settings.vocab_size) == (2**15, 9)
    assert verses.t2t_vocabularies == ("vocab.verses.32768.subwords",) * 2
    assert not verses.is_self_contained
    shared = type("Shared", (Verses,), {"use_vocab_from_other_problem": verses})()
    assert shared.t2t_vocabularies == verses.t2t_vocabularies
    assert verses.learns_vocabulary and not shared.learns_vocabulary
    assert verses.changed_settings == {} and Verses({"vocab_size": 9}).changed_settings == {
        "vocab_size": 9
    }


def test_the_problem_for_files_of_tensor2tensor_reads_them(tmp_path: Path) -> None:
    for number, name in enumerate(("inputs.train", "targets.train", "inputs.eval", "targets.eval")):
        (tmp_path / f"{name}.txt").write_text(f"{number}\n")
    files = registry.problem("text2text_tmpdir")
    assert list(files.generate("train", str(tmp_path))) == [{"inputs": "0", "targets": "1"}]
    assert list(files.generate("dev", str(tmp_path))) == [{"inputs": "2", "targets": "3"}]


def test_an_attribute_that_does_nothing_here_is_refused() -> None:
    for name in " ".join(ANSWERS["attribute of a problem"]).split():
        with pytest.raises(
            UserError, match=rf"problem Mine: {name} of tensor2tensor has no effect here: [\w-]+ "
        ):
            type("Mine", (translate.TranslateProblem,), {name: None})


def test_a_problem_without_its_attributes_is_an_error_that_names_them() -> None:
    bare = text_problems.Text2TextProblem(name="bare")
    assert "problem bare: define is_generate_per_split" in user_error(
        lambda: list(bare.generate("train", ""))
    )
    assert "problem bare: define generate_samples" in user_error(
        bare.generate_samples, "", "", "train"
    )
    for module, name in ((text_problems, "Text2ClassProblem"), (translate, "_ENDE_TRAIN_DATASETS")):
        with pytest.raises(UserError, match=rf"{name} does not exist here: "):
            getattr(module, name)


def test_readers_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(" x \ny\n")
    (tmp_path / "b").write_text("1\n2\n")
    (tmp_path / "c").write_text("x\t1 \ny\t2\t3\nz\n")
    pairs = text_problems.text2text_txt_iterator(str(tmp_path / "a"), str(tmp_path / "b"))
    assert list(pairs) == [{"inputs": "x", "targets": "1"}, {"inputs": "y", "targets": "2"}]
    tabs = text_problems.text2text_txt_tab_iterator(str(tmp_path / "c"))
    assert [next(tabs), next(tabs)] == [
        {"inputs": "x", "targets": "1"},
        {"inputs": "y", "targets": "2\t3"},
    ]
    with pytest.raises(UserError, match="c:3: the line has no tab"):
        next(tabs)


@pytest.mark.parametrize(("vocab_type", "size"), [("character", 258), ("tokens", 14)])
def test_datagen_uses_the_problems_kind_of_vocabulary(
    tmp_path: Path, vocab_type: str, size: int
) -> None:
    words = ["<pad>", "<EOS>", *map(str, range(12))]
    (tmp_path / "vocab.mine.tokens").write_text("".join(f"{word}\n" for word in words))
    mine = type("Mine", (Verses,), {"vocab_type": vocab_type, "additional_reserved_tokens": []})
    description = generate_data(mine(), tmp_path, str(tmp_path))
    assert (
        description.pairs == {"train": 8, "dev": 4} and description.settings["vocab_size"] == size
    )
    data = (
        load_vocabulary(tmp_path / description.vocabulary),
        Records(find_shards(tmp_path, "mine", "dev")),
    )
    assert (
        data[0].decode(data[1][3]) == ["11", "11 11"]
        and len(find_shards(tmp_path, "mine", "train")) == 2
    )


def test_vocabulary_files_of_tensor2tensor_are_used_or_asked_for(tmp_path: Path) -> None:
    pieces = "".join(f"'{piece}'\n" for piece in ["<pad>", "<EOS>", "x", *"\\_u;0123456789"])
    small = type("Small", (Verses,), {"approx_vocab_size": 16})
    file = tmp_path / "vocab.small.16.subwords"
    file.write_text(pieces)
    for size in (0, 16, 17):
        assert (
            prepare(small({"vocab_size": size}), tmp_path, "", Options()).settings.vocab_size == 17
        )
    message = user_error(prepare, small({"vocab_size": 4000}), tmp_path, "", Options())
    assert f"--vocab_size=4000 has no effect, because {file} determines the size" in message
    (tmp_path / "vocab.mine.subwords.en").write_text(pieces)
    two = {
        "source_vocab_name": "vocab.mine.subwords.en",
        "target_vocab_name": "vocab.mine.subwords.de",
    }
    for names in (two, {"vocab_filename": "vocab.other.32768.subwords"}):
        mine = type("Mine", (Verses,), names)
        message = user_error(prepare, mine(), tmp_path, "", Options())
        assert message.startswith(f"{tmp_path / list(names.values())[-1]}: no such vocabulary; ")
        assert "--vocab_file" in message


def test_the_example_of_a_ported_directory_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "from_tensor2tensor.md").read_text("utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    directory = tmp_path / "my_recipes"
    directory.mkdir()
    (directory / "__init__.py").write_text(code)
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        (tmp_path / f"recipes.{name}").write_text(
            "".join(f"{number} eggs\n" for number in range(40))
        )
    tmp_path.chmod(0o700)
    flags = (
        f"--t2t_usr_dir={directory}",
        "--problem=translate_recipes",
        f"--data_dir={tmp_path / 'D'}",
    )
    succeed("datagen", *flags, f"--tmp_dir={tmp_path}")
    description = Description.load(tmp_path / "D" / "translate_recipes.json")
    assert description.pairs == {"train": 40, "dev": 40} and description.vocabulary.endswith(
        ".model"
    )
    assert len(find_shards(tmp_path / "D", "translate_recipes", "train")) == 10
    message = error("trainer", *flags, "--hparams_set=transformer_recipes", "--hparams=num_heads=3")
    assert "num_heads=3 does not divide hidden_size=256" in message
