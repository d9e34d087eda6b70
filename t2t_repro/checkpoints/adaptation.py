"""Gives the embeddings of a model to another vocabulary, so that its training can go on with text
of another kind.

Shapes: V pieces of the old vocabulary, N pieces of the new one, D width.
"""

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

SOURCE_TABLE = "/embedding/table"
TABLES = (SOURCE_TABLE, "/target_embedding/table", "/softmax/table", "/softmax_bias")
"""Ends of the names of all weights that have a row for each piece. The first has the pieces of the
sources.
"""
SAME = "same"
"""Kind of a piece of the new vocabulary that the old one has, too."""
SPELLED = "spelled"
"""Kind of a piece that several pieces of the old vocabulary spell."""
OTHER = "other"
"""Kind of any other piece."""
MARKS = re.compile("^(\u2581|\u0120|##)(?=.)|(?<=.)(_|@@)$")
"""Marks of the beginning, the middle or the end of a word, which each kind of vocabulary writes in
its own way.
"""


def adapt(
    weights: Mapping[str, np.ndarray], old: Vocabulary, new: Vocabulary
) -> tuple[dict[str, np.ndarray], dict[str, Counter[str]]]:
    """Returns a model's weights for another vocabulary, and the number of its pieces of each kind,
    by weight.

    A piece that the old vocabulary has keeps its row. Any other piece has the mean of the rows of
    the old pieces that spell it, of which each is as long as possible. A piece that cannot be
    spelled has the mean of all rows. If the vocabularies are of different kinds, pieces are
    compared without the marks of a word's beginning or end.

    Raises UserError if the vocabularies share no piece of two or more characters.
    """
    adapted = dict(weights)
    counts: dict[str, Counter[str]] = {}
    for name, table in weights.items():
        if name.endswith(SOURCE_TABLE):
            rows = _old_rows(old.sources, new.sources)
        elif name.endswith(TABLES):
            rows = _old_rows(old, new)
        else:
            continue
        mean = table.mean(axis=0)
        adapted[name] = np.stack([table[ids].mean(axis=0) if ids else mean for ids in rows])
        counts[name] = Counter(map(_kind, rows))
    return adapted, counts


def _kind(old_ids: list[int]) -> str:
    if not old_ids:
        return OTHER
    return SAME if len(old_ids) == 1 else SPELLED


def _old_rows(old: Vocabulary, new: Vocabulary) -> list[list[int]]:
    """Returns the ids of old pieces for each of the N new pieces, whose row is the mean of their
    rows.
    """
    numbered = [*enumerate(old.pieces(range(old.size)))]
    del numbered[: max(PAD_ID, EOS_ID) + 1]
    new_pieces = new.pieces(range(new.size))
    if old.kind != new.kind:
        # Of pieces with the same text, the first counts, which is usually the most frequent one.
        numbered = [(number, MARKS.sub("", piece)) for number, piece in reversed(numbered)]
        new_pieces = [MARKS.sub("", piece) for piece in new_pieces]
    id_of = {piece: number for number, piece in numbered if piece}
    if not any(
        len(piece.strip("\u2581@")) > 1 and not piece.startswith("<")
        for piece in id_of.keys() & {*new_pieces}
    ):
        raise UserError("the new vocabulary has no subword of the old one")
    longest = max(map(len, id_of))
    rows = [
        [id_of[piece]] if piece in id_of else _spelling(piece, id_of, longest)
        for piece in new_pieces
    ]
    for number in (PAD_ID, EOS_ID):
        rows[number] = [number]
    return rows


def _spelling(piece: str, id_of: Mapping[str, int], longest: int) -> list[int]:
    """Returns the ids of the pieces that spell `piece`, from left to right the longest ones.
    Characters that no piece spells are skipped.
    """
    ids = []
    start = 0
    while start < len(piece):
        ends = range(min(len(piece), start + longest), start, -1)
        end = next((end for end in ends if piece[start:end] in id_of), 0)
        if end:
            ids.append(id_of[piece[start:end]])
        else:
            # SentencePiece vocabularies have a piece for each byte.
            pieces = [f"<0x{byte:02X}>" for byte in piece[start].encode("utf-8", "replace")]
            ids += [id_of[byte] for byte in pieces if byte in id_of]
        start = end or start + 1
    return ids
