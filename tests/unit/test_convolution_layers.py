"""Tests how hparams.convolutions describes the layers of ConvS2S, and the errors for wrong descriptions."""

from __future__ import annotations

import pytest

from t2t_repro import registry
from t2t_repro.convolution_layers import ConvolutionLayer, convolution_layers
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams, override

CONVS2S = HParams(model="convs2s", num_hidden_layers=3, num_decoder_layers=2, convolutions="8x3*2+12x1")


def test_groups_become_layers() -> None:
    layers = [ConvolutionLayer(8, 3), ConvolutionLayer(8, 3), ConvolutionLayer(12, 1)]
    assert list(convolution_layers(CONVS2S)) == layers
    assert convolution_layers(override(CONVS2S, "convolutions=,kernel_height=5")) == ((512, 5),) * 3
    assert len(convolution_layers(override(CONVS2S, "num_hidden_layers=2,num_decoder_layers=3"))) == 3


def test_the_papers_layers() -> None:
    registry.import_built_in()
    ende, enfr = (convolution_layers(registry.hparams(f"convs2s_{name}")) for name in ("ende", "enfr"))
    assert ende == ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2
    assert enfr == ((512, 3),) * 6 + ((768, 3),) * 4 + ((1024, 3),) * 3 + ((2048, 1), (4096, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("convolutions=8x3", "describes 1 layers, but the larger stack has 3; set num_hidden_layers=1"),
        ("num_encoder_layers=5", "describes 3 layers, but the larger stack has 5; set num_encoder_layers=3"),
        ("convolutions=8x3*2+", "'' must be WIDTHxKERNEL or WIDTHxKERNEL*LAYERS; write e.g. 512x3"),
        ("convolutions=8*3", "'8*3' must be WIDTHxKERNEL"),
        ("convolutions=8x3*0", "'8x3*0' must be WIDTHxKERNEL"),
        ("convolutions=0x3*3", "'0x3*3' must be WIDTHxKERNEL"),
        ("convolutions=-8x3*3", "'-8x3*3' must be WIDTHxKERNEL"),
        ("convolutions=8x3*99999999999", "99999999999 in '8x3*99999999999' must be at most 1000"),
        ("convolutions=9999999x3*3", "9999999 in '9999999x3*3' must be at most 1048576"),
        ("convolutions=8x1001*3", "1001 in '8x1001*3' must be at most 1000"),
        ("kernel_height=5", "kernel_height=5 has no effect with convolutions=8x3*2+12x1"),
        ("kernel_height=0", "kernel_height=0 must be 1 or more"),
        ("kernel_height=1001", "kernel_height=1001 must be at most 1000"),
        ("output_embedding_size=8", "output_embedding_size=8 differs from hidden_size=512"),
        ("output_embedding_size=-1", "output_embedding_size=-1 must be 0 or more; 0 is hidden_size"),
        ("num_heads=4", "num_heads=4 has no effect in the model convs2s"),
    ],
)
def test_wrong_sizes_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        override(CONVS2S, text)
    assert message in str(error.value)


def test_only_convs2s_has_these_hparams() -> None:
    for text in ("convolutions=8x3*6", "kernel_height=5", "output_embedding_size=64"):
        with pytest.raises(UserError, match="has no effect in the model transformer"):
            override(HParams(), text)
    assert override(CONVS2S, "hidden_size=100").hidden_size == 100  # num_heads need not divide it
