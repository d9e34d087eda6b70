"""A SavedModel for TensorFlow Serving: raw text in, raw text out, tokeniser inside.

Shapes: B batch, S source length, L longest output.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_text

from t2t_repro.data.vocabulary import EOS_ID, PAD_ID
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError


class Served(tf.Module):
    """The translator as a graph: the same search, between the same subwords as TensorFlow operations.

    Args:
        translator: what to serve; how it searches is fixed in the graph.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        self._search = translator.search
        # What the graph reads has to hang on this object to be saved with it.
        self._weights = [variable.value for variable in translator.model.trainable_variables]
        self._tokenizer = tensorflow_text.SentencepieceTokenizer(
            model=translator.vocabulary.model, out_type=tf.int32, add_eos=True
        )

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def __call__(self, inputs: Any) -> dict[str, Any]:
        """Translates raw strings.

        Args:
            inputs: string [B], UTF-8, one line each.

        Returns:
            "outputs", string [B], the translations, empty for empty inputs; "scores", float32 [B], log P / length
            penalty in nats, 0 for empty inputs.
        """
        wanted = tf.where(tf.strings.strip(inputs) != "")
        sources = self._tokenizer.tokenize(tf.gather_nd(inputs, wanted)).to_tensor(PAD_ID)  # [B, S]
        best = self._search(sources)
        ids = best.ids[:, 0]  # [B, L]
        is_text = tf.cast((ids != EOS_ID) & (ids != PAD_ID), tf.int32)
        lengths = tf.reduce_sum(tf.math.cumprod(is_text, axis=1), axis=1)
        texts = self._tokenizer.detokenize(tf.RaggedTensor.from_tensor(ids, lengths))
        texts = tf.strings.regex_replace(texts, "\n", " ")
        count = tf.shape(inputs)
        return {
            "outputs": tf.tensor_scatter_nd_update(tf.fill(count, ""), wanted, texts),
            "scores": tf.tensor_scatter_nd_update(tf.fill(count, 0.0), wanted, best.scores[:, 0]),
        }


def export(translator: Translator, export_dir: str | Path) -> Path:
    """Writes a SavedModel to a new numbered folder under `export_dir`, as TensorFlow Serving expects it.

    It is written beside and renamed, so that a server never sees half of one.

    Returns:
        The new folder, numbered one higher than the highest there, from 1.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    export_dir = Path(export_dir)
    beside = ""
    try:
        export_dir.mkdir(parents=True, exist_ok=True)
        versions = [int(path.name) for path in export_dir.iterdir() if path.name.isdigit()]
        target = export_dir / str(max(versions, default=0) + 1)
        beside = tempfile.mkdtemp(prefix=".writing-", dir=export_dir)
        served = Served(translator)
        tf.saved_model.save(served, beside, signatures={"serving_default": served.__call__})
        os.chmod(beside, 0o755)
        os.replace(beside, target)
        return target
    except (OSError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{export_dir}: cannot be written ({reason}); free space or choose another --export_dir"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
