"""The translator, which tokenizes texts, batches texts of similar length, searches for outputs, and
detokenizes them.

It loads TensorFlow only for models that run there. Another engine does without.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.data.vocabularies.text_rules import is_empty, one_line
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import run_in_batches
from t2t_repro.decoding.engine import Engine, computation
from t2t_repro.decoding.long_lines import Segment, cut_texts, join_translations
from t2t_repro.decoding.translation import (
    EMPTY,
    UNKNOWN_FILE,
    Hypothesis,
    InputFile,
    PairScore,
    Translation,
    with_tags,
)
from t2t_repro.errors import UserError, refuse_unknown, require_extra, text_list
from t2t_repro.hparam import DecodeHParams, with_changes
from t2t_repro.parsing.linearization import TreeSymbols

if TYPE_CHECKING:
    from t2t_repro.decoding.well_formed import TreeRules
    from t2t_repro.models.model import Model

Result = TypeVar("Result")
ENGINES = {
    "tensorflow": "t2t_repro.decoding.tensorflow_engine",
    "ctranslate2": "t2t_repro.ctranslate2.engine",
}
"""Names of the libraries that can run a model, and the modules whose function `load` returns it.
CTranslate2 runs only the Transformer; docs/ctranslate2.md says what differs.
"""


class Translator:
    """Translates text with a trained model.

    `from_dir` and `from_folders` switch TF32 off on GPUs (see `devices.use_tf32`). The constructor
    leaves it as it is.

    Args:
        model: a `DecodingModel`; the method `score` also works with a `Model` that cannot decode.
            Or an `Engine`.
        vocabulary: the model's vocabulary.
        decode_hparams: settings of the search and of batches.
        max_length: longest source that is translated whole if `max_input_size` is 0, in tokens
            counting the end token; 0 for no limit.
        tree_symbols: the symbols of trees if the model is a parser (see `Problem.tree_symbols`);
            else None.
        tags: the tags of the model's target languages (see `ModelFolder.tags`); empty if sources
            need no tag.
    """

    def __init__(
        self,
        model: Model | Engine,
        vocabulary: Vocabulary,
        decode_hparams: DecodeHParams,
        max_length: int = 0,
        tree_symbols: TreeSymbols | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.model: Any = model
        self.tags = tags
        self._tree_symbols = tree_symbols
        self.vocabulary, self.decode_hparams, self.max_length = (
            vocabulary,
            decode_hparams,
            max_length,
        )
        if not isinstance(model, Engine):
            with quiet_tensorflow():
                from t2t_repro.decoding.tensorflow_engine import TensorFlowEngine
            model = TensorFlowEngine(model, self.rules)
        self.engine = model

    @classmethod
    def from_dir(
        cls,
        output_dir: str,
        checkpoint_path: str = "",
        precision: str = "float32",
        *,
        engine: str = "tensorflow",
        quantization: str = "",
        **decode_hparams: Any,
    ) -> Translator:
        """Returns a translator that uses the model of a model folder, or an ensemble of the models
        of several folders.

        Args:
            output_dir: path of the model folder. Several paths are separated by commas.
            checkpoint_path: a checkpoint's path for each folder, separated by commas; empty for
                default checkpoints.
            precision: dtype of weights and matrix products in TensorFlow, "float32" or "bfloat16".
            engine: the program that runs the model, "tensorflow" or, for one model on a CPU,
                "ctranslate2".
            quantization: type of the weights in CTranslate2, e.g. "int8"; default: "float32".
            decode_hparams: values for fields of `DecodeHParams`; other fields have the problem's
                defaults.

        Raises UserError if a folder is missing or damaged, the folders do not fit together, or a
        value is wrong.
        """
        folders, checkpoints = open_folders(output_dir, checkpoint_path)
        decode_params = with_changes(folders[0].problem.decode_hparams, decode_hparams)
        if quantization and engine == "tensorflow":
            raise UserError(
                f"quantization={quantization} has no effect with engine={engine}; omit it"
            )
        return cls.from_folders(
            folders, checkpoints, decode_params, computation(precision, engine, quantization)
        )

    @classmethod
    def from_folders(
        cls,
        folders: Sequence[ModelFolder],
        checkpoints: Sequence[str],
        decode_hparams: DecodeHParams,
        precision: str = "float32",
    ) -> Translator:
        """Returns what `from_dir` returns. `precision` is that of TensorFlow, or the return value
        of `computation`.
        """
        engine, _, precision = precision.rpartition(" ")
        engine = engine or "tensorflow"
        refuse_unknown("engine", engine, ENGINES)
        if engine == "ctranslate2":
            require_extra(engine, engine)
        with quiet_tensorflow():
            module = importlib.import_module(ENGINES[engine])
        return cls(
            module.load(folders, checkpoints, decode_hparams, precision),
            folders[0].vocabulary,
            decode_hparams,
            min(folder.hparams.max_length for folder in folders),
            folders[0].problem.tree_symbols,
            folders[0].tags,
        )

    def translate(
        self,
        texts: Iterable[str],
        prefixes: Iterable[str] = (),
        *,
        target_language: str = "",
        long_lines: str = "split",
        details: bool = False,
        scores: bool = True,
        input_file: InputFile = UNKNOWN_FILE,
        advance: Callable[[int], None] = lambda count: None,
        **decode_hparams: Any,
    ) -> list[Translation]:
        """Returns the translation of each text, in order.

        Args:
            texts: the texts to translate, one line each.
            prefixes: for each text, the required beginning of its outputs or ""; empty if no text
                has a prefix.
            target_language: the language of the outputs, if the model has several; see `with_tags`.
            long_lines: treatment of a text with more than `max_input_size` tokens: "split" to
                translate its segments and join their translations, "truncate" to drop its end, or
                "error" to raise UserError.
            details: true to compute the token scores and attention of each hypothesis, too.
            scores: false if the hypotheses' scores are not needed. An engine may then set them to
                0, to save time.
            input_file: the file from which the texts were read, for line numbers and error
                messages.
            advance: function that this method calls with the number of texts translated since the
                last call.
            decode_hparams: values for fields of `DecodeHParams`; other fields have this
                translator's values.

        Raises UserError if an argument has a wrong value, or if `long_lines` is "error" and a text
        is too long.
        """
        options: Any = {
            "target_language": target_language,
            "long_lines": long_lines,
            "input_file": input_file,
        }
        options |= {"details": details, "scores": scores}
        return _in_order(self.stream(texts, prefixes, **options, **decode_hparams), advance)

    def stream(
        self,
        texts: Iterable[str],
        prefixes: Iterable[str] = (),
        *,
        target_language: str = "",
        long_lines: str = "split",
        details: bool = False,
        scores: bool = True,
        input_file: InputFile = UNKNOWN_FILE,
        **changes: Any,
    ) -> Iterator[tuple[int, Translation]]:
        """Yields (index in `texts`, translation) as soon as a text is translated, in no particular
        order.

        The arguments are those of `translate`.
        """
        texts = with_tags(text_list("texts", texts), self.tags, target_language, input_file)
        if prefixes := text_list("prefixes", prefixes):
            prefixes = text_list("prefixes", prefixes, len(texts))
        decode_hparams = with_changes(self.decode_hparams, changes)
        self.check(decode_hparams)
        if any(prefixes) and self.rules(decode_hparams):
            raise UserError("prefixes cannot be combined with well_formed=true; omit one of them")
        longest = decode_hparams.max_input_size or self.max_length
        segments_of_texts = cut_texts(
            texts, self.vocabulary.sources, longest, long_lines, input_file
        )
        if any(prefixes):
            rows = self.vocabulary.encode_targets(
                ["" if is_empty(prefix) else prefix for prefix in prefixes]
            )
            for segments, prefix_ids in zip(segments_of_texts, rows, strict=True):
                if (
                    segments
                ):  # the text's first segment gets the prefix, without the prefix's end token
                    segments[0] = dataclasses.replace(segments[0], prefix_ids=prefix_ids[:-1])
        yield from (
            (index, EMPTY) for index, segments in enumerate(segments_of_texts) if not segments
        )

        all_segments = list(itertools.chain.from_iterable(segments_of_texts))
        parts_of_texts: dict[int, dict[int, Translation]] = defaultdict(dict)
        for segment_index, translation in run_in_batches(
            lambda batch: self._translate_batch(batch, decode_hparams, details, scores),
            all_segments,
            [len(segment.ids) for segment in all_segments],
            decode_hparams.batch_size,
            self.engine.threads,
        ):
            segment = all_segments[segment_index]
            segments, parts = (
                segments_of_texts[segment.text_index],
                parts_of_texts[segment.text_index],
            )
            parts[segment.number] = translation
            if len(parts) == len(segments):
                yield (
                    segment.text_index,
                    join_translations([parts[number] for number in range(len(parts))], segments),
                )

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        advance: Callable[[int], None] = lambda count: None,
        target_language: str = "",
    ) -> list[PairScore]:
        """Returns the log-probability of each target as the translation of its source.

        `advance` is called with the number of pairs scored since the last call; for
        `target_language`, see `translate`.
        """
        sources = with_tags(text_list("sources", sources), self.tags, target_language)
        targets = text_list("targets", targets, len(sources))
        source_ids, target_ids = (
            self.vocabulary.encode_sources(sources),
            self.vocabulary.encode_targets(targets),
        )
        return self._score_all(source_ids, target_ids, self.decode_hparams.batch_size, advance)

    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if the model cannot use `decode_hparams`."""
        self.engine.check(decode_hparams)
        self.rules(decode_hparams)

    def rules(self, decode_hparams: DecodeHParams) -> TreeRules | None:
        """Returns the rules that the outputs must obey, or None if `decode_hparams` requires no
        rules.
        """
        return self._tree_rules if decode_hparams.well_formed else None

    @functools.cached_property
    def _tree_rules(self) -> TreeRules:
        from t2t_repro.decoding.well_formed import (
            tree_rules,
        )  # imported here, because it loads TensorFlow

        return tree_rules(self.vocabulary, self._tree_symbols)

    def _translate_batch(
        self,
        segments: Sequence[Segment],
        decode_hparams: DecodeHParams,
        details: bool,
        scores: bool,
    ) -> list[Translation]:
        results = self.engine.search(segments, decode_hparams, scores)
        outputs = list(itertools.chain.from_iterable(results))
        ids = [output_ids for output_ids, _ in outputs]
        pair_scores = [PairScore((), ())] * len(ids)
        if details:
            pairs = zip(segments, results, strict=True)
            sources = [segment.ids for segment, segment_outputs in pairs for _ in segment_outputs]
            pair_scores = self._score_all(sources, ids, decode_hparams.batch_size)
        hypotheses = (
            Hypothesis(
                one_line(text),
                score,
                tuple(output_ids),
                pair_score.token_scores,
                pair_score.attention,
            )
            for text, (output_ids, score), pair_score in zip(
                self.vocabulary.decode(ids), outputs, pair_scores, strict=True
            )
        )
        return [
            Translation(
                tuple(itertools.islice(hypotheses, count)),
                tuple(segment.ids),
                1,
                segment.is_truncated,
            )
            for segment, count in zip(segments, map(len, results), strict=True)
        ]

    def _score_all(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        batch_size: int,
        advance: Callable[[int], None] = lambda count: None,
    ) -> list[PairScore]:
        """Returns the scores of the pairs. Uses batches, because the logits of all pairs may not
        fit in memory.
        """
        pairs = list(zip(sources, targets, strict=True))
        lengths = [max(len(source), len(target)) for source, target in pairs]
        return _in_order(
            run_in_batches(self.engine.score, pairs, lengths, batch_size, self.engine.threads),
            advance,
        )


def _in_order(
    results: Iterator[tuple[int, Result]], advance: Callable[[int], None]
) -> list[Result]:
    """Returns the results of pairs (index, result) in the order of their indices. Calls
    `advance(1)` for each.
    """
    by_index = {}
    for index, result in results:
        by_index[index] = result
        advance(1)
    return [by_index[index] for index in range(len(by_index))]
