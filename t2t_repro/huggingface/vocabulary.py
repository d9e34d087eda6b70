"""Reads the vocabulary of a MarianMT model from a folder of transformers."""

from pathlib import Path

from t2t_repro.data.vocabularies.marian import UNKNOWN, MarianVocabulary, marian_file
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.huggingface.config import CONFIG, MarianConfig, read_file, read_json

TABLE = "vocab.json"
TARGET_TABLE = "target_vocab.json"
TARGET_MODEL = "target.spm"
SOURCE_MODEL = "source.spm"
TOKENIZER = "tokenizer_config.json"
PAD = "<pad>"
END = "</s>"


def read_vocabulary(folder: Path, config: MarianConfig) -> tuple[Vocabulary, list[int], list[int]]:
    """Returns the vocabulary, and for each of its ids the id in transformers: for sources and for
    targets.

    Here padding is 0 and the end is 1, and all other pieces keep their order. Raises UserError if a
    file is missing or damaged, or does not fit the config.
    """
    tokenizer = read_json(folder / TOKENIZER, is_optional=True)
    is_separate = tokenizer.get("separate_vocabs", (folder / TARGET_TABLE).exists())
    target_table = folder / (TARGET_TABLE if is_separate else TABLE)
    end = {END: config.eos_token_id}
    sources, source_ids = _table(
        folder / TABLE, config.vocab_size, {PAD: config.pad_token_id} | end
    )
    targets, target_ids = _table(target_table, config.decoder_vocab_size, end)
    if (start := config.decoder_start_token_id) not in target_ids:
        raise UserError(
            f"{target_table}: has no id {start}, which is decoder_start_token_id; copy the folder "
            "again"
        )
    target_model, source_model = (
        SentencePieceVocabulary(read_file(folder / name), str(folder / name)).model
        for name in (TARGET_MODEL, SOURCE_MODEL)
    )
    if sources == targets:
        file = marian_file(targets, target_model, source_model)
        return MarianVocabulary(file, str(folder)), source_ids, target_ids
    source = MarianVocabulary(marian_file(sources, source_model))
    target = MarianVocabulary(marian_file(targets, target_model))
    return target.with_sources(source), source_ids, target_ids


def _table(path: Path, size: int, special: dict[str, int]) -> tuple[list[str], list[int]]:
    """Returns the pieces of a JSON table, padding and end first, and their ids. `special` has the
    ids in the config.
    """
    table = read_json(path)
    cure = f"as in {CONFIG}; copy the whole folder again"
    if sorted(map(repr, table.values())) != sorted(map(repr, range(size))):
        raise UserError(f"{path}: its ids must be 0 to {size - 1:,}, {cure}")
    if not {PAD, UNKNOWN} <= table.keys() or not special.items() <= table.items():
        numbers = ", ".join(f"{piece} {number}" for piece, number in special.items())
        raise UserError(f"{path}: must have {UNKNOWN}, {PAD}, and the ids of {numbers}, {cure}")
    pieces = sorted(table, key=lambda piece: (piece != PAD, piece != END, table[piece]))
    return pieces, [table[piece] for piece in pieces]
