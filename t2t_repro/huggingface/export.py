"""Writes a model as a folder of transformers, which `MarianMTModel` and `MarianTokenizer` load. It computes the same.

MarianMTModel adds 1e-5 to the variance in layer norm. A model with another norm_epsilon is written with the vectors
between its layers multiplied by c = sqrt(1e-5 / norm_epsilon): the norm of c * x with 1e-5 is that of x with
norm_epsilon. Kernels that read such a vector are divided by c. Positions other than Marian's are written as a table.

In shapes, V is the number of pieces, D the model's width, H the number of heads and d the channels of a head.
"""

import json
from collections.abc import Iterator, Sequence
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
from t2t_repro.huggingface.config import ARCHITECTURE, CONFIG, GENERATION
from t2t_repro.huggingface.model import BIAS, DECODER, ENCODER, SHARED, SOFTMAX, TOKENIZER
from t2t_repro.huggingface.vocabulary import END, MODELS, PAD, TABLE, TARGET_TABLE
from t2t_repro.huggingface.weights import SAFETENSORS
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.serving.versions import new_version

EPSILON = 1e-5
"""What MarianMTModel adds to the variance in layer norm."""
POSITIONS = 1024
"""Minimum number of positions in a table. MarianMTModel fails for longer texts."""
MAX_OUTPUT = 512
"""Maximum number of tokens in an output, as in OPUS-MT's models."""
USE = """\
from transformers import MarianMTModel, MarianTokenizer
tokenizer, model = (kind.from_pretrained("FOLDER") for kind in (MarianTokenizer, MarianMTModel))
print(tokenizer.batch_decode(model.generate(**tokenizer(["{text}"], return_tensors="pt")), skip_special_tokens=True))
"""
REMARKS = """\
`FOLDER` is this folder or its name on Hugging Face. The greedy outputs are those of t2t-decoder. To get equal outputs,
strip the spaces around each line. Beam search ranks by another length penalty than t2t-decoder. Padding is forbidden in
outputs, but its probability is not that of the trained model.
"""
Weights = Iterator[tuple[str, Any]]


def export_huggingface(folder: ModelFolder, checkpoint: str, export_dir: str | Path, card: ModelCard) -> Path:
    """Writes a checkpoint as a new version, a numbered folder in `export_dir`. Returns the version's path.

    Raises UserError if `MarianMTModel` cannot express the model, or the checkpoint does not fit the folder.
    """
    files, tags = MarianExport(folder, checkpoint, card.languages).files(), folder.tags
    with new_version(export_dir) as (temporary, version):
        for name, contents in files.items():
            write_file(temporary / name, contents)
        # MarianTokenizer keeps the space after a tag.
        card.write(temporary, "transformers", USE.format(text="".join(tags[:1]) + "A line of text."), REMARKS)
    return version


def refuse_impossible(folder: ModelFolder) -> None:
    """Raises UserError if MarianMTModel or MarianTokenizer lacks a feature of the model."""
    hparams, reason = folder.hparams, ""
    channels = hparams.key_channels, hparams.value_channels
    if hparams.model != "transformer":
        reason = f"model={hparams.model}: MarianMTModel is a Transformer"
    elif hparams.norm_before:
        reason = "norm_before=True: MarianMTModel applies layer norm only after sub-layers"
    elif hparams.max_relative_position:
        reason = f"max_relative_position={hparams.max_relative_position}: MarianMTModel has no relative self-attention"
    elif hparams.self_attention_neighborhood:
        reason = f"self_attention_neighborhood={hparams.self_attention_neighborhood}: MarianMTModel attends to all"
    elif hparams.hidden_size % hparams.num_heads or hparams.hidden_size < max(channels):
        shown = f"attention_key_channels={channels[0]}, attention_value_channels={channels[1]}"
        reason = f"{shown}: MarianMTModel has hidden_size={hparams.hidden_size} channels in {hparams.num_heads} heads"
    elif kinds := {folder.vocabulary.kind, folder.vocabulary.sources.kind} - {"sentencepiece", "marian"}:
        reason = f"{folder.origin.vocabulary}: MarianTokenizer reads only SentencePiece, not {kinds.pop()}"
    if reason:
        raise UserError(f"{reason}; use another --format")


class MarianExport:
    """A model as a folder of transformers: `files` returns the contents.

    Args:
        folder: the model folder.
        checkpoint: path of a checkpoint in it.
        languages: codes of the languages of sources and targets; "" if unknown.

    Raises UserError if the model cannot be expressed, or the checkpoint does not fit the folder.
    """

    def __init__(self, folder: ModelFolder, checkpoint: str, languages: Sequence[str]) -> None:
        refuse_impossible(folder)
        self.hparams, self.languages, self.search = folder.hparams, languages, folder.problem.decode_hparams
        self.targets, self.sources = folder.vocabulary, folder.vocabulary.sources
        self.is_separate = self.targets.separate_source_size > 0
        table_of_sources = self.sources if self.is_separate else self.targets
        # MarianTokenizer has only one id for the padding of both tables. In OPUS-MT's models, padding is the last.
        pad = min(table_of_sources.size, self.targets.size) - 1
        self.source_pieces, self.source_ids = _table(table_of_sources, pad)
        self.target_pieces, self.target_ids = _table(self.targets, pad)
        self.model = folder.model(checkpoint)
        self.factor = (EPSILON / self.hparams.norm_epsilon) ** 0.5
        is_usual = self.hparams.pos == "marian" and self.factor == 1 and not self.hparams.use_target_space_embedding
        self.positions = self.hparams.max_length if is_usual else max(POSITIONS, self.hparams.max_length)
        weights = [*self._tables(), *self._layers("encoder"), *self._layers("decoder")]
        weights += [] if is_usual else self._positions()
        self.weights = {name: np.ascontiguousarray(value, "<f4") for name, value in weights}

    def files(self) -> dict[str, bytes]:
        """Returns the contents of the files by their names."""
        tables = {TABLE: self.source_pieces} | ({TARGET_TABLE: self.target_pieces} if self.is_separate else {})
        texts: dict[str, Any] = {
            name: {piece: number for number, piece in enumerate(pieces)} for name, pieces in tables.items()
        }
        texts |= {CONFIG: self._config(), GENERATION: self._generation(), TOKENIZER: self._tokenizer()}
        files = {name: json.dumps(fields, indent=2).encode() for name, fields in texts.items()}
        models = [getattr(side, "sentencepiece", side).model for side in (self.targets, self.sources)]
        return files | dict(zip(MODELS, models, strict=True)) | {SAFETENSORS: safetensors(self.weights)}

    def _ids(self) -> dict[str, Any]:
        pad, end = self.target_pieces.index(PAD), self.target_pieces.index(END)
        return {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": end, "forced_eos_token_id": end}

    def _config(self) -> dict[str, Any]:
        hparams, names = self.hparams, self.weights.keys()
        sizes = {"encoder_layers": hparams.encoder_layers, "decoder_layers": hparams.decoder_layers}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_attention_heads": hparams.num_heads, f"{side}_ffn_dim": self._inner_width(side)}
        return {
            **{"architectures": [ARCHITECTURE], "model_type": "marian", "is_encoder_decoder": True, "dtype": "float32"},
            **{"d_model": hparams.hidden_size, **sizes, "max_position_embeddings": self.positions},
            **{"activation_function": hparams.activation, "scale_embedding": self.model.embedding.factor != 1},
            **{"share_encoder_decoder_embeddings": SHARED in names, "tie_word_embeddings": SOFTMAX not in names},
            **{"vocab_size": len(self.source_pieces), "decoder_vocab_size": len(self.target_pieces)},
            **{"static_position_embeddings": True, "normalize_before": False, "normalize_embedding": False},
            **{"dropout": hparams.layer_prepostprocess_dropout, "attention_dropout": hparams.attention_dropout},
            **{"activation_dropout": hparams.relu_dropout, **self._ids()},
        }

    def _generation(self) -> dict[str, Any]:
        ids = self._ids()
        rules = {"bad_words_ids": [[ids["pad_token_id"]]], "max_length": min(MAX_OUTPUT, self.positions)}
        return {**ids, **rules, "num_beams": self.search.beam_size}

    def _tokenizer(self) -> dict[str, Any]:
        languages = zip(("source_lang", "target_lang"), self.languages, strict=True)
        return {
            **{"tokenizer_class": "MarianTokenizer", "model_max_length": self.hparams.max_length},
            **{"pad_token": PAD, "eos_token": END, "unk_token": UNKNOWN, "clean_up_tokenization_spaces": False},
            **{"separate_vocabs": self.is_separate, **{name: code for name, code in languages if code}},
        }

    def _tables(self) -> Weights:
        """Yields the embeddings [V, D], the matrix before the softmax and its bias [1, V]."""
        model, sources, targets = self.model, self.source_ids, self.target_ids
        padding = targets.index(PAD_ID)
        embedded, last = array(model.target_embedding.table)[targets], array(model.softmax.table)[targets]
        source = array(model.embedding.table)[sources]
        embedded[padding] = 0  # decoding starts from zeros
        is_shared = model.target_embedding is model.embedding
        is_tied = np.array_equal(np.delete(embedded, padding, axis=0), np.delete(last, padding, axis=0))
        if is_shared:
            yield SHARED, embedded * self.factor
            if not is_tied:  # then transformers reads both copies
                yield from ((name, embedded * self.factor) for name in (ENCODER, DECODER))
        else:
            yield from ((ENCODER, source * self.factor), (DECODER, embedded * self.factor))
        if not is_tied:
            yield SOFTMAX, last * self.factor
        bias = array(model.softmax_bias)[targets] if self.hparams.use_softmax_bias else np.zeros(len(targets))
        yield BIAS, bias[None]

    def _positions(self) -> Weights:
        """Yields the tables of positions [P, D], to which the vector of the target language is added."""
        model = self.model
        zeros = np.zeros((1, self.positions, self.hparams.hidden_size), np.float32)
        for side, position in (("encoder", model.source_position), ("decoder", model.target_position)):
            table = (zeros + array(position(zeros)))[0]
            if side == "encoder" and self.hparams.use_target_space_embedding:
                table += array(model.target_space)[model.target_space_id]
            yield f"model.{side}.embed_positions.weight", table * self.factor

    def _layers(self, side: str) -> Weights:
        """Yields the weights of all layers of the encoder or decoder."""
        layers, factor, width = getattr(self.model, side), self.factor, self._inner_width(side)
        for number, layer in enumerate(layers):
            name, network = f"model.{side}.layers.{number}", layer.feed_forward
            norms = ["self_attn", "final"]
            yield from self._attention(f"{name}.self_attn", layer.self_attention, {"qkv": "qkv"})
            if side == "decoder":
                norms.insert(1, "encoder_attn")
                yield from self._attention(f"{name}.encoder_attn", layer.cross_attention, {"q": "q", "kv": "kv"})
            yield f"{name}.fc1.weight", array(network.kernel1).T[:width] / factor
            yield f"{name}.fc1.bias", array(network.bias1)[:width]
            yield f"{name}.fc2.weight", array(network.kernel2).T[:, :width] * factor
            yield f"{name}.fc2.bias", array(network.bias2) * factor
            for norm, residual in zip(norms, layer.residuals, strict=True):
                # The logits must not grow: the matrix before the softmax is multiplied by the factor.
                is_last = side == "decoder" and norm == "final" and layer is layers[-1]
                for part, weight in (("weight", residual.norm.scale), ("bias", residual.norm.bias)):
                    yield f"{name}.{norm}_layer_norm.{part}", array(weight) * (1 / factor if is_last else factor)

    def _inner_width(self, side: str) -> int:
        """Returns the width of feed-forward networks without the last channels, if an import has added zeros there."""
        kernels = np.concatenate([array(layer.feed_forward.kernel2) for layer in getattr(self.model, side)], axis=1)
        return int(np.max(np.nonzero(kernels.any(axis=1))[0], initial=0)) + 1

    def _attention(self, name: str, layer: Any, kernels: dict[str, str]) -> Weights:
        """Yields the projections of an attention layer. `kernels` has the projections in each of our kernels."""
        channels = {"q": layer.key_channels, "k": layer.key_channels, "v": layer.value_channels}
        width = self.hparams.hidden_size
        for kernel, letters in kernels.items():
            places = np.cumsum([channels[letter] for letter in letters])[:-1]
            rows = np.split(array(getattr(layer, f"{kernel}_kernel")).T, places)
            bias = getattr(layer, f"{kernel}_bias")
            biases = np.split(np.zeros(sum(map(len, rows))) if bias is None else array(bias), places)
            for letter, part, part_bias in zip(letters, rows, biases, strict=True):
                # MarianMTModel divides queries by the square root of D / H, the model by that of d_k.
                scale = (width / layer.key_channels) ** 0.5 if letter == "q" else 1.0
                yield f"{name}.{letter}_proj.weight", self._padded(part) * scale / self.factor
                yield f"{name}.{letter}_proj.bias", self._padded(part_bias[:, None])[:, 0] * scale
        bias = np.zeros(width) if layer.output_bias is None else array(layer.output_bias)
        yield f"{name}.out_proj.weight", self._padded(array(layer.output_kernel)).T * self.factor
        yield f"{name}.out_proj.bias", bias * self.factor

    def _padded(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows with zeros added to each head: [H * d, ...] --> [D, ...]."""
        heads, width = self.hparams.num_heads, self.hparams.hidden_size
        rows = rows.reshape(heads, -1, rows.shape[1])
        return np.pad(rows, ((0, 0), (0, width // heads - rows.shape[1]), (0, 0))).reshape(width, -1)


def _table(vocabulary: Vocabulary, pad: int) -> tuple[list[str], list[int]]:
    """Returns the pieces in the order of OPUS-MT's models, with padding at the place `pad`, and their ids here."""
    pieces, unknown = vocabulary.pieces(range(vocabulary.size)), vocabulary.unknown_id or PAD_ID
    for number, piece in ((PAD_ID, PAD), (EOS_ID, END), (unknown, UNKNOWN)):
        pieces[number] = piece
    if len({*pieces}) < len(pieces):
        raise UserError(f"{vocabulary.source}: has several pieces of one name; MarianTokenizer needs different names")
    ids = [EOS_ID, unknown, *(number for number in range(len(pieces)) if number not in (PAD_ID, EOS_ID, unknown))]
    ids.insert(pad, PAD_ID)
    return [pieces[number] for number in ids], ids


def array(weight: Any) -> np.ndarray:
    """Returns a copy of a weight in float64, so that factors are exact to the last bit of float32."""
    return np.array(ops.convert_to_tensor(weight).numpy(), np.float64)


def safetensors(weights: dict[str, np.ndarray]) -> bytes:
    """Returns the contents of a file of weights in float32."""
    places = np.cumsum([0, *(value.nbytes for value in weights.values())]).tolist()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number, (name, value) in enumerate(weights.items()):
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": places[number : number + 2]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(value.tobytes() for value in weights.values())])
