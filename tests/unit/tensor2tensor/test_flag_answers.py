"""Tests that every flag of tensor2tensor's programs works here or is answered in one line."""

from __future__ import annotations

import importlib
import re

import pytest

from programs import error
from t2t_repro.tensor2tensor.flag_answers import ANSWERS, LOGGING, answer

T2T_TRAINER = """
    registry_help tfdbg export_saved_model dbgprofile model hparams_set hparams_range hparams problem data_dir
    train_steps eval_early_stopping_metric eval_early_stopping_metric_delta eval_early_stopping_steps
    eval_early_stopping_metric_minimize eval_timeout_mins eval_run_autoregressive eval_use_test_set keep_checkpoint_max
    enable_graph_rewriter keep_checkpoint_every_n_hours save_checkpoints_secs log_device_placement warm_start_from
    local_eval_frequency eval_throttle_seconds sync worker_job worker_gpu worker_replicas worker_id
    worker_gpu_memory_fraction ps_gpu gpu_order ps_job ps_replicas decode_hparams decode_from_file decode_to_file
    decode_reference t2t_usr_dir random_seed tpu_num_shards tpu_job_name iterations_per_loop use_tpu use_tpu_estimator
    export_saved_model_api_version use_guarantee_const_getter xla_compile xla_jit_level tpu_infeed_sleep_secs
    generate_data tmp_dir profile inter_op_parallelism_threads intra_op_parallelism_threads optionally_use_dist_strat
    master output_dir schedule eval_steps std_server_protocol cloud_tpu_name cloud_mlengine cloud_mlengine_master_type
    autotune_objective autotune_maximize autotune_max_trials autotune_parallel_trials job-dir log_step_count_steps
    gpu_automatic_mixed_precision
"""
"""The flags of utils/flags.py and bin/t2t_trainer.py of tensor2tensor 1.15.7."""
T2T_FLAGS = {
    "trainer": T2T_TRAINER + "save_checkpoints_steps hp_learning_rate",
    "decoder": T2T_TRAINER + "checkpoint_path keep_timestamp decode_interactive decode_shards score_file "
    "decode_in_memory disable_grappler_optimizations model_dir source translations_dir beam_size alpha decoder_command",
    "exporter": T2T_TRAINER + "export_as_tfhub export_dir checkpoint_path as_text",
    "datagen": "data_dir tmp_dir problem exclude_problems num_shards max_cases env_problem_max_env_steps "
    "env_problem_batch_size only_list random_seed "
    "task_id task_id_start task_id_end num_concurrent_processes t2t_usr_dir",
    "avg-checkpoints": "checkpoints num_last_checkpoints prefix output_path model_dir output_dir n min_steps "
    "wait_minutes",
    "bleu": "source reference translation translations_dir event_dir bleu_variant tag_suffix min_steps wait_minutes "
    "report_zero",
    "query-server": "server servable_name problem data_dir t2t_usr_dir inputs_once timeout_secs "
    "cloud_mlengine_model_name cloud_mlengine_model_version",
}
"""For each program here, the flags of tensor2tensor's programs that it replaces."""
ALWAYS = {"help", "registry_help", "t2t_usr_dir", "version"}


def our_flags(program: str) -> set[str]:
    """Returns the names of the flags of a program here."""
    return ALWAYS | {*importlib.import_module(f"t2t_repro.bin.t2t_{program.replace('-', '_')}").FLAGS}


@pytest.mark.parametrize("program", T2T_FLAGS)
def test_each_flag_of_tensor2tensor_exists_or_has_an_answer(program: str) -> None:
    ours = our_flags(program)
    for flag in T2T_FLAGS[program].split():
        assert (flag in ours) != (flag in LOGGING | ANSWERS[f"t2t-{program}"] or flag.startswith("hp_")), flag
        if flag not in ours:
            message = answer(f"t2t-{program}", flag)
            assert message.startswith(f"--{flag} does not exist here: ") and "\n" not in message


@pytest.mark.parametrize("program", T2T_FLAGS)
def test_answers_name_flags_that_exist(program: str) -> None:
    for flag, message in ANSWERS[f"t2t-{program}"].items():
        programs = {program, *re.findall(r"t2t-([a-z]+(?:-[a-z]+)*)", message)}
        flags = set().union(*map(our_flags, programs))
        assert {*re.findall(r"--(\w+)", message)} <= flags | {"format"}, (flag, message)


def test_a_flag_without_value_may_begin_with_no() -> None:
    assert answer("t2t-trainer", "nosync") == answer("t2t-trainer", "sync")
    assert answer("t2t-trainer", "novice") == answer("t2t-counter", "sync") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("trainer", "--problem=numbers_ende", "--schedule=train"),
            "--schedule does not exist here: t2t-tra",
        ),
        (("trainer", "--schedule", "train", "--nosync"), "--schedule does not exist here: "),
        (("trainer", "--hp_learning_rate", "0.1"), "--hp_learning_rate does not exist here: write --hparams=learning"),
        (("decoder", "--train_steps=1"), "--train_steps does not exist here: it is a flag of training; omit it"),
        (("avg-checkpoints", "--n=8", "--model_dir=M"), "--n does not exist here: write --num_last_checkpoints"),
        (("datagen", "--max_cases=8"), "--max_cases does not exist here: give fewer lines of text"),
        (("trainer", "--porblem=numbers_ende"), "Unknown command line flag 'porblem'. Did you mean: problem ?"),
    ],
)
def test_a_program_prints_the_answer_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    assert message in error(*arguments)


@pytest.mark.parametrize(
    ("program", "flag", "expected"),
    [
        ("t2t-trainer", "batch_size", "--hparams=batch_size=VALUE"),
        ("t2t-decoder", "n", "--decode_hparams=n=VALUE"),
        ("t2t-exporter", "extra_length", "--decode_hparams=extra_length=VALUE"),
        ("t2t-translate-beam", "beam_size", "--decode_hparams=beam_size=VALUE"),
    ],
)
def test_an_hparam_in_place_of_a_flag_has_an_answer(program: str, flag: str, expected: str) -> None:
    assert answer(program, flag) == f"--{flag} does not exist here: write {expected}"
    assert not answer("t2t-bleu", flag)
