"""The table of PyTorch features in docs/pytorch.md: every cell is tried, and is as the page says.

`python tests/layer/test_features.py` writes the table anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import latentgamma as lg

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
RULES = "alarm :- smoke, heat. alarm :- button. call :- alarm, phone. call :- call2. call2 :- call, button."
SEMANTICS: dict[str, dict[str, Any]] = {
    '`"godel"`': {"semantics": "godel"},
    '`"gamma"`': {"semantics": "gamma"},
    '`"probability"`': {"semantics": "probability"},
    '`"probability"`, table': {
        "semantics": "probability",
        "inference": lg.Inference(method="table"),
    },
}
ACYCLIC = "alarm :- smoke, heat. alarm :- button. call :- alarm, phone."
NEGATED = "alarm :- smoke, heat. alarm :- button, not smoke. call :- phone, not alarm. call :- call2. call2 :- call, button."
BATCH = ({0: torch.export.Dim("batch")},)


def values(rows: int) -> Tensor:
    return torch.rand(rows, 4, generator=torch.Generator().manual_seed(rows))


def compiles(layer: lg.Layer, *, fullgraph: bool = False) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=fullgraph)
    for rows in (5, 3):
        given, same = values(rows).requires_grad_(), values(rows).requires_grad_()
        found, expected = compiled(given), layer(same)
        torch.testing.assert_close(found, expected)
        (slope,) = torch.autograd.grad(found.sum(), given)
        torch.testing.assert_close(slope, *torch.autograd.grad(expected.sum(), same))


def exports(layer: lg.Layer) -> None:
    with torch.no_grad():
        exported = torch.export.export(layer, (values(5),), dynamic_shapes=BATCH)
        torch.testing.assert_close(exported.module()(values(7)), layer(values(7)))


def exports_to_a_file(layer: lg.Layer) -> None:
    file = io.BytesIO()
    with torch.no_grad():
        exported = torch.export.export(layer, (values(5),), dynamic_shapes=BATCH, strict=True)
        torch.export.save(exported, file)
        file.seek(0)
        torch.testing.assert_close(torch.export.load(file).module()(values(7)), layer(values(7)))


def onnx_runs(model: Any) -> list[Callable[[Any], Any]]:
    """The model in onnx's reference evaluator and, where it is installed, in onnxruntime."""
    from onnx.reference import ReferenceEvaluator

    runs: list[Any] = [ReferenceEvaluator(model)]
    if find_spec("onnxruntime"):
        from onnxruntime import InferenceSession

        runs.append(InferenceSession(model.SerializeToString()))
    (name,) = (given.name for given in model.graph.input)
    return [lambda rows, run=run: run.run(None, {name: rows})[0] for run in runs]


def exports_to_onnx(layer: lg.Layer) -> None:
    pytest.importorskip("onnxscript")
    with torch.no_grad():
        exported = torch.onnx.export(
            layer, (values(5),), dynamo=True, verbose=False, dynamic_shapes=BATCH
        )
        assert exported is not None
        if torch.__version__.startswith("2.13"):
            (opset,) = exported.model_proto.opset_import
            assert f"opset {opset.version} (with torch 2.13)" in PAGE.read_text("utf-8")
        for run in onnx_runs(exported.model_proto):
            found = torch.from_numpy(run(values(7).numpy()))
            torch.testing.assert_close(found, layer(values(7)), rtol=0, atol=1e-5)


def transforms(layer: lg.Layer) -> None:
    def one(row: Tensor) -> Tensor:
        return layer(row[None])[0].sum()

    leaf = values(5).requires_grad_()
    (expected,) = torch.autograd.grad(layer(leaf).sum(), leaf)
    torch.testing.assert_close(vmap(one)(values(5)), layer(values(5)).sum(1))
    torch.testing.assert_close(vmap(grad(one))(values(5)), expected)
    torch.testing.assert_close(vmap(jacfwd(one))(values(5)), expected)
    hessian(one)(values(5)[0])


def takes_more_batch_dimensions(layer: lg.Layer) -> None:
    found = layer(values(6).reshape(2, 3, 4))
    torch.testing.assert_close(found, layer(values(6)).reshape(2, 3, 2))


def takes_bools_and_whole_numbers(layer: lg.Layer) -> None:
    given = values(6) > 0.5
    expected = layer(given.float())
    torch.testing.assert_close(layer(given).to(expected.dtype), expected)
    torch.testing.assert_close(layer(given.long()).to(expected.dtype), expected)


def comes_back_from_a_file(layer: lg.Layer) -> None:
    with TemporaryDirectory() as folder:
        layer.save(Path(folder) / "layer.safetensors")
        back = lg.Layer.load(Path(folder) / "layer.safetensors")
    assert back.program == layer.program
    assert torch.equal(back(values(6)), layer(values(6)))


def refuses_the_state_of_another_program(layer: lg.Layer) -> None:
    other = lg.Layer(lg.parse("call :- phone."), ["phone"], "call")
    layer.load_state_dict(layer.state_dict())
    with pytest.raises(Exception, match="program"):
        layer.load_state_dict(other.state_dict())


def says_what_it_covers(layer: lg.Layer) -> None:
    covered = layer.covers(torch.tensor([[0.0, 1.0, 0.0, 1.0]]).expand(2, 3, 4))
    assert covered.shape == (2, 3)
    assert covered.all()


ATTEMPTS: dict[str, Callable[[lg.Layer], None]] = {
    "`torch.compile`": compiles,
    "`torch.compile(fullgraph=True)`": lambda layer: compiles(layer, fullgraph=True),
    "`torch.export`, dynamic batch": exports,
    "`torch.export.save` of that, exported with `strict=True`": exports_to_a_file,
    "ONNX (`dynamo=True`), dynamic batch": exports_to_onnx,
    "`torch.func`: `vmap`, `grad`, `jacfwd`, `hessian`": transforms,
    "a batch of several dimensions": takes_more_batch_dimensions,
    "inputs of bool and of whole numbers": takes_bools_and_whole_numbers,
    "`layer.save(path)`, `lg.Layer.load(path)`": comes_back_from_a_file,
    "`load_state_dict` refuses the state of another program": refuses_the_state_of_another_program,
    "`layer.covers(x)`": says_what_it_covers,
}
TABLE = re.compile(r"^\| feature \| `\"godel.*?\n\n", re.MULTILINE | re.DOTALL)


def new_layer(name: str, rules: str) -> lg.Layer:
    inputs = ["smoke", "heat", "button", "phone"]
    return lg.Layer(lg.parse(rules), inputs, ["alarm", "call"], **SEMANTICS[name]).eval()


def works(feature: str, name: str) -> bool:
    try:
        for rules in (RULES, NEGATED):
            ATTEMPTS[feature](new_layer(name, rules))
    except Exception:  # torch's own, and one of each kind
        return False
    return True


def write_table() -> None:
    """Try every cell, and write the table into the page."""
    rows = [["feature", *SEMANTICS], ["---"] * (1 + len(SEMANTICS))]
    rows += [[f, *("yes" if works(f, name) else "no" for name in SEMANTICS)] for f in ATTEMPTS]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows).replace("| --- ", "|---")
    text = TABLE.sub(lambda _: lines.replace("--- |", "---|") + "\n\n", PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")


def cells() -> dict[tuple[str, str], str]:
    """The table of the page: (feature, semantics) to what the cell says."""
    (table,) = TABLE.findall(PAGE.read_text("utf-8"))
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.strip().splitlines()]  # fmt: skip
    return {
        (row[0], name): cell for row in rows for name, cell in zip(header[1:], row[1:], strict=True)
    }


def test_the_table_has_a_row_for_each_attempt() -> None:
    assert set(cells()) == {(feature, name) for feature in ATTEMPTS for name in SEMANTICS}
    assert set(cells().values()) == {"yes", "no"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rules", [RULES, NEGATED])
@pytest.mark.parametrize(("feature", "name"), [(f, n) for f in ATTEMPTS for n in SEMANTICS])
def test_each_cell_is_true(feature: str, name: str, rules: str) -> None:
    layer = new_layer(name, rules)
    if cells()[feature, name] == "yes":
        ATTEMPTS[feature](layer)
        return
    with pytest.raises(Exception):  # noqa: B017, PT011 - torch's own, and one of each kind
        ATTEMPTS[feature](layer)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["godel", "gamma"])
def test_rules_without_a_cycle_are_exported_to_onnx_too(mode: Any) -> None:
    inputs = ["smoke", "heat", "button", "phone"]
    exports_to_onnx(lg.Layer(lg.parse(ACYCLIC), inputs, ["alarm", "call"], semantics=mode).eval())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own, where it is first used
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("semantics", ["godel", "probability"])
def test_transforms_give_the_derivatives_of_autograd(
    semantics: Any, logits: bool, training: bool
) -> None:
    """Hard and smooth minima in training and out of it; a pass for `alarm`, a table for `call`."""
    rules = lg.parse("alarm :- smoke, heat. call :- alarm, button. call :- smoke, not phone.")
    inputs, outputs = ["smoke", "heat", "button", "phone"], ["alarm", "call"]
    layer = lg.Layer(rules, inputs, outputs, semantics=semantics).train(training)

    def one(row: Tensor) -> Tensor:
        return layer(row[None], logits=logits)[0]

    given = values(3).double()
    expected = torch.stack([torch.autograd.functional.jacobian(one, row) for row in given])
    for transform in (jacrev, jacfwd):
        torch.testing.assert_close(vmap(transform(one))(given), expected)
    _, tangent = jvp(one, (given[0],), (given[1],))
    torch.testing.assert_close(tangent, expected[0] @ given[1])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own, where it is first used
@pytest.mark.parametrize("name", SEMANTICS)
def test_a_layer_whose_first_call_is_transformed_can_be_called_again(name: str) -> None:
    """A tensor that is kept from that call must not belong to the transform."""
    layer = new_layer(name, NEGATED)
    given = values(1).double()[0]

    def one(row: Tensor) -> Tensor:
        return layer(row[None])[0].sum()

    first = hessian(one)(given)
    assert torch.equal(hessian(one)(given), first)
    torch.testing.assert_close(jacfwd(one)(given), jacrev(one)(given))


@pytest.mark.slow
@pytest.mark.parametrize("rules", [RULES, NEGATED])
@pytest.mark.parametrize("mode", ["godel", "gamma"])
def test_the_batch_of_an_exported_layer_is_dynamic(mode: Any, rules: str) -> None:
    """`len` of a tensor fixes its size in an export; `shape[0]` does not."""
    exports(lg.Layer(lg.parse(rules), ["smoke", "heat", "button", "phone"], "call", semantics=mode))


if __name__ == "__main__":
    write_table()
