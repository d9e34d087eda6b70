"""Implements t2t-datagen: turns a problem's text into a vocabulary, shards, test sets, a summary
and a description.

A run reads the text twice: first to check it, count pairs and learn the vocabulary, then to write
the shards. All files appear together at the end. Finished data is kept unless the user gives
--overwrite.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t2t_repro.console.progress import progress, say
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.private_folder import make_private
from t2t_repro.data import shards, summary, test_set_files
from t2t_repro.data.cleaning import CleanCorpus, Cleaning, valid_pairs
from t2t_repro.data.dataset import SPLITS, Description
from t2t_repro.data.job import Job, Options, prepare, refuse_to_replace
from t2t_repro.data.records import Records
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.unfinished import put_in_place, unfinished_folder
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.tags import is_tag, split_tag
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted
from t2t_repro.problem import Problem


def generate_data(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str,
    options: Options | None = None,
    engine: shards.Engine | None = None,
) -> Description:
    """Generates the data files of a problem. The files have the same bytes for any number of
    processes.

    If the data directory already has this data, the function reads the text only to compare it, and
    changes nothing.

    `tmp_dir` is the folder of downloads and of the problem's source files. `engine` processes the
    train split in other processes, with the same result.

    Raises UserError if a setting, the text, the vocabulary file or a folder cannot be used, or the
    run would replace other data without `options.overwrite`. The data directory then stays as it
    was.
    """
    problem.check()
    job = prepare(problem, Path(data_dir), tmp_dir, options or Options())
    if not problem.is_self_contained:
        make_private(tmp_dir)
    with unfinished_folder(job.data_dir) as folder:
        job, text = _read_all(job, engine)
        try:
            description = _finished(job, text)
        except UserError:  # no later run needs what the engine has read
            if engine:
                engine.finish()
            raise
        description = description or _generate(job, text, folder, engine)
        if engine:
            engine.finish()
        return description


@dataclass
class Text:
    """Results of reading a problem's text for the first time. A run reads the text twice."""

    corpora: list[CleanCorpus]
    """The corpora of all splits, with the counts of kept and dropped pairs."""
    samples: list[list[str]]
    """Texts from which the run learns each vocabulary, that of the targets last. Empty with the
    user's vocabulary.
    """
    fingerprint: str
    """Hash of the text, the settings and the user's vocabulary, as hex digits."""


def _read_all(job: Job, engine: shards.Engine | None) -> tuple[Job, Text]:
    """Reads all text for the first time, so that the run finds any mistake in the text before it
    writes a file.

    Returns the job with the size of the vocabulary, which may depend on the text.
    """
    settings = job.settings
    corpora = _corpora(job)
    train = [corpus for corpus in corpora if corpus.split == "train"]
    dev = [corpus for corpus in corpora if corpus.split == "dev"]
    check = TextCheck(_first_pass(job, dev))
    samples = list[list[str]]()
    sample = engine.first_pass(job, train, check) if engine else _sample(job, train, check)
    for corpus in train:
        _refuse_empty(job, corpus, train)
    if not job.user_vocabulary:  # in the sample, sources and targets alternate
        samples = [sample[::2], sample[1::2]] if settings.separate_vocabularies else [sample]
    warnings = check.warnings(job.problem.target_language)
    if samples:
        pairs_kept = sum(corpus.cleaning.pairs_kept for corpus in train)
        *source_sizes, default = (
            sentencepiece.default_size(texts, pairs_kept // len(samples)) for texts in samples
        )
        sized_settings = dataclasses.replace(settings, vocab_size=settings.vocab_size or default)
        source_size = sum(settings.vocab_size or size for size in source_sizes)
        job = dataclasses.replace(job, settings=sized_settings, source_vocab_size=source_size)
        if settings.vocab_size > 2 * default:
            warnings.append(
                f"--vocab_size={settings.vocab_size} makes most subwords of "
                f"{counted(pairs_kept, 'pair')} whole words that occur too rarely to be learned; "
                f"--vocab_size={default} suits this text"
            )
    for warning in warnings:
        say(f"warning: problem {job.name}: {warning}")
    hashed = [str((job.data_settings, job.problem.symbols, job.problem.num_train_shards))]
    hashed += [corpus.cleaning.fingerprint for corpus in corpora]
    if job.user_vocabulary:
        hashed.append(job.user_vocabulary.fingerprint)
    if len(corpora) > len(SPLITS):
        hashed.append(str([corpus.corpus for corpus in corpora]))
    fingerprint = hashlib.sha256("\n".join(hashed).encode()).hexdigest()
    return job, Text(corpora, samples, fingerprint)


def _corpora(job: Job) -> list[CleanCorpus]:
    """Returns the corpora of all splits, before the first pass of their cleaning."""
    settings = job.settings
    train_rules = (settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates)
    corpora = []
    for split in SPLITS:
        rules: tuple[int, float, bool] = train_rules if split == "train" else (0, 0.0, False)
        split_corpora = job.problem.corpora(split)
        seen: list[np.ndarray] | None = [] if len(split_corpora) > 1 else None
        for number, corpus in enumerate(split_corpora):
            cleaning = Cleaning(*rules, corpus.target_language, seen)
            corpora.append(CleanCorpus(split, number, corpus, cleaning))
    return corpora


def _sample(job: Job, train: list[CleanCorpus], check: TextCheck) -> list[str]:
    """Reads the train split. Returns the texts from which a vocabulary is learned; [] if the user
    supplied one.
    """
    pairs = progress(check.train(_first_pass(job, train)), "reading", None, "pairs")
    sides = (side for pair in pairs for side in (pair["inputs"], pair["targets"]))
    if not job.user_vocabulary:
        return sentencepiece.sample(sides)
    shards.exhaust(sides)
    return []


def _first_pass(job: Job, corpora: list[CleanCorpus]) -> Iterator[Pair]:
    """Yields the pairs of corpora that their cleaning keeps, without the tags of target languages.

    Raises UserError if no pair is left in a corpus.
    """
    for corpus in corpora:
        cleaning = corpus.cleaning
        pairs = job.problem.generate_corpus(corpus.split, corpus.number, job.tmp_dir)
        for pair in cleaning.first_pass(valid_pairs(job.name, pairs)):
            if corpus.corpus.target_language:
                _, source = split_tag(pair["inputs"])
                pair = pair | {"inputs": source}
            yield pair
        _refuse_empty(job, corpus, corpora)


def _refuse_empty(job: Job, corpus: CleanCorpus, corpora: list[CleanCorpus]) -> None:
    cleaning = corpus.cleaning
    if not cleaning.pairs_kept:
        reasons = "".join(f", {reason} {count:,}" for reason, count in cleaning.dropped.items())
        name = f"corpus {corpus.corpus.name} of " if len(corpora) > 1 else ""
        raise UserError(
            f"problem {job.name}: no pair is left in {name}its {corpus.split} split (read "
            f"{cleaning.pairs_read:,}{reasons}); check the source"
        )


def _finished(job: Job, text: Text) -> Description | None:
    """Returns the description of the data in the directory if it is what this run would write and
    undamaged, or None.

    Writes missing test sets, and the labels (such as the languages) that the user gave, into the
    description.

    Raises UserError if the directory has other data of the problem, and the user did not give
    --overwrite.
    """
    description = job.existing_description
    if job.options.overwrite:
        return None
    if not description or description.source_fingerprint != text.fingerprint:
        refuse_to_replace(job)
        return None
    if not shards.is_intact(job, description):
        say(
            f"{job.data_dir}: files of problem {job.name} are missing or damaged; generating the "
            "data again"
        )
        return None
    changed = job.problem.changed_settings.items()
    labels = {name: value for name, value in changed if name not in job.data_settings}
    if not labels.items() <= description.settings.items():
        description = dataclasses.replace(description, settings=description.settings | labels)
        description.save(job.description_path)
    if job.problem.test_sets:
        test_set_files.write(job.problem, job.data_dir, job.tmp_dir, overwrite=False)
    say(
        f"{job.data_dir}: the data of problem {job.name} is complete; --overwrite generates it "
        "again"
    )
    return description


def _generate(job: Job, text: Text, folder: Path, engine: shards.Engine | None) -> Description:
    """Writes all files to `folder`, and then moves them to the data directory."""
    vocabulary = job.user_vocabulary or _learn(job, text.samples)
    text.samples.clear()  # because they are large
    vocabulary.save(folder / job.vocabulary_name)
    if job.source_vocabulary_name:
        vocabulary.sources.save(folder / job.source_vocabulary_name)
    old = job.existing_description
    if (
        old
        and old.vocabulary_fingerprint == vocabulary.fingerprint
        and old.source_fingerprint != text.fingerprint
    ):
        shards.find_stored(job, text.corpora, old)
    shards.write_shards(job, text.corpora, vocabulary, folder, engine)
    if job.problem.test_sets:
        test_set_files.write(job.problem, folder, job.tmp_dir)
    pairs = Counter[str]()
    for corpus in text.corpora:
        pairs[corpus.split] += corpus.cleaning.pairs_kept
    records = shards.open_shards(job, folder, pairs)
    corpora = _stored_corpora(job, text, records)
    figures = summary.summarize(corpora, vocabulary)
    summary.save(folder, job.name, figures, job.data_dir)
    description = Description(
        problem=job.name,
        settings=dataclasses.asdict(job.settings),
        vocabulary=job.vocabulary_name,
        vocabulary_fingerprint=vocabulary.fingerprint,
        fingerprint=shards.data_fingerprint(vocabulary, records, corpora["train"]),
        pairs={split: len(split_records) for split, split_records in records.items()},
        dropped={split: figures["splits"][split]["pairs_dropped"] for split in SPLITS},
        vocabulary_given=job.user_vocabulary is not None,
        source_fingerprint=text.fingerprint,
        shards={split: split_records.index_fingerprint for split, split_records in records.items()},
        source_vocabulary=job.source_vocabulary_name,
        corpora={split: list(map(dataclasses.asdict, corpora[split])) for split in SPLITS},
    )
    description.save(folder / job.description_path.name)
    if job.options.overwrite or not job.problem.test_sets:
        # Old test sets may not belong to the new settings. A problem without test sets uses a copy
        # of its dev split.
        for path in test_set_files.all_paths(job.problem, job.data_dir):
            path.unlink(missing_ok=True)
    put_in_place(folder, job.name)
    for line in (*summary.lines(figures), f"data: {job.data_dir}"):
        say(line)
    return description


def _learn(job: Job, samples: list[list[str]]) -> Vocabulary:
    """Returns the vocabulary of the targets, with that of the sources if they are separate."""
    *sources, targets = samples
    count = counted(sum(map(len, samples)), "text")
    say(f"learning {'two vocabularies' if sources else 'a vocabulary'} from {count}")
    symbols = [symbol for symbol in job.problem.symbols if not (sources and is_tag(symbol))]
    vocabulary: Vocabulary = sentencepiece.train(targets, job.settings.vocab_size, symbols)
    for texts in sources:
        symbols = list(job.problem.symbols) if job.problem.symbols_of_sources else []
        source_vocabulary = sentencepiece.train(texts, job.source_vocab_size, symbols)
        vocabulary = vocabulary.with_sources(source_vocabulary)
    return vocabulary


def _stored_corpora(
    job: Job, text: Text, records: dict[str, Records]
) -> dict[str, list[StoredCorpus]]:
    """Returns the facts about the corpora of each split. The weights of train corpora may be those
    of a temperature.
    """
    corpora: dict[str, list[StoredCorpus]] = {split: [] for split in SPLITS}
    for clean in text.corpora:
        cleaning = clean.cleaning
        start = sum(corpus.pairs for corpus in corpora[clean.split])
        stop = start + cleaning.pairs_kept
        tokens = records[clean.split].tokens(start, stop)
        corpora[clean.split].append(
            StoredCorpus(
                **vars(clean.corpus) | clean.counts,
                start=start,
                stop=stop,
                shards=len(shards.shard_sizes(job, clean)),
                text=cleaning.kept_fingerprint,
                tokens=dict(zip(("inputs", "targets"), tokens, strict=True)),
                dropped=dict(cleaning.dropped),
            )
        )
    temperature = job.problem.corpus_temperature
    if temperature > 1 and len(corpora["train"]) > 1:
        corpora["train"] = [
            dataclasses.replace(corpus, weight=corpus.tokens["targets"] ** (1 / temperature))
            for corpus in corpora["train"]
        ]
    return corpora
