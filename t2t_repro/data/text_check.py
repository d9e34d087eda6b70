"""Warns about text that was probably given by mistake, such as a dev split that is a part of the
train split.
"""

from collections.abc import Iterable, Iterator

from t2t_repro.corpora.parallel import Pair
from t2t_repro.metrics.languages import is_unspaced


class TextCheck:
    """Looks for likely mistakes in the text. Reads the pairs of the dev split at once, and watches
    the train split.
    """

    def __init__(self, dev: Iterable[Pair]) -> None:
        self.dev = list(dev)
        self._unseen = {hash((pair["inputs"], pair["targets"])) for pair in self.dev}
        """Hashes of the dev pairs that have not yet occurred in the train split."""
        self._has_different_sides = False
        self._is_unspaced = any(
            is_unspaced(pair[side] for pair in self.dev[:1000]) for side in ("inputs", "targets")
        )

    def train(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the train split's pairs unchanged."""
        for pair in pairs:
            source = pair["inputs"]
            target = pair["targets"]
            self._unseen.discard(hash((source, target)))
            self._has_different_sides = self._has_different_sides or source != target
            yield pair

    def warnings(self, language: str) -> list[str]:
        """Returns the warnings. Call it after the train split has been read; neither split may be
        empty.

        `language` is the code of the targets' language, or "" if it is unknown.
        """
        warnings = []
        if not self._unseen:
            warnings.append(
                "every dev pair is also a training pair, so the dev loss will not show overfitting"
            )
        if not self._has_different_sides:
            warnings.append(
                "in every training pair, the target text is the source text; are both sides one "
                "file?"
            )
        if self._is_unspaced and not language:
            warnings.append(
                "no spaces separate the words of this text, so BLEU needs its language; name it: "
                "--languages=en,zh"
            )
        return warnings
