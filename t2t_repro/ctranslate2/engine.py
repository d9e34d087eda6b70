"""Translates with CTranslate2 in place of TensorFlow: t2t-decoder --engine=ctranslate2.

The model is converted once and kept in the model folder. Its search differs a little; see
docs/ctranslate2.md.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ctranslate2

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.console.progress import say
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.ctranslate2.limits import POSITIONS
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.decoding.engine import Engine, Output
from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.translation import PairScore
from t2t_repro.errors import UserError, counted, first_line
from t2t_repro.files.output_files import locked, named_errors, subfolder, unfinished_folder
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.hparam import DecodeHParams

CACHE = "ctranslate2"
"""Subfolder of a model folder for the converted models, one for each quantization."""
FORMAT = 1
"""Raise this number if `export` writes other files, so that older conversions are made anew."""
MAX_THREADS = 8
"""Maximum number of batches that run at the same time, as in TensorFlow. Each of them needs memory.
"""


class CTranslate2Engine(Engine):
    """Runs the converted model in the folder `path` on the CPU.

    Args:
        positions: maximum number of tokens of a source and of an output.
        quantization: type of the weights.
        decode_hparams: determine the random numbers; `search` must get the same sampling_method and
            sampling_seed.
    """

    def __init__(
        self, path: Path, positions: int, quantization: str, decode_hparams: DecodeHParams
    ) -> None:
        self._positions = positions
        self._seed = decode_hparams.sampling_seed
        cores = len(os.sched_getaffinity(0))
        # CTranslate2 draws by a generator of each thread, so a random output is the same again only
        # with one thread.
        self.threads = 1 if decode_hparams.is_random else min(cores, MAX_THREADS)
        ctranslate2.set_random_seed(self._seed % (1 << 32))
        try:
            self._translator = ctranslate2.Translator(
                str(path),
                "cpu",
                compute_type=quantization,
                inter_threads=self.threads,
                intra_threads=cores // self.threads,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{path}: damaged ({first_line(error)}); delete this folder") from None
        self._source_pieces = _pieces(path, "source")
        self._target_pieces = _pieces(path, "target")
        self._ids = {piece: number for number, piece in enumerate(self._target_pieces)}

    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if CTranslate2 has nothing like one of the decode hparams."""
        forbids_repeats = decode_hparams.repeat_ngram_size > 0
        has_finite_penalty = decode_hparams.repeat_ngram_penalty < math.inf
        is_too_long = decode_hparams.max_input_size > self._positions
        is_other_seed = decode_hparams.sampling_seed != self._seed
        missing = {
            "well_formed": decode_hparams.well_formed,
            f"a max_input_size above {self._positions}": is_too_long,
            "a repeat_ngram_penalty below inf": forbids_repeats and has_finite_penalty,
            "coverage_penalty with repeat_ngram_size": forbids_repeats
            and decode_hparams.coverage_penalty > 0,
            "another sampling_seed than the first": decode_hparams.is_random and is_other_seed,
        }
        for feature, is_used in missing.items():
            if is_used:
                raise UserError(
                    f"decode_hparams: CTranslate2 lacks {feature}; omit it, or give "
                    "--engine=tensorflow"
                )

    def search(
        self, segments: Sequence[Segment], decode_hparams: DecodeHParams, needs_scores: bool
    ) -> list[list[Output]]:
        """Returns the outputs of each segment, ranked by our length penalty, with unfinished
        outputs last.
        """
        beta = decode_hparams.coverage_penalty
        is_random = decode_hparams.is_random
        has_prefix = any(segment.prefix_ids for segment in segments)
        if beta and has_prefix:
            raise UserError(
                "CTranslate2 cannot combine coverage_penalty and prefixes; give --engine=tensorflow"
            )
        has_beam = not is_random and decode_hparams.beam_size > 1
        is_ranked = has_beam and bool(decode_hparams.alpha or beta or decode_hparams.n > 1)
        needs_scores = needs_scores or is_ranked
        options = _options(decode_hparams, is_ranked) | {"return_scores": needs_scores}
        lengths = [
            len(segment.ids) + len(segment.prefix_ids) + decode_hparams.extra_length
            for segment in segments
        ]
        results = self._translate(segments, max(lengths), options)
        # CTranslate2 has one limit for a batch.
        is_cut = False
        for number, (length, result) in enumerate(zip(lengths, results, strict=True)):
            if max(len(ids) for ids, _ in result) <= length:
                continue
            if has_beam:
                segment = segments[number : number + 1]
                [results[number]] = self._translate(segment, length, options)
            else:
                results[number] = [(ids[:length], score) for ids, score in result]
                is_cut = True

        log_probs = [score for result in results for _, score in result]
        is_penalized = beta or decode_hparams.repeat_ngram_size
        if needs_scores and (is_penalized or has_prefix or is_random or is_cut):
            # In these searches, CTranslate2's scores are no log-probabilities of the outputs.
            pairs = [
                (segment.ids, ids)
                for segment, result in zip(segments, results, strict=True)
                for ids, _ in result
            ]
            log_probs = [pair_score.log_prob for pair_score in self.score(pairs)]
        remaining = iter(log_probs)
        return [
            _ranked(result, list(itertools.islice(remaining, len(result))), decode_hparams)
            for result in results
        ]

    def _translate(
        self, segments: Sequence[Segment], length: int, options: dict[str, Any]
    ) -> list[list[Output]]:
        """Returns the outputs of each segment, of at most `length` tokens, with CTranslate2's
        scores, if requested.
        """
        if any(segment.prefix_ids for segment in segments):
            prefixes = [_named(self._target_pieces, segment.prefix_ids) for segment in segments]
            options = options | {"target_prefix": prefixes}
        results = self._translator.translate_batch(
            self._sources(segment.ids for segment in segments),
            max_decoding_length=min(length, self._positions),
            return_end_token=True,
            **options,
        )
        outputs = []
        for result in results:
            rows = [list(map(self._ids.__getitem__, pieces)) for pieces in result.hypotheses]
            scores = result.scores or [0.0] * len(rows)
            outputs.append(list(zip(rows, scores, strict=True)))
        return outputs

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[PairScore]:
        """Returns the scores of pairs, without attention."""
        sources, targets = zip(*pairs, strict=True)
        longest = max(map(len, sources + targets))
        if longest > self._positions:
            cure = f"shorten it to {self._positions:,}, or give --engine=tensorflow"
            raise UserError(f"a text has {counted(longest, 'token')}; {cure}")
        # CTranslate2 adds the end token, also to an output that reached the length limit.
        texts = [_named(self._target_pieces, filter(EOS_ID.__ne__, ids)) for ids in targets]
        results = self._translator.score_batch(self._sources(sources), texts, max_input_length=0)
        return [
            PairScore(tuple(result.log_probs[: len(target)]), ())
            for result, target in zip(results, targets, strict=True)
        ]

    def _sources(self, rows: Iterable[Sequence[int]]) -> list[list[str]]:
        return [_named(self._source_pieces, ids[:-1]) for ids in rows]


def _named(names: Sequence[str], ids: Iterable[int]) -> list[str]:
    return [names[number] for number in ids]


def _ranked(
    outputs: Sequence[Output], log_probs: Sequence[float], decode_hparams: DecodeHParams
) -> list[Output]:
    """Returns the n best outputs of a segment, with our scores in place of CTranslate2's. Random
    outputs keep their order. Unfinished outputs come last.
    """
    ranked = []
    for (ids, score), log_prob in zip(outputs, log_probs, strict=True):
        length_penalty = ((5 + len(ids)) / 6) ** decode_hparams.alpha
        # CTranslate2 has added its coverage penalty to the log-probability.
        bonus = score - log_prob if decode_hparams.coverage_penalty else 0.0
        ranked.append((ids, log_prob / length_penalty + bonus))
    if not decode_hparams.is_random:
        ranked.sort(key=lambda output: -output[1])
    ranked.sort(key=lambda output: output[0][-1:] != [EOS_ID])
    return ranked[: decode_hparams.n]


def _options(decode_hparams: DecodeHParams, is_ranked: bool) -> dict[str, Any]:
    """Returns the options of CTranslate2's search. If the engine ranks the outputs, more of them
    are found.
    """
    options: dict[str, Any] = {
        "beam_size": decode_hparams.beam_size,
        "length_penalty": 0,
        "coverage_penalty": decode_hparams.coverage_penalty,
        "no_repeat_ngram_size": decode_hparams.repeat_ngram_size,
        # CTranslate2 takes padding for uncovered tokens, so a batch then has one text. 0: any size
        "max_batch_size": int(decode_hparams.coverage_penalty > 0),
        "max_input_length": 0,
        "min_decoding_length": 0,
    }
    if decode_hparams.is_random:
        options |= {
            "beam_size": 1,
            "num_hypotheses": decode_hparams.n,
            "sampling_topk": decode_hparams.sampling_keep_top_k,
            "sampling_topp": decode_hparams.sampling_keep_top_p,
            "sampling_temperature": decode_hparams.sampling_temp,
        }
    elif is_ranked:
        options |= {"num_hypotheses": 2 * decode_hparams.beam_size, "patience": 2}
    return options


def load(
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
    quantization: str,
) -> CTranslate2Engine:
    """Returns the engine for the model of one folder. Converts the model if the folder has no
    conversion of it.

    Raises UserError if there are several folders, or CTranslate2 does not support the model or the
    quantization.
    """
    if len(folders) > 1:
        raise UserError(
            "--output_dir: CTranslate2 runs only one model; give one folder, or --engine=tensorflow"
        )
    supported = sorted(ctranslate2.get_supported_compute_types("cpu"))
    if quantization not in supported:
        raise UserError(
            f"--quantization={quantization}: CTranslate2 lacks it on this processor; give one of "
            f"{', '.join(supported)}"
        )
    [folder] = folders
    [checkpoint] = checkpoints
    is_relative = folder.hparams.max_relative_position > 0
    positions = 1 << 20 if is_relative else max(POSITIONS, folder.hparams.max_length)
    cache = subfolder(folder.path, CACHE)
    identity = hashlib.sha256(repr((FORMAT, folder.identity(checkpoint))).encode()).hexdigest()[:12]
    path = cache / f"{quantization}-{identity}"
    # No process can delete a conversion in a folder that cannot be written.
    is_final = path.is_dir() and not os.access(cache, os.W_OK)
    lock = nullcontext() if is_final else locked(cache / ".lock", "", waits=True)
    with named_errors(cache, "make it writable and free space, or give --engine=tensorflow"), lock:
        if not path.is_dir():
            _convert(folder, checkpoint, path, quantization)
        return CTranslate2Engine(path, positions, quantization, decode_hparams)


def _convert(folder: ModelFolder, checkpoint: str, path: Path, quantization: str) -> None:
    """Converts a checkpoint to the folder `path`, and deletes the conversion of an earlier
    checkpoint.

    Only one process at a time may call this function for the same parent of `path`.
    """
    say(f"{checkpoint}: converting once for CTranslate2")
    with quiet_tensorflow():
        from t2t_repro.ctranslate2 import export
    with unfinished_folder(path.parent) as temporary:
        converted = temporary / path.name
        converted.mkdir()
        export.write(folder, checkpoint, converted, quantization)
        for outdated in path.parent.glob(f"{quantization}-*"):
            shutil.rmtree(outdated)
        converted.rename(path)


def _pieces(path: Path, side: str) -> list[str]:
    """Returns the strings of all ids of a side, "source" or "target"."""
    file = path / f"{side}_vocabulary.json"
    file = file if file.exists() else path / "shared_vocabulary.json"
    return parse_json(read_text(file), str(file))
