"""Writes a model as a folder of transformers, which `MarianMTModel` and `MarianTokenizer` load. It
computes the same.

Positions other than Marian's are written as a table. `names.scaled` writes an hparam norm_epsilon
other than Marian's.

In shapes, V is the number of pieces, P that of positions and D the model's width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.marian import UNKNOWN
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import write_file
from t2t_repro.hparam import HParams
from t2t_repro.huggingface.config import ARCHITECTURE, CONFIG, GENERATION
from t2t_repro.huggingface.model import LANGUAGES
from t2t_repro.huggingface.names import (
    BIAS,
    DECODER,
    ENCODER,
    POSITIONS,
    SHARED,
    SOFTMAX,
    layer_weights,
    scaled,
)
from t2t_repro.huggingface.vocabulary import (
    END,
    PAD,
    SOURCE_MODEL,
    TABLE,
    TARGET_MODEL,
    TARGET_TABLE,
    TOKENIZER,
)
from t2t_repro.huggingface.weights import SAFETENSORS
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.serving.versions import new_version

EPSILON = 1e-5
"""MarianMTModel's epsilon of layer norm, which is added to the variance."""
MIN_POSITIONS = 1024
"""Minimum number of positions in a table. MarianMTModel fails for longer texts."""
MAX_OUTPUT = 512
"""Maximum number of tokens in an output, as in OPUS-MT's models."""
USE = """\
from transformers import MarianMTModel, MarianTokenizer
tokenizer, model = (kind.from_pretrained("FOLDER") for kind in (MarianTokenizer, MarianMTModel))
print(tokenizer.batch_decode(model.generate(**tokenizer(["{text}"], return_tensors="pt")), skip_special_tokens=True))
"""  # noqa: E501


def export_huggingface(
    folder: ModelFolder, checkpoint: str, export_dir: str | Path, card: ModelCard
) -> Path:
    """Writes a checkpoint as a new version, a numbered folder in `export_dir`. Returns the
    version's path.

    Raises UserError if `MarianMTModel` cannot express the model, or the checkpoint does not fit the
    folder.
    """
    refuse_impossible(folder)
    targets = folder.vocabulary
    sources = targets.sources
    # MarianTokenizer has only one id for the padding of both tables. In OPUS-MT's models, padding
    # is the last.
    pad = min(sources.size, targets.size) - 1
    source_pieces, source_ids = piece_table(sources, pad)
    target_pieces, target_ids = piece_table(targets, pad)
    weights = marian_weights(folder.model(checkpoint), source_ids, target_ids)
    ids = {
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }
    config = marian_config(folder.hparams, weights) | ids
    generation = ids | {
        "bad_words_ids": [[pad]],
        "max_length": min(MAX_OUTPUT, config["max_position_embeddings"]),
        "num_beams": folder.problem.decode_hparams.beam_size,
    }
    tokenizer: dict[str, Any] = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": folder.hparams.max_length,
        "separate_vocabs": targets.separate_source_size > 0,
        "clean_up_tokenization_spaces": False,
    }
    for name, code in zip(LANGUAGES, card.languages, strict=True):
        if code:
            tokenizer[name] = code
    contents = {
        CONFIG: config, GENERATION: generation, TOKENIZER: tokenizer, TABLE: source_pieces
    }  # fmt: skip
    if targets.separate_source_size:
        contents[TARGET_TABLE] = target_pieces
    # MarianTokenizer keeps the space after a tag, so none is written there.
    example = "".join(folder.tags[:1]) + "A line of text."
    with new_version(export_dir) as (temporary, version):
        for name, content in contents.items():
            write_file(temporary / name, json.dumps(content, indent=2))
        for name, vocabulary in ((TARGET_MODEL, targets), (SOURCE_MODEL, sources)):
            # A MarianVocabulary contains a SentencePiece model; other vocabularies are one.
            write_file(temporary / name, getattr(vocabulary, "sentencepiece", vocabulary).model)
        write_file(temporary / SAFETENSORS, safetensors(weights))
        card.write(temporary, "transformers", USE.format(text=example))
    return version


def refuse_impossible(folder: ModelFolder) -> None:
    """Raises UserError if MarianMTModel or MarianTokenizer lacks a feature of the model."""
    hparams = folder.hparams
    vocabulary = folder.vocabulary
    possible: dict[str, list[Any]] = {
        "model": ["transformer"],
        "norm_before": [False],
        "max_relative_position": [0],
        "self_attention_neighborhood": [0],
        "attention_key_channels": [0, hparams.hidden_size],
        "attention_value_channels": [0, hparams.hidden_size],
    }
    features = [
        f"{name}={getattr(hparams, name)}"
        for name, values in possible.items()
        if getattr(hparams, name) not in values
    ]
    if {vocabulary.kind, vocabulary.sources.kind} - {"sentencepiece", "marian"}:
        features.append(folder.origin.vocabulary)
    if features:
        raise UserError(
            f"{folder.path}: transformers does not support {', '.join(features)}; use another "
            "--format"
        )


def piece_table(vocabulary: Vocabulary, pad: int) -> tuple[dict[str, int], list[int]]:
    """Returns the ids in transformers by the pieces, and our ids in that order: the end, unknown,
    then all others.

    `pad` is the id of padding in transformers. Raises UserError if two pieces have the same name.
    """
    pieces = vocabulary.pieces(range(vocabulary.size))
    unknown = vocabulary.unknown_id or PAD_ID
    pieces[PAD_ID] = PAD
    pieces[EOS_ID] = END
    pieces[unknown] = UNKNOWN
    special = (PAD_ID, EOS_ID, unknown)
    ids = [EOS_ID, unknown, *(number for number in range(len(pieces)) if number not in special)]
    ids.insert(pad, PAD_ID)
    table = {pieces[our_id]: number for number, our_id in enumerate(ids)}
    if len(table) < len(pieces):
        raise UserError(
            f"{vocabulary.source}: has several pieces of one name; MarianTokenizer needs "
            "different names"
        )
    return table, ids


def marian_config(hparams: HParams, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns the fields of config.json except ids."""
    positions = weights.get(POSITIONS["encoder"])
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "marian",
        "dtype": "float32",
        "d_model": hparams.hidden_size,
        "encoder_layers": hparams.encoder_layers,
        "decoder_layers": hparams.decoder_layers,
        "encoder_attention_heads": hparams.num_heads,
        "decoder_attention_heads": hparams.num_heads,
        "encoder_ffn_dim": len(weights["model.encoder.layers.0.fc1.bias"]),
        "decoder_ffn_dim": len(weights["model.decoder.layers.0.fc1.bias"]),
        "activation_function": hparams.activation,
        "scale_embedding": hparams.multiply_embedding_mode == "sqrt_depth",
        "max_position_embeddings": hparams.max_length if positions is None else len(positions),
        "vocab_size": len(weights[SHARED if SHARED in weights else ENCODER]),
        "decoder_vocab_size": weights[BIAS].size,
        "share_encoder_decoder_embeddings": SHARED in weights,
        "tie_word_embeddings": SOFTMAX not in weights,
        "dropout": hparams.layer_prepostprocess_dropout,
        "attention_dropout": hparams.attention_dropout,
        "activation_dropout": hparams.relu_dropout,
    }


def marian_weights(
    model: Any, source_ids: list[int], target_ids: list[int]
) -> dict[str, np.ndarray]:
    """Returns the weights by their names in transformers. The ids are ours, in the order of
    transformers.
    """
    hparams = model.hparams
    factor = (EPSILON / model.hparams.norm_epsilon) ** 0.5
    weights = _tables(model, source_ids, target_ids) | _layers(model)
    if hparams.pos != "marian" or factor != 1 or hparams.use_target_space_embedding:
        weights |= _positions(model)
    weights = scaled(weights, factor, hparams.decoder_layers)
    return {name: np.ascontiguousarray(weight, "<f4") for name, weight in weights.items()}


def _tables(model: Any, source_ids: list[int], target_ids: list[int]) -> dict[str, np.ndarray]:
    """Returns the embeddings [V, D], the matrix before the softmax and its bias [1, V]."""
    pad = target_ids.index(PAD_ID)
    source = _array(model.embedding.table)[source_ids]
    target, last = (
        _array(layer.table)[target_ids] for layer in (model.target_embedding, model.softmax)
    )
    target[pad] = 0  # decoding starts from zeros
    bias = (
        _array(model.softmax.bias)[target_ids]
        if model.hparams.use_softmax_bias
        else np.zeros(len(target))
    )
    tables = {ENCODER: source, DECODER: target, BIAS: bias[None]}
    is_tied = np.array_equal(np.delete(target, pad, axis=0), np.delete(last, pad, axis=0))
    if not is_tied:
        tables[SOFTMAX] = last
    if model.target_embedding is model.embedding:
        # Without tied matrices, transformers reads the shared one under three names.
        tables = (
            {SHARED: target, BIAS: bias[None]}
            if is_tied
            else {SHARED: target, **tables, ENCODER: target}
        )
    return tables


def _positions(model: Any) -> dict[str, np.ndarray]:
    """Returns the tables of positions [P, D]; that of sources includes the target language."""
    zeros = np.zeros(
        (1, max(MIN_POSITIONS, model.hparams.max_length), model.hparams.hidden_size), np.float32
    )
    signals = zip(POSITIONS.values(), (model.source_position, model.target_position), strict=True)
    return {name: (zeros + _array(signal(zeros)))[0] for name, signal in signals}


def _layers(model: Any) -> dict[str, np.ndarray]:
    """Returns the weights of all layers. Biases that the model lacks are zeros."""
    ours = {variable.path: _array(variable) for variable in model.trainable_variables}
    weights = {}
    widths = {"encoder": _inner_width(model.encoder), "decoder": _inner_width(model.decoder)}
    for side, name, names, letters in layer_weights(model.hparams):
        sizes = {"D": model.hparams.hidden_size, "F": widths[side]}
        value = ours[name] if name in ours else np.zeros(ours[name.removesuffix("_bias")].shape[-1])
        for part, weight in zip(names, np.split(value, len(names), axis=-1), strict=True):
            weights[part] = weight.T[tuple(slice(sizes[letter]) for letter in letters)]
    return weights


def _inner_width(layers: Sequence[Any]) -> int:
    """Returns the width of feed-forward networks without the last channels, if an import has added
    zeros there.
    """
    is_used = np.any([_array(layer.feed_forward.kernel2) for layer in layers], axis=(0, 2))
    return int(np.max(np.nonzero(is_used), initial=0)) + 1


def _array(weight: Any) -> np.ndarray:
    """Returns a copy of a weight in float64, so that factors are exact to the last bit of float32."""  # noqa: E501
    return np.array(ops.convert_to_tensor(weight).numpy(), np.float64)


def safetensors(weights: dict[str, np.ndarray]) -> bytes:
    """Returns the contents of a file of weights in float32."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, weight in weights.items():
        end = start + weight.nbytes
        header[name] = {"dtype": "F32", "shape": weight.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = [weight.tobytes() for weight in weights.values()]
    return b"".join([len(text).to_bytes(8, "little"), text, *values])
