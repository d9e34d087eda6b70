"""The translator, which tokenizes texts, batches texts of similar length, searches for outputs, and
detokenizes them.

It loads TensorFlow only for models that run there. Another engine does without.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.data.vocabularies.text_rules import is_empty, one_line
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import run_in_batches
from t2t_repro.decoding.engine import ENGINES, Engine, register_engine
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
from t2t_repro.errors import UserError, text_list
from t2t_repro.hparam import DecodeHParams, with_changes

if TYPE_CHECKING:
    from t2t_repro.decoding.rules import Rules
    from t2t_repro.models.model import Model

Result = TypeVar("Result")


@register_engine("tensorflow")
def _load_tensorflow(*arguments: Any) -> Any:
    """TensorFlow, which runs all models."""
    with quiet_tensorflow():
        from t2t_repro.decoding import tensorflow_engine

    return tensorflow_engine.load(*arguments)


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
        output_rules: returns the rules for `well_formed`; see `Problem.output_rules`.
        tags: the tags of the model's target languages (see `ModelFolder.tags`); empty if sources
            need no tag.
    """

    def __init__(
        self,
        model: Model | Engine,
        vocabulary: Vocabulary,
        decode_hparams: DecodeHParams,
        max_length: int = 0,
        output_rules: Callable[[Vocabulary], Rules | None] = lambda vocabulary: None,
        tags: Sequence[str] = (),
    ) -> None:
        self.model: Any = model
        self.vocabulary = vocabulary
        self.decode_hparams = decode_hparams
        self.max_length = max_length
        self.tags = tags
        self._output_rules = output_rules
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
            engine: the library that runs the model: "tensorflow" or another name in `ENGINES`.
            quantization: type of the weights in another engine, e.g. "int8"; default: "float32".
            decode_hparams: values for fields of `DecodeHParams`; other fields have the problem's
                defaults.

        Raises UserError if a folder is missing or damaged, the folders do not fit together, or a
        value is wrong.
        """
        if quantization and engine == "tensorflow":
            raise UserError(
                f"quantization={quantization} has no effect with engine={engine}; omit it"
            )
        folders, checkpoints = open_folders(output_dir, checkpoint_path)
        decode_params = with_changes(folders[0].problem.decode_hparams, decode_hparams)
        return cls.from_folders(
            folders, checkpoints, decode_params, quantization or precision, engine
        )

    @classmethod
    def from_folders(
        cls,
        folders: Sequence[ModelFolder],
        checkpoints: Sequence[str],
        decode_hparams: DecodeHParams,
        precision: str = "float32",
        engine: str = "tensorflow",
    ) -> Translator:
        """Returns what `from_dir` returns, for folders that are open already.

        `precision` is the type of the weights, by the engine's own name for it.
        """
        load = ENGINES.get(engine)
        return cls(
            load(folders, checkpoints, decode_hparams, precision),
            folders[0].vocabulary,
            decode_hparams,
            min(folder.hparams.max_length for folder in folders),
            folders[0].problem.output_rules,
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
        translations = self.stream(
            texts,
            prefixes,
            target_language=target_language,
            long_lines=long_lines,
            details=details,
            scores=scores,
            input_file=input_file,
            **decode_hparams,
        )
        return _in_order(translations, advance)

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

        Arguments and errors are those of `translate`; `changes` are its `decode_hparams`.
        """
        texts = with_tags(text_list("texts", texts), self.tags, target_language, input_file)
        prefixes = text_list("prefixes", prefixes)
        if prefixes:
            text_list("prefixes", prefixes, len(texts))
        decode_hparams = with_changes(self.decode_hparams, changes)
        self.check(decode_hparams)
        if any(prefixes) and decode_hparams.well_formed:
            raise UserError("prefixes cannot be combined with well_formed=true; omit one of them")
        longest = decode_hparams.max_input_size or self.max_length
        segments_of_texts = cut_texts(
            texts, self.vocabulary.sources, longest, long_lines, input_file
        )
        if any(prefixes):
            self._add_prefixes(segments_of_texts, prefixes)
        for index, segments in enumerate(segments_of_texts):
            if not segments:
                yield index, EMPTY

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
            segments = segments_of_texts[segment.text_index]
            parts = parts_of_texts[segment.text_index]
            parts[segment.number] = translation
            if len(parts) == len(segments):
                in_order = [parts[number] for number in range(len(parts))]
                yield segment.text_index, join_translations(in_order, segments)

    def _add_prefixes(
        self, segments_of_texts: Sequence[list[Segment]], prefixes: Sequence[str]
    ) -> None:
        """Gives each text's prefix, without the prefix's end token, to the text's first segment."""
        rows = self.vocabulary.encode_targets(
            ["" if is_empty(prefix) else prefix for prefix in prefixes]
        )
        for segments, row in zip(segments_of_texts, rows, strict=True):
            if segments:
                segments[0] = dataclasses.replace(segments[0], prefix_ids=row[:-1])

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        advance: Callable[[int], None] = lambda count: None,
        target_language: str = "",
    ) -> list[PairScore]:
        """Returns the log-probability of each target as the translation of its source.

        `advance` is called with the number of pairs scored since the last call. If the model has
        several target languages, `target_language` is that of sources without a tag.
        """
        sources = with_tags(text_list("sources", sources), self.tags, target_language)
        targets = text_list("targets", targets, len(sources))
        source_ids = self.vocabulary.encode_sources(sources)
        target_ids = self.vocabulary.encode_targets(targets)
        return self._score_all(source_ids, target_ids, self.decode_hparams.batch_size, advance)

    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if the model cannot use `decode_hparams`."""
        self.engine.check(decode_hparams)
        self.rules(decode_hparams)

    def rules(self, decode_hparams: DecodeHParams) -> Rules | None:
        """Returns the rules that the outputs must obey; None if they are free."""
        return self._rules if decode_hparams.well_formed else None

    @functools.cached_property
    def _rules(self) -> Rules:
        if rules := self._output_rules(self.vocabulary):
            return rules
        raise UserError(
            "well_formed=true is only for parsers and other problems with rules for their "
            "outputs; omit it"
        )

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
            sources = [
                segment.ids for segment, row in zip(segments, results, strict=True) for _ in row
            ]
            pair_scores = self._score_all(sources, ids, decode_hparams.batch_size)
        texts = self.vocabulary.decode(ids)
        hypotheses = (
            Hypothesis(
                one_line(text),
                score,
                tuple(output_ids),
                pair_score.token_scores,
                pair_score.attention,
            )
            for text, (output_ids, score), pair_score in zip(
                texts, outputs, pair_scores, strict=True
            )
        )
        return [
            Translation(
                tuple(itertools.islice(hypotheses, len(row))),
                tuple(segment.ids),
                is_truncated=segment.is_truncated,
            )
            for segment, row in zip(segments, results, strict=True)
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
