"""A small convolutional network that reads the characters: its features are the contexts, its last layer the head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from shortlist_models.checkpoint import load_checkpoint, save_checkpoint
from shortlist_models.progress import Progress
from torch import Tensor, nn

from .distortions import IMAGE_PIXELS, distort_glyphs

READER_DIM = 128
READER_CHANNELS = 32
READER_BATCH = 256
CHECKPOINT_STEPS = 100  # steps between two checkpoints
IMAGES_AT_A_TIME = 1000  # images at a time


@dataclass(frozen=True)
class Training:
    """AdamW, one cycle of the learning rate; no image is seen twice."""

    steps: int = 1200
    learning_rate: float = 4e-3
    decay: float = 1e-2
    seed: int = 0


class Reader(nn.Module):
    """Images [b, 1, SIZE, SIZE] -> features [b, DIM], not negative; `out` gives the logits."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *conv_block(1, READER_CHANNELS, 2),
            *conv_block(READER_CHANNELS, 2 * READER_CHANNELS, 2),
            *conv_block(2 * READER_CHANNELS, 4 * READER_CHANNELS, 1),
            *conv_block(4 * READER_CHANNELS, 4 * READER_CHANNELS, 2),
            nn.Flatten(),
            nn.Linear(4 * READER_CHANNELS * (IMAGE_PIXELS // 8) ** 2, READER_DIM),
            nn.BatchNorm1d(READER_DIM),
            nn.ReLU(),
        )
        self.out = nn.Linear(READER_DIM, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits [b, V] of images."""
        logits: Tensor = self.out(self.body(images))
        return logits


def conv_block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """A convolution, batch normalisation and ReLU."""
    return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def train_reader(glyphs: Tensor, training: Training, checkpoint: Path, report: Progress) -> Reader:
    """The reader of `glyphs` [V, faces, s, s] uint8; goes on from `checkpoint` and ends as if never interrupted."""
    torch.manual_seed(training.seed)
    reader = Reader(len(glyphs))
    reader.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(reader.parameters(), training.learning_rate, weight_decay=training.decay)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, training.learning_rate, training.steps, pct_start=0.15)
    parts = {"reader": reader, "optimizer": optimizer, "cycle": cycle}
    steps_done = load_training(checkpoint, training, parts)
    for step in range(steps_done, training.steps):
        generator = torch.Generator().manual_seed((training.seed << 32) + step)
        classes = torch.randint(len(glyphs), (READER_BATCH,), generator=generator)
        faces = torch.randint(glyphs.shape[1], (READER_BATCH,), generator=generator)
        images = distort_glyphs(glyphs[classes, faces], generator).to(memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(reader(images), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        cycle.step()
        report(f"reading characters, loss {loss.item():.2f}", step + 1, training.steps)
        if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == training.steps:
            save_training(checkpoint, training, step + 1, parts)
    reader.eval()
    return reader


def save_training(path: Path, training: Training, done: int, parts: dict[str, Any]) -> None:
    """Leave everything at `path`, whole or not at all."""
    state = {name: part.state_dict() for name, part in parts.items()}
    save_checkpoint(path, repr(training), {"done": done} | state)


def load_training(path: Path, training: Training, parts: dict[str, Any]) -> int:
    """Fill `parts` from the state at `path` if it is of the same training; returns the steps done."""
    state = load_checkpoint(path, repr(training))
    if state is None:
        return 0
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["done"])


def encode_images(reader: Reader, glyphs: Tensor, each: int, seed: int, report: Progress) -> tuple[Tensor, Tensor]:
    """Features [V * each, DIM] of new images, `each` of every character over the faces in turn, and classes [V * each].

    seed: from 2^40 on, where no image is one of the training's.
    """
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(len(glyphs)).repeat(each)
    faces = (torch.arange(each)[:, None] + torch.arange(len(glyphs))).flatten() % glyphs.shape[1]
    parts = []
    with torch.inference_mode():
        for some, of in zip(torch.split(classes, IMAGES_AT_A_TIME), torch.split(faces, IMAGES_AT_A_TIME), strict=True):
            images = distort_glyphs(glyphs[some, of], generator).to(memory_format=torch.channels_last)
            parts.append(reader.body(images))
            report("contexts of characters", IMAGES_AT_A_TIME * len(parts), len(classes))
    return torch.cat(parts), classes
