"""Reads from a folder of transformers which features a MarianMT model has."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_repro.data.vocabularies.kinds import MAX_BYTES
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import from_fields
from t2t_repro.files.untrusted import as_text, parse_json, read_bytes

CONFIG = "config.json"
GENERATION = "generation_config.json"
ARCHITECTURE = "MarianMTModel"
ACTIVATIONS = {"swish": "swish", "silu": "swish", "gelu": "gelu", "relu": "relu"}
"""Our names of the activations that can be imported, by transformers' names."""
ONLY = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "quantization_config": None,
}
"""Features with a single value that can be imported. A feature that config.json does not name has
this value.
"""
RULES = {
    "length_penalty": 1,
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1,
    "min_length": 0,
    "do_sample": False,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
}
"""Rules for outputs that are not imported, with the values that change nothing."""
MAX_SIZE = 1 << 20
"""Maximum width, number of layers, number of positions etc."""
MAX_TABLE = 1 << 26
"""Maximum size of a table of positions, which is made in memory."""


@dataclass(frozen=True)
class MarianConfig:
    """The features of a model, with the names, defaults and ids of transformers."""

    activation_function: str = "gelu"
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    max_position_embeddings: int = 1024
    scale_embedding: bool = False
    """True if embeddings are multiplied by the square root of `d_model`."""
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    """True if the logits have no matrix of their own, but use the embedding of the targets."""
    vocab_size: int = 58101
    decoder_vocab_size: int = 0
    pad_token_id: int = 58100
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    bad_words_ids: list = field(default_factory=list)
    """Ids that no output contains, each in a list of one."""
    num_beams: int = 1
    unused: dict = field(default_factory=dict)
    """Rules for outputs in generation_config.json that are not imported."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder_vocab_size", self.decoder_vocab_size or self.vocab_size)
        for name, value in vars(self).items():
            lowest = 0 if name.endswith("_id") else 1
            if type(value) is int and not lowest <= value <= MAX_SIZE:
                raise UserError(f"{name}={value} is out of range; copy the file again")


def read_config(folder: Path) -> MarianConfig:
    """Returns the features of the model in a folder.

    Raises UserError if a file is missing or damaged, the folder has another architecture, or the
    model has features that cannot be imported.
    """
    source = folder / CONFIG
    config = read_json(source)
    names = str(config.get("architectures") or ARCHITECTURE)
    kind = config.get("model_type")
    if kind != "marian" or ARCHITECTURE not in names:
        shown = shortened(f"the architecture is {names}, model_type={kind}")
        raise UserError(f"{source}: {shown}; only {ARCHITECTURE} can be imported")
    generation = read_json(folder / GENERATION, is_optional=True)
    fields = {name: value for name, value in {**config, **generation}.items() if value is not None}
    known = {name: fields[name] for name in MarianConfig.__dataclass_fields__ if name in fields}
    unused = {
        name: fields[name] for name, value in RULES.items() if fields.get(name, value) != value
    }
    features = from_fields(MarianConfig, known | {"unused": unused}, str(source))
    # Our search never outputs padding or a start token, and has no list of other forbidden pieces.
    special = [[features.pad_token_id], [features.decoder_start_token_id]]
    heads = features.encoder_attention_heads
    width = features.d_model
    is_refused = {name: fields.get(name, value) != value for name, value in ONLY.items()} | {
        "activation_function": features.activation_function not in ACTIVATIONS,
        "bad_words_ids": not all(word in special for word in features.bad_words_ids),
        "d_model": width % 2 > 0,
        "encoder_attention_heads": width % heads > 0,
        "decoder_attention_heads": features.decoder_attention_heads != heads,
        "max_position_embeddings": features.max_position_embeddings * width > MAX_TABLE,
    }
    if refused := [name for name in is_refused if is_refused[name]]:
        shown = ", ".join(shortened(f"{name}={fields.get(name)!r}") for name in refused)
        raise UserError(f"{source}: {shown}: no model here can have this; choose another model")
    return features


def read_json(path: Path, is_optional: bool = False) -> dict[str, Any]:
    """Returns the JSON object in a file of the folder; an empty one if the file is optional and
    missing.
    """
    if is_optional and not path.exists():
        return {}
    fields = parse_json(as_text(read_file(path), path), str(path))
    if not isinstance(fields, dict):
        raise UserError(f"{path}: not a JSON object; copy it again")
    return fields


def read_file(path: Path) -> bytes:
    """Returns the contents of a file of the folder. Raises UserError if it is missing."""
    try:
        return read_bytes(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path}: no such file; copy all files that save_pretrained of transformers wrote"
        ) from None
