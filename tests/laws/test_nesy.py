"""The table of perception and rules: its data, its rules, and that it goes on where it stopped."""

from pathlib import Path

import numpy as np
import pytest
import torch

import latentgamma as lg

pytestmark = pytest.mark.slow


@pytest.fixture
def nesy(benchmarks):
    import nesy as package
    import nesy.tasks
    import nesy.training

    return package


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Noise instead of MNIST, every digit among it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez(
        path,
        x=rng.integers(0, 256, (400, 1, 28, 28), dtype=np.uint8),
        y=(np.arange(400) % 10).astype(np.uint8),
        xt=rng.integers(0, 256, (200, 1, 28, 28), dtype=np.uint8),
        yt=(np.arange(200) % 10).astype(np.uint8),
    )
    return path


def test_an_interrupted_run_goes_on_where_it_stopped(nesy, images: Path, tmp_path: Path) -> None:
    cells, trained = tmp_path / "cells.json", []

    def run(names: list[str], seeds: list[int], protocol: str = "papers") -> list[str]:
        trained.clear()
        nesy.run(
            [(name, protocol) for name in names], seeds, [cells], images=images, most_steps=2,
            progress=lambda name, done, total: trained.append(name),
        )  # fmt: skip
        return sorted(set(trained))

    assert run(["xor2", "add2"], [0, 1]) == ["add2", "xor2"]
    assert run(["xor2", "add2"], [0, 1]) == []
    assert run(["xor2"], [0, 1, 2]) == ["xor2"]
    assert run(["xor2"], [0], "ours") == ["xor2"]
    found = nesy.read([cells])
    assert sum(cell["part"] == "training" for cell in found) == 6
    rows = [row for row in nesy.table(found) if row["part"] != "call"]
    assert [(row["part"], row["task"]) for row in rows] == [
        ("papers", "add2"), ("papers", "xor2"), ("ours", "xor2"),
    ]  # fmt: skip
    assert len(rows[1]["each seed"].split()) == 3
    together, alone = (
        [c["seconds"] for c in found if c.get("task") == name] for name in ("add2", "xor2")
    )
    assert rows[0]["seconds"] == together[0] == together[1]
    assert rows[1]["seconds"] == pytest.approx(alone[0] + alone[2])
    assert rows[0]["mappings"] == "1"
    assert rows[1]["mappings"] == "2"


def test_nothing_begins_that_takes_longer_than_what_is_left(
    nesy, images: Path, tmp_path: Path, monkeypatch
) -> None:
    """What is left is named, the rest is trained, and both are written as a table."""
    cells = tmp_path / "cells.json"
    parts = [("add1", "papers"), ("xor2", "papers")]
    monkeypatch.setattr(nesy, "published_seconds", lambda: dict(zip(parts, (100, 30), strict=True)))
    left = nesy.run(parts, [0], [cells], images=images, most_steps=1, minutes=1.5)
    assert left == ["add1 (papers)"]
    found = nesy.read([cells])
    rows = nesy.table(found)
    assert [(row["part"], row.get("task"), row.get("left")) for row in rows] == [
        ("papers", "xor2", None), ("call", None, 1),
    ]  # fmt: skip
    nesy.write(tmp_path / "out", rows, nesy.about(found))
    page = (tmp_path / "out" / "nesy.md").read_text(encoding="utf-8")
    assert "| papers | xor2 |" in page
    assert nesy.run(parts, [0], [cells], images=images, most_steps=1) == []


@pytest.mark.parametrize("together", [0, 1000])
def test_a_seed_is_trained_as_if_it_were_alone(nesy, images: Path, monkeypatch, together) -> None:
    """The networks of all seeds as one network, or one after the other, give the same losses."""
    training, task = nesy.training, nesy.tasks.all_tasks()["add1"]
    found = nesy.tasks.data.images(images)
    # The last weights count, and the rate is high from the first step on.
    settings = nesy.tasks.Settings(9, 8, rate=0.01, average=0.0, warm_up=1)

    def losses(seeds: list[int]) -> list[float]:
        cells = training.train(task, seeds, found, settings=settings, most_steps=4)
        return [cell["loss"] for cell in cells]

    alone = [*losses([3]), *losses([5])]
    monkeypatch.setattr(training, "MOST_TOGETHER", together)
    assert losses([3, 5]) == pytest.approx(alone, rel=1e-4)
    assert abs(alone[0] - alone[1]) > 1e-2 * alone[0]


def test_messages_of_sums_are_those_of_the_rules(nesy) -> None:
    """Normal messages of 300 sums of 64 digits, beside the exact ones: gradients of the rules.

    The digits are drawn from the probabilities of their images, so the residuals of the sums have
    the variance that the rules compute.
    """
    rng = np.random.default_rng(0)
    P = torch.from_numpy(rng.normal(0, 1.5, (6400, 10))).softmax(1)
    digit = torch.multinomial(P, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    groups = torch.from_numpy(nesy.tasks.data.repeated(digit.numpy(), 64, 300, rng))
    sums = digit[groups].sum(1)
    scores = P.log()[groups].requires_grad_()
    loss = 300 * nesy.tasks.all_tasks()["sum64"].loss(scores, sums[:, None])
    (gradient,) = torch.autograd.grad(loss, scores)  # P(d) (1 - p(sum | d) / p(sum))
    exact = (1 - gradient / P[groups]).log()  # (300, 64, 10)

    values = torch.arange(10.0, dtype=P.dtype)
    mean, square = P @ values, P @ values**2
    others = sums[:, None] - mean[groups].sum(1, keepdim=True) + mean[groups]
    variance = (square - mean**2)[groups]
    variance = variance.sum(1, keepdim=True) - variance
    normal = -((others[..., None] - values) ** 2) / (2 * variance[..., None])
    assert (exact.softmax(-1) - normal.softmax(-1)).abs().max() < 0.004

    product = torch.zeros_like(P).index_add_(0, groups.flatten(), exact.flatten(0, 1)).softmax(1)
    found = nesy.training.messages(P, groups, sums).softmax(1)
    assert (product - found).abs().max() < 0.03  # mean and variance are those of 300 residuals
    assert product.max() > 0.2


def test_digits_are_learned_from_very_long_sums(nesy) -> None:
    """Images whose digit is easily seen; the network is shown sums of 256 of them."""
    y = np.arange(1000) % 10
    x = np.zeros((1000, 1, 28, 28), np.uint8)
    for image, digit in zip(x, y, strict=True):
        image[0, 2 * digit + 4 : 2 * digit + 7, 4:24] = 255
    task = nesy.tasks.all_tasks()["sum256"]
    settings = nesy.tasks.Settings(8, 20, average=0.9, warm_up=1, messages=True)
    found = {"x": x, "y": y, "xt": x, "yt": y}
    (cell,) = nesy.training.train(task, [0], found, settings=settings)
    assert cell["concepts_right"] == 1
    assert cell["labels_right"] == 1


@pytest.mark.parametrize("name", ["sudoku4", "reach6", "evenodd", "sum16"])
def test_labels_are_what_the_rules_derive(nesy, name: str) -> None:
    """The true values, fed as certain, make the loss of their own label almost zero."""
    task = nesy.tasks.all_tasks()[name]
    y = np.repeat(np.arange(10), 30)
    some = task.examples(y, training=False, rng=np.random.default_rng(1))
    truth = torch.from_numpy(some.truth[:20])
    scores = 30 * torch.nn.functional.one_hot(truth, task.values).float()
    task.layer.eval()
    label = task.label(truth)
    assert task.loss(scores, label) < 1e-3
    assert bool(task.right(scores, label).all())
    other = label.roll(1, 0)
    if bool((other != label).any()):
        assert task.loss(scores, other) > 0.1


def test_boards_are_valid_or_not_as_they_say(nesy) -> None:
    data = nesy.tasks.data
    for box in (2, 3):
        boards, valid = data.sudoku_boards(box, 40, np.random.default_rng(0))
        assert valid.tolist() == data.board_is_valid(boards, box).tolist()
        assert valid.sum() == 20


def test_mazes_and_graphs_are_labelled_as_the_closure_says(nesy) -> None:
    maze = nesy.tasks.all_tasks()["maze6"]
    rng = np.random.default_rng(0)
    free = rng.random((20, 36)) < 0.7
    free[:, [0, -1]] = True
    program = maze.layer.program
    names = [f"free({i},{j})" for i in range(6) for j in range(6)]
    for row, solved in zip(free, nesy.tasks.data.maze_solved(free, 6), strict=True):
        closed = lg.closure(program, [n for n, is_free in zip(names, row, strict=True) if is_free])
        assert ("reach(5,5)" in closed.atoms) == solved


def test_ctrl_c_says_where_the_finished_tasks_are(nesy, monkeypatch, capsys, tmp_path) -> None:
    from nesy import command

    def interrupted(*arguments: object, **options: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(nesy, "run", interrupted)
    monkeypatch.setattr("sys.argv", ["nesy", "xor2", "--cells", str(tmp_path / "cells.json")])
    assert command.main() == 130
    said = capsys.readouterr()
    assert str(tmp_path / "cells.json") in said.err
    assert "the same command goes on" in said.err
    assert not said.out
    with pytest.raises(SystemExit, match="130"):  # python benchmarks/run.py nesy
        nesy.rows()
    assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--settings", '{"epoch": 5}'], "there is no setting 'epoch'; there are epochs, batch"),
        (["--settings", '{"epochs": "5"}'], "epochs is of the kind int, not '5'"),
        (["--settings", '{"batch": 0}'], "batch is of the kind int, not 0"),
        (["--settings", '{"messages": 1}'], "messages is of the kind bool, not 1"),
        (["--settings", "[5]"], 'expected JSON such as {"epochs": 5}'),
        (["--seeds", "-1"], "expected a whole number from 0 on, not -1"),
        (["--steps", "0"], "expected a whole number from 1 on, not 0"),
        (["--device", "gpu"], "invalid choice: 'gpu'"),
        (["--images", "{cut}"], "cut.npz is not a file of MNIST images"),
        (["--cells", "{cut}"], "cut.npz is not a file of finished seeds"),
    ],
)
def test_wrong_arguments_are_named(
    nesy, images: Path, monkeypatch, capsys, tmp_path: Path, arguments: list[str], said: str
) -> None:
    from nesy import command

    (tmp_path / "cut.npz").write_bytes(images.read_bytes()[:1000])
    arguments = [
        part.format(cut=tmp_path / "cut.npz") if "cut" in part else part for part in arguments
    ]
    usual = ["--cells", str(tmp_path / "cells.json"), "--images", str(images), "--seeds", "0"]
    monkeypatch.setattr("sys.argv", ["nesy", "xor2", *usual, *arguments])
    try:
        code = command.main()
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "cells.json").exists()


def test_what_failed_is_named_and_the_command_fails(
    nesy, images: Path, monkeypatch, capsys, tmp_path: Path
) -> None:
    from nesy import command

    def failing(*arguments: object, **options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(nesy.training, "train", failing)
    arguments = ["xor2", "--protocol", "papers", "--cells", str(tmp_path / "cells.json")]
    monkeypatch.setattr("sys.argv", ["nesy", *arguments, "--images", str(images)])
    assert command.main() == 1
    said = capsys.readouterr().err
    assert "xor2 (papers): out of memory" in said
    assert "Not run: xor2 (papers), which failed." in said


def test_the_command_of_a_row_names_other_settings(nesy, images: Path, tmp_path: Path) -> None:
    cells = tmp_path / "cells.json"
    settings = {"epochs": 1, "messages": False}
    nesy.run(
        [("xor2", "papers")], range(5), [cells], images=images, settings=settings, most_steps=1
    )
    (row,) = nesy.table(nesy.read([cells]), "trial")
    assert row["command"] == (
        """python benchmarks/nesy xor2 --protocol papers --settings '{"epochs": 1}' --device cpu"""
    )


def test_the_command_of_a_row_names_its_seeds_and_a_cpu(nesy, images: Path, tmp_path: Path) -> None:
    cells = tmp_path / "cells.json"
    nesy.run([("xor2", "papers")], [3, 7], [cells], images=images, most_steps=1)
    found = nesy.read([cells])
    (row,) = (row for row in nesy.table(found) if row["part"] == "papers")
    assert row["command"].endswith("nesy xor2 --protocol papers --seeds 3 7 --device cpu")
    assert nesy.about(found)["command"].startswith("python benchmarks/nesy --seeds 3 7 --out")


def test_a_seed_fails_only_where_the_difference_is_not_chance(nesy) -> None:
    from nesy import page

    def row(task: str, seeds: str) -> dict[str, object]:
        values = [float(value) for value in seeds.split()]
        labels = sum(values) / len(values)
        return {
            "part": "ours", "task": task, "content": task, "machine": "CPU", "epochs": 1,
            "each seed": seeds, "labels": labels, "concepts": 50.0, "mappings": "1",
            "examples": 9, "seconds": 1.0,
        }  # fmt: skip

    said = page.about([row("a", "2.0 4.0"), row("b", "20.0 60.0 58.0"), row("c", "0.0 0.9")])
    (failed,) = (text for text in said if text.startswith("**Seeds that fail**"))
    assert (
        "b (ours, 1 epochs): 1 of 3, at 20.0. No seed has 1% of the labels right: c (ours, CPU)."
        in failed
    )
    assert "a (ours" not in failed


def test_peers_alone_are_shown(nesy, monkeypatch, capsys, tmp_path: Path) -> None:
    from nesy import command

    cells = tmp_path / "cells.json"
    nesy.add(cells, [{"part": "peers", "task": "xor2", "ours_ms": 0.07, "klay_ms": 0.25}])
    monkeypatch.setattr("sys.argv", ["nesy", "peers", "--no-run", "--cells", str(cells)])
    assert command.main() == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["peers", "xor2", "0.07", "0.25"]


def test_the_picture_has_no_sizes_that_were_not_measured(nesy) -> None:
    from matplotlib.figure import Figure

    import pictures

    rows = [
        {"part": "growth", "digits": n, "device": "cuda", "ms": n * 1.0, "mb": n * 2.0}
        for n in (1, 8, 32)
    ]
    (picture,) = pictures.nesy(rows)
    axes = Figure().subplots()
    picture.draw(axes)
    sizes = {float(n) for line in axes.lines for n in line.get_xdata()}
    assert sizes == {1, 8, 32}


def test_a_product_of_two_digits_each_has_one_mapping(nesy) -> None:
    assert nesy.tasks.all_tasks()["mul4"].shortcuts().startswith("1 concept mapping agrees")
