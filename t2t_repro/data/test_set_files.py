"""Writes a problem's test sets as text files into the data directory, for t2t-decoder and
t2t-bleu.
"""

from pathlib import Path

from t2t_repro.console.progress import say
from t2t_repro.corpora.private_folder import make_private
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.errors import UserError, counted, refuse_different_counts
from t2t_repro.files.output_files import write_file
from t2t_repro.files.textfile import read_lines
from t2t_repro.problem import Problem


def paths_of(problem: Problem, data_dir: str | Path, name: str) -> list[Path]:
    """Returns the paths of a test set's source file and target file.

    For a reversed problem, too, the first path is the source file of the problem that is not
    reversed.
    """
    stem = f"{problem.base_name}.{name.replace('/', '_')}"
    return [Path(data_dir) / f"{stem}.{suffix}" for suffix in problem.file_suffixes]


def write(
    problem: Problem, data_dir: str | Path, tmp_dir: str, overwrite: bool = True
) -> dict[str, tuple[Path, Path]]:
    """Writes each test set as a file of sources and a file of targets. Skips a test set whose text
    cannot be read.

    If `overwrite` is False, keeps the two files of a test set if both exist.

    Returns for each test set the paths of its sources and its references, swapped if the problem is
    reversed. If a problem defines no test sets, its dev split is the only test set.
    """
    files = {}
    for name in _names(problem):
        paths = paths_of(problem, data_dir, name)
        if overwrite or not all(path.is_file() for path in paths):
            try:
                if not problem.is_self_contained:
                    make_private(tmp_dir)
                read = problem.test_set if problem.test_sets else problem.generate
                pairs = list(read(name, tmp_dir))
                texts = [
                    "".join(f"{one_line(pair[side])}\n" for pair in pairs)
                    for side in ("inputs", "targets")
                ]
            # Libraries that read test sets raise exceptions of many classes.
            except Exception as error:
                kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                say(f"test set {name} is not written: {kind}{' '.join(str(error).split())}")
                continue
            for path, text in zip(paths, texts, strict=True):
                write_file(path, text)
            say(
                f"test set {name}: {counted(len(pairs), 'pair')} in {paths[0].name} and "
                f"{paths[1].name}"
            )
        sources, references = paths[::-1] if problem.was_reversed else paths
        files[name] = (sources, references)
    return files


def ensure(problem: Problem, data_dir: str | Path, tmp_dir: str) -> dict[str, tuple[Path, Path]]:
    """Writes the test sets whose files do not exist. Returns for each test set the paths of its
    sources and its references, swapped if the problem is reversed.

    Raises UserError if no test set is available, a test set is empty, or its two files have
    different numbers of lines.
    """
    files = write(problem, data_dir, tmp_dir, overwrite=False)
    if not files:
        names = " and ".join(path.name for path in paths_of(problem, data_dir, _names(problem)[0]))
        raise UserError(
            f"{data_dir}: no test set of problem {problem.base_name}; write its lines to {names} "
            "there, or see docs/data.md"
        )
    for paths in files.values():
        counts = [sum(1 for _ in read_lines(str(path))) for path in paths]
        cure = "delete both files to have them written again"
        refuse_different_counts(paths, counts, cure)
        if not counts[0]:
            raise UserError(f"{paths[0]}: empty; {cure}")
    return files


def all_paths(problem: Problem, data_dir: str | Path) -> list[Path]:
    """Returns the paths of the files that `write` writes for all test sets of a problem."""
    return [path for name in _names(problem) for path in paths_of(problem, data_dir, name)]


def _names(problem: Problem) -> tuple[str, ...]:
    return problem.test_sets or ("dev",)
