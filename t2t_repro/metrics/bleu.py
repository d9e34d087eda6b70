"""BLEU and chrF of translated lines against reference lines, with signatures that say how each was computed.

sacreBLEU's scores (Post 2018; chrF: Popović 2015) compare with newer work: they tokenise by themselves. The paper's
Table 2 was made otherwise, as tensor2tensor's get_ende_bleu.sh does it: Moses tokens, compounds split, multi-bleu.perl.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu import BLEU, CHRF

from t2t_repro.errors import UserError
from t2t_repro.metrics.score import Score


def scores(translations: Sequence[str], references: Sequence[str], language: str = "de") -> list[Score]:
    """All scores: sacreBLEU's BLEU and chrF, each cased and lower-cased, and BLEU the paper's way.

    Args:
        translations: plain text, not tokenised, one line each.
        references: line n is the reference of translation n.
        language: two or three letters, for the paper's way alone; see `moses_tokens`.

    Raises:
        UserError: there are no Moses rules for the language.
        ValueError: there are no lines, or not as many of one as of the other.
    """
    paper = paper_bleu(translations, references, language)
    return [
        _score("BLEU", BLEU(), translations, references),
        # `force`: sacreBLEU warns of text that looks tokenised; once is enough.
        _score("BLEU, lower-cased", BLEU(lowercase=True, force=True), translations, references),
        _score("chrF", CHRF(), translations, references),
        _score("chrF, lower-cased", CHRF(lowercase=True), translations, references),
        paper,
    ]


def paper_bleu(translations: Sequence[str], references: Sequence[str], language: str = "de") -> Score:
    """BLEU the paper's way: cased, over Moses tokens with compounds split, not smoothed.

    Both sides are tokenised alike, and quotation marks stay what they are. (tensor2tensor's authors scored newstest2014
    against a reference whose quotation marks were made plain by hand, their issue 317; numbers from that file are not
    comparable with these.) Arguments and errors as for `scores`.
    """
    # Without tokenising and smoothing, sacreBLEU computes what multi-bleu.perl does.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    tokenised = [
        [split_compounds(tokens) for tokens in moses_tokens(lines, language)] for lines in (translations, references)
    ]
    tokeniser = f"sacremoses-{version('sacremoses')}-{language}-escaped+compounds-split"
    return _score("BLEU, the paper's way", metric, tokenised[0], tokenised[1], tokeniser)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Each line's tokens with a space between them, as Moses's tokenizer.perl -l <language> writes them.

    Marks that mean something to Moses are escaped ('"' becomes "&quot;"); hyphens within words stay.

    Raises:
        UserError: sacremoses has no rules for the language; it would silently take the English ones.
    """
    languages = moses_languages()
    if language not in languages:
        raise UserError(f"no Moses rules for language {language!r}; there are: {', '.join(sorted(languages))}")
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def moses_languages() -> set[str]:
    """The languages that there are Moses rules for, in two or three letters."""
    return set(sacremoses.corpus.NonbreakingPrefixes().available_langs.values())


def split_compounds(tokens: str) -> str:
    """Puts spaces around hyphens within words: "rich-text" becomes "rich ##AT##-##AT## text" (get_ende_bleu.sh).

    A match uses up a character on either side, so of "a-b-c" only the first hyphen is split.
    """
    # Over bytes, as Perl reads its input there: of "vis-à-vis" both hyphens are split, since "à" has a byte for each.
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def _score(
    label: str, metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str], tokeniser: str = ""
) -> Score:
    """What the metric says of all lines; `tokeniser` is what was done to them before, for the signature."""
    if not translations or len(translations) != len(references):  # sacreBLEU would drop what is over
        raise ValueError(f"{len(translations)} translations, {len(references)} references: not one for each")
    result = metric.corpus_score(translations, [references])
    signature = metric.get_signature()
    if tokeniser:
        signature.update("tok", tokeniser)
    return Score(label, float(result.score), str(signature))
