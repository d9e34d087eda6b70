"""Answers to flags that the programs here do not have: flags of tensor2tensor, and hparams written as flags.

The flags of tensor2tensor are those of version 1.15.7. Its decoder and exporter accept all flags of its trainer. An
answer says what does the job here, or why the flag is not needed; `program.run` prints it after the flag's name.
"""

from __future__ import annotations

import dataclasses

from t2t_repro.hparam import DecodeHParams, HParams

ONE_GRAPH = "TensorFlow 2 has no such setting; omit it"
MACHINES = "describe the machines in the environment variable TF_CONFIG (docs/distributed.md); omit it"
NO_TPU = "the programs run on CPUs and GPUs; omit it"
NO_CLOUD = "no program starts machines in a cloud; run t2t-trainer on the machine itself, and omit it"
NO_TUNING = "no program searches for hparams; run t2t-trainer once for each value of --hparams"
DECODING = "t2t-trainer only trains; decode the model with t2t-decoder afterwards"
ONE_CHECKPOINT = "t2t-decoder decodes one checkpoint; call it in a shell loop with --checkpoint_path"
NO_WAITING = "the program does not wait for checkpoints; start it when they exist"
PATIENCE = "the dev loss decides; give --early_stopping_patience=N to stop after N evaluations without a lower loss"

COMMON = {
    "schedule": "t2t-trainer always trains and evaluates, and t2t-decoder decodes; omit it",
    "worker_gpu_memory_fraction": "the environment variable TF_FORCE_GPU_ALLOW_GROWTH=true leaves memory free; omit it",
    "gpu_order": "choose and order the GPUs with the environment variable CUDA_VISIBLE_DEVICES; omit it",
    "log_device_placement": "t2t-trainer prints its devices; omit it",
    **dict.fromkeys(("tfdbg", "enable_graph_rewriter", "use_guarantee_const_getter"), ONE_GRAPH),
    **dict.fromkeys(("xla_compile", "xla_jit_level"), "the programs do not use XLA; omit it"),
    **dict.fromkeys(
        ("use_tpu", "use_tpu_estimator", "tpu_num_shards", "tpu_job_name", "tpu_infeed_sleep_secs", "cloud_tpu_name"),
        NO_TPU,
    ),
    **dict.fromkeys(("cloud_mlengine", "cloud_mlengine_master_type"), NO_CLOUD),
}
"""Answers to flags of tensor2tensor's trainer, decoder and exporter, by name."""

TRAINER = {
    **dict.fromkeys(
        (
            "hparams_range",
            "autotune_objective",
            "autotune_maximize",
            "autotune_max_trials",
            "autotune_parallel_trials",
        ),
        NO_TUNING,
    ),
    **dict.fromkeys(
        (
            "eval_early_stopping_metric",
            "eval_early_stopping_metric_delta",
            "eval_early_stopping_metric_minimize",
            "eval_early_stopping_steps",
        ),
        PATIENCE,
    ),
    "eval_timeout_mins": NO_WAITING,
    "eval_throttle_seconds": "an evaluation follows every --local_eval_frequency steps; change that number",
    "eval_run_autoregressive": "each evaluation also decodes dev lines; --eval_decode_lines sets how many",
    "eval_use_test_set": "evaluation reads the dev split; to score a test set, use t2t-decoder and t2t-bleu --test_set",
    "keep_checkpoint_every_n_hours": "raise --keep_checkpoint_max to keep more checkpoints; M/best keeps the best one",
    "save_checkpoints_steps": "a checkpoint is saved every --local_eval_frequency steps; change that number",
    "iterations_per_loop": "a checkpoint is saved every --local_eval_frequency steps; omit it",
    "export_saved_model": "run t2t-exporter after training",
    "export_saved_model_api_version": "run t2t-exporter after training",
    "job-dir": "write --output_dir",
    "sync": "all devices always train synchronously; omit it",
    "gpu_automatic_mixed_precision": "give --precision=mixed_bfloat16, or mixed_float16 on GPUs without bfloat16",
    "optionally_use_dist_strat": "training always uses tf.distribute; omit it",
    "profile": "metrics.jsonl has the speed, and --dry_run estimates the memory; omit it",
    "dbgprofile": "metrics.jsonl has the speed; omit it",
    **dict.fromkeys(
        ("ps_gpu", "ps_replicas", "ps_job"), "no parameter servers are used (docs/distributed.md); omit it"
    ),
    **dict.fromkeys(("worker_id", "worker_job", "worker_replicas", "master", "std_server_protocol"), MACHINES),
}
"""Answers to flags of training, by name."""

HAVE_TRAINER = (
    "train_steps", "eval_steps", "local_eval_frequency", "keep_checkpoint_max", "save_checkpoints_secs",
    "log_step_count_steps", "warm_start_from", "worker_gpu", "random_seed", "generate_data", "tmp_dir",
    "intra_op_parallelism_threads", "inter_op_parallelism_threads",
)  # fmt: skip
"""Flags of training that t2t-trainer has, but not t2t-decoder and t2t-exporter."""
OTHER_PROGRAMS = COMMON | dict.fromkeys((*TRAINER, *HAVE_TRAINER), "it is a flag of training; omit it")
"""Answers to flags of tensor2tensor's trainer in its decoder and exporter."""
DECODE_FLAGS = dict.fromkeys(("decode_hparams", "decode_from_file", "decode_to_file", "decode_reference"), DECODING)

DECODER = {
    "decode_shards": "write --shards and --shard_id, the part that this process decodes",
    "worker_id": "write --shard_id",
    "decode_in_memory": "name the input with --decode_from_file; omit it",
    "keep_timestamp": "touch -r CHECKPOINT.index OUTPUT does the same after decoding; omit it",
    "disable_grappler_optimizations": ONE_GRAPH,
    "eval_use_test_set": "t2t-decoder translates text: give the test set's text with --decode_from_file",
}

EXPORTER = {
    "export_as_tfhub": "TensorFlow Hub loads the SavedModel with hub.load; omit it",
    "as_text": "the SavedModel is binary, the format that servers read; omit it",
    "decode_from_file": "t2t-exporter only exports; for lines that warm up the server, write --warmup_from_file",
    "decode_to_file": "t2t-exporter only exports; write --export_dir to choose its folder",
    "decode_reference": "t2t-exporter only exports; score with t2t-decoder",
}

ONE_PROBLEM = "t2t-datagen generates the data of one problem; name it with --problem"
ALL_PARTS = "one t2t-datagen writes all shards, with --num_concurrent_processes processes; omit it"
NO_ENVIRONMENTS = "there are no problems of reinforcement learning; omit it"
DATAGEN = {
    "exclude_problems": ONE_PROBLEM,
    "only_list": "--registry_help lists the problems",
    "num_shards": "the problem sets the number of shards (num_train_shards); omit it",
    "max_cases": "give fewer lines of text, e.g. cut the files with head",
    "random_seed": "t2t-trainer shuffles the examples, and its --random_seed sets the order; omit it",
    **dict.fromkeys(("task_id", "task_id_start", "task_id_end"), ALL_PARTS),
    **dict.fromkeys(("env_problem_max_env_steps", "env_problem_batch_size"), NO_ENVIRONMENTS),
}

MODEL_FOLDER = "name the model folder with --output_dir; its last checkpoints are averaged"
AVERAGE = {
    "model_dir": MODEL_FOLDER,
    "checkpoints": "write --output_dir, and --num_last_checkpoints for how many to average",
    "prefix": MODEL_FOLDER,
    "output_path": "the average is written to OUTPUT_DIR/averaged, where t2t-decoder finds it; omit it",
    "n": "write --num_last_checkpoints",
    "min_steps": "write --num_last_checkpoints",
    "wait_minutes": NO_WAITING,
}

ONE_FILE = "t2t-bleu scores one file: give --translation; during training, metrics.jsonl and TensorBoard have BLEU"
BLEU = {
    "source": "BLEU does not depend on the source; omit it",
    "bleu_variant": "t2t-bleu always prints all its scores, each with its signature; omit it",
    **dict.fromkeys(
        ("translations_dir", "event_dir", "tag_suffix", "min_steps", "wait_minutes", "report_zero"), ONE_FILE
    ),
}

RAW_TEXT = "the exported model reads and writes text, so the client needs no vocabulary; omit it"
QUERY = {
    **dict.fromkeys(("problem", "data_dir"), RAW_TEXT),
    **dict.fromkeys(
        ("cloud_mlengine_model_name", "cloud_mlengine_model_version"),
        "the client asks TensorFlow Serving: give --server, and --rest for its REST API",
    ),
}

TRANSLATE_ALL = {
    **dict.fromkeys(("model_dir", "source", "translations_dir", "decoder_command"), ONE_CHECKPOINT),
    **dict.fromkeys(("beam_size", "alpha"), "write --decode_hparams, e.g. --decode_hparams=beam_size=4,alpha=0.6"),
}
"""Answers to flags of tensor2tensor's t2t-translate-all, which t2t-decoder replaces."""

IMPORT = {
    "model": "only tensor2tensor's model transformer can be imported; omit it",
    "hparams": "t2t-import reads hparams.json: give --hparams_json, or --hparams_set if the file is lost",
    "data_dir": "t2t-import looks for the vocabulary in the folder of the training; if it is elsewhere, give --vocab",
}
"""Answers to flags that a user of tensor2tensor may give to t2t-import."""

LOGGING = dict.fromkeys(("alsologtostderr", "logtostderr", "verbosity", "v"), "messages go to standard error; omit it")

ANSWERS = {
    "t2t-trainer": COMMON | TRAINER | DECODE_FLAGS,
    "t2t-decoder": OTHER_PROGRAMS | TRANSLATE_ALL | DECODER,
    "t2t-exporter": OTHER_PROGRAMS | EXPORTER,
    "t2t-datagen": DATAGEN,
    "t2t-avg-checkpoints": AVERAGE,
    "t2t-bleu": BLEU,
    "t2t-query-server": QUERY,
    "t2t-import": IMPORT,
}
"""For each program: the answers to flags of tensor2tensor's programs that it does not have."""

HPARAMS: dict[str, tuple[str, type]] = {
    "t2t-trainer": ("hparams", HParams),
    **dict.fromkeys(
        ("t2t-decoder", "t2t-exporter", "t2t-reproduce", "t2t-translate-beam"), ("decode_hparams", DecodeHParams)
    ),
}
"""For each program: its flag of changes of hparams, and the class of these hparams."""


def answer(program: str, flag: str) -> str:
    """Returns the error message for a flag that `program` does not have; "" if there is no answer.

    There is an answer if tensor2tensor has this flag, or an hparam has this name.

    Args:
        program: name of the program, such as "t2t-decoder".
        flag: name of the flag without dashes; "nosync" is the flag "sync".
    """
    if program == "t2t-trainer" and flag.startswith("hp_"):
        return f"--{flag} does not exist here: write --hparams={flag[3:]}=VALUE"
    answers = LOGGING | ANSWERS.get(program, {})
    for name in (flag, flag.removeprefix("no")):
        if name in answers:
            return f"--{name} does not exist here: {answers[name]}"
    hparams_flag, kind = HPARAMS.get(program, ("", None))
    if kind and flag in {field.name for field in dataclasses.fields(kind)}:
        return f"--{flag} does not exist here: write --{hparams_flag}={flag}=VALUE"
    return ""
