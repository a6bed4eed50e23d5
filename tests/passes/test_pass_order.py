"""Every pass of Nova on every stage's module, and on IR it was not written for.

It succeeds or says what is wrong: no Python traceback, and the process lives.
"""

import numpy as np
import pytest

import nova
from nova.errors import PassError
from nova.ir.context import make_context
from nova.passes.base import Pass, run_pipeline
from nova.passes.registry import PASS_MODULES
from nova.tools.nova_opt import main

ODD = {
    "declared": "func.func private @main(tensor<4xf32>) -> tensor<4xf32>",
    "two blocks": "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n cf.br ^bb1\n^bb1:\n"
    " return %a : tensor<4xf32>\n}",
    "foreign call": "func.func private @f(memref<4xf32>) -> memref<4xf32>\n"
    "func.func @main(%a: memref<4xf32>) -> memref<4xf32> attributes {nova.updates = array<i64: 7>}"
    "{\n %0 = call @f(%a) : (memref<4xf32>) -> memref<4xf32>\n return %0 : memref<4xf32>\n}",
    "declared kernel": "func.func private @k(tensor<4xf32>) -> tensor<4xf32> attributes "
    "{nova.kernel}\nfunc.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
    " %0 = call @k(%a) : (tensor<4xf32>) -> tensor<4xf32>\n return %0 : tensor<4xf32>\n}",
    "odd attributes": 'func.func @k(%a: memref<4xf32>) attributes {nova.kernel, nova.grid = "x", '
    "nova.work = 1.0} { return }\nfunc.func @main(%a: memref<4xf32>) attributes "
    '{nova.updates = "x"} {\n call @k(%a) : (memref<4xf32>) -> ()\n return\n}',
    "update of another type": "func.func @main(%a: memref<4xf32>, %b: memref<9xf32>) -> "
    "memref<9xf32> attributes {nova.updates = array<i64: 0>} {\n return %b : memref<9xf32>\n}",
    "llvm kernel without body": "llvm.func @d(!llvm.ptr) attributes {nova.kernel}",
    "recursive": "func.func @main() {\n func.call @main() : () -> ()\n return\n}",
    "nothing": "",
}


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    x = nova.tensor(np.ones((17, 33), "f4"))
    w = nova.tensor(np.ones((33, 5), "f4"))
    i = nova.tensor(np.arange(3))
    outputs = [
        nova.cross_entropy(nova.gelu(x @ w), nova.tensor(np.zeros(17, "i8"))),
        nova.embedding(x, i),
        nova.cast(nova.sin(x), dtype="f16"),
        x > 0,
    ]
    with nova.knobs.override(serial_work=0):
        stages = nova.compile(outputs, inputs=[x, w, i]).stages
    return {n: t for n, t in stages.items() if n not in ("plan", "ll")} | ODD


@pytest.mark.parametrize("step", PASS_MODULES)
def test_every_pass_on_every_module(step, modules, tmp_path, capsys):
    for name, text in modules.items():
        source = tmp_path / "m.mlir"
        source.write_text(text)
        status = main([str(source), f"--{step}", "-o", str(tmp_path / "out.mlir")])
        output = capsys.readouterr().err
        assert status == 0 or "error: " in output, f"{step} on {name}: {status}, {output}"


@pytest.mark.parametrize(
    ("stage", "step", "output"),
    [
        ("kernels", "lower-kernels", "buffers without results are expected"),
        ("kernels", "drop-host-code", "buffers without results are expected"),
        ("kernels", "form-kernels", "is a kernel already"),
        ("kernels", "plan-workspace", "not a buffer"),
        ("buffers", "plan-workspace", "has a workspace already"),
        ("loops", "lower-kernels", "is lowered already"),
        ("llvm", "export-kernels", "is exported already"),
        ("llvm", "dedup-kernels", "no function @main"),
        ("two blocks", "form-kernels", "one block"),
        ("update of another type", "plan-workspace", "values of other types"),
    ],
)
def test_what_a_pass_says(stage, step, output, modules, tmp_path, capsys):
    source = tmp_path / "m.mlir"
    source.write_text(modules[stage])
    assert main([str(source), f"--{step}"]) == 1
    assert output in capsys.readouterr().err


class _Broken(Pass):
    name = "broken"

    def run(self, module):
        raise KeyError("missing")

    def __str__(self):
        return self.name


def test_a_mistake_in_a_pass_keeps_its_cause():
    from nova.ir.bindings import ir

    module = ir.Module.parse("module {}", make_context())
    with pytest.raises(PassError, match="pass `broken` does not handle this module") as caught:
        run_pipeline(module, [_Broken()])
    assert isinstance(caught.value.__cause__, KeyError)
