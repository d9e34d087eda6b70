"""Tests that every name of tensor2tensor works here or is answered in one line."""

import dataclasses
import importlib
from pathlib import Path

import pytest

from programs import error
from t2t_repro import registry
from t2t_repro.hparam import SCHEDULE_FACTORS, DecodeHParams, HParams, traits
from t2t_repro.tensor2tensor.names import ANSWERS, answer, explained_flag

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
"""  # noqa: E501
"""The flags of utils/flags.py and bin/t2t_trainer.py of tensor2tensor 1.15.7."""
T2T_FLAGS = {
    "trainer": T2T_TRAINER + "save_checkpoints_steps hp_learning_rate",
    "decoder": T2T_TRAINER
    + "checkpoint_path keep_timestamp decode_interactive decode_shards score_file "
    "decode_in_memory disable_grappler_optimizations model_dir source translations_dir beam_size alpha decoder_command",  # noqa: E501
    "exporter": T2T_TRAINER + "export_as_tfhub export_dir checkpoint_path as_text",
    "datagen": "data_dir tmp_dir problem exclude_problems num_shards max_cases env_problem_max_env_steps "  # noqa: E501
    "env_problem_batch_size only_list random_seed "
    "task_id task_id_start task_id_end num_concurrent_processes t2t_usr_dir",
    "avg-checkpoints": "checkpoints num_last_checkpoints prefix output_path model_dir output_dir n min_steps "  # noqa: E501
    "wait_minutes",
    "bleu": "source reference translation translations_dir event_dir bleu_variant tag_suffix min_steps wait_minutes "  # noqa: E501
    "report_zero",
    "query-server": "server servable_name problem data_dir t2t_usr_dir inputs_once timeout_secs "
    "cloud_mlengine_model_name cloud_mlengine_model_version",
}
"""For each program here, the flags of tensor2tensor's programs that it replaces."""
T2T_DECODE_HPARAMS = """
    save_images log_results extra_length min_length_ratio batch_size beam_size alpha eos_penalty block_size
    guess_and_check_top_k guess_and_check_epsilon insertion_parallel return_beams write_beam_scores max_input_size
    identity_output num_samples delimiter decode_to_file decode_reference decode_in_memory decode_timeout_mins
    summaries_log_dir shards shard_id shards_start_offset shard_google_format num_decodes force_decode_length
    display_decoded_images multiproblem_task_id frames_per_second skip_eos_postprocess border_percent
    max_display_outputs max_display_decodes vgg_ckpt_path mlperf_decode_step mlperf_threshold mlperf_success
    export_extra_infer_outputs
"""  # noqa: E501
"""The names in decode_hparams of tensor2tensor 1.15.7's utils/decoding.py."""
OURS = {
    "hparam": {field.name for field in dataclasses.fields(HParams)},
    "decode hparam": {field.name for field in dataclasses.fields(DecodeHParams)},
    "factor of learning_rate_schedule": {*SCHEDULE_FACTORS},
    "hparams set": {*registry._hparams.names()},
    **{
        name: {*traits(registry.hparams_class("gnmt"), name).allowed}
        for name in ("optimizer", "initializer")
    },
}
"""For each kind, the names that exist here."""
ALWAYS = {"help", "registry_help", "t2t_usr_dir", "version"}
TRAIN = ("trainer", "--problem=numbers_ende")
TINY = (*TRAIN, "--hparams_set=transformer_tiny")


def our_flags(program: str) -> set[str]:
    """Returns the names of the flags of a program here."""
    return ALWAYS | {
        *importlib.import_module(f"t2t_repro.bin.t2t_{program.replace('-', '_')}").FLAGS
    }


@pytest.mark.parametrize("program", T2T_FLAGS)
def test_each_flag_of_tensor2tensor_exists_or_has_an_answer(program: str) -> None:
    ours = our_flags(program)
    for flag in T2T_FLAGS[program].split():
        message = explained_flag(f"t2t-{program}", flag)
        assert flag in ours or message.startswith(f"--{flag} does not exist here: "), flag


def test_each_decode_hparam_of_tensor2tensor_exists_or_has_an_answer() -> None:
    assert all(
        name in OURS["decode hparam"] or answer("decode hparam", name)
        for name in T2T_DECODE_HPARAMS.split()
    )


@pytest.mark.parametrize(
    "kind", [kind for kind in ANSWERS if kind in OURS or kind.startswith("flag of t2t-")]
)
def test_answers_are_for_names_that_do_not_exist(kind: str) -> None:
    ours = OURS[kind] if kind in OURS else our_flags(kind.removeprefix("flag of t2t-"))
    assert not any(answer(kind, name) for name in ours)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TRAIN, "--schedule=train"), "--schedule does not exist here: t2t-trainer always trains"),
        (
            (*TRAIN, "--nosync"),
            "--nosync does not exist here: all devices always train synchronously",
        ),
        (("bleu", "--sync"), "Unknown command line flag 'sync'"),
        (
            ("trainer", "--hp_learning_rate", "0.1"),
            "--hp_learning_rate does not exist here: write --hparams=learning",
        ),
        (("decoder", "--n=2"), "--n does not exist here: write --decode_hparams=n=VALUE"),
        (
            ("decoder", "--train_steps=1"),
            "--train_steps does not exist here: it is a flag of training; omit it",
        ),
        ((*TRAIN, "--hparams_set=transformer_l10"), "In place of a set of tensor2tensor's, change"),
        (
            ("trainer", "--problem=translate_ende_wmt32k_packed_rev"),
            "and give --problem=translate_ende_wmt32k",
        ),
        (
            ("trainer", "--problem=translate_enzh_wmt32k_rev"),
            "For a problem of your own, give --t2t_usr_dir",
        ),
        (
            (*TINY, "--hparams=hidden_size=64,symbol_dropout=0.1"),
            "hparam 'symbol_dropout' does not exist here: the Transformer here does",
        ),
        (
            (*TINY, "--hparams=learning_rate_schedule=legacy"),
            "'legacy' does not exist here: the schedule legacy with",
        ),
        (
            ("datagen", "--problem=wmt_ende,wmt_enfr"),
            "a command works with one problem; run one command for each",
        ),
    ],
)
def test_a_program_prints_the_answer_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    assert message in error(*arguments)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "from tensor2tensor.utils import registry, t2t_model",
            "in place of registry, write from t2t_repro import problem, registry; in place of t2t_model, write from",  # noqa: E501
        ),
        (
            "from tensor2tensor.layers import common_attention",
            "not used here; remove this import and the code that",
        ),
        (
            "from t2t_repro.problems.text_problems import ChoppedTextProblem",
            "write a Text2TextProblem or a Translate",
        ),
        (
            "import dataclasses as d; from t2t_repro import hparam, registry\n"
            "registry.register_hparams('mine')(lambda: hparam.HParams(learning_rate=1))",
            "hparam 'learning_rate' does not exist here: write learning_rate_constant",
        ),
    ],
)
def test_a_program_prints_the_answer_to_code_of_the_user(
    line: str, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "usr_t2t"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import mine\n")
    (folder / "mine.py").write_text(f"import os\n\n{line}\n")
    text = error(*TRAIN, "--hparams_set=mine", f"--t2t_usr_dir={folder}")
    assert f"{folder}/mine.py:" in text and message in text
