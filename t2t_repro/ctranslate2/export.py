"""Exports a model for CTranslate2: the weights under CTranslate2's names, and the vocabulary.

CTranslate2 does not support heads whose d_k and d_v differ, or a target-space embedding. So the
export pads the smaller of d_k and d_v with zero weights, and adds the target-space embedding to the
table of source positions, or to that of source embeddings if there are no positions. The exported
model computes the same outputs.

In shapes, D is the model's width, H is the number of heads, d_k and d_v are the channels of a head,
and d is the larger of d_k and d_v.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ctranslate2.specs import TransformerSpec, model_spec
from ctranslate2.specs.common_spec import Activation
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from keras import ops

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.ctranslate2.limits import POSITIONS
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Linear
from t2t_repro.layers.layer_norm import LayerNorm
from t2t_repro.models.transformer import CrossAttention, SelfAttention, Sizes
from t2t_repro.models.variants import RelativeSelfAttention
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.serving.versions import new_version

TOKENIZER = "sentencepiece.model"
"""File name of a SentencePiece vocabulary in the exported folder. Others have the names
vocabulary.subwords etc.
"""
USE = """\
import ctranslate2, sentencepiece
tokenizer = sentencepiece.SentencePieceProcessor(model_file="FOLDER/sentencepiece.model")
tokens = [tokenizer.encode("A line of text.", out_type=str)]
print(tokenizer.decode(ctranslate2.Translator("FOLDER").translate_batch(tokens)[0].hypotheses[0]))
"""
"""How to use an export, for its model card. docs/ctranslate2.md has that for other vocabularies."""
ACTIVATIONS = {"relu": Activation.RELU, "swish": Activation.SWISH, "gelu": Activation.GELU}
IMPOSSIBLE = -1e9
"""Logit of padding, which a bias could make likely."""
BFLOAT16 = {"bfloat16": "float32", "int8_bfloat16": "int8_float32"}
"""Types to request in place of the quantizations for which CTranslate2 would need PyTorch; see
`quantized`.
"""


def export_ctranslate2(
    folder: ModelFolder,
    checkpoint: str,
    export_dir: str | Path,
    quantization: str = "float32",
    card: ModelCard | None = None,
) -> Path:
    """Writes a checkpoint as a new version, a numbered folder in `export_dir`. Returns the
    version's path.

    `quantization` is CTranslate2's name for the type of the weights, e.g. "float32" or "int8".
    Raises UserError if CTranslate2 cannot run this model, or the checkpoint does not fit the
    folder.
    """
    with new_version(export_dir) as (temporary, version):
        write(folder, checkpoint, temporary, quantization)
        if card:
            card.write(temporary, "ctranslate2", USE)
    return version


def write(folder: ModelFolder, checkpoint: str, path: Path, quantization: str) -> None:
    """Writes a checkpoint to the empty folder `path`. Raises the errors of `export_ctranslate2`."""
    refuse_impossible(folder.hparams, quantization)
    spec = quantized(specification(folder.model(checkpoint), folder.vocabulary), quantization)
    target = folder.vocabulary
    is_separate = target.separate_source_size > 0
    vocabularies = {"source_": target.sources, "target_": target} if is_separate else {"": target}
    spec.save(str(path))
    for side, vocabulary in vocabularies.items():
        is_usual = vocabulary.kind == SentencePieceVocabulary.kind
        name = TOKENIZER if is_usual else f"vocabulary{vocabulary.suffix}"
        (path / f"{side}{name}").write_bytes(vocabulary.model)


def refuse_impossible(hparams: HParams, quantization: str) -> None:
    """Raises UserError if CTranslate2 does not support the quantization or the model."""
    refuse_unknown("--quantization", quantization, model_spec.ACCEPTED_MODEL_TYPES)
    reason = ""
    if hparams.model != "transformer":
        reason = f"model={hparams.model}: CTranslate2 runs only the model transformer"
    elif hparams.self_attention_neighborhood:
        reason = (
            f"self_attention_neighborhood={hparams.self_attention_neighborhood}: CTranslate2 "
            "attends to all"
        )
    elif hparams.max_relative_position and hparams.pos != "none":
        reason = f"pos={hparams.pos}: CTranslate2 has either relative self-attention or positions"
    if reason:
        raise UserError(f"{reason}; use another --format or, to translate, --engine=tensorflow")


def specification(model: Any, vocabulary: Vocabulary) -> TransformerSpec:
    """Returns a specification that computes the same outputs as `model`, a `Transformer`."""
    spec = TransformerSpec(_encoder(model), _decoder(model))
    pieces = vocabulary.pieces(range(vocabulary.size))
    # CTranslate2 has the same padding and end pieces for both sides, but two vocabularies can name
    # them differently.
    reserved = EOS_ID + 1
    sources = vocabulary.sources
    source_pieces = [*pieces[:reserved], *sources.pieces(range(reserved, sources.size))]
    # The same holds for the unknown piece. CTranslate2 would add one to a vocabulary that has none.
    unknown = vocabulary.unknown_id or PAD_ID
    source_unknown = sources.unknown_id or PAD_ID
    name = pieces[unknown] if unknown != PAD_ID else source_pieces[source_unknown]
    pieces[unknown] = source_pieces[source_unknown] = spec.config.unk_token = name
    spec.register_source_vocabulary(source_pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.eos_token = pieces[EOS_ID]
    # CTranslate2 needs a first decoder token. Any token will do, because
    # `start_from_zero_embedding` replaces its embedding by zeros.
    spec.config.bos_token = spec.config.decoder_start_token = pieces[EOS_ID]
    spec.config.layer_norm_epsilon = model.hparams.norm_epsilon
    return spec


def _encoder(model: Any) -> TransformerEncoderSpec:
    hparams = model.hparams
    spec = _new_stack(
        TransformerEncoderSpec, hparams.encoder_layers, hparams, model.source_position
    )
    spec.embeddings[0].weight = _array(model.embedding.table)
    if hparams.use_target_space_embedding and hparams.max_relative_position:
        # There are no positions, so add the vector to the embeddings, which CTranslate2 scales.
        vector = model.source_position(np.zeros((1, 1, hparams.hidden_size), np.float32))
        spec.embeddings[0].weight += _array(vector).reshape(-1) / model.embedding.factor
    _set_layers(spec, model.encoder, model.encoder_norm)
    return spec


def _decoder(model: Any) -> TransformerDecoderSpec:
    hparams = model.hparams
    spec = _new_stack(
        TransformerDecoderSpec, hparams.decoder_layers, hparams, model.target_position
    )
    spec.start_from_zero_embedding = True
    # Returned attention is the mean of all heads, as in t2t-decoder.
    spec.alignment_heads = np.int16(hparams.num_heads)
    spec.embeddings.weight = _array(model.target_embedding.table)
    spec.projection.weight = _array(model.softmax.table)
    if hparams.use_softmax_bias:
        spec.projection.bias = _array(model.softmax.bias)
        spec.projection.bias[PAD_ID] = IMPOSSIBLE
    _set_layers(spec, model.decoder, model.decoder_norm)
    return spec


def _new_stack(kind: Any, layers: int, hparams: HParams, position: Callable[[Any], Any]) -> Any:
    """Returns an encoder or decoder of class `kind`, with its table of positions but without layer
    weights.

    `position` is the model's layer that returns the vectors of the positions of a tensor [B, T, D].
    """
    is_relative = hparams.max_relative_position > 0
    spec = kind(
        layers,
        hparams.num_heads,
        activation=ACTIVATIONS[hparams.activation],
        head_dim=_head_width(hparams),
        pre_norm=hparams.norm_before,
        relative_position=is_relative,
    )
    spec.scale_embeddings = hparams.multiply_embedding_mode == "sqrt_depth"
    if not is_relative:
        positions = max(POSITIONS, hparams.max_length)
        # The sum has this shape even if pos is "none".
        zeros = np.zeros((1, positions, hparams.hidden_size), np.float32)
        spec.position_encodings.encodings = (zeros + _array(position(zeros)))[0]
    return spec


def _set_layers(spec: Any, layers: Sequence[Any], last_norm: Any) -> None:
    """Sets the weights of all layers, and of the norm after the last one, which only pre-norm
    models have.
    """
    for layer, target in zip(layers, spec.layer, strict=True):
        sublayers = [target.self_attention, target.ffn]
        _set_self_attention(target.self_attention, layer.self_attention)
        if isinstance(spec, TransformerDecoderSpec):
            sublayers.insert(1, target.attention)
            _set_cross_attention(target.attention, layer.cross_attention)
        target.ffn.linear_0.weight = _array(layer.feed_forward.kernel1).T
        target.ffn.linear_0.bias = _array(layer.feed_forward.bias1)
        target.ffn.linear_1.weight = _array(layer.feed_forward.kernel2).T
        target.ffn.linear_1.bias = _array(layer.feed_forward.bias2)
        for sublayer, residual in zip(sublayers, layer.residuals, strict=True):
            _set_norm(sublayer.layer_norm, residual.norm)
    if isinstance(last_norm, LayerNorm):
        _set_norm(spec.layer_norm, last_norm)


def _head_width(hparams: HParams) -> int:
    """Returns d, the width of an exported head."""
    return max(hparams.key_channels, hparams.value_channels) // hparams.num_heads


def _set_self_attention(spec: Any, layer: SelfAttention) -> None:
    _set_projections(spec.linear[0], layer.qkv_projection, layer, layer.widths)
    if isinstance(layer, RelativeSelfAttention):
        spec.relative_position_keys = _padded_columns(layer.relative_keys.table, layer.sizes)
        spec.relative_position_values = _padded_columns(layer.relative_values.table, layer.sizes)
    _set_output(spec, layer)


def _set_cross_attention(spec: Any, layer: CrossAttention) -> None:
    _set_projections(spec.linear[0], layer.q_projection, layer, (layer.all_keys,))
    _set_projections(spec.linear[1], layer.kv_projection, layer, layer.widths)
    _set_output(spec, layer)


def _set_output(spec: Any, layer: Any) -> None:
    projection = layer.output_projection
    spec.linear[-1].weight = _padded(_array(projection.kernel), layer.sizes).T
    if projection.bias is not None:
        spec.linear[-1].bias = _array(projection.bias)
    # CTranslate2 would scale by d ** -0.5, the padded width. The model scales by d_k ** -0.5.
    spec.queries_scale = layer.sizes.key_width**-0.5


def _set_projections(spec: Any, projection: Linear, layer: Any, widths: Sequence[int]) -> None:
    """Sets a kernel and its bias, if it has one. The parts of these widths are padded."""
    places = np.cumsum(widths)[:-1]
    kernels = np.split(_array(projection.kernel).T, places)
    spec.weight = np.concatenate([_padded(kernel, layer.sizes) for kernel in kernels])
    if projection.bias is not None:
        biases = np.split(_array(projection.bias)[:, None], places)
        spec.bias = np.concatenate([_padded(bias, layer.sizes)[:, 0] for bias in biases])


def _padded(rows: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Returns a kernel [H * d_k, D] or [H * d_v, D] with rows of zeros in each head: [H * d, D]."""
    rows = rows.reshape(sizes.heads, -1, rows.shape[-1])
    missing = max(sizes.key_width, sizes.value_width) - rows.shape[1]
    rows = np.pad(rows, ((0, 0), (0, missing), (0, 0)))
    return rows.reshape(-1, rows.shape[-1])


def _padded_columns(table: Any, sizes: Sizes) -> np.ndarray:
    """Returns a table of relative positions [R, d_k] or [R, d_v], with columns of zeros: [R, d]."""
    missing = max(sizes.key_width, sizes.value_width) - table.shape[1]
    return np.pad(_array(table), ((0, 0), (0, missing)))


def _set_norm(spec: Any, layer: Any) -> None:
    spec.gamma = _array(layer.scale)
    spec.beta = _array(layer.bias)


def _array(weight: Any) -> np.ndarray:
    """Returns a copy of a weight as an array, because CTranslate2 quantizes arrays in place."""
    return np.array(ops.convert_to_tensor(weight).numpy())


def quantized(spec: TransformerSpec, quantization: str) -> TransformerSpec:
    """Returns the specification with weights of the type `quantization`."""
    spec.validate()
    spec.optimize(BFLOAT16.get(quantization, quantization))
    if quantization not in BFLOAT16:
        return spec
    # Convert the weights that CTranslate2 has left in float32.
    for name, variable in spec.variables().items():
        is_weight = not isinstance(variable, str) and not variable.is_scalar()
        if is_weight and not name.endswith("_scale") and variable.dtype == "float32":
            variable.array = variable.array.astype(tf.bfloat16.as_numpy_dtype)
    return spec
