"""Plans whose names are odd read back and load; plans that make no sense are refused."""

import numpy as np
import pytest

import nova
from nova.errors import MLIRSyntaxError, NovaError, PlanSyntaxError
from nova.plan import parse_plan, print_plan

ODD_NAMES = ["a b", "a\nb", "a:b", "[x]", "{", "x#y", "a,b", "\u2028", "\0", '"q"', "q\\", "é"]


def test_odd_names_read_back_and_load(tmp_path):
    inputs = [nova.tensor(np.full(2, i, "f4"), name=n) for i, n in enumerate(ODD_NAMES)]
    program = nova.compile(nova.stack(inputs).sum(0), inputs=inputs)
    assert parse_plan(print_plan(program.plan)) == program.plan
    program.save(tmp_path / "p.nova")
    loaded = nova.load(tmp_path / "p.nova")
    assert [a.name for a in loaded.plan.signature.inputs] == ODD_NAMES
    # The file's own signature is read by C as well, where no text holds a NUL.
    names = [a.name for a in loaded.signature.inputs]
    assert names == [name.replace("\0", "\ufffd") for name in ODD_NAMES]
    assert len(str(loaded.signature).splitlines()) == len(ODD_NAMES) + 1
    arrays = [t.data for t in inputs]
    np.testing.assert_array_equal(loaded(*arrays), program(*arrays))


@pytest.mark.parametrize("file", ["a b.py", "a\nb.py", 'quo"te.py', '"q".py', "\u2028.py", "<x>"])
def test_odd_file_names_read_back(file):
    x = nova.tensor(np.ones(2, "f4"))
    created = {}
    exec(compile("y = x + 1", file, "exec"), {"x": x}, created)
    plan = nova.compile(created["y"], inputs=[x]).plan
    back = parse_plan(print_plan(plan))
    assert back == plan
    assert back.steps[0].location == plan.steps[0].location == (file, 1)


BODIES = {
    "update of another shape": "slot[0] = sum(param[0]) {axis=(0), keepdims=false} : f32[]\n"
    "update param[0] = slot[0]\nreturn slot[0]",
    "update twice": "slot[0] = neg(param[0]) : f32[4]\n"
    "update param[0] = slot[0]\nupdate param[0] = slot[0]\nreturn slot[0]",
    "update with two": "update param[0] = param[0], param[0]\nreturn param[0]",
    "attributes that are none": "slot[0] = sum(param[0]) {!!!} : f32[]\nreturn slot[0]",
    "attribute twice": "slot[0] = sum(param[0]) {axis=(0), axis=(0)} : f32[]\nreturn slot[0]",
    "literal that is no number": "slot[0] = add(param[0], f32[4]<*{}>) : f32[4]\nreturn slot[0]",
    "literal None": "slot[0] = add(param[0], f32[4]<*None>) : f32[4]\nreturn slot[0]",
    "literal out of range": "slot[0] = neg(i8[]<300>) : i8[]\nreturn slot[0]",
    "literal too large": "slot[0] = neg(f32[70368744177664]<*1.0>) : f32[]\nreturn slot[0]",
    "size beyond 64 bits": "slot[0] = neg(param[0]) : f32[99999999999999999999]\nreturn slot[0]",
    "size beyond memory": "slot[0] = expand(param[0]) {shape=(1099511627776,1099511627776,4)} : "
    "f32[1099511627776,1099511627776,4]\nreturn slot[0]",
    "digits of another script": "slot[٠] = neg(param[0]) : f32[4]\nreturn param[0]",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_refused_with_a_place(body):
    with pytest.raises(PlanSyntaxError) as caught:
        nova.compile_plan("plan {\nparam p: f32[4]\n" + body + "\n}\n")
    assert caught.value.where.startswith("<plan>:")


def test_a_value_that_the_type_cannot_hold():
    text = "plan {\nslot[0] = full() {dtype=i32, shape=(4), value=1e50} : i32[4]\nreturn slot[0]\n}"
    with pytest.raises(MLIRSyntaxError, match="does not fit i32"):
        nova.compile_plan(text)


def test_bools_from_other_bytes():
    text = "plan {\ninput x: f32[4]\nslot[0] = where(bool[4]<x00010280>, input[0], f32[]<0.0>)"
    program = nova.compile_plan(text + " : f32[4]\nreturn slot[0]\n}")
    np.testing.assert_array_equal(program(np.ones(4, "f4")), [0, 1, 1, 1])
    with pytest.raises(NovaError):
        nova.compile_plan("plan {")
