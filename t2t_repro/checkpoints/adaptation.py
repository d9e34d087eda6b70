"""Gives the embeddings of a model to another vocabulary, so that its training can go on with text of another kind.

Shapes: V pieces of the old vocabulary, N pieces of the new one, D width.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

SOURCE_TABLE = "/embedding/table"
TABLES = (SOURCE_TABLE, "/target_embedding/table", "/softmax/table")
"""Ends of the names of all weights that have a row for each piece. The first has the pieces of the sources."""
SAME, SPELLED, OTHER = "same", "spelled", "other"
"""Kinds of pieces of the new vocabulary: those of the old one, those that several of its pieces spell, and others."""


def adapt(
    weights: Mapping[str, np.ndarray], old: Vocabulary, new: Vocabulary
) -> tuple[dict[str, np.ndarray], dict[str, Counter[str]]]:
    """Returns a model's weights for another vocabulary, and the number of its pieces of each kind, by weight.

    A piece that the old vocabulary has keeps its row. Any other piece has the mean of the rows of the old pieces that
    spell it, of which each is as long as possible. A piece that cannot be spelled has the mean of all rows.

    Args:
        weights: the weights by name.
        old: vocabulary with which the model was trained.
        new: vocabulary of the next training.

    Raises UserError if the vocabularies share no piece of two or more characters.
    """
    adapted, counts = dict(weights), {}
    for name, table in weights.items():
        if name.endswith(TABLES):
            sides = (old.sources, new.sources) if name.endswith(SOURCE_TABLE) else (old, new)
            rows = _old_rows(*(side.pieces(range(side.size)) for side in sides))
            adapted[name] = np.stack([table[ids].mean(axis=0) if ids else table.mean(axis=0) for ids in rows])
            counts[name] = Counter(SAME if len(ids) == 1 else SPELLED if ids else OTHER for ids in rows)
    return adapted, counts


def _old_rows(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """Returns for each of the N pieces `new` the ids of the pieces `old` whose rows its row is the mean of."""
    id_of = {piece: number for number, piece in enumerate(old) if piece and number not in (PAD_ID, EOS_ID)}
    if not any(len(piece.strip("\u2581@")) > 1 and not piece.startswith("<") for piece in id_of.keys() & set(new)):
        raise UserError("the new vocabulary has no subword of the old one")
    longest = max(map(len, id_of))
    rows = [[id_of[piece]] if piece in id_of else _spelling(piece, id_of, longest) for piece in new]
    rows[PAD_ID], rows[EOS_ID] = [PAD_ID], [EOS_ID]
    return rows


def _spelling(piece: str, id_of: Mapping[str, int], longest: int) -> list[int]:
    """Returns the ids of the pieces that spell `piece`, from left to right the longest ones. Skips what none spells."""
    ids, start = [], 0
    while start < len(piece):
        ends = range(min(len(piece), start + longest), start, -1)
        end = next((end for end in ends if piece[start:end] in id_of), 0)
        if end:
            ids.append(id_of[piece[start:end]])
        else:  # a SentencePiece vocabulary has a piece for each byte
            pieces = [f"<0x{byte:02X}>" for byte in piece[start].encode("utf-8", "replace")]
            ids += [id_of[byte] for byte in pieces if byte in id_of]
        start = end or start + 1
    return ids
