"""One model for several target languages, from text files to translations."""

from pathlib import Path

import pytest

from programs import LOOKUP, refused, run, succeed, write_lines
from t2t_repro.data.dataset import load_data

WORDS = ["red", "green", "blue", "one", "two", "six"]


@pytest.mark.usefixtures("no_graphs")
def test_one_model_translates_into_each_of_its_languages(tmp_path: Path) -> None:
    texts = [f"{one} {other}" for one in WORDS for other in WORDS]
    for name, side in (("x.en", "{}"), ("x.de", "das {}"), ("x.fr", "le {}")):
        write_lines(tmp_path / name, map(side.format, texts))
    pairs = [f"{tmp_path}/x.en,{tmp_path}/x.{language}" for language in ("de", "fr")]
    data = ["--problem=text_files", f"--data_dir={tmp_path}/data"]
    folder = f"--output_dir={tmp_path}/model"
    files = [f"--{split}={';'.join(pairs)}" for split in ("train", "dev")]
    succeed("datagen", *data, *files, "--targets=de,fr", "--vocab_size=300")
    generated = load_data(f"{tmp_path}/data", "text_files")
    first_ids = [source[0] for source, _ in generated.records["train"]]
    assert first_ids == [
        generated.vocabulary.tags[tag] for tag in (">>de<<", ">>fr<<") for _ in texts
    ]
    flags = [
        "--hparams_set=transformer_tiny",
        "--train_steps=2",
        "--hparams=batch_size=200",
        "--eval_decode_lines=3",
    ]
    trained = succeed("trainer", *data, *LOOKUP, folder, *flags).stderr
    assert (
        "x.de: dev loss" in trained
        and "x.fr: dev loss" in trained
        and " --target_language=de " in trained
    )

    decode = ["decoder", folder, LOOKUP[0]]
    results = []
    for flags, red in ((["--target_language=fr"], "red"), ([], ">>fr<< red")):
        lines = [red, ">>de<< blue", ""]
        file = write_lines(tmp_path / "lines", lines)
        pairs = write_lines(tmp_path / "pairs", [f"{line}\tle red" for line in lines[:2]])
        outputs = succeed(*decode, *flags, f"--decode_from_file={file}").stdout
        typed = succeed(
            *decode, *flags, "--decode_interactive", input="".join(f"{line}\n" for line in lines)
        ).stdout
        results.append((outputs, typed, succeed(*decode, *flags, f"--score_file={pairs}").stdout))
    assert results[0] == results[1] and results[0][0] == results[0][1]
    assert all(len({*text.split("\n")}) == 3 for text in results[0])

    write_lines(tmp_path / "lines", ["", "red"])
    refused(
        run(*decode, f"--decode_from_file={file}", f"--decode_to_file={tmp_path}/out"),
        f"{file}:2: ",
        "de, fr",
    )
    refused(
        run(*decode, f"--decode_from_file={file}", "--target_language=dee"),
        "--target_language",
        "'de'",
    )
    assert not (tmp_path / "out").exists()
