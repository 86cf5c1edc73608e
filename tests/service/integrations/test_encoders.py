"""Heads inside decoders behind an encoder of sounds or of pictures, whose `forward` takes no text there."""

from __future__ import annotations

import pytest
import torch
from shortlist.errors import BadInput
from shortlist.integrations.transformers import Draws, attach, detach
from transformers import (
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from tests.service.integrations.test_transformers import CLASSES, DIM, make_own_head

pytestmark = pytest.mark.slow
TOKENS = {
    "vocab_size": CLASSES, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
DECODER = {"d_model": DIM, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 48}


def make_whisper():
    encoder = {"num_mel_bins": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 48}
    lengths = {"max_source_positions": 50, "max_target_positions": 64}
    quiet = {"suppress_tokens": None, "begin_suppress_tokens": None}
    model = WhisperForConditionalGeneration(WhisperConfig(**DECODER, **TOKENS, **encoder, **lengths, **quiet))
    for name, value in {"no_timestamps_token_id": CLASSES - 1, "is_multilingual": False}.items():
        setattr(model.generation_config, name, value)
    return model, {"input_features": torch.randn(2, 8, 100), "decoder_input_ids": torch.tensor([[2, 5], [2, 7]])}


def make_reader():
    encoder = ViTConfig(
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=16,
    )
    decoder = TrOCRConfig(
        **DECODER, **TOKENS, is_decoder=True, add_cross_attention=True, cross_attention_hidden_size=24
    )
    model = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id = settings.pad_token_id = 2
    return model, {"pixel_values": torch.randn(2, 3, 32, 32)}


@pytest.fixture(params=[make_whisper, make_reader])
def recogniser(request):
    torch.manual_seed(5)
    model, inputs = request.param()
    with torch.no_grad():
        model.get_output_embeddings().weight.normal_(std=0.4)
    return model.eval(), inputs


def test_generate_goes_on_with_the_head(recogniser, tmp_path):
    model, inputs = recogniser
    expected = [model.generate(**inputs, max_new_tokens=8, num_beams=beams) for beams in (1, 3)]
    head = make_own_head(tmp_path, model)
    attach(model, head, exact=True)
    for beams, tokens in zip((1, 3), expected, strict=True):
        assert torch.equal(model.generate(**inputs, max_new_tokens=8, num_beams=beams), tokens)
    detach(model)
    attach(model, head, draws=Draws(3))
    drawn = [model.generate(**inputs, max_new_tokens=8, do_sample=sampled) for sampled in (False, True)]
    assert torch.equal(*drawn)


def test_a_head_of_another_layer_is_refused(recogniser, tmp_path):
    model, _ = recogniser
    head = make_own_head(tmp_path, model)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(2)
    with pytest.raises(BadInput, match="export a head of this very model"):
        attach(model, head)
