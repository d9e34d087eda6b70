"""The attention weights of a model for one source and its target, with the tokens of queries and
keys.

Shapes: L layers, H heads, Q queries, K keys, S source tokens, T target tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t2t_repro.data.vocabularies.text_rules import EOS_ID, SPACE, is_empty
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.output import refuse_diverged
from t2t_repro.decoding.translation import InputFile, with_tags
from t2t_repro.errors import UserError, shortened

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.hparam import DecodeHParams
    from t2t_repro.models.model import DecodingModel

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
"""The three uses of attention (section 3.2.3): the names in flags and files, and the paper's names.
"""
START = "<start>"
"""Label of the decoder's first key. The decoder reads zeros there, because there is no start token.
"""


@dataclass(frozen=True)
class Attention:
    """The weights of one kind of attention."""

    kind: str
    """"encoder", "decoder" or "cross"."""
    queries: tuple[str, ...]
    """Label of each query. In the decoder, it is the target token that this position predicts."""
    keys: tuple[str, ...]
    """Label of each key. In decoder self-attention, it is the target token that the decoder reads
    there.
    """
    weights: np.ndarray
    """float32 [L, H, Q, K]: how much each query attends to each key. Each row of K weights has the
    sum 1.
    """
    layers: tuple[int, ...]
    """Number of each layer, from 1."""
    heads: tuple[int, ...]
    """Number of each head, from 1."""
    caption: tuple[str, ...] = ()
    """Lines above pictures: the kind, and its texts."""

    def select(self, layers: Sequence[int] = (), heads: Sequence[int] = ()) -> Attention:
        """Returns the weights of some layers and heads, by their numbers; empty for all of them."""
        rows = [self._index("layer", number, self.layers) for number in layers or self.layers]
        columns = [self._index("head", number, self.heads) for number in heads or self.heads]
        return replace(
            self,
            weights=self.weights[np.ix_(rows, columns)],
            layers=tuple(self.layers[row] for row in rows),
            heads=tuple(self.heads[column] for column in columns),
        )

    @property
    def names(self) -> list[str]:
        """The label of each query without the signs for spaces; the label itself if it has only
        such signs.
        """
        return [label.strip("▁_ ") or label for label in self.queries]

    def query(self, word: str) -> int:
        """Returns the index of the first query that is a word. Raises UserError if none is."""
        if word not in self.names:
            raise UserError(
                f"--word={shortened(word)}: no query of {KINDS[self.kind]} has this name; choose "
                f"one of {' '.join(self.names)}"
            )
        return self.names.index(word)

    def _index(self, name: str, number: int, numbers: Sequence[int]) -> int:
        if number not in numbers:
            choices = ", ".join(map(str, numbers))
            raise UserError(
                f"--{name}s={number}: {KINDS[self.kind]} has no {name} {number}; choose one of "
                f"{choices}"
            )
        return numbers.index(number)


class PairAttention(NamedTuple):
    """The attention of a model for one source and its target, by the names of the kinds in `KINDS`."""  # noqa: E501

    source: str
    target: str
    kinds: dict[str, Attention]


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text or its words: their labels, and the index of the first token of each."""

    labels: tuple[str, ...]
    starts: tuple[int, ...]

    @classmethod
    def pieces(cls, vocabulary: Vocabulary, ids: Sequence[int]) -> Tokens:
        """Returns the tokens as the vocabulary writes them. Bytes are written like <0xC3>."""
        return cls(tuple(vocabulary.pieces(ids)), tuple(range(len(ids))))

    @classmethod
    def words(cls, vocabulary: Vocabulary, ids: Sequence[int]) -> Tokens:
        """Returns the words: the tokens between spaces. The end token is a word."""
        # The text of the first n tokens, for each n. A token belongs to the word after the last
        # spaces in its text.
        texts = vocabulary.decode([ids[:end] for end in range(len(ids) + 1)])
        pieces = vocabulary.pieces(ids)
        if not any(
            piece.startswith(SPACE) for piece in pieces
        ):  # the space before a word belongs to the word
            texts = [text.rstrip(" ") for text in texts]
        numbers = [len(re.findall(" +", text)) for text in texts[1:]]
        starts = [0]
        for position in range(1, len(ids)):
            if numbers[position] != numbers[position - 1] or ids[position] == EOS_ID:
                starts.append(position)
        labels = (
            texts[end][len(texts[start]) :].strip() or pieces[start]
            for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)
        )
        return cls(tuple(labels), tuple(starts))

    def shifted(self, length: int) -> Tokens:
        """Returns what the decoder reads at `length` positions: `START`, and the tokens or words
        before the last.
        """
        pairs = zip(self.labels, self.starts, strict=True)
        inputs = [(START, 0), *((label, start + 1) for label, start in pairs if start + 1 < length)]
        return Tokens(tuple(label for label, _ in inputs), tuple(start for _, start in inputs))


def attention_weights(
    model: DecodingModel, inputs: np.ndarray, targets: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the weights of each kind of attention, float32 [L, H, Q, K], for source ids [S] and
    target ids [T].

    The Transformer has the three kinds "encoder", "decoder" and "cross". Other models with
    attention have only "cross".
    """
    import keras

    from t2t_repro.models.transformer import Transformer

    inputs, targets = (keras.ops.convert_to_tensor(ids[None], "int64") for ids in (inputs, targets))
    layers: list[dict[str, Any]] = []
    if isinstance(model, Transformer):
        memory, layers = model.encode(inputs, return_attention=True)
    else:
        memory = model.encode(inputs)
    _, decoder_layers = model.decode(targets, memory, return_attention=True)
    weights: dict[str, list[np.ndarray]] = {}
    for layer in layers + decoder_layers:
        for kind, values in layer.items():
            weights.setdefault(kind, []).append(np.asarray(values, np.float32)[0])
    return {kind: np.stack(values) for kind, values in weights.items()}


def attention_of(
    model: DecodingModel,
    vocabulary: Vocabulary,
    inputs: np.ndarray,
    targets: np.ndarray,
    merge_subwords: bool = False,
) -> dict[str, Attention]:
    """Returns each kind of attention of a model for source ids and target ids with their end
    tokens.

    Padding is ignored. With `merge_subwords`, weights are those of words instead of tokens; see
    `merged`.
    """
    inputs = inputs[np.flatnonzero(inputs)]
    targets = targets[np.flatnonzero(targets)]
    tokens = Tokens.words if merge_subwords else Tokens.pieces
    source = tokens(vocabulary.sources, inputs.tolist())
    target = tokens(vocabulary, targets.tolist())
    sides = {
        "encoder": (source, source),
        "decoder": (target, target.shifted(len(targets))),
        "cross": (target, source),
    }
    kinds = {}
    for kind, weights in attention_weights(model, inputs, targets).items():
        queries, keys = sides[kind]
        layers, heads = (tuple(range(1, count + 1)) for count in weights.shape[:2])
        kinds[kind] = Attention(
            kind, queries.labels, keys.labels, merged(weights, queries, keys), layers, heads
        )
    return kinds


def merged(weights: np.ndarray, queries: Tokens, keys: Tokens) -> np.ndarray:
    """Returns weights of words, from weights of tokens [L, H, Q, K]: the sum over the keys of a
    word, and the mean over the queries of a word.
    """
    counts = np.diff([*queries.starts, weights.shape[2]])
    sums = np.add.reduceat(np.add.reduceat(weights, keys.starts, axis=3), queries.starts, axis=2)
    return sums / counts[:, None].astype(np.float32)


def pair_attention(
    translator: Translator, source: str, target: str = "", merge_subwords: bool = False
) -> PairAttention:
    """Returns the attention weights of all layers and heads for a source and its target, with their
    tokens.

    Without a target, it is the model's translation. With `merge_subwords`, words replace tokens;
    see `merged`.

    Raises UserError if a text is empty or too long, or the model has no attention or has diverged.
    """
    inputs = source_ids(translator, source)
    if is_empty(target):
        hypothesis = translator.translate([source])[0].hypotheses[0]
        refuse_diverged([hypothesis.score])
        target = hypothesis.text
        targets = list(hypothesis.ids)
    else:
        [targets] = translator.vocabulary.encode_targets([target])
        longest = translator.decode_hparams.max_input_size or translator.max_length
        _refuse_longer(
            "target", targets, longest and longest + translator.decode_hparams.extra_length
        )
    texts = (f"source: {source}", f"target: {target}")
    captions = {"encoder": texts[:1], "decoder": texts[1:], "cross": texts}
    kinds = ids_attention(translator, inputs, targets, merge_subwords)
    return PairAttention(
        source,
        target,
        {kind: replace(kinds[kind], caption=(KINDS[kind], *captions[kind])) for kind in kinds},
    )


def ids_attention(
    translator: Translator,
    inputs: Sequence[int],
    targets: Sequence[int],
    merge_subwords: bool = False,
) -> dict[str, Attention]:
    """Returns each kind of attention for source ids and target ids with their end tokens; see
    `attention_of`.

    Raises UserError if the model cannot save attention weights, or if a weight is NaN, because
    training has diverged.
    """
    if not translator.model.has_attention:
        raise UserError(
            f"model {translator.model.name!r} has no attention; use another model (docs/rivals.md "
            "says which models have it)"
        )
    pair = np.array(inputs, np.int32), np.array(targets, np.int32)
    kinds = attention_of(translator.model, translator.vocabulary, *pair, merge_subwords)
    if not all(np.isfinite(attention.weights).all() for attention in kinds.values()):
        raise UserError(
            "the model's weights of attention are not numbers (NaN); use an earlier checkpoint"
        )
    return kinds


def source_ids(
    translator: Translator, source: str, decode_hparams: DecodeHParams | None = None
) -> list[int]:
    """Returns the token ids of a source. Raises UserError if it is empty, or too long to be
    translated whole.

    The longest source is that of `decode_hparams`, or by default of the translator's decode
    hparams.
    """
    [(_, text)] = translator.vocabulary.split_tags(
        with_tags([source], translator.tags, "", InputFile("source"))
    )
    if is_empty(text):
        raise UserError("the source is empty; give a text")
    [ids] = translator.vocabulary.encode_sources([source])
    longest = (decode_hparams or translator.decode_hparams).max_input_size or translator.max_length
    _refuse_longer("source", ids, longest)
    return ids


def _refuse_longer(name: str, ids: Sequence[int], limit: int) -> None:
    if limit and len(ids) > limit:
        raise UserError(
            f"the {name} has {len(ids)} tokens, but this model at most {limit}; shorten it"
        )
