"""Exports a model for CTranslate2, a fast C++ engine: the weights under CTranslate2's names, and the vocabulary.

CTranslate2 does not support heads whose d_k and d_v differ, or a target-space embedding. So the export pads the smaller
of d_k and d_v with zero weights, and adds the target-space embedding to the table of source positions, or to that of
source embeddings if there are no positions. The exported model computes the same outputs.

In shapes, D is the model's width, H is the number of heads, d_k and d_v are the channels of a head, and d is the larger
of d_k and d_v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import HParams
from t2t_repro.serving.versions import new_version

POSITIONS = 2048
"""Minimum number of positions in the exported tables. CTranslate2 refuses texts with more tokens than positions."""
TOKENIZER = "sentencepiece.model"
"""File name of a SentencePiece vocabulary in the exported folder. Others have the names vocabulary.subwords etc."""
BFLOAT16 = {"bfloat16": "float32", "int8_bfloat16": "int8_float32"}
"""For each quantization for which CTranslate2 would need PyTorch, the quantization that the export requests instead.

`_to_bfloat16` then converts the remaining float32 weights to bfloat16.
"""


def export_ctranslate2(
    folder: ModelFolder, checkpoint: str, export_dir: str | Path, quantization: str = "float32"
) -> Path:
    """Writes a CTranslate2 model to a new version, a numbered folder in `export_dir`. Returns the folder's path.

    Args:
        folder: the model folder.
        checkpoint: path of the checkpoint to export.
        export_dir: folder of the versions.
        quantization: CTranslate2's name for the type of the weights, e.g. "float32" or "int8".

    Raises:
        UserError: CTranslate2 cannot run this model (see `refuse_impossible`), or the checkpoint does not fit the
            folder.
        OSError: the version cannot be written.
    """
    refuse_impossible(folder.hparams, quantization)
    spec = specification(folder.model(checkpoint), folder.vocabulary)
    spec.validate()
    spec.optimize(BFLOAT16.get(quantization, quantization))
    if quantization in BFLOAT16:
        _to_bfloat16(spec)
    with new_version(export_dir) as (temporary, version):
        spec.save(str(temporary))
        for name, vocabulary in tokenizers(folder.vocabulary).items():
            (temporary / name).write_bytes(vocabulary.model)
    return version


def tokenizers(vocabulary: Vocabulary) -> dict[str, Vocabulary]:
    """Returns the vocabularies of the exported folder by file name: one for both sides, or one for each side."""
    sides = (
        {"source_": vocabulary.sources, "target_": vocabulary} if vocabulary.separate_source_size else {"": vocabulary}
    )
    is_ours = SentencePieceVocabulary.kind
    return {
        side + (TOKENIZER if part.kind == is_ours else f"vocabulary{part.suffix}"): part for side, part in sides.items()
    }


def refuse_impossible(hparams: HParams, quantization: str) -> None:
    """Raises UserError if CTranslate2 is missing, or does not support the quantization or the model."""
    try:
        from ctranslate2.specs import model_spec
    except ImportError as error:
        raise UserError(
            f'--format=ctranslate2 needs the package ctranslate2 ({error}); pip install "t2t_repro[ctranslate2]"'
        ) from None
    if quantization not in model_spec.ACCEPTED_MODEL_TYPES:
        raise unknown("--quantization", quantization, model_spec.ACCEPTED_MODEL_TYPES)
    has_both = hparams.max_relative_position > 0 and hparams.pos != "none"
    for name, is_impossible, reason in (
        ("model", hparams.model != "transformer", "CTranslate2 runs only the model transformer"),
        (
            "self_attention_neighborhood",
            hparams.self_attention_neighborhood > 0,
            "CTranslate2 attends to all positions",
        ),
        ("pos", has_both, "CTranslate2 has either relative self-attention or positions"),
    ):
        if is_impossible:
            raise UserError(f"{name}={getattr(hparams, name)}: {reason}; omit --format=ctranslate2")


def specification(model: Any, vocabulary: Vocabulary) -> Any:
    """Returns a ctranslate2.specs.TransformerSpec that computes the same outputs as `model`, a `Transformer`."""
    from ctranslate2.specs import TransformerSpec

    spec = TransformerSpec(_encoder(model), _decoder(model))
    pieces = vocabulary.pieces(range(vocabulary.size))
    # CTranslate2 has the same padding and end pieces for both sides, but two vocabularies can name them differently.
    reserved, sources = EOS_ID + 1, vocabulary.sources
    source_pieces = [*pieces[:reserved], *sources.pieces(range(reserved, sources.size))]
    spec.register_source_vocabulary(source_pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.eos_token = pieces[EOS_ID]
    if not all(spec.config.unk_token in side for side in (source_pieces, pieces)):
        # CTranslate2 would add its piece for unknown pieces, which tokenizers never yield, to the vocabularies.
        spec.config.unk_token = pieces[PAD_ID]
    # CTranslate2 needs a first decoder token. Any token will do, because `start_from_zero_embedding` replaces its
    # embedding by zeros.
    spec.config.bos_token = spec.config.decoder_start_token = pieces[EOS_ID]
    spec.config.layer_norm_epsilon = model.hparams.norm_epsilon
    return spec


def _encoder(model: Any) -> Any:
    from ctranslate2.specs.transformer_spec import TransformerEncoderSpec

    spec = _stack(partial(TransformerEncoderSpec, model.hparams.encoder_layers), model.hparams, model.source_position)
    spec.embeddings[0].weight = _array(model.embedding.table)
    if model.hparams.use_target_space_embedding:
        vector = _array(model.target_space)[model.target_space_id]
        if model.hparams.max_relative_position:
            # There are no positions, so add the vector to the embeddings, which CTranslate2 scales.
            spec.embeddings[0].weight += vector * model.hparams.hidden_size**-0.5
        else:
            spec.position_encodings.encodings += vector
    for layer, layer_spec in zip(model.encoder, spec.layer, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward)
        _set_norms((layer_spec.self_attention, layer_spec.ffn), layer.residuals)
    if model.hparams.norm_before:
        _set_norm(spec.layer_norm, model.encoder_norm)
    return spec


def _decoder(model: Any) -> Any:
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec

    spec = _stack(partial(TransformerDecoderSpec, model.hparams.decoder_layers), model.hparams, model.target_position)
    spec.start_from_zero_embedding = True
    spec.embeddings.weight = _array(model.target_embedding.table)
    spec.projection.weight = _array(model.softmax.table)
    for layer, layer_spec in zip(model.decoder, spec.layer, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_cross_attention(layer_spec.attention, layer.cross_attention)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward)
        _set_norms((layer_spec.self_attention, layer_spec.attention, layer_spec.ffn), layer.residuals)
    if model.hparams.norm_before:
        _set_norm(spec.layer_norm, model.decoder_norm)
    return spec


def _stack(make_spec: Callable[..., Any], hparams: HParams, position: Callable[[int, int], Any]) -> Any:
    """Returns the specification of an encoder or decoder, with its table of positions but without layer weights.

    `make_spec` is the specification's class with the number of layers. `position` is the model's method that returns
    the vectors of a range of positions.
    """
    width, is_pre_norm = _head_width(hparams), hparams.norm_before
    is_relative = hparams.max_relative_position > 0
    options = {"head_dim": width, "pre_norm": is_pre_norm, "relative_position": is_relative}
    spec = make_spec(hparams.num_heads, **options)
    if not is_relative:
        positions = max(POSITIONS, hparams.max_length)
        zeros = np.zeros((positions, hparams.hidden_size), np.float32)  # the sum also has this shape if pos is "none"
        spec.position_encodings.encodings = zeros + _array(position(0, positions))[0]
    return spec


def _head_width(sizes: Any) -> int:
    """Returns d, the width of an exported head: the larger of d_k and d_v. `sizes` is an HParams or attention layer."""
    return max(sizes.key_channels, sizes.value_channels) // sizes.num_heads


def _set_self_attention(spec: Any, layer: Any) -> None:
    q, k, v = np.split(_array(layer.qkv_kernel).T, (layer.key_channels, 2 * layer.key_channels))
    spec.linear[0].weight = np.concatenate([_padded(kernel, layer) for kernel in (q, k, v)])
    if layer.is_relative:
        spec.relative_position_keys, spec.relative_position_values = (
            np.pad(table, ((0, 0), (0, _head_width(layer) - table.shape[1])))
            for table in (_array(layer.relative_keys.table), _array(layer.relative_values.table))
        )
    _set_output(spec, layer)


def _set_cross_attention(spec: Any, layer: Any) -> None:
    k, v = np.split(_array(layer.kv_kernel).T, (layer.key_channels,))
    spec.linear[0].weight = _padded(_array(layer.q_kernel).T, layer)
    spec.linear[1].weight = np.concatenate([_padded(kernel, layer) for kernel in (k, v)])
    _set_output(spec, layer)


def _set_output(spec: Any, layer: Any) -> None:
    spec.linear[-1].weight = _padded(_array(layer.output_kernel), layer).T
    # CTranslate2 would scale by d ** -0.5, the padded width. The model scales queries by d_k ** -0.5.
    spec.queries_scale = (layer.key_channels // layer.num_heads) ** -0.5


def _padded(rows: np.ndarray, layer: Any) -> np.ndarray:
    """Returns a kernel with rows of zeros added to each head: [H * d_k, D] or [H * d_v, D] --> [H * d, D]."""
    rows = rows.reshape(layer.num_heads, -1, rows.shape[-1])
    rows = np.pad(rows, ((0, 0), (0, _head_width(layer) - rows.shape[1]), (0, 0)))
    return rows.reshape(-1, rows.shape[-1])


def _set_feed_forward(spec: Any, layer: Any) -> None:
    spec.linear_0.weight, spec.linear_0.bias = _array(layer.kernel1).T, _array(layer.bias1)
    spec.linear_1.weight, spec.linear_1.bias = _array(layer.kernel2).T, _array(layer.bias2)


def _set_norms(sublayer_specs: Iterable[Any], residuals: Iterable[Any]) -> None:
    for spec, residual in zip(sublayer_specs, residuals, strict=True):
        _set_norm(spec.layer_norm, residual.norm)


def _set_norm(spec: Any, layer: Any) -> None:
    spec.gamma, spec.beta = _array(layer.scale), _array(layer.bias)


def _array(weight: Any) -> np.ndarray:
    """Returns a copy of a weight as an array, because CTranslate2 quantizes arrays in place."""
    from keras import ops

    return np.array(ops.convert_to_tensor(weight).numpy())


def _to_bfloat16(spec: Any) -> None:
    """Converts to bfloat16 the weights that CTranslate2's quantization has left in float32."""
    import tensorflow as tf

    for name, variable in spec.variables().items():
        is_weight = not isinstance(variable, str) and not variable.is_scalar() and not name.endswith("_scale")
        if is_weight and variable.dtype == "float32":
            variable.array = variable.array.astype(tf.bfloat16.as_numpy_dtype)
