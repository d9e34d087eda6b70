"""Translates with CTranslate2 in place of TensorFlow: t2t-decoder --engine=ctranslate2.

The model is converted once and kept in the model folder. Its search differs a little; see docs/ctranslate2.md.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ctranslate2

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.console.progress import say
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.ctranslate2 import POSITIONS
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.decoding.engine import Engine, Output
from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.translation import PairScore
from t2t_repro.errors import UserError, counted, first_line, refuse_unknown
from t2t_repro.files.output_files import locked, named_errors, subfolder, unfinished_folder
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.hparam import DecodeHParams

CACHE = "ctranslate2"
"""Subfolder of a model folder for the converted models, one for each quantization."""
FORMAT = 1
"""Raise this number if `export` writes other files, so that older conversions are made anew."""
MAX_THREADS = 8
"""Maximum number of batches that run at the same time, as in TensorFlow. Each of them needs memory."""


Result = list[tuple[list[str], float, float]]
"""The outputs of a source, as strings of the converted model, with their log-probabilities and coverage penalties."""


class CTranslate2Engine(Engine):
    """Runs a converted model on the CPU.

    Args:
        translator: CTranslate2's translator.
        pieces: the strings of all source ids and all target ids in the converted model.
        positions: number of positions of the model.
        threads: number of batches that the translator runs at the same time.
        seed: seed of random outputs.
    """

    def __init__(
        self, translator: Any, pieces: tuple[list[str], list[str]], positions: int, threads: int, seed: int
    ) -> None:
        self._translator, self.threads, self._positions, self._seed = translator, threads, positions, seed
        self._source_pieces, self._target_pieces = pieces
        self._end = pieces[1][EOS_ID]
        self._ids = {piece: number for number, piece in enumerate(pieces[1])}

    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if CTranslate2 has nothing like one of the decode hparams."""
        ngrams = decode_hparams.repeat_ngram_size
        for feature, is_used in {
            "well_formed": decode_hparams.well_formed,
            "a repeat_ngram_penalty below inf": ngrams and decode_hparams.repeat_ngram_penalty < math.inf,
            "coverage_penalty with repeat_ngram_size": ngrams and decode_hparams.coverage_penalty,
            "another sampling_seed than the first": decode_hparams.is_random
            and decode_hparams.sampling_seed != self._seed,
        }.items():
            if is_used:
                raise UserError(f"decode_hparams: CTranslate2 lacks {feature}; omit it, or give --engine=tensorflow")

    def longest_source(self, length: int) -> int:
        """Returns the number of tokens to which sources are cut: at most the number of positions."""
        return min(length or self._positions, self._positions)

    def search(self, segments: Sequence[Segment], decode_hparams: DecodeHParams) -> list[list[Output]]:
        """Returns the outputs of each segment, ranked by our length penalty."""
        limits = [
            min(len(segment.ids) + len(segment.prefix_ids) + decode_hparams.extra_length, self._positions)
            for segment in segments
        ]
        results = self._translate(segments, decode_hparams, max(limits))
        for number, (limit, result) in enumerate(zip(limits, results, strict=True)):
            if max(len(tokens) for tokens, _, _ in result) > limit:  # CTranslate2 has one limit for a batch
                (results[number],) = self._translate(segments[number : number + 1], decode_hparams, limit)
        beta, has_prefix = decode_hparams.coverage_penalty, any(segment.prefix_ids for segment in segments)
        if beta and has_prefix:
            raise UserError("CTranslate2 cannot combine coverage_penalty and prefixes; give --engine=tensorflow")
        if beta or has_prefix or decode_hparams.is_random or decode_hparams.repeat_ngram_size:
            # In these searches, CTranslate2's scores are no log-probabilities of the model.
            rows = zip(segments, results, strict=True)
            pairs = [(segment.ids, self._ids_of(tokens)) for segment, result in rows for tokens, *_ in result]
            scores = iter(self.score(pairs))
            for result in results:
                for number, (tokens, score, _) in enumerate(result):
                    log_prob = next(scores).log_prob
                    result[number] = tokens, log_prob, score - log_prob if beta else 0.0
        return [
            [(self._ids_of(tokens), score) for tokens, score in self._best(result, decode_hparams)]
            for result in results
        ]

    def _best(self, result: Result, decode_hparams: DecodeHParams) -> list[tuple[list[str], float]]:
        """Returns the n best outputs with their scores. Unfinished outputs come last."""
        alpha = decode_hparams.alpha
        scored = [(tokens, log_prob / ((5 + len(tokens)) / 6) ** alpha + bonus) for tokens, log_prob, bonus in result]
        if not decode_hparams.is_random:
            scored.sort(key=lambda output: -output[1])
        scored.sort(key=lambda output: output[0][-1:] != [self._end])
        return scored[: decode_hparams.n]

    def _translate(self, segments: Sequence[Segment], decode_hparams: DecodeHParams, limit: int) -> list[Result]:
        options: dict[str, Any] = {"beam_size": 1 if decode_hparams.is_random else decode_hparams.beam_size}
        if decode_hparams.is_random:
            options |= {
                "num_hypotheses": decode_hparams.n,
                "sampling_topk": decode_hparams.sampling_keep_top_k,
                "sampling_topp": decode_hparams.sampling_keep_top_p,
                "sampling_temperature": decode_hparams.sampling_temp,
            }
        elif options["beam_size"] > 1 and (
            decode_hparams.alpha or decode_hparams.coverage_penalty or decode_hparams.n > 1
        ):
            options |= {"num_hypotheses": 2 * options["beam_size"], "patience": 2}  # because `_best` has another order
        if any(segment.prefix_ids for segment in segments):
            prefixes = [segment.prefix_ids for segment in segments]
            options["target_prefix"] = [[self._target_pieces[number] for number in prefix] for prefix in prefixes]
        results = self._translator.translate_batch(
            self._sources([segment.ids for segment in segments]),
            **options,
            length_penalty=0,
            coverage_penalty=decode_hparams.coverage_penalty,
            no_repeat_ngram_size=decode_hparams.repeat_ngram_size,
            max_batch_size=int(decode_hparams.coverage_penalty > 0),  # CTranslate2 takes padding for uncovered tokens
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            return_scores=True,
            return_end_token=True,
        )
        return [list(zip(result.hypotheses, result.scores, itertools.repeat(0.0))) for result in results]

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[PairScore]:
        """Returns the scores of pairs, without attention."""
        sources, targets = zip(*pairs, strict=True)
        if (longest := max(map(len, sources + targets))) > self._positions:
            raise UserError(
                f"a pair has a text of {counted(longest, 'token')}; CTranslate2 reads at most {self._positions:,}; "
                "shorten it, or give --engine=tensorflow"
            )
        # CTranslate2 adds the end token, also to an output that reached the length limit.
        texts = [[self._target_pieces[number] for number in ids if number != EOS_ID] for ids in targets]
        results = self._translator.score_batch(self._sources(sources), texts, max_input_length=0)
        pairs_of_results = zip(results, targets, strict=True)
        return [PairScore(tuple(result.log_probs[: len(target)]), ()) for result, target in pairs_of_results]

    def _ids_of(self, tokens: Sequence[str]) -> list[int]:
        return [self._ids[token] for token in tokens]

    def _sources(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self._source_pieces[number] for number in ids[:-1]] for ids in rows]


def load(
    folders: Sequence[ModelFolder], checkpoints: Sequence[str], decode_hparams: DecodeHParams, quantization: str
) -> CTranslate2Engine:
    """Returns the engine for the model of one folder. Converts the model if the folder has no conversion of it.

    Raises UserError if there are several folders, CTranslate2 does not support the model, or the processor the
    quantization.
    """
    if len(folders) > 1:
        raise UserError("--output_dir: CTranslate2 runs only one model; give one folder, or --engine=tensorflow")
    refuse_unknown("--quantization", quantization, ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES)
    supported = ctranslate2.get_supported_compute_types("cpu")
    if quantization not in supported:
        cure = f"give one of {', '.join(sorted(supported))}"
        raise UserError(f"--quantization={quantization}: this processor has no instructions for it; {cure}")
    cores = len(os.sched_getaffinity(0))
    # CTranslate2 draws by a generator of each thread, so a random output is the same again only with one thread.
    threads = 1 if decode_hparams.is_random else min(cores, MAX_THREADS)
    ctranslate2.set_random_seed(decode_hparams.sampling_seed % (1 << 32))
    options = {"compute_type": quantization, "inter_threads": threads, "intra_threads": max(cores // threads, 1)}
    cache = subfolder(folders[0].path, CACHE)
    identity = hashlib.sha256(repr((FORMAT, folders[0].identity(checkpoints[0]))).encode()).hexdigest()[:12]
    path = cache / f"{quantization}-{identity}"
    is_final = path.is_dir() and not os.access(cache, os.W_OK)  # no process can delete it
    cure = "make it writable and free space, or give --engine=tensorflow"
    with named_errors(cache, cure), nullcontext() if is_final else locked(cache / ".lock", "", waits=True):
        if not path.is_dir():
            _convert(folders[0], checkpoints[0], path, quantization)
        try:
            translator = ctranslate2.Translator(str(path), "cpu", **options)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{path}: damaged ({first_line(error)}); delete this folder") from None
        pieces = _pieces(path, "source"), _pieces(path, "target")
    hparams = folders[0].hparams
    positions = 1 << 20 if hparams.max_relative_position else max(POSITIONS, hparams.max_length)
    return CTranslate2Engine(translator, pieces, positions, threads, decode_hparams.sampling_seed)


def _convert(folder: ModelFolder, checkpoint: str, path: Path, quantization: str) -> None:
    """Converts a checkpoint to the folder `path`, and deletes the conversion of an earlier checkpoint.

    Only one process at a time may call this function for the same parent of `path`.
    """
    say(f"{checkpoint}: converting once for CTranslate2")
    with quiet_tensorflow():
        from t2t_repro.ctranslate2 import export
    with unfinished_folder(path.parent) as temporary:
        (converted := temporary / path.name).mkdir()
        export.write(folder, checkpoint, converted, quantization)
        for outdated in path.parent.glob(f"{quantization}-*"):
            shutil.rmtree(outdated)
        converted.rename(path)


def _pieces(path: Path, side: str) -> list[str]:
    """Returns the strings of all ids of a side, "source" or "target"."""
    file = path / f"{side}_vocabulary.json"
    if not file.exists():
        file = path / "shared_vocabulary.json"
    return parse_json(read_text(file), str(file))
