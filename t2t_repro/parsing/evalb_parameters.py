"""EVALB's parameters: which labels and words count in the scores, and the files that set them."""

import re
import string
from dataclasses import dataclass
from typing import Any

from t2t_repro.console.progress import say
from t2t_repro.errors import unknown
from t2t_repro.files.textfile import read_lines

NUMBERS = ("MAX_ERROR", "CUTOFF_LEN", "LABELED")
"""Parameters with a number."""
VALUES = {
    "DELETE_LABEL": 1,
    "DELETE_LABEL_FOR_LENGTH": 1,
    "QUOTE_LABEL": 1,
    "EQ_LABEL": 2,
    "EQ_WORD": 2,
}
"""Parameters that may stand on several lines of a file, with the number of labels or words on each
of these lines.
"""


@dataclass(frozen=True)
class Parameters:
    """EVALB's parameters. The defaults are those of COLLINS.prm, as in published results on the
    Penn Treebank.
    """

    max_error: int = 10
    """Limit on sentences with errors. As in EVALB, one error more is still allowed, and the next
    one stops the scoring.
    """
    cutoff_len: int = 40
    """Maximum number of words of the sentences in EVALB's second summary."""
    labeled: bool = True
    """True if only brackets with the same label match; False if the same span is enough."""
    delete_label: frozenset[str] = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
    """Labels of constituents, and tags of words, that do not count. Such a constituent's children
    count.
    """
    delete_label_for_length: frozenset[str] = frozenset({"-NONE-"})
    """Tags of words that do not count in a sentence's length."""
    quote_label: frozenset[str] = frozenset()
    """Tags of quotation marks. A mark that `delete_label` deletes in only one tree counts in both.
    """
    eq_label: frozenset[tuple[str, str]] = frozenset({("ADVP", "PRT")})
    """Pairs of labels that count as equal."""
    eq_word: frozenset[tuple[str, str]] = frozenset()
    """Pairs of words that count as equal."""

    def same_label(self, label: str, other: str) -> bool:
        """Returns True if two labels are equal or a pair in `eq_label`, in either order."""
        return label == other or (label, other) in self.eq_label or (other, label) in self.eq_label

    def same_word(self, word: str, other: str) -> bool:
        """Returns True if two words are equal or a pair in `eq_word`, in either order."""
        return word == other or (word, other) in self.eq_word or (other, word) in self.eq_word


COLLINS = Parameters()


def read_parameters(path: str) -> Parameters:
    """Returns the parameters in an EVALB parameter file. Each line has a name and its value; "#"
    starts a comment line.

    A parameter that the file omits has EVALB's own default: no labels are deleted, and different
    labels or words never count as equal. As EVALB does, prints a message about a line that sets
    nothing, and takes the digits with which a number begins, or 0.
    """
    parameters: dict[str, Any] = {name.lower(): frozenset() for name in VALUES}
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip(string.whitespace)
        name, *words = re.split(r"\s+", line, flags=re.ASCII)
        key = name.lower()
        # DEBUG 1 makes EVALB list the brackets.
        if line.startswith("#") or len(line) < 3 or name == "DEBUG":
            continue
        if name in NUMBERS and words:
            digits = re.match("[+-]?[0-9]{1,9}", words[0])
            parameters[key] = int(digits[0]) if digits else 0
        elif VALUES.get(name) == len(words):
            parameters[key] |= {words[0] if len(words) == 1 else tuple(words)}
        else:
            fault = f"the number of values of {name} must be {VALUES.get(name, 1)}"
            if name not in (*NUMBERS, *VALUES):
                fault = str(unknown("EVALB parameter", name or line, (*NUMBERS, *VALUES)))
            say(f"{path}:{number}: ignored, as by EVALB: {fault}")
    parameters["labeled"] = bool(parameters.get("labeled", True))
    return Parameters(**parameters)
