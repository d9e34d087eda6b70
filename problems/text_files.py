"""Problem that reads the user's parallel text: one or several corpora, with one or several target
languages.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.augmented import Augmentation
from t2t_repro.corpora.corpus import Corpus
from t2t_repro.corpora.listing import CorpusFiles, read_listing
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.parts import LineRange
from t2t_repro.data.dataset import SPLITS
from t2t_repro.data.vocabularies.tags import SYMBOL_RULE, is_symbol, is_tag, tag
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import is_stream
from t2t_repro.problem import Problem, setting


def _names(setting: str) -> list[str]:
    """Returns the names in a setting, which are separated by commas; [] if it is empty."""
    return list(map(str.strip, setting.split(","))) if setting else []


class StatedLanguages(Problem):
    """Base class of problems whose setting `languages` names the languages of sources and targets,
    e.g. "en,de".
    """

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the two languages that the settings name; unknown if they name none.

        Raises UserError if the settings name anything but two languages.
        """
        names = [name.strip() for name in self.settings.languages.split(",")]
        if names == [""]:
            return "", ""
        if len(names) != 2 or not all(names):
            raise UserError(
                f"--languages={self.settings.languages}: name two languages: --languages=en,de"
            )
        # Imported late, because langcodes is slow to import.
        from t2t_repro.metrics.languages import language_code

        return language_code(names[0], "--languages"), language_code(names[1], "--languages")


@registry.register_problem
class TextFiles(StatedLanguages):
    """Your own parallel text: t2t-datagen --problem=text_files --train=a.en,a.de
    --dev=b.en,b.de.
    """

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        train: str = setting(
            "",
            "source and target file to train on, separated by a comma, or one file .tsv or "
            ".jsonl; plain or compressed. Repeat the flag for several corpora, each with its "
            "weight, a share of the tokens: --train=a.en,a.de:1 --train=b.tsv:4; or give a file "
            "corpora.json, or a folder of t2t-augment",
            is_list=True,
        )
        dev: str = setting(
            "",
            "files to compute the dev loss on, like those of --train but without weights",
            is_list=True,
        )
        languages: str = setting(
            "",
            "languages of both sides, e.g. en,de; for the paper's BLEU and as keys of JSONL files",
            is_label=True,
        )
        targets: str = setting(
            "",
            "target languages, if there are several, e.g. de,fr; names of target files end with "
            "them",
        )
        symbols: str = setting(
            "",
            'strings that the vocabulary never splits, separated by commas: "<bt>" of t2t-augment',
        )
        corpus_temperature: float = setting(
            1.0,
            "T, 1 or more: without weights, shares are in proportion to (target tokens) ** (1 / T)",
        )

    def __init__(
        self, settings: dict[str, Any], was_reversed: bool = False, name: str = ""
    ) -> None:
        super().__init__(settings, was_reversed, name)
        self.is_self_contained &= bool(self.settings.train and self.settings.dev)
        self.corpus_temperature = self.settings.corpus_temperature
        self._targets = _names(self.settings.targets)
        self._user_symbols = _names(self.settings.symbols)
        self.symbols = (*map(tag, self._targets), *self._user_symbols)
        if was_reversed and self._targets:
            raise UserError(
                f"problem {self.name}: --targets needs the sources in front; swap the files of "
                "--train"
            )

    def check(self) -> None:
        super().check()
        targets = self._targets
        if len({*targets}) < len(targets) or not all(map(is_tag, map(tag, targets))):
            raise UserError(
                f"--targets={self.settings.targets}: name each language once, in letters, digits, "
                "_, - and ., e.g. --targets=de,fr"
            )
        symbols = self._user_symbols
        if len({*symbols}) < len(symbols) or not all(map(is_symbol, symbols)):
            raise UserError(
                f"--symbols={self.settings.symbols}: name each symbol once, with {SYMBOL_RULE}"
            )
        if not 1 <= self.corpus_temperature < math.inf:
            raise UserError(f"--corpus_temperature={self.corpus_temperature} must be 1 or more")
        for split in SPLITS:
            self._check_files(f"--{split}", self._files(split))
            languages = {corpus.target_language for corpus in self.corpora(split)}
            if split == "train" and (missing := {*targets} - languages):
                raise UserError(
                    f"--targets={self.settings.targets}: no corpus has the target {min(missing)}; "
                    "omit it"
                )

    def _check_files(self, flag: str, corpora: list[CorpusFiles]) -> None:
        targets = set[str]()
        has_weight = any(corpus.weight for corpus in corpora)
        for corpus in corpora:
            if augmentation := corpus.augmentation:
                self._check_augmentation(f"{flag}: {corpus.files[0]}", augmentation)
            for path in corpus.files:
                if is_stream(path):
                    raise UserError(
                        f"{flag}={path}: not a regular file; t2t-datagen reads the text twice, so "
                        "save it in a file"
                    )
            *source, target = map(os.path.realpath, corpus.files)
            # A single corpus may be a task of copying, for which `TextCheck` has a warning.
            is_copy = target in source and len(corpora) > 1
            if target in targets or is_copy:
                raise UserError(
                    f"{flag}: {corpus.files[-1]} is given twice; each corpus needs its own target "
                    "file"
                )
            targets.add(target)
        if has_weight and flag == "--dev":
            raise UserError(
                f"--dev={self.settings.dev}: only corpora of --train have weights; omit them"
            )
        if flag == "--train" and self.corpus_temperature > 1 and (has_weight or len(corpora) == 1):
            raise UserError(
                "--corpus_temperature is for several corpora without weights; omit it, or the "
                "weights"
            )

    def _check_augmentation(self, place: str, augmentation: Augmentation) -> None:
        """Raises UserError if augmented text has other languages than the problem, or an unknown
        tag.
        """
        source, target = self.languages
        for side, language, expected in (
            ("sources", augmentation.source_language, source),
            ("targets", augmentation.target_language, target),
        ):
            if "" not in (language, expected) and language != expected and not self._targets:
                stated = f"--languages={self.settings.languages} means {expected}"
                raise UserError(
                    f"{place}: its {side} are in {language}, but {stated}; give text in {expected}"
                )
        if (tag := augmentation.train_tag) not in ("", *self.symbols):
            raise UserError(
                f'{place}: its sources begin with {tag}; add it to --symbols: --symbols="{tag}"'
            )

    def _files(self, split: str) -> list[CorpusFiles]:
        return read_listing(f"--{split}", getattr(self.settings, split))

    def source_files(self) -> list[tuple[str, str]]:
        files = []
        for split in SPLITS:
            with contextlib.suppress(UserError, OSError):
                for corpus in self._files(split):
                    files += [(f"--{split}", path) for path in (*corpus.files, corpus.listed_in)]
        return files

    def corpora(self, split: str) -> tuple[Corpus, ...]:
        files = self._files(split)
        names = [corpus.name or corpus.target_name for corpus in files]
        corpora = []
        for name, corpus in zip(names, files, strict=True):
            unique_name = name if names.count(name) == 1 else corpus.files[-1]
            weight = corpus.weight if len(files) > 1 else 0.0
            corpora.append(Corpus(unique_name, weight, self._target_of(f"--{split}", corpus)))
        return tuple(corpora)

    def _target_of(self, flag: str, corpus: CorpusFiles) -> str:
        """Returns the target language of a corpus, by its list, else by t2t-augment or the name of
        its target file.
        """
        language = corpus.target_language
        if self._targets and not language and corpus.augmentation:
            language = corpus.augmentation.target_language
        if language:
            if language not in self._targets:
                raise UserError(
                    f"{corpus.listed_in or corpus.files[0]}: {language!r} is not one of "
                    "--targets; add it"
                )
            return language
        for part in reversed(corpus.target_name.split(".")):
            if part in self._targets:
                return part
        if not self._targets:
            return ""
        raise UserError(
            f"{flag}: no part of the name {corpus.target_name} is one of "
            f"--targets={self.settings.targets}; rename the file, e.g. to "
            f"text.{self._targets[0]}, or write a corpora.json"
        )

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        for number in range(len(self._files(split))):
            yield from self.generate_corpus(split, number, tmp_dir)

    def generate_corpus(self, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        return self.read_part(None, split, number, tmp_dir)

    def parts(self, split: str, number: int, tmp_dir: str) -> Sequence[Any]:
        return self._files(split)[number].parts()

    def read_part(self, part: Any, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        files = self._files(split)[number]
        language = self.corpora(split)[number].target_language
        source, _, target = (part.strip() for part in self.settings.languages.partition(","))
        pairs = files.read((source, language or target), part)
        if not language:
            return pairs
        first_line = part.first_line if isinstance(part, LineRange) else 1
        return self._tagged(pairs, files, language, first_line)

    def _tagged(
        self, pairs: Iterator[Pair], files: CorpusFiles, language: str, first_line: int
    ) -> Iterator[Pair]:
        """Yields the pairs with the tag of their language. Raises UserError if a text has a tag
        already.
        """
        for number, pair in enumerate(pairs, first_line):
            for side, path in (("inputs", files.files[0]), ("targets", files.files[-1])):
                for symbol in map(tag, self._targets):
                    if symbol in pair[side]:
                        raise UserError(
                            f"{path}:{number}: the text has {symbol}, which t2t-datagen adds "
                            "itself; remove it"
                        )
            yield {"inputs": f"{tag(language)} {pair['inputs']}", "targets": pair["targets"]}
