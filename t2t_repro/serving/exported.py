"""Translates with a SavedModel of t2t-exporter in this process, as a server would."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of tokenizers

from t2t_repro.decoding.translation import Hypothesis, Translation
from t2t_repro.errors import UserError, first_line


class ExportedModel:
    """The model in the folder of a version. The settings of the search are those with which it was
    exported.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # The model is kept, because its functions do not own its variables.
        self._model = tf.saved_model.load(folder)
        self._function = self._model.signatures["serving_default"]

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] = (),
        *,
        target_language: str = "",
        **_: Any,
    ) -> list[Translation]:
        """Returns the translation of each text, as `Translator.translate` does; without ids.

        Raises UserError if a text has a prefix, or the target language does not fit the model.
        """
        if prefixes:
            raise UserError(
                f"{self._folder}: an export takes no prefixes; omit them, or give a model folder"
            )
        inputs = {"inputs": tf.constant(texts, tf.string)}
        if target_language:
            inputs["target_language"] = tf.fill([len(texts)], target_language)
        try:
            results = self._function(**inputs)
        except (tf.errors.InvalidArgumentError, TypeError) as error:
            raise UserError(
                f"{self._folder}: {first_line(error)}; check --target_language"
            ) from None
        pairs = zip(results["outputs"].numpy(), results["scores"].numpy().tolist(), strict=True)
        return [Translation((Hypothesis(output.decode(), score),)) for output, score in pairs]
