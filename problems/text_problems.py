"""Text2TextProblem, the base class of problems that were written for tensor2tensor, and its
functions to read text.

A user directory of tensor2tensor needs other import lines here (docs/from_tensor2tensor.md):

    from t2t_repro import problem, registry
    from t2t_repro.problems import text_problems, translate

A subclass defines `generate_samples`, and may override the other attributes and methods of the
class. If it overrides an attribute of tensor2tensor that has no effect here, the definition of the
class ends in an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair, read_pairs
from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import DatasetSplit, Problem, setting
from t2t_repro.tensor2tensor.names import answer, missing_name


class VocabType:
    """The kinds of vocabularies, with tensor2tensor's names."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"


class Text2TextProblem(Problem):
    """Maps text to text, with the interface of tensor2tensor's class of this name.

    `settings`, `was_reversed` and `name` mean the same as for `Problem`. The default name is made
    from the name of the class.
    """

    decode_hparams = DecodeHParams(extra_length=100)  # as in tensor2tensor
    is_self_contained = False  # `generate_samples` may read or download files in --tmp_dir
    # As in tensor2tensor, a subclass may define each of these attributes as a property.
    vocab_type: str = VocabType.SUBWORD
    """Kind of vocabulary in tensor2tensor's data. t2t-datagen learns a SentencePiece vocabulary for
    SUBWORD.
    """
    approx_vocab_size: int = 2**15
    """Number of subwords in the vocabulary that t2t-datagen learns."""
    additional_reserved_tokens: Sequence[str] = ()
    """Strings that the vocabulary always encodes as a single token."""
    use_vocab_from_other_problem: Text2TextProblem | None = None
    """Problem with whose vocabulary tensor2tensor made the data of this problem; None for its own
    vocabulary.
    """

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(
            0, "subwords in the shared vocabulary; 0 is the problem's approx_vocab_size"
        )

    def __init__(
        self, settings: dict[str, Any] | None = None, was_reversed: bool = False, name: str = ""
    ) -> None:
        super().__init__(settings or {}, was_reversed, name or registry.problem_name(type(self)))
        if not self.settings.vocab_size:
            self.settings = dataclasses.replace(self.settings, vocab_size=self.approx_vocab_size)
        for entry in self.dataset_splits:
            if entry["split"] == DatasetSplit.TRAIN:
                self.num_train_shards += entry["shards"]
        self.symbols = tuple(self.additional_reserved_tokens)

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises UserError if a subclass overrides an attribute that has no effect here."""
        super().__init_subclass__(**options)
        names = set[str]()
        for base in cls.__mro__:
            if base not in Text2TextProblem.__mro__:
                names |= vars(base).keys()
        for name in sorted(names):
            if advice := answer("attribute of a problem", name):
                raise UserError(
                    f"problem {cls.__name__}: {name} of tensor2tensor has no effect here: {advice}"
                )

    @property
    def dataset_splits(self) -> list[dict[str, Any]]:
        """The splits, each a dict with "split" (a `DatasetSplit`) and "shards". The number for EVAL
        is always 1.
        """
        return [
            {"split": DatasetSplit.TRAIN, "shards": 100},
            {"split": DatasetSplit.EVAL, "shards": 1},
        ]

    @property
    def is_generate_per_split(self) -> bool:
        """True if `generate_samples` yields the samples of the split that it gets.

        False if one call yields the samples of all splits, which are then divided in the ratio of
        their shards.
        """
        raise UserError(
            f"problem {self.name}: define is_generate_per_split, a property that is True or False"
        )

    @property
    def vocab_filename(self) -> str:
        """Name of the vocabulary's file in a data directory of tensor2tensor."""
        if vocabulary_problem := self.use_vocab_from_other_problem:
            return vocabulary_problem.vocab_filename
        endings = {
            VocabType.SUBWORD: f"{self.approx_vocab_size}.{VocabType.SUBWORD}",
            VocabType.CHARACTER: "bytes",
            VocabType.TOKEN: VocabType.TOKEN,
        }
        return f"vocab.{self.dataset_filename()}.{endings[self.vocab_type]}"

    @property
    def source_vocab_name(self) -> str:
        return self.vocab_filename

    @property
    def target_vocab_name(self) -> str:
        return self.vocab_filename

    @property
    def t2t_vocabularies(self) -> tuple[str, str]:
        return self.source_vocab_name, self.target_vocab_name

    @property
    def learns_vocabulary(self) -> bool:
        """True if sources and targets share subwords of this problem, which has no other file's
        name for them.
        """
        own_name = f"vocab.{self.dataset_filename()}.{self.approx_vocab_size}.{VocabType.SUBWORD}"
        return self.t2t_vocabularies == (own_name, own_name)

    def dataset_filename(self) -> str:
        """Returns the first part of the names of the data's files."""
        return self.base_name

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Pair]:
        """Yields {"inputs": text, "targets": text} for each pair, in the same order on each call.

        `data_dir` is "", because text must not depend on the data directory. `tmp_dir` is the
        folder of downloads and source files. `dataset_split` is DatasetSplit.TRAIN or
        DatasetSplit.EVAL.
        """
        raise UserError(
            f"problem {self.name}: define generate_samples(self, data_dir, tmp_dir, dataset_split)"
        )

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of a split.

        If one call of `generate_samples` yields all splits, its samples go to the splits' shards in
        turn, as in tensor2tensor.
        """
        dataset_split = {"train": DatasetSplit.TRAIN, "dev": DatasetSplit.EVAL}[split]
        if self.is_generate_per_split:
            yield from self.generate_samples("", tmp_dir, dataset_split)
            return
        owners = [entry["split"] for entry in self.dataset_splits for _ in range(entry["shards"])]
        for number, pair in enumerate(self.generate_samples("", tmp_dir, DatasetSplit.TRAIN)):
            if owners[number % len(owners)] == dataset_split:
                yield pair


@registry.register_problem
class Text2textTmpdir(Text2TextProblem):
    """Text of the files inputs.train.txt, targets.train.txt, inputs.eval.txt and targets.eval.txt
    in --tmp_dir.
    """

    is_generate_per_split = True

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Pair]:
        paths = [f"{tmp_dir}/{side}.{dataset_split}.txt" for side in ("inputs", "targets")]
        return text2text_txt_iterator(*paths)


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the lines of a text file, without surrounding white space."""
    return (line.strip() for line in read_lines(str(txt_path)))


def text2text_txt_iterator(source_txt_path: str, target_txt_path: str) -> Iterator[Pair]:
    """Yields pairs of lines of two files. Unlike in tensor2tensor, different numbers of lines are
    an error.
    """
    for pair in read_pairs(source_txt_path, target_txt_path):
        yield {side: text.strip() for side, text in pair.items()}


def text2text_txt_tab_iterator(txt_path: str) -> Iterator[Pair]:
    """Yields the pairs of a file with lines source<TAB>target. Unlike in tensor2tensor, a line
    without tab is an error.

    A target may contain tabs.
    """
    for number, line in enumerate(read_lines(str(txt_path)), 1):
        if "\t" not in line:
            raise UserError(f"{txt_path}:{number}: the line has no tab; write source<TAB>target")
        source, target = line.split("\t", 1)
        yield {"inputs": source.strip(), "targets": target.strip()}


def __getattr__(name: str) -> Any:
    """Raises UserError for classes and functions of tensor2tensor's module that do not exist
    here.
    """
    raise missing_name("text_problems", name)
