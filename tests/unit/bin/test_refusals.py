"""Tests which flags of the programs for scores, pictures and the paper are refused, before any
work, in one line.
"""

import re
import socket
from pathlib import Path

import pytest

from models import write_checkpoint
from programs import error, refused, run, write_lines
from t2t_repro.checkpoints.model_folder import ModelFolder
from toys import lines, text_files

FLAGS = {
    "attention": ["--output_dir=model", "--out=out", "--source=the dog"],
    "bleu": ["--translation=two"],
    "decoder": ["--output_dir=model"],
    "evalb": ["--gold=trees", "--test=trees"],
    "exporter": ["--output_dir=model"],
    "insights": ["--output_dir=model"],
    "paper": [],
    "query-server": [
        "--server=localhost:1",
        "--servable_name=x",
        "--rest=true",
        "--decode_to_file=y",
    ],
    "reproduce": ["--problem=wmt_ende"],
    "translate-beam": ["--output_dir=model", "--decode_from_file=two", "--decode_to_file=y"],
}
"""For each program, flags that a case may replace."""
FILES = {
    "two": "ab",
    "three": "cde",
    "pair": "cd",
    "empty": "",
    "trees": ["(S (X a))"],
    "wrong": ["dog"],
    "pairs": ["one\teins", "two zwei"],
}
"""Lines of files, by name."""
CASES = [
    ("attention", "--source= ", "--source is empty; give the text"),
    ("attention", "--format=gif", "unknown --format 'gif'"),
    ("attention", "--figure=3 --format=npz", "unknown --format 'npz'; there are: pdf, png, svg"),
    ("attention", "--attention=crss", "unknown --attention 'crss'; did you mean 'cross'"),
    ("attention", "--heads=1,x", "--heads=1,x: give numbers from 1, separated by commas"),
    ("attention", "--format=bertviz --merge_subwords=true", "omit --merge_subwords"),
    ("attention", "--figure=3 --style=lines", "--style has no effect with --figure; omit it"),
    ("attention", "--format=", "--format is required"),
    (
        "attention",
        "--format=json --word=dog",
        "--word chooses strokes, which no file would show; omit it",
    ),
    ("bleu", "", "give either --reference, or --test_set with --language_pair"),
    (
        "bleu",
        "--test_set=wmt14/full",
        "give either --reference, or --test_set with --language_pair",
    ),
    (
        "bleu",
        "--reference=two --test_set=wmt14/full",
        "--reference has no effect with --test_set; omit it",
    ),
    (
        "bleu",
        "--reference=two --language_pair=en-de",
        "--language_pair has no effect without --test_set",
    ),
    (
        "bleu",
        "--test_set=list --language_pair=en-de",
        "--translation has no effect with --test_set=list",
    ),
    ("bleu", "--reference=two --translation=", "--translation is required"),
    ("bleu", "--reference=two,three", "two and three have 2 and 3 lines;"),
    ("bleu", "--translation=two,three --reference=two", "two and three have 2 and 3 lines;"),
    ("bleu", "--translation=two,./two --reference=two", "--translation=two,./two"),
    ("bleu", "--translation=two,three --reference=two --all=true", "--all"),
    ("bleu", "--translation=empty --reference=empty", "empty: empty"),
    ("bleu", "--reference=two,", "--reference=two,"),
    ("bleu", "--reference=none", "none: no such file"),
    ("bleu", "--reference=two --metrics=", "--metrics"),
    ("bleu", "--reference=two --metrics=blue", "'bleu'"),
    ("bleu", "--reference=two --metrics=ter --target_language=th", "--metrics=chrf"),
    ("bleu", "--reference=two --comet_model=m", "--metrics=comet"),
    ("bleu", "--reference=two --metrics=comet --source=two", "--comet_model"),
    ("bleu", "--reference=two --metrics=comet --comet_model=m", "--source"),
    (
        "bleu",
        "--reference=two --metrics=comet --comet_model=m --source=three",
        "two and three have 2 and 3 lines",
    ),
    (
        "bleu",
        "--reference=two,pair --metrics=comet --comet_model=m --source=two",
        "one --reference",
    ),
    (
        "bleu",
        "--test_set=wmt14 --language_pair=en-fr --target_language=de",
        "--target_language has no effect with --test_set",
    ),
    ("decoder", "--shards=2 --decode_to_file=x", "--shards needs --shard_id"),
    ("decoder", "--shards=2 --shard_id=2 --decode_to_file=x", "--shard_id=2"),
    ("decoder", "--output_attention=true", "--output_attention"),
    ("decoder", "--resume=true", "--decode_to_file"),
    ("decoder", "--score_file=pairs", "pairs:2:"),
    (
        "decoder",
        "--score_file=x --decode_hparams=beam_size=4",
        "--decode_hparams=beam_size has no effect with",
    ),
    (
        "decoder",
        "--decode_interactive=true --decode_to_file=y",
        "--decode_to_file has no effect with --decode_inter",
    ),
    (
        "decoder",
        "--output_format=jsonl --decode_hparams=write_beam_scores=true",
        "write_beam_scores has no effect",
    ),
    ("decoder", "--decode_to_file=x.gz", "choose a name without .gz"),
    ("evalb", "--max_error=-1", "flag --max_error=-1: "),
    ("evalb", "--gold=wrong", "wrong:1: 'dog' "),
    ("evalb", "--gold=", "--gold is required: "),
    ("exporter", "--quantization=int8", "--quantization has no effect with --format=saved_model"),
    (
        "exporter",
        "--format=ctranslate2 --warmup_from_file=x",
        "--warmup_from_file has no effect with --format=ctr",
    ),
    (
        "exporter",
        "--format=huggingface --quantization=int8",
        "--quantization has no effect with --format=huggingface",
    ),
    ("exporter", "--format=argos --languages=en", "--languages=en: name two"),
    ("exporter", "--decode_hparams=write_beam_scores=true", "write_beam_scores"),
    ("exporter", "--servable_name=a/b", "--servable_name=a/b"),
    (
        "exporter",
        "--output_dir=a,b",
        "--output_dir=a,b: this program takes only one model; give one folder",
    ),
    ("exporter", "--warmup_from_file=/nowhere", "/nowhere: no such file"),
    ("insights", "--output_dir=", "--output_dir is required"),
    (
        "insights",
        "--output_dir=a,b",
        "--output_dir=a,b: this program takes only one model; give one folder",
    ),
    ("insights", "--compare_with=nowhere", "nowhere: no problem.json there"),
    ("insights", "--checkpoint_path=model/no", "--checkpoint_path=model/no: no model/no.index"),
    ("insights", "--compare_checkpoint_path=no", "--compare_checkpoint_path=no: no no.index"),
    ("insights", "--port=65536", "--port=65536"),
    ("paper", "--table=", "--table is required"),
    ("paper", "--table=3,5", "unknown table '5'"),
    ("paper", "--format=latex", "flag --format=latex: value should be one of <text|markdown|csv>"),
    ("paper", "--vocab_size=-1", "flag --vocab_size=-1: "),
    ("paper", "--output_dirs=nowhere", "nowhere: no problem.json there"),
    ("paper", "--output_dirs=a,", "the name of a folder is empty"),
    ("paper", "--sustained_tflops=V100", "cannot read 'V100'"),
    ("paper", "--sustained_tflops==14", "cannot read '=14'"),
    ("paper", "--sustained_tflops=V100=x", "cannot read 'V100=x'"),
    ("paper", "--sustained_tflops=V100=inf", "cannot read 'V100=inf'"),
    ("query-server", "--server=", "--server is required"),
    ("query-server", "--batch_size=0", "batch_size"),
    ("query-server", "--servable_version=-1", "servable_version"),
    ("query-server", "--timeout_secs=inf", "timeout_secs"),
    (
        "reproduce",
        "--row=base --hparams_set=transformer_base",
        "--row and --hparams_set: give one of them",
    ),
    (
        "reproduce",
        "--row=base --eval_steps=3",
        "--eval_steps=3: the report needs the whole dev split",
    ),
    ("reproduce", "", "--row is required: hparams set of the row without"),
    ("reproduce", "--row=bsae", "unknown row 'bsae'; did you mean 'base'?"),
    (
        "reproduce",
        "--row=base --decode_hparams=n=2",
        "decode_hparams: n=2 has no effect here: one output of each ",
    ),
    (
        "reproduce",
        "--row=base --data_dir=data --output_dir=new",
        "; run t2t-datagen --problem=wmt_ende",
    ),
    (
        "translate-beam",
        "--decode_from_file=/nowhere/x*",
        "--decode_from_file=/nowhere/x*: no such file",
    ),
    ("translate-beam", "--decode_from_file=nope://x/y", "nope://x/y: Unable to get filesystem"),
    ("translate-beam", "--decode_to_file=y[1]", "Beam takes a path with *, ? or [ for a pattern"),
    ("translate-beam", "--decode_hparams=prefix_file=x", "prefix_file"),
    ("translate-beam", "--beam_options=--runner=Nobody", "FlinkRunner"),
    (
        "translate-beam",
        "--beam_options=--direct_num_workrs=2",
        "Beam has no option --direct_num_workrs",
    ),
]


@pytest.mark.parametrize(("program", "flags", "words"), CASES)
def test_a_refusal_names_the_flag_or_the_cure(
    program: str, flags: str, words: str, folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder.path.parent
    monkeypatch.chdir(root)
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    for name, texts in FILES.items():
        write_lines(Path(name), texts)
    assert words in error(program, *FLAGS[program], *filter(None, re.split(" (?=--)", flags)))
    assert {path.name for path in root.iterdir()} == {"model", *FILES}


def test_a_port_in_use_is_named(folder: ModelFolder) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = error("insights", f"--output_dir={folder.path}", f"--port={port}")
    assert line.startswith(f"--host=127.0.0.1 --port={port}: Address already in use")


def test_workers_of_a_cluster_are_told_to_train_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert "train with t2t-trainer on all workers" in error(
        "reproduce", "--row=base", "--problem=wmt_ende"
    )


def test_the_report_replaces_no_source(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    (tmp_path / "M").mkdir()
    report = (tmp_path / "b.en").rename(tmp_path / "M" / "report.md")
    flags = (
        f"--train={problem.settings.train}",
        f"--dev={report},{tmp_path}/b.el",
        "--vocab_size=400",
    )
    folders = (f"--data_dir={tmp_path}/D", f"--output_dir={tmp_path}/M")
    result = run(
        "reproduce", "--hparams_set=transformer_tiny", "--problem=text_files", *flags, *folders
    )
    refused(result, "report.md is also an input (--dev)")
    assert report.read_text("utf-8") == "".join(f"{line}\n" for line in lines(5))
