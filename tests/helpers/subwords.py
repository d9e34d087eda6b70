"""A small subword vocabulary in the format of tensor2tensor."""

from collections.abc import Iterable

from t2t_repro.data.vocabularies.tensor2tensor import SubwordVocabulary

SUBTOKENS = [
    "<pad>_",
    "<EOS>_",
    "the_",
    "th",
    "he",
    "e_",
    ", _",
    "._",
    "aä",
    "ä",
    "中",
    " ",
    " _",
    "\U0001f600_",
    "\r",
]
SUBTOKENS += [
    "'",
    "12",
    "\\u",
    "\\9",
    "''",
    '"',
    "\u2028",
    "\\55296;",
    "\\1114112;",
    "\\0000000065;",
]
SUBTOKENS += ["dog_", "do", "cat_"]
SUBTOKENS += ["\\", *"_u;0123456789<>padEOSthe,.ogc"]


def file_of(subtokens: Iterable[str], quote: str = "'") -> bytes:
    """Returns the contents of a vocabulary file."""
    return "".join(f"{quote}{subtoken}{quote}\n" for subtoken in subtokens).encode("utf-8")


def small_subwords() -> SubwordVocabulary:
    return SubwordVocabulary(file_of(SUBTOKENS))
