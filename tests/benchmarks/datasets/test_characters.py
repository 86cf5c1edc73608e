"""Characters drawn, distorted and read; where CJK fonts may be absent, letters of the face that matplotlib ships."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
import torch
from shortlist.errors import BadInput, NotFound
from shortlist_models.progress import quiet

from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.datasets.rendered import glyphs, network
from benchmarks.datasets.rendered.distortions import IMAGE_PIXELS, distort_glyphs
from benchmarks.datasets.rendered.glyphs import GLYPH_PIXELS, Face

pytestmark = pytest.mark.slow

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = Face(FONTS / "DejaVuSans.ttf"), Face(FONTS / "DejaVuSerif.ttf")
LETTERS = "ABCDEFGH"


@pytest.fixture(scope="module")
def letters():
    return torch.from_numpy(glyphs.draw_glyphs([SANS, SERIF], LETTERS))


def test_the_characters_of_gb_2312():
    text = glyphs.list_characters()
    assert len(text) == len(set(text)) == 3755
    assert (text[0], text[-1]) == ("啊", "座")


def test_glyphs_lie_in_the_middle(letters):
    assert letters.shape == (len(LETTERS), 2, GLYPH_PIXELS, GLYPH_PIXELS)
    for axis in (2, 3):
        ink = letters.float().sum(dim=5 - axis) > 0
        first, last = ink.float().argmax(dim=2), GLYPH_PIXELS - 1 - ink.flip(2).float().argmax(dim=2)
        assert ((first + last - (GLYPH_PIXELS - 1)).abs() <= 2).all()


def test_a_face_that_lacks_characters_is_named():
    with pytest.raises(BadInput, match=r"DejaVuSans.ttf:0 has no 啊 \(1 are missing\)"):
        glyphs.draw_glyphs([SANS], "A啊B")


def test_faces_named_on_the_command_line(tmp_path):
    assert glyphs.parse_faces(f"{SANS.path},{SERIF.path}:0") == [SANS, SERIF]
    with pytest.raises(NotFound, match="no font file"):
        glyphs.parse_faces(f"{SANS.path},{tmp_path}/none.ttf:1")
    (tmp_path / "text.ttf").write_text("no")
    with pytest.raises(BadInput, match="no font that can be drawn"):
        glyphs.draw_face(Face(tmp_path / "text.ttf"), "A")


@pytest.mark.parametrize("patterns", [("No Such Face",), glyphs.FACES])
def test_what_to_install_is_said(monkeypatch, tmp_path, patterns):
    if patterns is glyphs.FACES:
        monkeypatch.setenv("PATH", str(tmp_path))  # no fontconfig at all
    monkeypatch.setattr(glyphs, "FACES", patterns)
    with pytest.raises(NotFound, match="apt-get install fontconfig fonts-noto-cjk"):
        DATASETS["characters"](Place(tmp_path))


def test_unknown_options_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no option font: give fonts or steps"):
        DATASETS["characters"](Place(tmp_path, options={"font": "x"}))


def test_distortions_differ_and_come_again(letters):
    same = letters[:1, 0].repeat(16, 1, 1)
    once = distort_glyphs(same, torch.Generator().manual_seed(3))
    assert once.shape == (16, 1, IMAGE_PIXELS, IMAGE_PIXELS)
    assert torch.equal(once, distort_glyphs(same, torch.Generator().manual_seed(3)))
    differences = (once[:, None] - once[None]).abs().mean(dim=(2, 3, 4))
    assert (differences[~torch.eye(16, dtype=torch.bool)] > 0.05).all()
    assert 0.02 < once.mean() < 0.5  # there is ink left


def test_the_network_reads_and_resumes(letters, tmp_path, monkeypatch):
    monkeypatch.setattr(network, "READER_BATCH", 32)
    monkeypatch.setattr(network, "CHECKPOINT_STEPS", 20)
    training = network.Training(steps=60)
    whole = network.train_reader(letters, training, tmp_path / "whole.pt", quiet)
    contexts, targets = network.encode_images(whole, letters, 10, 2**40, quiet)
    assert contexts.shape == (10 * len(LETTERS), network.READER_DIM)
    assert torch.bincount(targets).tolist() == [10] * len(LETTERS)
    assert (whole.out(contexts).argmax(dim=1) == targets).float().mean() > 0.8

    def stop(stage, done, total):
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        network.train_reader(letters, training, tmp_path / "halves.pt", stop)
    reader = network.train_reader(letters, training, tmp_path / "halves.pt", quiet)
    for (name, left), right in zip(whole.state_dict().items(), reader.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
