"""Text in, text out: tokenise, sort, batch, search, restore the order, detokenise.

Shapes: B batch, S source length, n hypotheses, L longest output.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.data.text_rules import is_empty, one_line, output_length
from t2t_repro.data.vocabulary import EOS_ID, PAD_ID, Vocabulary
from t2t_repro.decoding import long_lines as cut
from t2t_repro.decoding.beam_search import MISSING, Hypotheses
from t2t_repro.decoding.ensemble import Ensemble
from t2t_repro.decoding.sampling import random_numbers
from t2t_repro.decoding.search import generate_outputs, target_log_probs
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import DecodeHParams, refuse_decode_hparams
from t2t_repro.model_folder import ModelFolder, open_folders
from t2t_repro.models.model import Model, as_decoding_model
from t2t_repro.progress import say

LONG_LINES = ("split", "truncate", "error")


@dataclass(frozen=True)
class Hypothesis:
    """An output of the model."""

    text: str
    """One line."""
    score: float
    """log P / length penalty, in nats, with what penalties take off; of a text translated in pieces, their sum."""
    ids: tuple[int, ...] = ()
    """Its tokens, the end token included where the output has ended."""
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token, if asked for."""
    attention: tuple[int, ...] = ()
    """The source token that the decoder's last layer looks at most to predict each token, if asked for."""


@dataclass(frozen=True)
class Translation:
    """What became of a text; of an empty one an empty output without tokens."""

    hypotheses: tuple[Hypothesis, ...]
    """One or more, best first; of draws in the order they were drawn."""
    source_ids: tuple[int, ...] = ()
    """The source's tokens, each piece with its end token."""
    pieces: int = 1
    """How many pieces it was translated in."""
    is_truncated: bool = False
    """Whether its end was left out."""

    @property
    def text(self) -> str:
        """The best output."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best output's score."""
        return self.hypotheses[0].score


@dataclass(frozen=True)
class PairScore:
    """How likely a model finds a given target."""

    token_scores: tuple[float, ...]
    """The log-probability of each target token, the end token included, in nats."""
    attention: tuple[int, ...]
    """The source token that the decoder's last layer looks at most to predict each."""

    @property
    def log_prob(self) -> float:
        """That of the whole target, in nats."""
        return float(np.sum(self.token_scores))

    @property
    def mean(self) -> float:
        """Per token, in nats."""
        return self.log_prob / len(self.token_scores)


EMPTY = Translation((Hypothesis("", 0.0),))


class Translator:
    """Translates text with a trained model, which it holds ready.

    Args:
        model: the model; it must be a `DecodingModel`, except to score.
        vocabulary: its vocabulary.
        decode_hparams: how to search.
        max_length: longest source, in tokens with the end token, that the model was trained on; 0 is any.
    """

    def __init__(
        self, model: Model, vocabulary: Vocabulary, decode_hparams: DecodeHParams, max_length: int = 0
    ) -> None:
        devices.use_exact_float32()
        self.model: Any = model
        self.vocabulary, self.decode_hparams, self.max_length = vocabulary, decode_hparams, max_length
        self._graphs: dict[Any, Any] = {}

    @classmethod
    def from_dir(cls, output_dir: str, checkpoint_path: str = "", **decode_hparams: Any) -> Translator:
        """A translator with the model of a folder that t2t-trainer made.

        Args:
            output_dir: the folder; several, separated by commas, are an ensemble, which averages log-probabilities.
            checkpoint_path: see `ModelFolder.checkpoint`; of an ensemble one for each, separated by commas.
            decode_hparams: fields of `DecodeHParams` that differ from the problem's defaults.

        Raises:
            UserError: no such folder or checkpoint, files in it that do not belong together, an unknown field.
        """
        folders, checkpoints = open_folders(output_dir, checkpoint_path)
        return cls.from_folders(folders, checkpoints, _replace(folders[0].problem.decode_hparams, decode_hparams))

    @classmethod
    def from_folders(
        cls, folders: Sequence[ModelFolder], checkpoints: Sequence[str], decode_hparams: DecodeHParams
    ) -> Translator:
        """A translator with the model of a folder, or with an ensemble of several over one vocabulary."""
        models = [folder.model(checkpoint) for folder, checkpoint in zip(folders, checkpoints, strict=True)]
        return cls(
            models[0] if len(models) == 1 else Ensemble(models),
            folders[0].vocabulary,
            decode_hparams,
            min(folder.hparams.max_length for folder in folders),
        )

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] = (),
        *,
        long_lines: str = "split",
        details: bool = False,
        advance: Callable[[int], None] = lambda count: None,
        **decode_hparams: Any,
    ) -> list[Translation]:
        """The translation of each text, in their order; that of an empty one is empty.

        Args:
            texts: one line each.
            prefixes: how each output begins, "" where that is free; none for all.
            long_lines: what is done with a text of more than `max_input_size` tokens: "split" it after sentences and
                join the translations, "truncate" it, or raise an "error".
            details: give token scores and attention too.
            advance: called with the number of texts that are newly done.
            decode_hparams: fields of `DecodeHParams` that differ from this translator's.

        Raises:
            UserError: an unknown field or a value out of its range; another number of prefixes than of texts; with
                long_lines="error", a long text.
        """
        found = {}
        for number, translation in self.stream(
            texts, prefixes, long_lines=long_lines, details=details, **decode_hparams
        ):
            found[number] = translation
            advance(1)
        return [found[number] for number in range(len(texts))]

    def stream(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] = (),
        *,
        long_lines: str = "split",
        details: bool = False,
        numbers: Sequence[int] | None = None,
        source: str = "texts",
        **decode_hparams: Any,
    ) -> Iterator[tuple[int, Translation]]:
        """Yields (place in `texts`, translation) as they are done, in no order.

        Args:
            texts, prefixes, long_lines, details, decode_hparams: as for `translate`.
            numbers: of the lines that the texts are, counted from 0; they decide what is drawn for each.
            source: what the text is called in errors.
        """
        params = self.checked(_replace(self.decode_hparams, decode_hparams))
        if prefixes and len(prefixes) != len(texts):
            raise UserError(f"{len(prefixes)} prefixes for {len(texts)} texts; give one for each, empty where free")
        if long_lines not in LONG_LINES:
            raise unknown("long_lines", long_lines, LONG_LINES)
        numbers = range(len(texts)) if numbers is None else numbers
        pieces = self._cut(texts, params, long_lines, numbers, source)
        prefix_ids = self.vocabulary.encode(prefixes) if prefixes else []
        pending: dict[int, list[Translation | None]] = {}
        for piece in pieces:
            pending.setdefault(piece.text, []).append(None)
        for text in range(len(texts)):
            if text not in pending:
                yield text, EMPTY
        for batch in batches(range(len(pieces)), [len(piece.ids) for piece in pieces], params.batch_size):
            chosen = [pieces[number] for number in batch]
            prefix = [
                prefix_ids[piece.text][:-1] if prefixes and piece.number == 0 else [] for piece in chosen
            ]  # a prefix does not end
            keys = [(numbers[piece.text], piece.number) for piece in chosen]
            results = in_halves(
                lambda ids, prefix, keys: self._batch(ids, prefix, keys, params, details),
                [piece.ids for piece in chosen],
                prefix,
                keys,
            )
            for piece, translation in zip(chosen, results, strict=True):
                parts = pending[piece.text]
                parts[piece.number] = dataclasses.replace(translation, is_truncated=piece.is_truncated)
                if None not in parts:
                    own = [each.string for each in pieces[piece.first : piece.first + len(parts)]]
                    yield piece.text, _joined([part for part in parts if part is not None], own)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], advance: Callable[[int], None] = lambda count: None
    ) -> list[PairScore]:
        """How likely the model finds each target as the translation of its source.

        Args:
            sources, targets: one line each, as many of one as of the other.
            advance: called with the number of pairs that are newly done.

        Raises:
            UserError: another number of sources than of targets.
        """
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} sources and {len(targets)} targets; give a target for each source")
        ids = self.vocabulary.encode(sources), self.vocabulary.encode(targets)
        return self._scores(*ids, self.decode_hparams.batch_size, advance)

    def checked(self, params: DecodeHParams) -> DecodeHParams:
        """Returns `params` if this model can search with them.

        Raises:
            UserError: the model cannot decode or lacks the attention that a penalty needs, the beam is larger than the
                vocabulary, or a field applies only to files.
        """
        as_decoding_model(self.model, "score with it (t2t-decoder --score_file)")
        if params.coverage_penalty and not self.model.has_attention:
            raise UserError(f"model {self.model.name!r} has no attention for coverage_penalty; leave that out")
        refuse_decode_hparams(params, ["prefix_file", "write_beam_scores"], "they are of t2t-decoder's files")
        if not params.is_random and params.beam_size > self.vocabulary.size:
            raise UserError(
                f"beam_size={params.beam_size} is more than the vocabulary's {self.vocabulary.size} tokens; give less"
            )
        return params

    def _cut(
        self, texts: Sequence[str], params: DecodeHParams, long_lines: str, numbers: Sequence[int], source: str
    ) -> list[Piece]:
        """The pieces of all texts that are not empty, those of a text one after the other."""
        longest = params.max_input_size or self.max_length
        found: list[Piece] = []

        def count(text: str) -> int:
            return len(self.vocabulary.encode([text.strip()], num_threads=1)[0])

        for text, (string_, ids) in enumerate(zip(texts, self.vocabulary.encode(texts), strict=True)):
            if is_empty(string_):
                continue
            if not longest or len(ids) <= longest:
                found.append(Piece(text, 0, len(found), string_, ids))
            elif long_lines == "truncate":
                found.append(Piece(text, 0, len(found), string_, [*ids[: longest - 1], EOS_ID], is_truncated=True))
            elif long_lines == "error":
                raise UserError(
                    f"{source}:{numbers[text] + 1}: {len(ids)} tokens, more than {longest}; cut the line, or choose "
                    "--long_lines=split or truncate, or another max_input_size"
                )
            else:
                strings = [each for each in cut.pieces(string_, longest, count) if each.strip()]
                first = len(found)
                encoded = self.vocabulary.encode([each.strip() for each in strings])
                found += [
                    Piece(text, number, first, *each) for number, each in enumerate(zip(strings, encoded, strict=True))
                ]
        return found

    def _batch(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[tuple[int, int]],
        params: DecodeHParams,
        details: bool,
    ) -> list[Translation]:
        """Translates ids together; `keys` are each one's line and piece."""
        given: dict[str, np.ndarray] = {"inputs": padded(sources)}
        if any(prefixes):
            given["prefix"] = padded(prefixes)
        if params.is_random:
            limit = max(map(len, sources)) + max(map(len, prefixes)) + params.extra_length
            drawn = [random_numbers(params.sampling_seed, *key, limit, params.num_best) for key in keys]
            given["random"] = np.stack(drawn)
        best = self._search(params, given)
        rows, scores = best.ids.numpy(), best.scores.numpy()
        kept = scores > MISSING  # fewer where the vocabulary or the limit left no more
        kept[:, 0] = True  # a model that has diverged scores nothing
        ids = [whole(row) for row in rows[kept].tolist()]
        found = zip(self.vocabulary.decode(ids), scores[kept].tolist(), ids, strict=True)
        # A model may emit the byte of a line end; lines out must be as many as lines in.
        hypotheses = [Hypothesis(one_line(text), score, tuple(row)) for text, score, row in found]
        if details:
            repeated = [source for source, count in zip(sources, kept.sum(axis=1), strict=True) for _ in range(count)]
            hypotheses = [
                dataclasses.replace(hypothesis, token_scores=score.token_scores, attention=score.attention)
                for hypothesis, score in zip(hypotheses, self._scores(repeated, ids, params.batch_size), strict=True)
            ]
        each = iter(hypotheses)
        return [
            Translation(tuple(next(each) for _ in range(count)), tuple(source))
            for source, count in zip(sources, kept.sum(axis=1), strict=True)
        ]

    def _search(self, params: DecodeHParams, given: dict[str, np.ndarray]) -> Hypotheses:
        """Runs `generate_outputs` as a graph, which is made once for each way of searching."""
        key = (dataclasses.replace(params, batch_size=1, sampling_seed=0, max_input_size=0), *given)
        if key not in self._graphs:
            specs = {name: tf.TensorSpec([None] * array.ndim, array.dtype, name=name) for name, array in given.items()}
            self._graphs[key] = tf.function(
                lambda given: generate_outputs(self.model, params, **given), autograph=False, input_signature=[specs]
            )
        return self._graphs[key](given)

    def _scores(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        batch_size: int,
        advance: Callable[[int], None] = lambda count: None,
    ) -> list[PairScore]:
        """The score of each pair of ids, in batches, since logits of all positions take memory."""
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        found: dict[int, PairScore] = {}
        for batch in batches(range(len(sources)), lengths, batch_size):
            pairs = [sources[number] for number in batch], [targets[number] for number in batch]
            scores = in_halves(self._score, *pairs)
            found.update(zip(batch, scores, strict=True))
            advance(len(batch))
        return [found[number] for number in range(len(sources))]

    def _score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[PairScore]:
        if "score" not in self._graphs:
            self._graphs["score"] = tf.function(
                lambda inputs, targets: target_log_probs(self.model, inputs, targets),
                autograph=False,
                input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
            )
        log_probs, attention = (x.numpy().tolist() for x in self._graphs["score"](padded(sources), padded(targets)))
        lengths = map(len, targets)
        return [
            PairScore(tuple(row[:length]), tuple(places[:length]))
            for row, places, length in zip(log_probs, attention, lengths, strict=True)
        ]


@dataclass(frozen=True)
class Piece:
    """Part of a text, or all of it."""

    text: int
    """Which text."""
    number: int
    """Which of its pieces."""
    first: int
    """Where the text's first piece is."""
    string: str
    """The piece, with the white space around it."""
    ids: list[int]
    """Its tokens, without that."""
    is_truncated: bool = False
    """Whether its end was left out."""


def _replace(params: DecodeHParams, changes: dict[str, Any]) -> DecodeHParams:
    """`params` with changes; an unknown name is an error that offers the nearest."""
    names = [field.name for field in dataclasses.fields(params)]
    for name in changes:
        if name not in names:
            raise unknown("field of DecodeHParams", name, names)
    return dataclasses.replace(params, **changes)


def _joined(parts: Sequence[Translation], strings: Sequence[str]) -> Translation:
    """The translations of a text's pieces as one; the i-th hypothesis is that of the i-th ones, as far as all go."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(len(part.source_ids) for part in parts[:-1])]).tolist()
    hypotheses = []
    for each in zip(*(part.hypotheses for part in parts), strict=False):
        attention = (place + offset for one, offset in zip(each, offsets, strict=True) for place in one.attention)
        hypotheses.append(
            Hypothesis(
                cut.joined([one.text for one in each], strings),
                sum(one.score for one in each),
                tuple(i for one in each for i in one.ids),
                tuple(score for one in each for score in one.token_scores),
                tuple(attention),
            )
        )
    return Translation(tuple(hypotheses), tuple(i for part in parts for i in part.source_ids), len(parts))


def whole(ids: list[int]) -> list[int]:
    """A row of `Hypotheses.ids` without what follows its end."""
    length = output_length(ids)
    return ids[: length + (ids[length : length + 1] == [EOS_ID])]


@functools.cache
def _tell_of_halves() -> None:
    """Says it once."""
    say("too little memory for a batch: it is done by halves; a smaller batch_size is faster")


def in_halves(run: Callable[..., list[Any]], *of_each: Sequence[Any]) -> list[Any]:
    """What `run` makes of lists of equal length, one result for each place; by halves where memory does not suffice.

    Raises:
        UserError: nor does it for one alone.
    """
    size = len(of_each[0])
    try:
        return run(*of_each)
    except tf.errors.ResourceExhaustedError:
        if size == 1:
            raise UserError(
                f"one text of {len(of_each[0][0]):,} tokens alone takes more memory than there is; leave it out, cut "
                "it, or search with a smaller beam_size or extra_length"
            ) from None
    _tell_of_halves()
    halves = [[rows[: size // 2] for rows in of_each], [rows[size // 2 :] for rows in of_each]]
    return [result for half in halves for result in in_halves(run, *half)]


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows as one array, int32 [B, longest], padded with 0."""
    array = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, np.int32)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    return array


def batches(numbers: Sequence[int], lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Cuts `numbers`, longest first, into batches of at most `batch_size` positions, padding included.

    Args:
        lengths: tokens of each number's source.
    """
    batch: list[int] = []
    for number in sorted(numbers, key=lambda number: -lengths[number]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_size:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
