"""The vocabulary of a MarianMT model: SentencePiece cuts a text into pieces, and a table gives them
ids.

A file `vocab.*.marian` is a JSON object. It has the table in the order of the ids ("pieces"), a
SentencePiece model in base64 ("model") and, if texts to translate are cut by another one but have
the same table, "source_model".
"""

import base64
import json
import re
from collections.abc import Sequence

from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, SPACE, utf8
from t2t_repro.data.vocabularies.vocabulary import MAX_PIECES, ListVocabulary, ids_by_piece
from t2t_repro.errors import UserError
from t2t_repro.files.untrusted import as_text, parse_json

CODE = "(?s:>>.*?<<)"
"""Regular expression for a target language at the beginning of a text, for Python and for
TensorFlow.
"""
UNKNOWN = "<unk>"
"""Piece of everything that the table lacks. Decoding ignores it."""


class MarianVocabulary(ListVocabulary):
    """A vocabulary that encodes and decodes as `MarianTokenizer` of transformers does.

    Whatever stands between ">>" and "<<" at the beginning of a text is one piece. The names of the
    other special pieces, such as "</s>", are ordinary text in a text; in `MarianTokenizer`, they
    are the special pieces.

    `sentencepiece` cuts texts into pieces, and `id_of` has the id of each piece.
    """

    kind = "marian"
    suffix = ".marian"
    unknown_id: int

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        fields = parse_json(as_text(model, source), source)
        try:
            models = fields["model"], fields.get("source_model", "")
            own, of_sources = (base64.b64decode(text) for text in models)
            self._all_pieces = list(map(str, fields["pieces"]))
            self.unknown_id = self._all_pieces.index(UNKNOWN)
            size = len({*self._all_pieces})
            if not EOS_ID < self.unknown_id < size == len(self._all_pieces) <= MAX_PIECES:
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UserError(
                f"{source}: damaged, or not a vocabulary of a MarianMT model; restore the file"
            ) from None
        self.id_of = ids_by_piece(self._all_pieces, EOS_ID + 1)
        self.sentencepiece = SentencePieceVocabulary(own, source)
        if of_sources:
            self._sources = MarianVocabulary(marian_file(self._all_pieces, of_sources), source)

    @property
    def separate_source_size(self) -> int:
        return 0 if self.sources._all_pieces == self._all_pieces else self.sources.size

    def _ids(self, text: str) -> list[int]:
        utf8(text)
        pieces = []
        if code := re.match(CODE, text):
            pieces = [code[0]]
            text = text[code.end() :]
        pieces += self.sentencepiece.processor.Encode(text, out_type=str)
        return [self.id_of.get(piece, self.unknown_id) for piece in pieces]

    def _text(self, ids: list[int]) -> str:
        pieces = [self._all_pieces[number] for number in ids if number != self.unknown_id]
        # SentencePiece leaves U+2581 in a piece that only the other language's model has.
        return str(self.sentencepiece.processor.DecodePieces(pieces)).replace(SPACE, " ").strip()


def marian_file(pieces: Sequence[str], model: bytes, source_model: bytes = b"") -> bytes:
    """Returns the contents of a vocabulary's file, for a table of pieces and one or two
    SentencePiece models.
    """
    fields = {"pieces": list(pieces), "model": base64.b64encode(model).decode()}
    if source_model:
        fields["source_model"] = base64.b64encode(source_model).decode()
    return json.dumps(fields, ensure_ascii=False, indent=0).encode()
