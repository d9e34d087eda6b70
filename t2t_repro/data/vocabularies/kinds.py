"""The kinds of vocabularies, and how files of any kind are read."""

from pathlib import Path

from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary
from t2t_repro.data.vocabularies.marian import MarianVocabulary
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import (
    ByteVocabulary,
    SubwordVocabulary,
    TokenVocabulary,
)
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, shortened, unknown
from t2t_repro.files.untrusted import read_bytes

MAX_BYTES = 1 << 24
"""Maximum size of a vocabulary file. A vocabulary of 32,000 pieces has less than 1 MB."""
KINDS: dict[str, type[Vocabulary]] = {
    kind.kind: kind
    for kind in (
        SentencePieceVocabulary,
        SubwordVocabulary,
        TokenVocabulary,
        ByteVocabulary,
        BpeVocabulary,
        TokenizerVocabulary,
        MarianVocabulary,
    )
}
"""The kinds of vocabularies by name."""
BEGINNINGS = {
    b"'<pad>": SubwordVocabulary.kind,
    b"#version:": BpeVocabulary.kind,
    b"{": TokenizerVocabulary.kind,
}
"""Kinds that are known by the beginning of the file if its name does not tell the kind."""


def load_vocabulary(path: str | Path, kind: str = "") -> Vocabulary:
    """Returns the vocabulary in a file. Its kind, a name in `KINDS`, by default follows from the
    name of the file.
    """
    if kind and kind not in KINDS:
        raise unknown("vocabulary kind", kind, KINDS)
    kind = kind or _kind_of_name(path)
    try:
        model = read_bytes(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        if kind == ByteVocabulary.kind:  # tensor2tensor writes no file for it
            return ByteVocabulary()
        raise UserError(
            f"{path}: no such vocabulary; copy it here, or choose a vocabulary with t2t-datagen "
            "--vocab_file"
        ) from None
    kinds = (kind for beginning, kind in BEGINNINGS.items() if model.startswith(beginning))
    kind = kind or next(kinds, SentencePieceVocabulary.kind)
    return KINDS[kind](model, str(path))


def load_vocabularies(folder: Path, targets: str, sources: str) -> Vocabulary:
    """Returns the vocabulary in the file `targets`, together with the sources' vocabulary in the
    file `sources`, which is "" if they share one.
    """
    vocabulary = load_vocabulary(folder / targets)
    if sources in ("", targets):
        return vocabulary
    return vocabulary.with_sources(load_vocabulary(folder / sources))


def check_vocabulary_name(name: str) -> None:
    """Raises UserError unless `name`, from a JSON file, is the name of a vocabulary, such as
    vocab.*.model.

    The name must not contain a folder. Otherwise programs could read a file outside the JSON file's
    folder, and t2t-trainer could overwrite one.
    """
    has_form = name.startswith("vocab.") and _kind_of_name(name)
    is_short = len(name.encode("utf-8", "replace")) < 256
    if not has_form or not is_short or any(char in "/\\" or char < " " for char in name):
        raise UserError(
            f"vocabulary={shortened(repr(name))} must be the name of a file in the same folder, "
            f"vocab.* that ends with one of {', '.join(kind.suffix for kind in KINDS.values())}"
        )


def _kind_of_name(path: str | Path) -> str:
    """Returns the kind of a vocabulary according to the name of its file, or "".

    A language may follow the suffix, as in tensor2tensor's
    vocab.translate_enzh_wmt32k.32768.subwords.zh.
    """
    suffixes = Path(path).suffixes[-2:]
    return next((kind.kind for kind in KINDS.values() if kind.suffix in suffixes), "")
