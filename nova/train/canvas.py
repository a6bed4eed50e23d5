"""A bitmap with lines and text, encoded as PNG. For the chart."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import numpy as np

from nova.train.font import text_dots

Colour = tuple[int, int, int]


class Canvas:
    """A white bitmap; y grows downwards."""

    def __init__(self, width: int, height: int):
        self.pixels = np.full((height, width, 3), 255.0)

    def box(self, x: int, y: int, width: int, height: int, colour: Colour) -> None:
        """A filled rectangle."""
        self.pixels[y : y + height, x : x + width] = colour

    def text(self, x: int, y: int, text: str, colour: Colour, size: int = 2) -> None:
        """Text with its top left corner at a point; every dot is `size` pixels wide."""
        dots = np.kron(text_dots(text), np.ones((size, size), bool))
        self._blend(x, y, dots.astype(float), colour)

    def curve(self, points: np.ndarray, colour: Colour, width: float) -> None:
        """An antialiased polyline with round strokes through points (x, y); NaN is a gap."""
        height, wide = self.pixels.shape[:2]
        covered = np.zeros((height, wide))
        reach = width / 2 + 1
        for start, end in pairwise(points):
            if not (np.isfinite(start).all() and np.isfinite(end).all()):
                continue
            left, top = np.floor(np.minimum(start, end) - reach).astype(int)
            right, bottom = np.ceil(np.maximum(start, end) + reach).astype(int)
            left, top = max(left, 0), max(top, 0)
            y, x = np.mgrid[top : min(bottom + 1, height), left : min(right + 1, wide)]
            distance = _distance(x, y, start, end)
            part = covered[top : min(bottom + 1, height), left : min(right + 1, wide)]
            np.maximum(part, np.clip(width / 2 + 0.5 - distance, 0, 1), out=part)
        self._blend(0, 0, covered, colour)

    def _blend(self, x: int, y: int, cover: np.ndarray, colour: Colour) -> None:
        """Blend a colour where `cover` is above 0; pixels outside are clipped."""
        height, width = self.pixels.shape[:2]
        cover = cover[max(0, -y) : max(0, height - y), max(0, -x) : max(0, width - x), None]
        x, y = max(0, x), max(0, y)
        part = self.pixels[y : y + cover.shape[0], x : x + cover.shape[1]]
        part += (np.array(colour, float) - part) * cover

    def png(self) -> bytes:
        """The bitmap as the bytes of a PNG file."""
        height, width = self.pixels.shape[:2]
        lines = np.zeros((height, 1 + 3 * width), np.uint8)  # byte 0 of a row: filter type 0
        lines[:, 1:] = np.rint(self.pixels).astype(np.uint8).reshape(height, -1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n"
            + _chunk(b"IHDR", header)
            + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 6))
            + _chunk(b"IEND", b"")
        )


def _distance(x: np.ndarray, y: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The distances of points from a segment."""
    along = end - start
    square = float(along @ along)
    share = ((x - start[0]) * along[0] + (y - start[1]) * along[1]) / (square or 1.0)
    share = np.clip(share, 0, 1)
    return np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
