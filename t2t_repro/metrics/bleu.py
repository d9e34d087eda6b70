"""BLEU and chrF of translations against references, with signatures that state how each score was computed.

sacreBLEU's scores (Post 2018; chrF: Popović 2015) tokenise by themselves and compare with newer work. The paper's
Table 2 used another method, that of tensor2tensor's get_ende_bleu.sh: Moses tokens, split compounds, multi-bleu.perl.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu import BLEU, CHRF

from t2t_repro.errors import UserError
from t2t_repro.metrics.score import PAPER_BLEU, Score


def scores(translations: Sequence[str], references: Sequence[str], language: str = "de") -> list[Score]:
    """Returns sacreBLEU's BLEU and chrF, each cased and lower-cased, and BLEU by the paper's method.

    Args:
        translations: plain text, not tokenised, one line each.
        references: line n is the reference of translation n.
        language: two or three letters that select the Moses rules of the paper's method; see `moses_tokens`.

    Raises:
        UserError: if Moses has no rules for the language.
        ValueError: if there are no lines, or the line counts differ.
    """
    return [
        _score("BLEU", BLEU(), translations, references),
        # `force` suppresses sacreBLEU's warning about text that looks tokenised: BLEU() above gives it already.
        _score("BLEU, lower-cased", BLEU(lowercase=True, force=True), translations, references),
        _score("chrF", CHRF(), translations, references),
        _score("chrF, lower-cased", CHRF(lowercase=True), translations, references),
        paper_bleu(translations, references, language),
    ]


def paper_bleu(translations: Sequence[str], references: Sequence[str], language: str = "de") -> Score:
    """Returns BLEU by the paper's method: cased, over Moses tokens with split compounds, without smoothing.

    Both sides are tokenised in the same way and keep their quotation marks. tensor2tensor's authors scored newstest2014
    against a reference in which they had replaced typographic quotation marks by hand (their issue 317). Scores on that
    file are not comparable with these. Arguments and errors are those of `scores`.
    """
    # Without tokenisation and smoothing, sacreBLEU computes the same as multi-bleu.perl.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    tokenised = [
        [split_compounds(tokens) for tokens in moses_tokens(lines, language)] for lines in (translations, references)
    ]
    tokeniser = f"sacremoses-{version('sacremoses')}-{language}-escaped+compounds-split"
    return _score(PAPER_BLEU, metric, tokenised[0], tokenised[1], tokeniser)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line's tokens, separated by spaces, as Moses's tokenizer.perl -l <language> writes them.

    Characters with a meaning in Moses are escaped ('"' becomes "&quot;"). Hyphens within words stay.

    Raises UserError if sacremoses has no rules for the language. It would silently use the English ones.
    """
    languages = moses_languages()
    if language not in languages:
        raise UserError(f"no Moses rules for language {language!r}; there are: {', '.join(sorted(languages))}")
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def moses_languages() -> set[str]:
    """Returns the languages for which Moses has rules, as two or three letters."""
    return set(sacremoses.corpus.NonbreakingPrefixes().available_langs.values())


def split_compounds(tokens: str) -> str:
    """Returns the tokens with hyphenated words split: "rich-text" becomes "rich ##AT##-##AT## text".

    As in get_ende_bleu.sh, a match consumes the characters beside the hyphen, so only the first hyphen of "a-b-c" is
    split.
    """
    # Perl matches bytes there. "à" has two, so that both hyphens of "vis-à-vis" are split.
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def _score(
    label: str, metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str], tokeniser: str = ""
) -> Score:
    """Returns the metric's score of all lines. `tokeniser` names the earlier tokenisation for the signature."""
    if not translations or len(translations) != len(references):  # sacreBLEU would ignore the extra lines
        raise ValueError(f"{len(translations)} translations, {len(references)} references; the counts must be equal")
    result = metric.corpus_score(translations, [references])
    signature = metric.get_signature()
    if tokeniser:
        signature.update("tok", tokeniser)
    return Score(label, float(result.score), str(signature))
