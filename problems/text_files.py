"""Problem that reads the user's parallel text. Line n of the source file and line n of the target file form a pair."""

from collections.abc import Iterator
from dataclasses import dataclass

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair, read_pairs
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import is_stream
from t2t_repro.problem import Problem, setting


class StatedLanguages(Problem):
    """Base class of problems whose setting `languages` names the languages of sources and targets, e.g. "en,de"."""

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the two languages that the settings name; unknown if they name none.

        Raises UserError if the settings name anything but two languages.
        """
        names = [name.strip() for name in self.settings.languages.split(",")]
        if names == [""]:
            return "", ""
        if len(names) != 2 or not all(names):
            raise UserError(f"--languages={self.settings.languages}: name two languages: --languages=en,de")
        from t2t_repro.metrics.languages import language_code  # imported late, because langcodes is slow to import

        return language_code(names[0], "--languages"), language_code(names[1], "--languages")


@registry.register_problem
class TextFiles(StatedLanguages):
    """Your own parallel text: t2t-datagen --problem=text_files --train=a.en,a.de --dev=b.en,b.de."""

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        """Settings: the paths of the user's text files."""

        train: str = setting("", "source and target file to train on, separated by a comma; plain or compressed")
        dev: str = setting(
            "", "source and target file to compute the dev loss on, separated by a comma; plain or compressed"
        )
        languages: str = setting(
            "", "languages of the source and the target files, e.g. en,de; for the paper's BLEU", is_label=True
        )

    @property
    def is_self_contained(self) -> bool:
        return bool(self.settings.train and self.settings.dev)

    def check(self) -> None:
        super().check()
        for split in ("train", "dev"):
            for path in self._paths(split):
                if is_stream(path):
                    raise UserError(
                        f"--{split}={path}: not a regular file; t2t-datagen reads the text twice, so save it in a file"
                    )

    def _paths(self, split: str) -> list[str]:
        value: str = getattr(self.settings, split)
        paths = [path.strip() for path in value.split(",")]
        if len(paths) != 2 or not all(paths):
            raise UserError(
                f"--{split}={value}: name two files, source and target, without commas in their names: "
                f"--{split}=text.en,text.de"
            )
        return paths

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        source, target = self._paths(split)
        return read_pairs(source, target)
