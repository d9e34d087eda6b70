"""Answers to attributes of tensor2tensor's problems that have no effect here.

The names are those of tensor2tensor 1.15.7's Problem and Text2TextProblem. `text_problems.Text2TextProblem` prints an
answer if a subclass overrides such an attribute.
"""

GENERATE_SAMPLES = "write generate_samples, which yields text"
VOCAB_FILES = "write generate_samples, and give the vocabularies with t2t-datagen --vocab_file and --source_vocab_file"
HPARAMS = "write target_space_id = N in the class, and set hparams in an hparams set"
TEXT_PAIRS = "examples always have inputs and targets"
ONLY_SCORES = "override scores(outputs, references), see t2t_repro/problem.py"
PROBLEM_ANSWERS = {
    "generate_encoded_samples": VOCAB_FILES,
    "feature_encoders": VOCAB_FILES,
    "get_or_create_vocab": VOCAB_FILES,
    "generate_data": GENERATE_SAMPLES,
    "generator": GENERATE_SAMPLES,
    "targeted_vocab_size": "write approx_vocab_size",
    "vocab_name": "write vocab_filename",
    "vocab_file": "write vocab_filename",
    "is_character_level": "write vocab_type",
    "num_shards": "write dataset_splits",
    "num_dev_shards": "write dataset_splits",
    "dataset_filename": "the files have the problem's name; copy them to names with this problem's name",
    "oov_token": "unknown words become the first of <unk>, UNK, <UNK>, [UNK] and <OOV> that the vocabulary file has; "
    "omit it",
    "max_samples_for_vocab": "the vocabulary is learned from an even sample of the text; omit it",
    "max_subtoken_length": "subwords have no maximum length here; omit it",
    "input_space_id": "only target_space_id has an effect; omit it",
    **dict.fromkeys(
        (
            "already_shuffled",
            "skip_random_fraction_when_training",
            "batch_size_means_tokens",
            "num_training_examples",
            "multiprocess_generate",
            "num_generate_tasks",
            "prepare_to_generate",
        ),
        "t2t-datagen and t2t-trainer do it themselves; omit it",
    ),
    "generate_text_for_vocab": "the vocabulary is learned from the training text; omit it, or use --vocab_file",
    "vocab_data_files": "the vocabulary is learned from the training text; omit it, or use --vocab_file",
    "hparams": HPARAMS,
    "max_length": "give t2t-trainer --hparams=max_length=N; omit it",
    "example_reading_spec": TEXT_PAIRS,
    "preprocess_example": "change the text in generate_samples",
    "has_inputs": TEXT_PAIRS,
    "packed_length": "pairs are not packed, because a batch has pairs of similar lengths; omit it",
    "inputs_prefix": "add the prefix in generate_samples, and to the text that t2t-decoder reads",
    "targets_prefix": "add the prefix in generate_samples",
    **dict.fromkeys(("eval_metrics", "eval_metric_fns", "all_metrics_fns", "eval_hooks", "decode_hooks"), ONLY_SCORES),
    **dict.fromkeys(
        ("dataset", "input_fn", "preprocess", "filepattern", "training_filepaths", "dev_filepaths", "test_filepaths"),
        GENERATE_SAMPLES,
    ),
    **dict.fromkeys(("TRAIN_FILES", "EVAL_FILES"), "read the files in generate_samples"),
    "datatypes_to_clean": "drop pairs in generate_samples, or with t2t-datagen --clean_max_words and --clean_max_ratio",
}
"""Advice for each attribute of tensor2tensor's problems that has no effect here, by name."""
