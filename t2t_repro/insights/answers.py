"""The server's answers about a model, as dictionaries for JSON: description, beam search, and
attention weights.

docs/insights.md describes the fields.

Shapes: L layers, H heads, Q queries, K keys.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.text_rules import EOS_ID, one_line
from t2t_repro.decoding.output import refuse_diverged
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.files.json_file import finite
from t2t_repro.hparam import DecodeHParams
from t2t_repro.insights.search_tree import Candidate, SearchTree, search_tree
from t2t_repro.problem import Problem
from t2t_repro.visualization.attention import KINDS, attention_weights, ids_attention, source_ids

LIMITS = {"characters": 1000, "tokens": 100, "beam_size": 32, "alpha": 5.0}
"""The largest values that the page accepts: characters and tokens of a source, counting the end
token, beam size and exponent of the length penalty. With beam size K, a step of the tree has 2K
candidates.
"""
MAX_TARGET = 500
"""Maximum number of tokens in a target whose attention is shown, enough for all outputs of a
source.
"""
DIGITS = 4
"""Number of digits after the decimal point of attention weights."""
EXAMPLES = {
    "numbers_ende": "three hundred and ninety-five thousand and six",
    "numbers_ende_rev": "dreihundertfünfundneunzigtausendsechs",
    "de": "Zwei Hunde spielen im Schnee.",
    "en": "Two dogs are playing in the snow.",
    "fr": "Deux chiens jouent dans la neige.",
    "zh": "两只狗在雪地里玩耍。",
}
"""Sources that an empty page offers, by the name of a problem or by the code of the source's
language.
"""


class ExploredModel:
    """A model that the page explores. Raises UserError if it cannot decode.

    `description` is one line. `translator` must not be an ensemble. `example` is a source that the
    page offers; "" for none.
    """

    def __init__(
        self, name: str, description: str, translator: Translator, example: str = ""
    ) -> None:
        self.name = name
        self.description = description
        self.translator = translator
        self.example = example
        self._changes = {
            field: getattr(DecodeHParams, field)
            for field in vars(translator.decode_hparams)
            if field.startswith("sampling_")
        }
        """Changes to the problem's decode hparams: beam search instead of random sampling."""
        translator.check(dataclasses.replace(translator.decode_hparams, n=1, **self._changes))
        self._attention_shapes: dict[str, tuple[int, ...]] = {}
        """Shape of the weights [L, H, 1, 1] of each kind of attention for an empty text."""
        if translator.model.has_attention:
            empty = np.array([EOS_ID], np.int32)
            weights = attention_weights(translator.model, empty, empty)
            self._attention_shapes = {kind: array.shape for kind, array in weights.items()}

    @classmethod
    def load(cls, folder: ModelFolder, checkpoint: str) -> Self:
        translator = Translator.from_folders([folder], [checkpoint], folder.problem.decode_hparams)
        description = f"{folder.problem.name}, {folder.hparams.model}, {checkpoint}"
        source = " ".join([*folder.tags[:1], example(folder.problem)])
        return cls(os.path.basename(os.path.abspath(folder.path)), description, translator, source)

    def describe(self) -> dict[str, Any]:
        """Returns the model's name, description, kinds of attention, layers, heads, and defaults of
        the search.
        """
        shapes = self._attention_shapes.values()
        return {
            "name": self.name,
            "description": self.description,
            "kinds": {kind: KINDS[kind] for kind in self._attention_shapes},
            "layers": max((shape[0] for shape in shapes), default=0),
            "heads": max((shape[1] for shape in shapes), default=0),
            "beam_size": self.translator.decode_hparams.beam_size,
            "alpha": self.translator.decode_hparams.alpha,
            "example": self.example,
        }

    def translate(self, source: str, beam_size: int, alpha: float, num_best: int) -> dict[str, Any]:
        """Returns the tokens of a source, its `num_best` hypotheses, best first, and the tree of
        the beam search.

        Raises UserError if the source is empty or too long.
        """
        vocabulary = self.translator.vocabulary
        changes = {"beam_size": beam_size, "alpha": alpha, "n": num_best}
        translation, tree = search_tree(
            self.translator, self._check_source(source), **self._changes | changes
        )
        refuse_diverged([translation.score])
        hypotheses = []
        for hypothesis, path in zip(translation.hypotheses, tree.paths(), strict=True):
            labels = vocabulary.pieces(hypothesis.ids)
            hypotheses.append(
                {
                    "text": hypothesis.text,
                    "score": hypothesis.score,
                    "log_prob": path[-1].log_prob,
                    "ids": hypothesis.ids,
                    "tokens": [
                        {"label": label, "log_prob": log_prob}
                        for label, log_prob in zip(labels, hypothesis.token_scores, strict=True)
                    ],
                    "has_end": hypothesis.ids[-1] == EOS_ID,
                }
            )
        settings = {"beam_size": beam_size, "alpha": alpha, "num_best": num_best}
        return {
            "source_tokens": vocabulary.sources.pieces(translation.source_ids),
            "hypotheses": hypotheses,
            "search": settings | self._describe_search(tree),
        }

    def attention(self, source: str, target_ids: Sequence[int], kind: str) -> dict[str, Any]:
        """Returns the attention weights [L, H, Q, K] of one kind, with the labels of queries and
        keys.

        `target_ids` has the ids of a target, such as a hypothesis. `kind` is "encoder", "decoder"
        or "cross". Raises UserError if the model does not have this attention, or a text is empty,
        too long or not valid.
        """
        inputs = source_ids(self.translator, self._check_source(source))
        if not 0 < len(target_ids) <= MAX_TARGET:
            raise UserError(f"target_ids has {len(target_ids)} ids; give 1 to {MAX_TARGET}")
        if not all(0 < number < self.translator.vocabulary.size for number in target_ids):
            raise UserError(f"target_ids: give ids from 1 to {self.translator.vocabulary.size - 1}")
        kinds = ids_attention(self.translator, inputs, target_ids)
        refuse_unknown("kind of attention", kind, kinds)
        attention = kinds[kind]
        return {
            "kind": kind,
            "queries": attention.queries,
            "keys": attention.keys,
            "weights": np.round(attention.weights.astype(np.float64), DIGITS).tolist(),
        }

    def _check_source(self, source: str) -> str:
        """Returns a source as one line. Raises UserError if it is empty or too long."""
        if len(source) > LIMITS["characters"]:
            raise UserError(
                f"the source has {len(source):,} characters; shorten it to {LIMITS['characters']:,}"
            )
        source = one_line(source)
        tokens = len(source_ids(self.translator, source))
        if tokens > LIMITS["tokens"]:
            raise UserError(f"the source has {tokens} tokens; shorten it to {LIMITS['tokens']}")
        return source

    def _describe_search(self, tree: SearchTree) -> dict[str, Any]:
        place_of = {node: place for place, node in enumerate(tree.outputs)}

        def describe(candidate: Candidate) -> dict[str, Any]:
            [piece] = self.translator.vocabulary.pieces([candidate.token])
            return {
                "id": candidate.node,
                "parent": candidate.parent,
                "token": piece,
                "token_log_prob": candidate.token_log_prob,
                "log_prob": candidate.log_prob,
                "fate": candidate.fate,
                "score": candidate.score,
                "output": place_of.get(candidate.node),
            }

        return {
            "limit": tree.limit,
            "steps": [list(map(describe, step)) for step in tree.steps],
            "end": {
                "reason": "certain" if tree.is_certain else "limit",
                "best_possible": finite(tree.best_possible),
                "worst_of_best": finite(tree.worst_of_best),
            },
        }


def example(problem: Problem) -> str:
    """Returns the example for a problem; "" if its source language is unknown or has none.

    Without a stated language, the end of the name of the file to train on, such as ".en.gz", is the
    language.
    """
    language, target_language = problem.languages
    # "a.en,a.de", or "" if the problem reads no files
    file, _, target_file = str(getattr(problem.settings, "train", "")).partition(",")
    if problem.was_reversed:
        language = target_language
        file = target_file.partition(",")[0]
    names = [problem.name, language, *reversed(file.split("."))]
    return next((EXAMPLES[name] for name in names if name in EXAMPLES), "")
