"""Problem of models that t2t-import imported, except those whose tensor2tensor problem is
registered here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem, SpaceID, setting
from t2t_repro.problems.text_files import StatedLanguages


@registry.register_problem
class T2tText(StatedLanguages):
    """For imported models: any task that turns a text into another one. It has no data of its
    own.
    """

    decode_hparams = DecodeHParams(extra_length=100)  # tensor2tensor's default

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        """Settings: facts about the problem that the model's hparams do not contain."""

        languages: str = setting("", "languages of sources and targets, e.g. en,de", is_label=True)
        target_space: int = setting(
            0, "tensor2tensor's number for the kind of the targets, its target_space_id"
        )
        symbols: str = setting("", "tags of several target languages, e.g. >>de<<,>>fr<<")
        beams: int = setting(DecodeHParams.beam_size, "default beam_size of decoding")

        def __post_init__(self) -> None:
            if not 0 <= self.target_space < SpaceID.COUNT:
                raise UserError(
                    f"target_space={self.target_space} must be 0 to {SpaceID.COUNT - 1}"
                )

    def __init__(
        self, settings: dict[str, Any], was_reversed: bool = False, name: str = ""
    ) -> None:
        super().__init__(settings, was_reversed, name)
        self.target_space_id = self.settings.target_space
        self.symbols = tuple(filter(None, self.settings.symbols.split(",")))
        self.decode_hparams = replace(self.decode_hparams, beam_size=self.settings.beams)

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        raise UserError(
            "--problem=t2t_text has no text; for your files, give --problem=text_files, with the "
            "--vocab_file of the imported model"
        )
