"""Tests that programs work with files and folders of odd names."""

import shutil
from pathlib import Path

import pytest

from programs import LOOKUP, TrainedModel, error, succeed
from t2t_repro.checkpoints.reader import checkpoints_in
from t2t_repro.files.textfile import read_lines

ODD = " -Modell [x], *?\\ 'ü\n$"


@pytest.fixture
def model(trained: TrainedModel, tmp_path: Path) -> TrainedModel:
    """Returns the shared model with its text and data, copied to a folder with an odd name, which
    tests may change.
    """
    folder = tmp_path / ODD
    for name, source in (("text", trained.text), ("data", trained.data), ("model", trained.folder)):
        shutil.copytree(source, folder / name)
    flags = [flag for flag in trained.flags if not flag.startswith(("--data_dir", "--output_dir"))]
    flags += [
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'model'}",
        "--eval_decode_lines=0",
    ]
    return TrainedModel(folder / "text", folder / "data", folder / "model", flags)


def test_a_model_in_a_folder_of_an_odd_name_is_trained_averaged_and_used(
    model: TrainedModel,
) -> None:
    folder = model.folder.with_name("lookup")
    flags = [*model.flags, f"--output_dir={folder}", *LOOKUP]
    succeed("trainer", *flags, "--train_steps=20")
    result = succeed("trainer", *flags, "--train_steps=21")
    assert "resuming after step 20" in result.stderr
    assert checkpoints_in(folder)[-1] == f"{folder}/model.ckpt-21"
    succeed("avg-checkpoints", f"--output_dir={folder}", "--num_last_checkpoints=2", LOOKUP[0])
    source = model.text / f"x{ODD}.en"
    output = model.text / f"{ODD}.de"
    source.write_text("one\ntwo\n")
    decode = [f"--output_dir={folder}", "--decode_hparams=beam_size=1,extra_length=1", LOOKUP[0]]
    files = [
        f"--checkpoint_path={folder / 'best'}",
        f"--decode_from_file={source}",
        f"--decode_to_file={output}",
    ]
    succeed("decoder", *decode, *files)
    assert len(list(read_lines(str(output)))) == 2
    succeed("bleu", f"--translation={output}", f"--reference={output}", "--target_language=de")
    assert "File name too long" in error("trainer", *model.flags, f"--output_dir={'x' * 256}")
