"""The report of t2t-reproduce in Markdown: our measured figures beside the figures that the paper
prints.
"""

from t2t_repro import registry
from t2t_repro.checkpoints.averaging import averaged_count
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.console.tables import Column, Table, to_markdown
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.bleu import missing_bleu
from t2t_repro.metrics.score import F1, PAPER_BLEU, PAPER_BLEU_ASCII
from t2t_repro.paper.reproduce import Scores, uses_last_checkpoint
from t2t_repro.paper.results import Results
from t2t_repro.paper.rows import printed_figures

PAPER_BLEU_REMARK = (
    "The paper's way scores Moses tokens of the target language; German compounds are split. As "
    "released: as by tensor2tensor's script in its first version. ASCII punctuation: Unicode "
    "punctuation is replaced on both sides first, as tensor2tensor's authors did for newstest2014."
)


def report(
    folder: ModelFolder,
    hparams_set: str,
    scores: Scores,
    results: Results,
    decode_hparams: DecodeHParams,
) -> str:
    """Returns the report, in Markdown, of a model that was trained with `hparams_set`."""
    origin = folder.origin
    training = "Trained"
    if results.train_seconds is not None:
        training += f" in {results.train_seconds / 3600:.2f} hours"
    if results.hardware:
        count = f"{results.gpu_count} x " if results.gpu_count else ""
        training += f" on {count}{results.hardware}"
    training += f", in {origin.precision}"
    if origin.warm_start_from:
        training += f", from the weights of {origin.warm_start_from}"
    settings = [f"{name}={value}" for name, value in folder.problem.changed_settings.items()]
    defaults = vars(registry.hparams(hparams_set))
    hparams = [
        f"{name}={value}" for name, value in vars(folder.hparams).items() if value != defaults[name]
    ]
    return f"""# {hparams_set} on {folder.problem.name}

{training}; seed {origin.random_seed}; data {origin.data_fingerprint}, vocabulary
{folder.vocabulary.fingerprint} of {folder.vocabulary.size:,}; changed settings of the problem:
{", ".join(settings) or "none"}; changed hparams: {", ".join(hparams) or "none"}.
Averaged checkpoints: {averaged_count(folder.checkpoint())}. Decoded with {decode_hparams}.

{_figures(folder, hparams_set, scores, results)}
{_remarks(folder, hparams_set, scores)}"""


def _figures(folder: ModelFolder, hparams_set: str, scores: Scores, results: Results) -> str:
    """Returns the report's table in Markdown: steps and perplexity, then the scores of each test
    set.
    """
    printed = printed_figures(hparams_set, folder.problem.name)
    perplexity = "dev perplexity per subword, last checkpoint"
    lines = [
        {"what": "steps", "paper": printed.get("steps"), "here": results.steps},
        {"what": perplexity, "paper": printed.get("perplexity"), "here": results.dev_perplexity},
    ]
    for test_set, test_set_scores in scores.items():
        checkpoint = ", last checkpoint" if uses_last_checkpoint(folder.problem, test_set) else ""
        for score in test_set_scores:
            is_printed = score.label in (PAPER_BLEU, PAPER_BLEU_ASCII, F1)
            lines.append(
                {
                    "what": f"{score.label}, {test_set}{checkpoint}",
                    "paper": printed.get(test_set) if is_printed else None,
                    "here": score.score,
                    "signature": score.signature,
                }
            )

    def measured(figure: float) -> str:
        return f"{figure:,}" if isinstance(figure, int) else f"{figure:.2f}"

    columns = [
        Column("what", ""),
        Column("paper", "paper", "{:,}".format),
        Column("here", "here", measured),
        Column("signature", "signature"),
    ]
    return to_markdown([Table("report", "Figures", lines)], columns)


def _remarks(folder: ModelFolder, hparams_set: str, scores: Scores) -> str:
    """Returns why figures are missing or not comparable with the paper's, a reason in each line."""
    printed = printed_figures(hparams_set, folder.problem.name)
    remarks = []
    if missing := [name for name in folder.problem.test_sets if name not in scores]:
        remarks.append(f"Not scored, because their text is missing: {', '.join(missing)}.")
    all_scores = [score for test_set_scores in scores.values() for score in test_set_scores]
    language = folder.problem.target_language
    if any(score.label == PAPER_BLEU for score in all_scores):
        remarks.append(PAPER_BLEU_REMARK)
    elif reason := missing_bleu(all_scores, language):
        if not language:
            reason = (
                "BLEU, the paper's way: not computed, because the problem states no target language"
            )
        remarks.append(f"{reason} (docs/scoring.md).")
    if not printed:
        remarks.append("The paper has no figures for this set on this problem.")
    elif "perplexity" in printed:
        remarks.append("The paper's perplexity is per piece of its own vocabulary.")
    if folder.origin.warm_start_from:
        remarks.append("Time and steps exclude the training of the initial weights.")
    return "".join(f"{remark}\n" for remark in remarks)
