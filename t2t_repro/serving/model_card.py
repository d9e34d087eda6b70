"""The model card of an export: README.md, in the form that Hugging Face reads."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import step_of


@dataclass(frozen=True)
class ModelCard:
    """The content of the model card of a checkpoint, and the method `write`."""

    folder: ModelFolder
    checkpoint: str
    languages: Sequence[str]
    """Codes of the languages of sources and targets; "" if unknown."""
    license: str
    """Licence by its name on Hugging Face, e.g. "apache-2.0"."""
    scores: Sequence[str]
    """Lines with scores and their signatures."""

    def write(self, path: Path, library: str, use: str) -> None:
        """Writes README.md to a folder. `library` loads the model as `use` shows."""
        origin = self.folder.origin
        hparams = self.folder.hparams
        languages = [language for language in self.languages if language]
        fields = {
            "license": self.license,
            "pipeline_tag": "translation",
            "library_name": library,
            "language": languages,
        }
        lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items() if value]
        data = {
            "problem": origin.problem,
            "fingerprint": origin.data_fingerprint,
            "vocabulary": origin.vocabulary,
        }
        for name, value in self.folder.problem.changed_settings.items():
            # Folders of the author's machine concern nobody.
            data[name] = re.sub(r"[^,\s]*/", "", str(value))
        sections = [
            "\n".join(["---", *lines, "---"]),
            f"# {' to '.join(languages) or origin.problem}",
            f"Model `{hparams.model}`, trained with t2t_repro: checkpoint of step "
            f"{step_of(self.checkpoint):,}.",
            f"## Use\n\n```\n{use.strip()}\n```",
            "\n".join(["## Scores\n\n```", *(self.scores or ["not measured"]), "```"]),
            f"## Data\n\n{_table(data)}",
            f"## Hparams\n\n{_table(vars(hparams))}",
        ]
        (path / "README.md").write_text("\n\n".join(sections) + "\n", "utf-8")


def _table(values: Mapping[str, object]) -> str:
    rows = [f"| {name} | {value} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "| --- | --- |", *rows])
