"""The model card of an export: README.md, in the form that Hugging Face reads.

It begins with fields for programs, such as the languages. Then it says how to use the model, what it was trained on,
how good it is, and which hparams it has.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint, step_of

FILE = "README.md"
CARD = """\
---
{fields}
---

# {title}

Model `{model}` with {parameters:,} parameters, trained with t2t_repro: checkpoint of step {step:,}.

## Use

```
{use}
```
{remarks}
## Data

| | |
| --- | --- |
{data}

## Scores

```
{scores}
```

## Hparams

| hparam | value |
| --- | --- |
{hparams}
"""


@dataclass(frozen=True)
class ModelCard:
    """Everything that a model card says except how to use the model."""

    folder: ModelFolder
    checkpoint: str
    """Path of the exported checkpoint."""
    languages: Sequence[str]
    """Codes of the languages of sources and targets; "" if unknown."""
    license: str
    """Licence by its name on Hugging Face, e.g. "apache-2.0"."""
    scores: Sequence[str]
    """Lines with scores and their signatures."""

    def write(self, path: Path, library: str, use: str, remarks: str = "") -> None:
        """Writes README.md to a folder. `library` loads the model as `use` shows."""
        origin, languages = self.folder.origin, list(dict.fromkeys(filter(None, self.languages)))
        fields = {"license": self.license, "pipeline_tag": "translation", "library_name": library}
        lines = [f"{name}: {value}" for name, value in fields.items()] + ["tags:", "- t2t_repro"]
        lines += ["language:"] * bool(languages) + [f'- "{code}"' for code in languages]
        data = {"problem": origin.problem, "fingerprint of the data": origin.data_fingerprint or "unknown"}
        # Folders of the author's machine concern nobody.
        settings = {name: re.sub(r"[^,\s]*/", "", str(value)) for name, value in self._settings().items()}
        text = CARD.format(
            fields="\n".join(lines),
            title=" to ".join(self.languages) if all(self.languages) else origin.problem,
            model=self.folder.hparams.model,
            parameters=sum(weight.size for weight in read_checkpoint(self.checkpoint).weights.values()),
            step=step_of(self.checkpoint),
            use=use.strip(),
            remarks=remarks and f"\n{remarks.strip()}\n",
            data=_rows(data | settings),
            scores="\n".join(self.scores).replace("```", "") or "not measured",
            hparams=_rows(vars(self.folder.hparams)),
        )
        (path / FILE).write_text(text, "utf-8")

    def _settings(self) -> dict[str, object]:
        tags = {"target languages": ",".join(self.folder.tags)} if self.folder.tags else {}
        return self.folder.problem.changed_settings | tags | {"vocabulary": f"{self.folder.vocabulary.size:,} pieces"}


def _rows(values: dict) -> str:
    return "\n".join(f"| {name} | {value!s} |".replace("\n", " ") for name, value in values.items())
