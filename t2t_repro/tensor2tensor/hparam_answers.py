"""Answers to hparams and decode hparams of tensor2tensor that do not exist here.

The names are those of tensor2tensor 1.15.7's transformer sets and of its decode hparams. An answer says what does the
job here, or why the hparam is not needed; `hparam.override` prints it after the name.
"""

from __future__ import annotations

from collections.abc import Iterable

from t2t_repro.errors import UserError, unknown


def _answers(names: str, reply: str) -> dict[str, str]:
    """Returns a dictionary in which each name in `names`, separated by spaces, has the value `reply`."""
    return dict.fromkeys(names.split(), reply)


OTHER_MODELS = "it belongs to other models or tasks of tensor2tensor; omit it"
ONLY_ADAM = "the optimizer is always Adam; omit it"
BATCHES = "batches are planned from the exact lengths of an epoch's pairs (docs/architecture.md); omit it"
SEARCH = "it is a decode hparam here: write it in t2t-decoder --decode_hparams"
NOT_SUPPORTED = "the Transformer here does not have it; omit it"
SAME_SPEED = "it changed only speed or memory; omit it"

HPARAMS = {
    "learning_rate": "write learning_rate_constant, a factor of learning_rate_schedule; with tensor2tensor's schedule "
    "legacy, 0.2 was the factor 2.0 of constant*noam",
    "learning_rate_decay_scheme": "write learning_rate_schedule=constant*noam for the scheme noam",
    **_answers(
        "learning_rate_decay_steps learning_rate_decay_rate learning_rate_decay_staircase "
        "learning_rate_cosine_cycle_steps learning_rate_minimum learning_rate_boundaries learning_rate_multiples",
        "learning_rate_schedule has no factor that uses it; omit it (linear_decay ends at train_steps)",
    ),
    "optimizer": "the optimizer is always Adam; omit it, or for Adafactor's learning rates write "
    "optimizer_adafactor_multiply_by_parameter_scale=true",
    "optimizer_multistep_accumulate_steps": "batch_size counts the tokens of a whole step, and gradients are "
    "accumulated automatically; omit it",
    **_answers(
        "optimizer_zero_grads optimizer_momentum_momentum optimizer_momentum_nesterov optimizer_adafactor_beta1 "
        "optimizer_adafactor_beta2 optimizer_adafactor_clipping_threshold optimizer_adafactor_decay_type "
        "optimizer_adafactor_factored optimizer_adafactor_memory_exponent",
        ONLY_ADAM,
    ),
    **_answers("clip_grad_norm grad_noise_scale weight_decay weight_noise", "0 is its only value here; omit it"),
    "layer_preprocess_sequence": "write norm_before=true for n (pre-norm), norm_before=false for none (post-norm)",
    "layer_postprocess_sequence": "write norm_before=true for da (pre-norm), norm_before=false for dan (post-norm)",
    "norm_type": "layer norm is the only type; omit it",
    "ffn_layer": "dense_relu_dense is the only type; omit it",
    "initializer": "uniform_unit_scaling is the only one; omit it, or change initializer_gain",
    "multiply_embedding_mode": "embeddings are always multiplied by sqrt(hidden_size); omit it",
    "dropout": "write layer_prepostprocess_dropout; the Transformer never used dropout",
    **_answers(
        "attention_dropout_broadcast_dims relu_dropout_broadcast_dims layer_prepostprocess_dropout_broadcast_dims",
        "each element has its own dropout; omit it",
    ),
    **_answers(
        "parameter_attention_key_channels parameter_attention_value_channels hard_attention_k gumbel_noise_weight "
        "proximity_bias unidirectional_encoder causal_decoder_self_attention heads_share_relative_embedding "
        "add_relative_to_values position_features nbr_decoder_problems prepend_mode conv_first_kernel "
        "area_key_mode area_value_mode num_area_layers max_area_width max_area_height memory_height vocab_divisor "
        "symbol_dropout scheduled_sampling_prob scheduled_sampling_gold_mixin_prob scheduled_sampling_method "
        "scheduled_sampling_num_passes scheduled_sampling_warmup_schedule scheduled_sampling_warmup_steps",
        NOT_SUPPORTED,
    ),
    **_answers(
        "attention_variables_3d daisy_chain_variables factored_logits force_full_predict no_data_parallelism "
        "pad_batch symbol_modality_num_shards use_custom_ops use_pad_remover tpu_enable_host_call",
        SAME_SPEED,
    ),
    **_answers(
        "activation_dtype weight_dtype gpu_automatic_mixed_precision mixed_precision_optimizer_init_loss_scale "
        "mixed_precision_optimizer_loss_scaler",
        "write the flag --precision, e.g. --precision=mixed_bfloat16",
    ),
    **_answers("batch_shuffle_size length_bucket_step min_length_bucket", BATCHES),
    "use_fixed_batch_size": "batch_size always counts target tokens; omit it",
    "pack_dataset": "pairs are not packed, because a batch has pairs of similar lengths; omit it",
    "moe_hidden_sizes": "write filter_size, the inner width of each expert",
    "min_length": "drop short pairs from the text; omit it",
    **_answers(
        "max_input_seq_length max_target_seq_length",
        "texts are not truncated in training: pairs longer than max_length are dropped; write max_length",
    ),
    "eval_drop_long_sequences": "the dev loss is computed on the whole dev split; omit it",
    "eval_run_autoregressive": "each evaluation also decodes dev lines; the flag --eval_decode_lines sets how many",
    "schedule": "t2t-trainer always trains and evaluates; omit it",
    **_answers("eval_steps warm_start_from", "it is a flag of t2t-trainer, not an hparam"),
    "eval_freq_in_steps": "write local_eval_frequency",
    **_answers("model_dir data_dir", "it is a flag, not an hparam: --output_dir or --data_dir"),
    **_answers("warm_start_from_second pretrained_model_dir", "write the flag --warm_start_from"),
    **_answers("summarize_grads summarize_vars", "metrics.jsonl and TensorBoard have the norms of gradients; omit it"),
    **_answers("sampling_method sampling_temp sampling_keep_top_k", SEARCH),
    **_answers(
        "bottom top loss name weights_fn compress_steps kernel_width mlperf_mode eval_timeout_mins "
        "overload_eval_metric_name moe_overhead_eval "
        "moe_overhead_train split_targets_chunk_length split_targets_max_chunks split_targets_strided_training "
        "split_to_length std_server_protocol video_num_input_frames video_num_target_frames "
        "multiproblem_fixed_train_length multiproblem_label_weight multiproblem_max_input_length "
        "multiproblem_max_target_length multiproblem_mixing_schedule multiproblem_per_task_threshold "
        "multiproblem_reweight_label_loss multiproblem_schedule_max_examples multiproblem_schedule_threshold "
        "multiproblem_target_eval_only multiproblem_vocab_size num_sampled_classes shared_source_target_embedding",
        OTHER_MODELS,
    ),
}
"""Answers to hparams, by name."""

DECODER_FLAGS = ("decode_to_file", "decode_reference", "shards", "shard_id")
DECODE_HPARAMS = {
    "eos_penalty": "tensor2tensor did not use it; omit it, or change alpha, the exponent of the length penalty",
    "min_length_ratio": "tensor2tensor did not use it; omit it, or change alpha, the exponent of the length penalty",
    "use_last_position_only": "decoding always computes only the last position; omit it",
    "force_decode_length": "an output ends at its end token; omit it, or limit the length with extra_length",
    "skip_eos_postprocess": "an output ends at its end token; omit it",
    "num_decodes": "write n, the number of outputs for each input, with sampling_method=random for samples",
    "num_samples": "to decode only the first lines, give a shorter --decode_from_file, e.g. cut with head",
    "delimiter": "only newlines separate inputs; convert the file, e.g. with tr",
    "identity_output": "--output_format=jsonl writes the tokens of each output; omit it",
    **{name: f"it is a flag of t2t-decoder: write --{name}" for name in DECODER_FLAGS},
    "decode_in_memory": "name the input with --decode_from_file; omit it",
    "shards_start_offset": "write the flags --shards and --shard_id",
    "shard_google_format": "write the flags --shards and --shard_id; the names of their files have that format",
    **_answers("log_results summaries_log_dir", "outputs are only written to --decode_to_file; omit it"),
    "decode_timeout_mins": "t2t-decoder does not wait for checkpoints; omit it",
    "export_extra_infer_outputs": "the signatures of an exported model are fixed (docs/serving.md); omit it",
    **_answers(
        "block_size guess_and_check_top_k guess_and_check_epsilon insertion_parallel",
        "no model here decodes several tokens at once; omit it",
    ),
    **_answers(
        "multiproblem_task_id save_images display_decoded_images frames_per_second border_percent max_display_outputs "
        "max_display_decodes vgg_ckpt_path mlperf_decode_step mlperf_threshold mlperf_success",
        OTHER_MODELS,
    ),
}
"""Answers to decode hparams, by name."""

SCHEDULE_FACTORS = {
    "legacy": "the schedule legacy with the scheme noam is constant*noam, with learning_rate_constant = 10 * "
    "tensor2tensor's learning_rate",
    "rsqrt_normalized_decay": "write rsqrt_decay, and multiply learning_rate_constant by sqrt(warmup steps)",
    **_answers("cosdecay single_cycle_cos_decay multi_cycle_cos_decay exp_decay", "write rsqrt_decay or linear_decay"),
}
"""Answers to factors of learning_rate_schedule, by name."""

SETS = """
    ada_lmpackedbase ada_lmpackedbase_dialog ada_lmpackedbase_relative base_vq1_16_nb1_packed_dan_b01_scales
    base_vq1_16_nb1_packed_nda_b01_scales base_vq1_16_nb1_packed_nda_b01_scales_dialog base_vq_ada_32ex_packed
    big_dr1 big_dr2 big_enfr_tpu cifar10_memory_v0 clean clean_big clean_big_tpu common_voice common_voice_tpu
    cubbitt fairseq_fp16_activation_big imagenet64_memory_v0 l10 librispeech librispeech_tpu librispeech_tpu_v1
    librispeech_tpu_v2 librispeech_v1 librispeech_v2 librispeech_with_area_attention lm_tpu_0 lm_tpu_1 mlperf_tpu
    packed_tpu parameter_attention_a parameter_attention_b parsing_base parsing_big parsing_ice prepend prepend_v1
    prepend_v2 relative_tiny small_tpu supervised_attention tall tall_big tall_finetune_textclass tall_finetune_tied
    tall_finetune_uniencdec tall_pretrain_lm tall_pretrain_lm_tpu tall_pretrain_lm_tpu_adafactor
    tall_pretrain_lm_tpu_adafactor_large tall_train_tied tall_train_uniencdec test timeseries timeseries_tpu
    tiny_tpu topk_16_packed tpu_1b tpu_bf16_activation tpu_with_conv wikitext103_l16k_memory_v0
    wikitext103_l4k_memory_v0 wikitext103_l4k_v0
"""
"""Names of tensor2tensor's Transformer sets that do not exist here, without "transformer_"."""

TABLES = {
    "field of HParams": HPARAMS,
    "field of DecodeHParams": DECODE_HPARAMS,
    "factor of learning_rate_schedule": SCHEDULE_FACTORS,
}


def unknown_hparam(kind: str, name: str, names: Iterable[str]) -> UserError:
    """Returns the error for an unknown hparam or factor: the answer if tensor2tensor has it, else the nearest name.

    Args:
        kind: what the name refers to: a key of `TABLES`, or another noun.
        name: the unknown name.
        names: the names that exist.
    """
    if reply := TABLES.get(kind, {}).get(name):
        return UserError(f"{kind} {name!r} does not exist here: {reply}")
    return unknown(kind, name, names)


def unknown_set(name: str, names: Iterable[str]) -> UserError:
    """Returns the error for an unknown hparams set, like `unknown_hparam`. `names` are the sets that exist."""
    if name.removeprefix("transformer_") in SETS.split():
        return UserError(
            f"hparams set {name!r} of tensor2tensor does not exist here; change a similar set with --hparams, or write "
            "one (docs/extending.md)"
        )
    return unknown("hparams set", name, names)
