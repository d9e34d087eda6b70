"""English constituency parsing (the paper's section 6.3): a model reads a sentence and writes its
tree as text.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import F1, Score
from t2t_repro.parsing import evalb, linearization
from t2t_repro.parsing.linearization import ANY, WORD, Repairs, TreeSymbols, delinearise
from t2t_repro.parsing.trees import Tree, parse_trees, prepare, read_trees, under_top
from t2t_repro.problem import Problem, setting

PHRASES = """
S SBAR SBARQ SINV SQ ADJP ADVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP RRC UCP VP
WHADJP WHADVP WHNP WHPP X TOP
"""
PHRASE_LABELS = tuple(PHRASES.split())
"""All constituent labels in the Penn Treebank after `prepare` has simplified its trees."""
PARTS_OF_SPEECH = """
CC CD DT EX FW IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS PRP RB RBR RBS RP SYM TO UH VB VBD VBG
VBN VBP VBZ WDT WP WRB # $ . , : `` ''
"""
TAGS_WITH_SIGNS = ("PRP$", "WP$", "-LRB-", "-RRB-")
"""Part-of-speech tags with both letters and signs."""
TAGS = (*PARTS_OF_SPEECH.split(), *TAGS_WITH_SIGNS)
"""All part-of-speech tags in the Penn Treebank, except that of traces."""
FAILED_TREES = ("", "()", "(())")
"""Lines that a parser writes if it finds no tree."""
WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg", re.IGNORECASE)


@registry.register_problem
class WsjParsing(Problem):
    """Parsing, trained on the Penn Treebank's Wall Street Journal (LDC99T42): put it into --tmp_dir
    as wsj/.
    """

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(16000)
        train_sections: str = setting(
            "02-21", 'sections and files to train on: "02-21", or "00,0100-0159"'
        )
        dev_sections: str = setting("22", "sections and files to compute the dev loss on")
        test_sections: str = setting("23", "sections and files of the test set")
        word_symbol: str = setting(
            "tag",
            'what stands for a word in a tree: its part of speech ("tag"), XX ("XX") or the word '
            'itself ("word")',
        )

        def __post_init__(self) -> None:
            refuse_unknown("--word_symbol", self.word_symbol, linearization.WORD_SYMBOLS)

    languages = ("en", "")  # the trees are in no language
    is_self_contained = False
    test_sets = ("dev", "test")
    file_suffixes = ("words", "trees")
    # The paper's search for Table 4: beam 21, alpha 0.3, outputs of at most 300 tokens more than
    # the input.
    decode_hparams = DecodeHParams(beam_size=21, alpha=0.3, extra_length=300)
    # SentencePiece never learns a piece that joins a bracket and letters. Without these symbols,
    # the text of a tree would have 50% more pieces. "▁" is SentencePiece's sign for the space
    # before a word.
    symbols = tuple(
        f"▁{symbol}" for label in PHRASE_LABELS for symbol in (f"({label}", f"){label}")
    ) + tuple(f"▁{tag}" for tag in TAGS_WITH_SIGNS)
    symbols_of_sources = False

    @property
    def tree_symbols(self) -> TreeSymbols:
        """The treebank's labels, and the symbols that --word_symbol selects."""
        words = {"tag": TAGS, ANY: (ANY, *linearization.FORMS), WORD: ()}[self.settings.word_symbol]
        return TreeSymbols(PHRASE_LABELS, words)

    def output_rules(self, vocabulary: Any) -> Any:
        """Returns the rules of trees with `tree_symbols`; None if the problem is reversed.

        Raises UserError if the vocabulary cannot write every tree.
        """
        if self.was_reversed:
            return None
        # Imported here, because the module loads TensorFlow.
        from t2t_repro.parsing.well_formed import tree_rules

        return tree_rules(vocabulary, self.tree_symbols)

    def check(self) -> None:
        super().check()
        for split, other_split in itertools.combinations(("train", "dev", "test"), 2):
            if shared_files := self._numbers(split) & self._numbers(other_split):
                raise UserError(
                    f"--{split}_sections and --{other_split}_sections both have file "
                    f"{min(shared_files):04}; put each file into one split"
                )

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields each sentence, in treebank tokens, with its linearised tree. Yields ("", "") for a
        tree without words.

        The split is "train", "dev" or "test".
        """
        for tree in self.prepared_trees(split, tmp_dir):
            if tree:
                target = linearization.linearise(tree, self.settings.word_symbol)
                yield {"inputs": sentence(tree), "targets": target}
            else:
                # t2t-datagen drops empty pairs and reports their number.
                yield {"inputs": "", "targets": ""}

    def prepared_trees(self, split: str, tmp_dir: str) -> Iterator[Tree | None]:
        """Yields the trees of a split, simplified by `prepare`. Yields None instead of a tree
        without words.
        """
        for path in self._paths(split, tmp_dir):
            yield from map(prepare, read_trees(str(path)))

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields each sentence of the split `name` as words, with its gold tree in brackets."""
        for tree in self.prepared_trees(name, tmp_dir):
            if tree:
                yield {"inputs": sentence(tree), "targets": str(under_top(tree))}

    def finish(self, sources: Iterable[str], outputs: Iterable[str]) -> tuple[list[str], Repairs]:
        """Returns a line for each source, and the sum of the repairs of all trees.

        A line is the model's output as a bracketed tree, in t2t-evalb's format, with the words of
        the source. The line is empty if the source is empty. If the problem is reversed, the
        outputs are sentences and stay unchanged.
        """
        if self.was_reversed:
            return list(outputs), Repairs()
        lines = []
        total = Repairs()
        for source, output in zip(sources, outputs, strict=True):
            line = ""
            if words := linearization.words_of(source):
                tree, repairs = delinearise(
                    output, words, tags_by_form=True, word_symbol=self.settings.word_symbol
                )
                line = str(under_top(tree))
                total += repairs
            lines.append(line)
        return lines, total

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns EVALB's scores of bracketed trees, with the parameters of COLLINS.prm. The first
        score is F1.

        The tagging accuracy is one of them only with --word_symbol=tag. Otherwise, the model writes
        no tags of words.
        """
        if self.was_reversed:
            return super().scores(outputs, references)
        summary = evalb.summarise(evalb.score_trees(references, outputs))
        signature = (
            f"evalb:COLLINS.prm|sentences:{summary.sentences}|errors:{summary.errors}"
            f"|skipped:{summary.skipped}"
        )
        scores = {
            F1: summary.f_measure,
            "labelled recall": summary.recall,
            "labelled precision": summary.precision,
            "complete match": summary.complete_match,
        }
        if self.settings.word_symbol == "tag":
            scores["tagging accuracy"] = summary.tagging_accuracy
        return [Score(label, score, signature) for label, score in scores.items()]

    def _numbers(self, split: str) -> set[int]:
        """Returns the numbers of all treebank files that the setting of a split names, whether or
        not they exist.
        """
        value = self._sections(split)
        numbers: set[int] = set()
        for part in value.split(","):
            part = part.strip()
            first, _, last = part.partition("-")
            is_valid = re.fullmatch(r"(\d\d|\d{4})(-(\d\d|\d{4}))?", part)
            start = int(first.ljust(4, "0")) if is_valid else 0
            stop = int((last or first).ljust(4, "9")) + 1 if is_valid else 0
            if start >= stop:
                raise UserError(
                    f"--{split}_sections={value}: {part!r} is not a section (02), a file (0159) or "
                    "a range of them (02-21, 0100-0159)"
                )
            numbers.update(range(start, stop))
        return numbers

    def _sections(self, split: str) -> str:
        return str(getattr(self.settings, f"{split}_sections"))

    def _paths(self, split: str, tmp_dir: str) -> list[Path]:
        """Returns the existing files of a split, in numerical order. Raises UserError if a section
        has no file.
        """
        numbers = self._numbers(split)
        root = Path(tmp_dir, "wsj")
        paths = {}
        for path in root.glob("[0-9]*/*"):
            name = WSJ_FILE.fullmatch(path.name)
            if name and int(name[1]) in numbers:
                paths[int(name[1])] = path
        # The treebank's numbering has gaps. So a section counts as missing only if none of its
        # files exists.
        sections = {number // 100 for number in numbers}
        missing = sorted(sections - {number // 100 for number in paths})
        if missing:
            raise UserError(
                f"{root}: no file of --{split}_sections={self._sections(split)} exists in section "
                f"{', '.join(f'{section:02}' for section in missing)}; put the Penn Treebank's "
                "Wall Street Journal (LDC99T42, its folder parsed/mrg/wsj) there, as "
                "NN/wsj_NNNN.mrg, or name the sections that you have"
            )
        return [paths[number] for number in sorted(paths)]


@registry.register_problem
class WsjParsingSemi(WsjParsing):
    """Parsing, trained on the Penn Treebank and on trees that another parser made:
    --parsed_trees=FILE_OR_FOLDER.
    """

    @dataclass(frozen=True)
    class Settings(WsjParsing.Settings):
        vocab_size: int = setting(32000)
        parsed_trees: str = setting(
            "",
            "file, or folder of files, with one bracketed tree a line to train on as well; plain "
            "or compressed",
        )

    def check(self) -> None:
        super().check()
        self._parsed_paths()

    def prepared_trees(self, split: str, tmp_dir: str) -> Iterator[Tree | None]:
        """Yields the trees of the treebank, and for the train split then the trees of
        --parsed_trees.
        """
        yield from super().prepared_trees(split, tmp_dir)
        if split != "train":
            return
        for path in map(str, self._parsed_paths()):
            for number, line in enumerate(read_lines(path), 1):
                if "".join(line.split()) in FAILED_TREES:
                    yield None
                    continue
                trees = list(parse_trees([line], path, number))
                if len(trees) != 1:
                    raise UserError(
                        f"{path}:{number}: {len(trees)} trees in one line; write one tree a line"
                    )
                yield prepare(trees[0])

    def _parsed_paths(self) -> list[Path]:
        name = self.settings.parsed_trees
        path = Path(name)
        # A pipe is no file here, because it cannot be read twice.
        candidates = [path] if path.is_file() else path.glob("[!.]*")
        paths = sorted(file for file in candidates if file.is_file())
        if not name or not paths:
            raise UserError(
                f"--parsed_trees={name}: no file there; name a file or folder of files, with a "
                "bracketed tree a line"
            )
        return paths


def sentence(tree: Tree) -> str:
    """Returns the words of a tree, separated by spaces."""
    return " ".join(leaf.word for leaf in tree.leaves())
