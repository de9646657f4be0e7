"""The product pictures: drawn at set-up time, some of them broken."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image, ImageDraw

GOOD_PICTURES = tuple(f"product-{n:02}.{'png' if n % 4 == 0 else 'jpg'}" for n in range(24))
BROKEN_PICTURES = ("truncated-1.jpg", "truncated-2.png", "text.jpg", "empty.jpg")
SIZE = (800, 600)


def draw_all(folder: Path) -> None:
    """Draw the good ones, and break copies of them for the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(GOOD_PICTURES):
        _draw(number).save(folder / name)
    for name, original in (("truncated-1.jpg", GOOD_PICTURES[1]), ("truncated-2.png", GOOD_PICTURES[0])):
        data = (folder / original).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    (folder / "text.jpg").write_text("The photographer is ill; the picture comes next week.\n")
    (folder / "empty.jpg").touch()


def _draw(seed: int) -> Image.Image:
    dice = random.Random(seed)
    image = Image.linear_gradient("L").resize(SIZE).convert("RGB")
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        left, top = dice.randrange(SIZE[0]), dice.randrange(SIZE[1])
        colour = (dice.randrange(256), dice.randrange(256), dice.randrange(256))
        pen.ellipse((left, top, left + dice.randrange(10, 200), top + dice.randrange(10, 200)), fill=colour)
    return image
