"""Every character of GB 2312's first level (3,755) in every face of `FACES`, drawn once, as the fonts have them.

Stands in for CASIA's handwriting (3,740 characters), which is not to be had: as many classes, equally frequent.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from shortlist.errors import BadInput, NotFound

GLYPH_PIXELS = 48  # pixels of a drawn glyph, margins included
FACE_POINTS = 40  # the face's size in it
FACES = (
    "Noto Sans CJK SC:style=Regular",
    "Noto Sans CJK SC:style=Bold",
    "Noto Serif CJK SC:style=Regular",
    "Noto Serif CJK SC:style=Bold",
    "AR PL UKai CN",
    "AR PL UMing CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "LXGW WenKai:style=Regular",
    "LXGW WenKai:style=Bold",
)
DEBIAN_PACKAGES = (
    "fontconfig fonts-noto-cjk fonts-arphic-ukai fonts-arphic-uming fonts-wqy-microhei fonts-wqy-zenhei "
    "fonts-lxgw-wenkai"
)
NO_CHARACTER = chr(0xFFFF)  # drawn as the face's mark for what it lacks


@dataclass(frozen=True)
class Face:
    """One face of a font file, which may hold several."""

    path: Path
    index: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.index}"


def list_characters() -> str:
    """The 3,755 most used Chinese characters: rows 16 to 55 of GB 2312, in its own order (by their sound)."""
    codes = [bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF)]
    return "".join(code.decode("gb2312", "ignore") for code in codes)


def find_faces() -> list[Face]:
    """`FACES` as fontconfig finds them; raises NotFound with what to install."""
    faces = [find_face(pattern) for pattern in FACES]
    missing = [pattern for pattern, face in zip(FACES, faces, strict=True) if face is None]
    if missing:
        raise NotFound(f"no font here is {', '.join(missing)}: on Debian, run `apt-get install {DEBIAN_PACKAGES}`")
    return [face for face in faces if face is not None]


def find_face(pattern: str) -> Face | None:
    """The first face that fontconfig lists for a pattern, or None."""
    try:
        command = ["fc-list", "--format", "%{file}\t%{index}\n", pattern, "file", "index"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    if not lines:
        return None
    path, index = sorted(lines)[0].split("\t")
    return Face(Path(path), int(index) & 0xFFFF)  # above these bits fontconfig counts variations


def parse_faces(text: str) -> list[Face]:
    """Parse `FILE[:INDEX],FILE[:INDEX]...` into faces; raises NotFound at a file that is not there."""
    faces = []
    for part in text.split(","):
        path, _, index = part.rpartition(":") if part.rpartition(":")[2].isdigit() else (part, "", "0")
        if not Path(path).is_file():
            raise NotFound(f"there is no font file {path}: give FILE or FILE:INDEX, separated by commas")
        faces.append(Face(Path(path), int(index)))
    return faces


def fingerprint_faces(faces: list[Face]) -> str:
    """What tells these faces from others."""
    parts = [f"{hashlib.sha256(face.path.read_bytes()).hexdigest()}:{face.index}" for face in faces]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def draw_glyphs(faces: list[Face], text: str) -> npt.NDArray[np.uint8]:
    """[characters, faces, SIDE, SIDE]: 255 is ink. Raises BadInput where a face lacks a character."""
    return np.stack([draw_face(face, text) for face in faces], axis=1)


def draw_face(face: Face, text: str) -> npt.NDArray[np.uint8]:
    """[characters, SIDE, SIDE] of one face; raises BadInput."""
    try:
        font = ImageFont.truetype(face.path, FACE_POINTS, index=face.index)
    except OSError as error:
        raise BadInput(f"{face} is no font that can be drawn: give another") from error
    absent = draw_glyph(font, NO_CHARACTER)
    glyphs = np.stack([draw_glyph(font, one) for one in text])
    lacking = (glyphs == absent).all(axis=(1, 2)) | ~glyphs.any(axis=(1, 2))
    if lacking.any():
        raise BadInput(f"{face} has no {text[int(lacking.argmax())]} ({lacking.sum()} are missing): give another font")
    return glyphs


def draw_glyph(font: ImageFont.FreeTypeFont, character: str) -> npt.NDArray[np.uint8]:
    """[SIDE, SIDE], its ink in the middle."""
    image = Image.new("L", (GLYPH_PIXELS, GLYPH_PIXELS))
    left, top, right, bottom = font.getbbox(character)
    place = ((GLYPH_PIXELS - left - right) / 2, (GLYPH_PIXELS - top - bottom) / 2)
    ImageDraw.Draw(image).text(place, character, fill=255, font=font)
    return np.asarray(image)
