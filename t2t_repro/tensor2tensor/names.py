"""Answers about names of tensor2tensor that do not exist here: flags, hparams, imports and others.

The names are those of tensor2tensor 1.15.7. The programs print the answer in place of "unknown
name". An answer says what does the job here, or why the name is not needed.
"""

import re
import traceback
from fnmatch import fnmatchcase

from t2t_repro.errors import UnknownNameError, UserError
from t2t_repro.hparam import DecodeHParams, HParams

OTHER_TASKS = "it belongs to other models or tasks of tensor2tensor; omit it"
NO_WAITING = "the program does not wait for checkpoints; start it when they exist"
LEARNED = "the vocabulary is learned from the training text; omit it, or use --vocab_file"
MODEL = (
    "write from t2t_repro.models.transformer import Transformer, see docs/write_your_own_model.md"
)
TRAINING_ONLY = "it is a flag of training; omit it"
TRAINING_PROGRAMS = ("t2t-trainer", "t2t-decoder", "t2t-exporter")
"""The programs that have all flags of tensor2tensor's trainer."""

ANSWERS: dict[str, dict[str, str]] = {
    "hparam": {
        "learning_rate": "write learning_rate_constant, a factor of learning_rate_schedule; with tensor2tensor's "
        "schedule legacy, 0.2 was the factor 2.0 of constant*noam",
        "learning_rate_decay_scheme": "write learning_rate_schedule=constant*noam for the scheme noam",
        "learning_rate_boundaries learning_rate_cosine_* learning_rate_m*": "learning_rate_schedule has no factor that uses it; omit it (linear_decay ends at train_steps)",
        "optimizer_multistep_accumulate_steps": "batch_size counts the tokens of a whole step, and gradients are "
        "accumulated automatically; omit it",
        "optimizer_zero_grads optimizer_adafactor_beta? optimizer_adafactor_clipping_threshold "
        "optimizer_adafactor_decay_type optimizer_adafactor_factored optimizer_adafactor_memory_exponent": "no optimizer here uses it; omit it",
        "grad_noise_scale weight_noise": "0 is its only value here; omit it",
        "layer_preprocess_sequence layer_postprocess_sequence": "write norm_before=true for n and da (pre-norm), norm_before=false for none and dan (post-norm)",
        "norm_type ffn_layer": "only layer norm and dense_relu_dense exist; omit it",
        "dropout": "write layer_prepostprocess_dropout; the Transformer never used dropout",
        "*_dropout_broadcast_dims": "each element has its own dropout; omit it",
        "parameter_attention_* hard_attention_k gumbel_noise_weight proximity_bias "
        "unidirectional_encoder causal_decoder_self_attention heads_share_relative_embedding "
        "add_relative_to_values position_features nbr_decoder_problems prepend_mode "
        "conv_first_kernel *area_* memory_height vocab_divisor symbol_dropout "
        "scheduled_sampling_*": "the Transformer here does not have it; omit it",
        "attention_variables_3d daisy_chain_variables factored_logits force_full_predict "
        "no_data_parallelism pad_batch "
        "symbol_modality_num_shards use_custom_ops use_pad_remover tpu_enable_host_call": "it changed only speed or memory; omit it",
        "activation_dtype weight_dtype gpu_automatic_mixed_precision "
        "mixed_precision_optimizer_init_loss_scale "
        "mixed_precision_optimizer_loss_scaler": "write the flag --precision, e.g. --precision=mixed_bfloat16",
        "batch_shuffle_size length_bucket_step min_length_bucket pack_dataset use_fixed_batch_size": "a batch has batch_size target tokens, in pairs of similar lengths (docs/architecture.md); omit it",
        "moe_hidden_sizes": "write filter_size, the inner width of each expert",
        "kernel_height moe_k moe_loss_coef moe_num_experts": "only other models have it (docs/rivals.md); omit it, or choose one with --model",
        "initializer": "only recurrent models have it (docs/rivals.md); the kernels of the others are drawn as with uniform_unit_scaling; omit it",
        "min_length": "drop short pairs from the text; omit it",
        "max_input_seq_length max_target_seq_length eval_drop_long_sequences": "pairs longer than max_length are dropped, also from the dev split; write max_length",
        "eval_run_autoregressive": "each evaluation also decodes dev lines; the flag --eval_decode_lines sets how many",
        "schedule": "t2t-trainer always trains and evaluates; omit it",
        "eval_freq_in_steps": "write local_eval_frequency",
        "model_dir data_dir eval_steps": "it is a flag, not an hparam: --output_dir, --data_dir or --eval_steps",
        "warm_start_from warm_start_from_second pretrained_model_dir": "write the flag --warm_start_from",
        "summarize_grads summarize_vars": "metrics.jsonl and TensorBoard have the norms of gradients; omit it",
        "sampling_method sampling_temp sampling_keep_top_k": "it is a decode hparam here: write it in t2t-decoder --decode_hparams",
        "bottom top loss name weights_fn compress_steps kernel_width mlperf_mode "
        "eval_timeout_mins moe_overhead_* overload_eval_metric_name split_* std_server_protocol "
        "video_* multiproblem_* num_sampled_classes "
        "shared_source_target_embedding": OTHER_TASKS,
    },
    "decode hparam": {
        "eos_penalty min_length_ratio": "tensor2tensor did not use it; omit it, or change alpha, the exponent of the length penalty",
        "use_last_position_only": "decoding always computes only the last position; omit it",
        "force_decode_length skip_eos_postprocess": "an output ends at its end token; omit it, or limit the length with extra_length",
        "return_beams num_decodes": "write n, the number of outputs for each input, e.g. n=4 for all of beam_size=4, "
        "or with sampling_method=random for samples",
        "num_samples": "to decode only the first lines, give a shorter --decode_from_file, e.g. cut with head",
        "delimiter": "only newlines separate inputs; convert the file, e.g. with tr",
        "identity_output": "--output_format=jsonl writes the tokens of each output; omit it",
        "decode_to_file decode_reference": "it is a flag of t2t-decoder",
        "decode_in_memory": "name the input with --decode_from_file; omit it",
        "shards shard_id shards_start_offset shard_google_format": "write the flags --shards and --shard_id",
        "log_results summaries_log_dir": "outputs are only written to --decode_to_file; omit it",
        "decode_timeout_mins": NO_WAITING,
        "block_size guess_and_check_* insertion_parallel export_extra_infer_outputs "
        "multiproblem_task_id save_images "
        "display_decoded_images frames_per_second border_percent max_display_* vgg_ckpt_path mlperf_*": OTHER_TASKS,
    },
    "initializer": {
        "xavier": "write uniform_unit_scaling, with initializer_gain=1",
        "orthogonal normal_unit_scaling": "write uniform_unit_scaling",
    },
    "optimizer": {
        "Adam TrueAdam true_adam": "write adam",
        "MultistepAdam multistep_adam": "write adam; gradients are accumulated automatically",
        "Adafactor adafactor": "write adam, and optimizer_adafactor_multiply_by_parameter_scale=true for its learning "
        "rates",
        "Momentum SGD": "write it in small letters",
    },
    "factor of learning_rate_schedule": {
        "legacy": "the schedule legacy with the scheme noam is constant*noam, with learning_rate_constant = 10 * "
        "tensor2tensor's learning_rate",
        "rsqrt_normalized_decay": "write rsqrt_decay, and multiply learning_rate_constant by sqrt(warmup steps)",
        "cosdecay single_cycle_cos_decay multi_cycle_cos_decay": "write rsqrt_decay or linear_decay",
    },
    "flag": {
        "alsologtostderr logtostderr verbosity v": "messages go to standard error; omit it",
    },
    "flag of training": {
        "schedule": "t2t-trainer always trains and evaluates, and t2t-decoder decodes; omit it",
        "worker_gpu_memory_fraction": "the environment variable TF_FORCE_GPU_ALLOW_GROWTH=true leaves memory free; omit it",
        "gpu_order log_device_placement": "t2t-trainer prints its devices, those of CUDA_VISIBLE_DEVICES; omit it",
        "tfdbg enable_graph_rewriter use_guarantee_const_getter disable_grappler_optimizations xla_*": "the programs do not have this setting of TensorFlow; omit it",
        "use_tpu use_tpu_estimator tpu_* cloud_tpu_name": "the programs run on CPUs and GPUs; omit it",
        "train_steps eval_steps local_eval_frequency keep_checkpoint_max save_checkpoints_secs "
        "log_step_count_steps warm_start_from worker_gpu random_seed generate_data tmp_dir "
        "intra_op_parallelism_threads "
        "inter_op_parallelism_threads": TRAINING_ONLY,
        "cloud_mlengine*": "no program starts machines in a cloud; run t2t-trainer on the machine itself, and omit it",
    },
    "flag of t2t-trainer": {
        "hparams_range autotune_*": "no program searches for hparams; run t2t-trainer once for each value of --hparams",
        "eval_early_stopping_*": "give --early_stopping_patience=N, to stop after N evaluations without a new best "
        "one; --best_by names the measure, loss or a score such as bleu",
        "eval_timeout_mins": NO_WAITING,
        "eval_throttle_seconds save_checkpoints_steps iterations_per_loop": "evaluations and checkpoints follow every --local_eval_frequency steps; change that number",
        "eval_run_autoregressive": "each evaluation also decodes dev lines; --eval_decode_lines sets how many",
        "eval_use_test_set": "evaluation reads the dev split; to score a test set, use t2t-decoder and t2t-bleu --test_set",
        "keep_checkpoint_every_n_hours": "raise --keep_checkpoint_max to keep more checkpoints, or keep the best by --max_checkpoints_by_score",
        "export_saved_model export_saved_model_api_version": "run t2t-exporter after training",
        "job-dir": "write --output_dir",
        "sync optionally_use_dist_strat": "all devices always train synchronously, with tf.distribute; omit it",
        "gpu_automatic_mixed_precision": "give --precision=mixed_bfloat16, or mixed_float16 on GPUs without bfloat16",
        "profile dbgprofile": "metrics.jsonl has the speed; omit it",
        "ps_*": "no parameter servers are used (docs/distributed.md); omit it",
        "worker_id worker_job worker_replicas master std_server_protocol": "describe the machines in the environment "
        "variable TF_CONFIG (docs/distributed.md); omit it",
        "decode_hparams decode_from_file decode_to_file decode_reference": "t2t-trainer only trains; decode the model with t2t-decoder afterwards",
    },
    "flag of t2t-decoder": {
        "decode_shards worker_id": "write --shards and --shard_id, the part that this process decodes",
        "decode_in_memory": "name the input with --decode_from_file; omit it",
        "keep_timestamp": "touch -r CHECKPOINT.index OUTPUT does the same after decoding; omit it",
        "eval_use_test_set": "t2t-decoder translates text: give the test set's text with --decode_from_file",
        "model_dir source translations_dir decoder_command":  # of t2t-translate-all
        "t2t-decoder decodes one checkpoint; call it in a shell loop with --checkpoint_path",
        "beam_size alpha": "write --decode_hparams, e.g. --decode_hparams=beam_size=4,alpha=0.6",
    },
    "flag of t2t-exporter": {
        "export_as_tfhub": "TensorFlow Hub loads the SavedModel with hub.load; omit it",
        "as_text": "the SavedModel is binary, the format that servers read; omit it",
        "decode_from_file": "t2t-exporter only exports; for lines that warm up the server, write --warmup_from_file",
        "decode_to_file decode_reference": "t2t-exporter only exports; decode and score with t2t-decoder",
    },
    "flag of t2t-datagen": {
        "exclude_problems only_list": "name one problem with --problem; --registry_help lists them",
        "num_shards": "the problem sets the number of shards (num_train_shards); omit it",
        "max_cases": "give fewer lines of text, e.g. cut the files with head",
        "random_seed": "t2t-trainer shuffles the examples, and its --random_seed sets the order; omit it",
        "task_id task_id_start task_id_end": "one t2t-datagen writes all shards, with --num_concurrent_processes processes; omit it",
        "env_problem_*": "there are no problems of reinforcement learning; omit it",
    },
    "flag of t2t-avg-checkpoints": {
        "model_dir prefix": "name the model folder with --output_dir; its last checkpoints are averaged",
        "checkpoints n min_steps": "write --num_last_checkpoints, how many checkpoints of --output_dir to average",
        "output_path": "the average is written to OUTPUT_DIR/averaged, where t2t-decoder finds it; omit it",
        "wait_minutes": NO_WAITING,
    },
    "flag of t2t-bleu": {
        "bleu_variant": "t2t-bleu prints all its scores, each with its signature; omit it",
        "translations_dir event_dir tag_suffix min_steps wait_minutes report_zero": "t2t-bleu scores one file: give --translation; during training, metrics.jsonl and TensorBoard have BLEU",
    },
    "flag of t2t-query-server": {
        "problem data_dir": "the exported model reads and writes text, so the client needs no vocabulary; omit it",
        "cloud_mlengine_*": "the client asks TensorFlow Serving: give --server, and --rest for its REST API",
    },
    "flag of t2t-import": {
        "model": "only tensor2tensor's model transformer can be imported; omit it",
        "hparams": "t2t-import reads hparams.json: give --hparams_json, or --hparams_set if the file is lost",
        "data_dir": "t2t-import looks for the vocabulary in the folder of the training; if it is elsewhere, give --vocab",
    },
    "import": {
        "problem registry": "write from t2t_repro import problem, registry",
        "problems": "write from t2t_repro import registry, and registry.problem(name)",
        "text_problems translate": "write from t2t_repro.problems import text_problems, translate",
        "translate_ende translate_enfr": "write from t2t_repro.problems import translate, which has the WMT problems "
        "of German and French; copy others",
        "transformer": "write from t2t_repro.hparams import tensor2tensor as transformer; hparams sets are frozen, so "
        f"change copies with dataclasses.replace; for the model, {MODEL}",
        "common_hparams": "write from t2t_repro.hparam import HParams",
        "generator_utils": "use t2t_repro.corpora.archives.unpack for downloads",
        "text_encoder": "write no import: t2t-datagen encodes the text that generate_samples yields",
        "Transformer t2t_model": MODEL,
    },
    "attribute of a problem": {
        "generate_encoded_samples feature_encoders get_or_create_vocab": "write generate_samples, and give the "
        "vocabularies with t2t-datagen --vocab_file and --source_vocab_file",
        "generate_data generator dataset input_fn preprocess preprocess_example filepattern "
        "training_filepaths "
        "dev_filepaths test_filepaths TRAIN_FILES EVAL_FILES": "write generate_samples, which yields text",
        "targeted_vocab_size vocab_name vocab_file is_character_level num_shards num_dev_shards": "write approx_vocab_size, vocab_filename, vocab_type and dataset_splits",
        "dataset_filename": "the files have the problem's name; copy them to names with this problem's name",
        "oov_token": "unknown words become the first of <unk>, UNK, <UNK>, [UNK] and <OOV> that the vocabulary file "
        "has; omit it",
        "max_subtoken_length input_space_id": "it has no effect here (target_space_id has); omit it",
        "already_shuffled skip_random_fraction_when_training batch_size_means_tokens "
        "num_training_examples "
        "multiprocess_generate num_generate_tasks prepare_to_generate": "t2t-datagen and t2t-trainer do it themselves; omit it",
        "generate_text_for_vocab vocab_data_files max_samples_for_vocab": LEARNED,
        "hparams": "write target_space_id = N in the class, and set hparams in an hparams set",
        "max_length": "give t2t-trainer --hparams=max_length=N; omit it",
        "example_reading_spec has_inputs packed_length": "an example is always one pair of inputs and targets; omit it",
        "inputs_prefix targets_prefix": "add the prefix in generate_samples, and that of inputs to the text that t2t-decoder reads",
        "eval_metrics eval_metric_fns all_metrics_fns eval_hooks decode_hooks": "override scores(outputs, references), see t2t_repro/problem.py",
        "datatypes_to_clean": "drop pairs in generate_samples, or with t2t-datagen --clean_max_words and --clean_max_ratio",
    },
}
"""For each kind of name: answers by name. A key holds all names with this answer, separated by
spaces. In a name, * stands for any characters, and ? for one. Of several keys with a name, the
first counts.
"""

HPARAMS_FLAGS: dict[str, tuple[str, type[HParams] | type[DecodeHParams]]] = {
    "t2t-trainer": ("hparams", HParams),
    **dict.fromkeys(
        ("t2t-decoder", "t2t-exporter", "t2t-reproduce", "t2t-translate-beam"),
        ("decode_hparams", DecodeHParams),
    ),
}
"""For each program: its flag of changes of hparams, and the class of these hparams."""


def answer(kind: str, name: str) -> str:
    """Returns the answer to a name; "" if there is none. `kind` is a key of `ANSWERS`."""
    answers = ANSWERS.get(kind, {}).items()
    return next(
        (text for names, text in answers if any(fnmatchcase(name, each) for each in names.split())),
        "",
    )


def explained(error: BaseException) -> str:
    """Returns an error's message. If it, or its cause, is a name that only tensor2tensor has, this
    answers the name.
    """
    message = str(error)
    for cause in (error, error.__cause__):
        if isinstance(cause, UnknownNameError):
            message = message.replace(str(cause), _explained_name(cause))
        elif isinstance(cause, ImportError) and (cause.name or "").startswith("tensor2tensor"):
            message = message.replace(str(cause), _explained_import(cause))
    return message


def explained_flag(program: str, flag: str) -> str:
    """Returns the message for a flag that `program` does not have; "" if tensor2tensor has no such
    flag or hparam.

    `program` is a name such as "t2t-decoder". `flag` is a name without dashes; "nosync" is the flag
    "sync".
    """
    hparams_flag, hparams = HPARAMS_FLAGS.get(program, ("", None))
    if program == "t2t-trainer" and flag.startswith("hp_"):
        text = f"write --hparams={flag[3:]}=VALUE"
    elif hparams and any(
        flag in cls.__dataclass_fields__ for cls in (hparams, *hparams.__subclasses__())
    ):
        text = f"write --{hparams_flag}={flag}=VALUE"
    else:
        kinds = [
            f"flag of {program}",
            *(["flag of training"] if program in TRAINING_PROGRAMS else []),
            "flag",
        ]
        names = (flag, flag.removeprefix("no"))
        answers = [answer(kind, name) for name in names for kind in kinds]
        if program in TRAINING_PROGRAMS:
            answers += [TRAINING_ONLY for name in names if answer("flag of t2t-trainer", name)]
        text = next(filter(None, answers), "")
    return text and f"--{flag} does not exist here: {text}"


def _explained_name(error: UnknownNameError) -> str:
    kind = error.kind
    name = error.name
    if kind == "problem":
        return _explained_problem(error)
    if kind == "hparams set" and name.startswith("transformer_"):
        return f"{error} In place of a set of tensor2tensor's, change one with --hparams, or write one (docs/extending.md)"
    if kind.startswith("field of "):
        kind = "decode hparam" if kind == "field of DecodeHParams" else "hparam"
    text = answer(kind, name)
    return f"{kind} {name!r} does not exist here: {text}" if text else str(error)


def _explained_problem(error: UnknownNameError) -> str:
    base = error.name.removesuffix("_rev")
    if base != (unpacked := base.removesuffix("_packed")):
        return (
            f"problem {error.name}: packed data is not supported, because a batch has pairs of "
            f"similar lengths; generate the data of {unpacked} with tensor2tensor, which has the "
            f"same vocabulary, and give --problem={unpacked}"
        )
    if "," in error.name or "*" in error.name:
        return f"--problem={error.name}: a command works with one problem; run one command for each"
    if error.name.startswith("translate_"):
        return (
            f"{error} For a problem of your own, give --t2t_usr_dir, the folder with its class "
            "(docs/from_tensor2tensor.md); to train on files, use --problem=text_files"
        )
    return str(error)


def _explained_import(error: ImportError) -> str:
    """Returns advice for the names in the line of user code that imports from tensor2tensor."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
    ]
    answers = {name: answer("import", name) for name in re.findall(r"\w+", frames[-1].line or "")}
    advice = "; ".join(f"in place of {name}, {text}" for name, text in answers.items() if text)
    return f"tensor2tensor is not used here; {advice or 'remove this import and the code that uses it'}"


def missing_name(module: str, name: str) -> Exception:
    """Returns the error for a class or function of tensor2tensor's module that does not exist in
    ours.
    """
    if name.startswith("__"):  # Python looks for such names in any module.
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    if name.isupper():
        cure = "write the list of files in source_data_files"
    elif name.islower():
        cure = "yield the text in generate_samples"
    else:
        cure = "problems are text to text; write a Text2TextProblem or a TranslateProblem (docs/from_tensor2tensor.md)"
    return UserError(f"{module}.{name} does not exist here: {cure}")
