"""Tests that hparams of tensor2tensor that do not exist here are answered."""

from __future__ import annotations

import dataclasses
import re

import pytest

from t2t_repro import registry
from t2t_repro.bin import t2t_decoder, t2t_trainer
from t2t_repro.errors import UserError
from t2t_repro.hparam import SCHEDULE_FACTORS, DecodeHParams, HParams, override
from t2t_repro.tensor2tensor.hparam_answers import SETS, TABLES

NAMES: dict[str, set[str]] = {
    kind: {field.name for field in dataclasses.fields(values)}
    for kind, values in (("field of HParams", HParams), ("field of DecodeHParams", DecodeHParams))
} | {"factor of learning_rate_schedule": set(SCHEDULE_FACTORS)}

T2T_DECODE_HPARAMS = """
    save_images log_results extra_length min_length_ratio batch_size beam_size alpha eos_penalty block_size
    guess_and_check_top_k guess_and_check_epsilon insertion_parallel return_beams write_beam_scores max_input_size
    identity_output num_samples delimiter decode_to_file decode_reference decode_in_memory decode_timeout_mins
    summaries_log_dir shards shard_id shards_start_offset shard_google_format num_decodes force_decode_length
    display_decoded_images multiproblem_task_id frames_per_second skip_eos_postprocess border_percent
    max_display_outputs max_display_decodes vgg_ckpt_path mlperf_decode_step mlperf_threshold mlperf_success
    export_extra_infer_outputs
"""
"""The names in decode_hparams of tensor2tensor 1.15.7's utils/decoding.py."""


@pytest.mark.parametrize("kind", TABLES)
def test_answers_are_for_names_that_do_not_exist_and_name_names_that_do(kind: str) -> None:
    assert not NAMES[kind] & TABLES[kind].keys()
    names = set().union(*NAMES.values()) | {*t2t_decoder.FLAGS, *t2t_trainer.FLAGS}
    for reply in TABLES[kind].values():
        written = re.findall(r"write (\w+)(?=[,;=]|$)|--(\w+)|(\w+)=", reply)
        assert {name for group in written for name in group if name} <= names | {"format"}, reply


def test_each_decode_hparam_of_tensor2tensor_exists_or_has_an_answer() -> None:
    kind = "field of DecodeHParams"
    assert set(T2T_DECODE_HPARAMS.split()) - NAMES[kind] <= TABLES[kind].keys()


@pytest.mark.parametrize(
    ("values", "text", "message"),
    [
        (HParams(), "learning_rate=0.2", "'learning_rate' does not exist here: write learning_rate_constant"),
        (HParams(), "hidden_size=64,symbol_dropout=0.1", "'symbol_dropout' does not exist here"),
        (HParams(), "layer_preprocess_sequence=n", "write norm_before=true for n"),
        (HParams(), "optimizer=Adafactor", "the optimizer is always Adam; omit it, or for"),
        (HParams(), "learning_rate_schedule=legacy", "'legacy' does not exist here: the schedule legacy with"),
        (DecodeHParams(), "force_decode_length=True", "an output ends at its end token"),
        (DecodeHParams(), "shards=2", "it is a flag of t2t-decoder: write --shards"),
    ],
)
def test_an_override_prints_the_answer(values: HParams | DecodeHParams, text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        override(values, text)
    assert message in str(error.value) and "did you mean" not in str(error.value)


def test_a_set_of_tensor2tensor_that_does_not_exist_here_is_answered() -> None:
    for name in ("transformer_l10", "transformer_big_dr1", "transformer_wikitext103_l4k_v0"):
        with pytest.raises(UserError, match=f"hparams set '{name}' of tensor2tensor does not exist here; change a"):
            registry.hparams(name)
    with pytest.raises(UserError, match="unknown hparams set 'transformer_bsae'; did you mean 'transformer_base'"):
        registry.hparams("transformer_bsae")
    assert not [name for name in SETS.split() if registry.has_hparams(f"transformer_{name}")]
