"""English constituency parsing (section 6.3): a sentence to its tree, written as a sequence of brackets and tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.parsing import evalb
from t2t_repro.parsing.linearization import WORD_SYMBOLS, Repairs, delinearise, linearise, words_of
from t2t_repro.parsing.trees import Tree, parse_trees, prepare, read_trees, under_top
from t2t_repro.problem import Problem, setting
from t2t_repro.textfile import read_lines

SPLITS = ("train", "dev", "test")
PHRASE_LABELS = (
    *("S", "SBAR", "SBARQ", "SINV", "SQ"),
    *("ADJP", "ADVP", "CONJP", "FRAG", "INTJ", "LST", "NAC", "NP", "NX", "PP", "PRN", "PRT", "QP", "RRC", "UCP", "VP"),
    *("WHADJP", "WHADVP", "WHNP", "WHPP", "X", "TOP"),
)
"""Labels of all constituents in prepared trees of the Penn Treebank."""
TAGS_WITH_SIGNS = ("PRP$", "WP$", "-LRB-", "-RRB-")
WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg", re.IGNORECASE)


@registry.register_problem
class WsjParsing(Problem):
    """Parsing, trained on the Penn Treebank's Wall Street Journal (LDC99T42), which is to lie in --tmp_dir as wsj/."""

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        """Which files are in which split, and how a tree is written."""

        vocab_size: int = setting(16000)
        train_sections: str = setting("02-21", 'sections and files to train on: "02-21", or "00,0100-0159"')
        dev_sections: str = setting("22", "sections and files to watch progress on")
        test_sections: str = setting("23", "sections and files to report a score on")
        word_symbol: str = setting("tag", 'what stands for a word in a tree: "tag", its part of speech, or "XX"')

    num_train_shards = 10
    test_sets = ("dev", "test")
    file_suffixes = ("words", "trees")
    # Table 4: beam 21, alpha 0.3, the input's length plus 300.
    decode_hparams: ClassVar[DecodeHParams] = DecodeHParams(beam_size=21, alpha=0.3, extra_length=300)
    # Pieces begin with the space before them, which SentencePiece writes "▁". Learnt pieces never hold a sign beside a
    # letter: without these a tree takes half as many again.
    symbols: ClassVar[tuple[str, ...]] = tuple(
        f"▁{symbol}" for symbol in (*(b + label for label in PHRASE_LABELS for b in "()"), *TAGS_WITH_SIGNS)
    )

    @property
    def is_self_contained(self) -> bool:
        """No: the treebank is to be had from the LDC."""
        return False

    def check(self) -> None:
        """Raises UserError where the settings name no files, or one in two splits, or no way to write a word."""
        super().check()
        if self.settings.word_symbol not in WORD_SYMBOLS:
            raise unknown("--word_symbol", self.settings.word_symbol, WORD_SYMBOLS)
        for position, split in enumerate(SPLITS):
            for other in SPLITS[:position]:
                if shared := self._numbers(split) & self._numbers(other):
                    raise UserError(
                        f"--{split}_sections and --{other}_sections both hold file {min(shared):04}; "
                        "a file may be in one split alone"
                    )

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """The words of each sentence, as the treebank separates them, and its linearised tree.

        Args:
            split: "train", "dev" or "test".
        """
        for tree in self.prepared_trees(split, tmp_dir):
            if tree is None:  # counted as a pair without text
                yield {"inputs": "", "targets": ""}
            else:
                words = " ".join(leaf.word for leaf in tree.leaves())
                yield {"inputs": words, "targets": linearise(tree, self.settings.word_symbol)}

    def prepared_trees(self, split: str, tmp_dir: str) -> Iterator[Tree | None]:
        """Each tree of a split; None where nothing is left of it.

        Raises:
            UserError: a section is missing, or a tree's brackets are wrong.
        """
        for path in self._paths(split, tmp_dir):
            yield from map(prepare, read_trees(str(path)))

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """The words of each sentence of a split, and its gold tree."""
        if name not in self.test_sets:
            raise unknown("test set", name, self.test_sets)
        for tree in self.prepared_trees(name, tmp_dir):
            if tree:
                yield {"inputs": " ".join(leaf.word for leaf in tree.leaves()), "targets": str(under_top(tree))}

    def finish(self, sources: Iterable[str], outputs: Iterable[str]) -> tuple[list[str], Repairs]:
        """The model's outputs as trees over the words of their sources, one a line, as t2t-evalb takes them.

        Returns:
            A line for each source, an empty one for an empty source; and what was repaired, in all. Outputs of the
            reversed problem, which are sentences, are left as they are.
        """
        if self.was_reversed:
            return list(outputs), Repairs()
        lines, total = [], Repairs()
        for source, output in zip(sources, outputs, strict=True):
            if not (words := words_of(source)):
                lines.append("")
                continue
            tree, repairs = delinearise(output, words, tags_by_form=True)
            lines.append(str(under_top(tree)))
            total += repairs
        return lines, total

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Labelled F1, recall and precision of bracketed trees, by EVALB's rules with COLLINS.prm."""
        if self.was_reversed:
            return super().scores(outputs, references)
        gold, test = ([list(parse_trees([line], "tree")) for line in lines] for lines in (references, outputs))
        found = evalb.summarise(evalb.score(*pair) for pair in zip(gold, test, strict=True))
        signature = f"evalb:COLLINS.prm|sentences:{found.sentences}|errors:{found.errors}|skipped:{found.skipped}"
        names = {"F1": found.f_measure, "labelled recall": found.recall, "labelled precision": found.precision,
                 "complete match": found.complete_match, "tagging accuracy": found.tagging_accuracy}  # fmt: skip
        return [Score(label, score, signature) for label, score in names.items()]

    def _numbers(self, split: str) -> set[int]:
        """The numbers of the files that a split's setting names."""
        given: str = getattr(self.settings, f"{split}_sections")
        numbers: set[int] = set()
        for part in given.split(","):
            ends = re.fullmatch(r"(\d\d|\d{4})(?:-(\d\d|\d{4}))?", part.strip())
            found = range(0)
            if ends:
                found = range(int(ends[1].ljust(4, "0")), int((ends[2] or ends[1]).ljust(4, "9")) + 1)
            if not found:
                raise UserError(
                    f"--{split}_sections={given}: {part.strip()!r} is neither a section (02), a file (0159) nor a "
                    "range of them (02-21, 0100-0159)"
                )
            numbers.update(found)
        return numbers

    def _paths(self, split: str, tmp_dir: str) -> list[Path]:
        """The files of a split in order."""
        wanted = self._numbers(split)
        root = Path(tmp_dir, "wsj")
        if not root.is_dir() and Path(tmp_dir, "WSJ").is_dir():  # as on the LDC's discs
            root = Path(tmp_dir, "WSJ")
        there = {}
        for section in _sections(wanted):
            for path in root.glob(f"{section}/*"):
                if name := WSJ_FILE.fullmatch(path.name):
                    there[int(name[1])] = path
        found = wanted & there.keys()
        # The treebank leaves out some numbers, so that a section is missing only where none of its files is there.
        if missing := _sections(wanted) - _sections(found):
            raise UserError(
                f"{root}: no file that --{split}_sections={getattr(self.settings, f'{split}_sections')} names is there "
                f"of section {', '.join(sorted(missing))}; put the Penn Treebank's Wall Street Journal (LDC99T42, its "
                "folder parsed/mrg/wsj) there, as NN/wsj_NNNN.mrg, or name the sections that you have"
            )
        return [there[number] for number in sorted(found)]


def _sections(numbers: set[int]) -> set[str]:
    """The sections of numbered files, which are the first two of four digits."""
    return {f"{number:04}"[:2] for number in numbers}


@registry.register_problem
class WsjParsingSemi(WsjParsing):
    """Parsing, trained on the Penn Treebank and on trees that another parser made: --parsed_trees=FILE_OR_FOLDER."""

    @dataclass(frozen=True)
    class Settings(WsjParsing.Settings):
        """Also where the parsed trees lie."""

        vocab_size: int = setting(32000)
        parsed_trees: str = setting(
            "", "file, or folder of files, with one bracketed tree a line to train on as well; plain or .gz"
        )

    num_train_shards = 100

    def check(self) -> None:
        """Raises UserError also where no parsed trees are named, or none are there."""
        super().check()
        self._parsed_paths()

    def prepared_trees(self, split: str, tmp_dir: str) -> Iterator[Tree | None]:
        """The treebank's, and to train on the parsed ones after them."""
        yield from super().prepared_trees(split, tmp_dir)
        if split == "train":
            for path in self._parsed_paths():
                for number, line in enumerate(read_lines(str(path)), 1):
                    yield parsed_tree(line, str(path), number)

    def _parsed_paths(self) -> list[Path]:
        given = Path(self.settings.parsed_trees)
        if not self.settings.parsed_trees:
            raise UserError("--parsed_trees is required: a file, or a folder of files, with one bracketed tree a line")
        paths = [given]
        if given.is_dir():
            paths = sorted(path for path in given.iterdir() if path.is_file() and not path.name.startswith("."))
        if not (paths and paths[0].is_file()):
            raise UserError(f"--parsed_trees={given}: no file there; name one, or a folder of them, with a tree a line")
        return paths


def parsed_tree(line: str, source: str, number: int) -> Tree | None:
    """The prepared tree in a line; None where there is none, since a parser failed: an empty line, (()) or ().

    Raises:
        UserError: the line is no tree, or more than one.
    """
    if "".join(line.split()) in ("", "()", "(())"):
        return None
    trees = list(parse_trees([line], source, number))
    if len(trees) != 1:
        raise UserError(f"{source}:{number}: {len(trees)} trees in one line; write one tree a line")
    return prepare(trees[0])
