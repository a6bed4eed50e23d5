"""Large constants in artifacts, pickled programs, and a dump folder that cannot be written."""

import copy
import pickle

import numpy as np
import pytest

import nova
from nova.artifact.texts import pack_texts, unpack_texts
from nova.errors import ArtifactError, DumpError


def test_a_large_constant_is_in_the_file_once(tmp_path):
    values = np.random.default_rng(0).standard_normal(500_000).astype("f4")
    x = nova.tensor(np.ones(values.size, "f4"))
    program = nova.compile(x * nova.tensor(values), inputs=[x])
    program.save(tmp_path / "p.nova")
    assert (tmp_path / "p.nova").stat().st_size < 1.2 * values.nbytes
    loaded = nova.load(tmp_path / "p.nova")
    assert loaded.stages == program.stages
    assert loaded.plan == program.plan
    np.testing.assert_array_equal(loaded(x.data), values)


def test_texts_come_back_as_they_were():
    data = bytes(range(256)) * 8
    texts = {
        "lower": f"<x{data.hex()}>",
        "upper": f'dense<"0x{data.hex().upper()}">',
        "mixed": data.hex().upper() + data.hex(),
        "odd": data.hex() + "0",
        "elsewhere": (b"\1" * 2048).hex(),
        "nul": "\0" + "0,5,l\0" + data.hex() + "\0",
        "plain": "return slot[0]",
        "two": f'dense<"0x{data.hex()}">, dense<"0x{data.hex()}">',
        # All that stands at a multiple of 16 is a digit, and not all between.
        "torn": f"{data.hex()[:1100]}fx{data.hex()[:1102]}" + "abcdefgh" * 400,
    }
    texts |= {f"at {i}": "-" * i + data.hex()[i:] + "e" * (i % 3) + "<" for i in range(40)}
    constants = b"\0" * 64 + data
    packed = pack_texts(texts, constants)
    back = unpack_texts(packed, memoryview(constants))
    assert list(back) == list(texts)
    assert back == texts
    with pytest.raises(ArtifactError, match="refers to"):
        unpack_texts(packed, memoryview(constants[:100]))


def test_runs_of_digits_are_kept_as_references_wherever_they_stand():
    data = np.random.default_rng(0).bytes(4096)
    texts = {
        f"{i} {j}": f"{'tensor<' * i}{data[:j].hex()}> abcdef dense<0x{data.hex().upper()}>"
        for i in range(20)
        for j in (512, 513, 1000)
    }
    packed = pack_texts(texts, data)
    assert unpack_texts(packed, memoryview(data)) == texts
    assert len(packed) < 4096  # the digits of all texts would be a hundred times that


def test_programs_and_tensors_are_pickled_and_copied():
    x = nova.tensor(np.arange(6, dtype="f4").reshape(2, 3), name="x")
    program = nova.compile(x @ x.T, inputs=[x])
    for second in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program), copy.copy(program)):
        np.testing.assert_array_equal(second(x.data), x.data @ x.data.T)
        assert second.plan == program.plan
    for node in (pickle.loads(pickle.dumps(x + 1)), copy.deepcopy(x + 1)):
        assert node.op is (x + 1).op
        np.testing.assert_array_equal(node.numpy(), x.data + 1)


@nova.jit
def _double(a):
    return a * 2


def test_a_jit_function_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(_double)) is _double
    assert copy.deepcopy(_double) is _double


def test_a_dump_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    x = nova.tensor(np.ones(3, "f4"))
    unwritable = nova.knobs.override(dump=str(tmp_path / "file"))
    with unwritable, pytest.raises(DumpError, match="NOVA_DUMP"):
        nova.compile(x * 1.25 + 7.5, inputs=[x])
    nova.compile(x * 1.25 + 7.5, inputs=[x])
