"""Drawn glyphs turned, sheared, scaled, shifted, bent, thickened or thinned, and with noise: no two images alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate, max_pool2d

IMAGE_PIXELS = 32  # pixels of an image's side
TURN = 0.17  # radians, standard deviation
SHEAR = 0.12
SCALE = 0.1  # of the logarithm, each axis by itself
SHIFT = 0.08  # of half the image's side
BEND = 0.06  # of half the image's side, of a field of BENDS x BENDS random shifts, smoothly between them
BENDS = 4
THINNEST = 0.4  # of an erosion: all of one would wipe out light faces
IMAGE_NOISE = 0.12  # standard deviation, ink is 1
FAINTEST = 0.6  # ink's least strength


def distort_glyphs(glyphs: Tensor, generator: torch.Generator) -> Tensor:
    """[b, s, s] uint8 -> [b, 1, SIZE, SIZE] float32 around 0, each image by its own random draws."""
    images = vary_strokes(glyphs[:, None].float() / 255, generator)
    grid = affine_grid(
        draw_affine(len(glyphs), generator), [len(glyphs), 1, IMAGE_PIXELS, IMAGE_PIXELS], align_corners=False
    )
    images = grid_sample(images, grid + draw_bends(len(glyphs), generator), align_corners=False)
    strength = FAINTEST + (1 - FAINTEST) * torch.rand((len(glyphs), 1, 1, 1), generator=generator)
    return strength * images + IMAGE_NOISE * torch.randn(images.shape, generator=generator)


def vary_strokes(images: Tensor, generator: torch.Generator) -> Tensor:
    """Strokes thicker (a dilation) or thinner (an erosion) by up to a pixel on each side."""
    weight = 2 * torch.rand((len(images), 1, 1, 1), generator=generator) - 1
    thick, thin = max_pool2d(images, 3, 1, 1), -max_pool2d(-images, 3, 1, 1)
    return images + weight.clamp(min=0) * (thick - images) + THINNEST * (-weight).clamp(min=0) * (thin - images)


def draw_affine(count: int, generator: torch.Generator) -> Tensor:
    """[count, 2, 3]: where in the glyph each pixel of the image is taken from."""
    turn, shear, wide, high = torch.randn((4, count), generator=generator)
    cos, sin = torch.cos(TURN * turn), torch.sin(TURN * turn)
    wide, high = torch.exp(SCALE * wide), torch.exp(SCALE * high)
    rows = torch.stack([wide * cos, -high * sin + SHEAR * shear, wide * sin, high * cos], dim=1).view(count, 2, 2)
    return torch.cat([rows, SHIFT * torch.randn((count, 2, 1), generator=generator)], dim=2)


def draw_bends(count: int, generator: torch.Generator) -> Tensor:
    """[count, SIZE, SIZE, 2]: a smooth random field of shifts."""
    field = BEND * torch.randn((count, 2, BENDS, BENDS), generator=generator)
    return interpolate(field, size=(IMAGE_PIXELS, IMAGE_PIXELS), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
