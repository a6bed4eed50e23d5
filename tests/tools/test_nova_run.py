"""`nova run`: arrays in and out of .npy files, random ones, times; what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.compiler.driver import build
from nova.core.dtypes import bf16
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.frontends.safetensors import write_safetensors
from nova.tools.nova import main
from nova.tools.npy import draw_array, file_names, read_npy, summarize_array, write_npy

X = np.arange(6, dtype="f4").reshape(2, 3)
W = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A product, in the current folder, with arrays for it."""
    monkeypatch.chdir(tmp_path)
    x, w = nova.tensor(X, name="x"), nova.tensor(W, name="w")
    nova.compile(x @ w, inputs=[x], params=[w]).save("model.nova")
    np.save("x.npy", X)
    np.save("w.npy", W)
    return "model.nova"


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two results, and a param that is updated in place."""
    monkeypatch.chdir(tmp_path)
    x, w = nova.tensor(X, name="x"), nova.tensor(W, name="layer.0/w")
    y = x @ w
    program = nova.compile([y, y.sum()], inputs=[x], params=[w], updates={w: w * 2})
    program.save("step.nova")
    return "step.nova"


def fail(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["run", *words]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


@pytest.mark.parametrize(
    "inputs",
    [
        ("x.npy", "w.npy"),
        ("w=w.npy", "x.npy"),
        ("w=w.npy", "x=x.npy"),
        ("x.npy", "--input", "w=w.npy"),
    ],
)
def test_files_in_and_out(model: str, inputs: tuple[str, ...]) -> None:
    assert main(["run", model, "--input", *inputs, "--out", "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), X @ W)
    assert not [p for p in Path().iterdir() if p.name.startswith(".nova-tmp")]


def test_summary_of_results(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--input", "x.npy", "w.npy"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "model.nova on cpu",
        "  result  type          min   mean  max",
        "  y0      float32[2,4]   20  49.25   92",
    ]
    assert main(["run", model, "--input", "x.npy", "w.npy", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    expected = {"min": 20, "max": 92, "mean": 49.25, "nonfinite": 0}
    assert result == {"name": "y0", "dtype": "float32", "shape": [2, 4], **expected}


def test_folder_gets_all_results_and_updated_params(
    step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", X)
    np.save("w.npy", W)
    words = ["run", step, "--input", "x.npy", "w.npy", "--repeat", "3", "--out"]
    assert main([*words, "made/folder", "--json"]) == 0
    files = ["y0.npy", "y1.npy", "layer.0_w.npy"]
    answer = json.loads(capsys.readouterr().out)
    assert answer["written"] == [f"made/folder/{name}" for name in files]
    result = [np.load(Path("made/folder") / name) for name in files]
    np.testing.assert_array_equal(result[0], X @ W)
    assert result[1] == (X @ W).sum()
    np.testing.assert_array_equal(result[2], W * 2, "of the first run, not of the timed ones")
    np.testing.assert_array_equal(np.load("w.npy"), W)
    assert "3 results do not fit into one file" in fail(capsys, *words[1:], "one.npy")


def test_random_arguments(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> np.ndarray:
        assert main(["run", model, *words, "--out", "y.npy"]) == 0
        return np.load("y.npy")

    first = run("--random")
    np.testing.assert_array_equal(run("--random"), first)
    assert (run("--random", "--seed", "1") != first).all()
    np.save("zero.npy", np.zeros_like(W))
    assert (run("--random", "--input", "w=zero.npy") == 0).all()


def test_times(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--random", "--repeat", "20", "--warmup", "2", "--json"]) == 0
    timing = json.loads(capsys.readouterr().out)["timing"]
    assert timing["repeat"] == 20
    assert 0 < timing["min"] <= timing["median"] <= timing["p90"] < 1
    assert timing["gflops"] == pytest.approx(2 * 2 * 3 * 4 / timing["median"] / 1e9)
    assert timing["gbytes"] > 0
    assert main(["run", model, "--random", "--repeat", "2"]) == 0
    output = capsys.readouterr().out
    assert "2 runs\n" in output and "median" in output and "GFLOP/s" in output


def test_what_does_not_fit_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = fail(capsys, model, "--input", "w.npy", "x.npy")
    assert output.startswith(
        "nova run: input 'x' has shape (3, 4), the program was compiled for (2,"
    )
    assert f"at {model}" in output
    np.save("x8.npy", X.astype("f8"))
    assert "'x' has type float64" in fail(capsys, model, "--input", "x8.npy", "w.npy")
    assert "1 arrays given, 2 wanted: x, w" in fail(capsys, model, "--input", "x.npy")
    assert "3 arrays given" in fail(capsys, model, "--input", "x.npy", "w.npy", "x.npy")
    assert "no argument 'v'" in fail(capsys, model, "--input", "v=x.npy", "w.npy")
    assert "two arrays are given for 'x'" in fail(capsys, model, "--input", "x=x.npy", "x=x.npy")
    for option in ("--repeat", "--seed"):
        with pytest.raises(SystemExit):
            main(["run", model, option, "-1"])
        assert "'-1' is not a whole number" in capsys.readouterr().err


def test_files_that_hold_no_array(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    objects = np.array([{"a": 1}], object)
    with open("objects.npy", "wb") as file:
        np.lib.format.write_array(file, objects, allow_pickle=True)
    np.savez("zip.npz", x=X)
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-5])
    Path("text.npy").write_text("hello")
    Path("empty.npy").write_bytes(b"")
    with open("huge.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 1 << 20)}
        np.lib.format.write_array_header_1_0(file, header)
    for name in ("objects.npy", "zip.npz", "cut.npy", "text.npy", "empty.npy", "huge.npy"):
        output = fail(capsys, model, "--input", name, "w.npy")
        assert "no array in the .npy format" in output and name in output
    assert "cannot be read: No such file" in fail(capsys, model, "--input", "gone.npy", "w.npy")
    assert "check '" in fail(capsys, "x.npy", "--random"), "an array is no program"


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"])
def test_every_type_goes_through_a_file(tmp_path: Path, name: str) -> None:
    tensor = {"dtype": name, "shape": [50, 4]}
    array = draw_array(tensor, np.random.default_rng(0))
    assert array.dtype == nova.core.dtypes.dtype(name).numpy and array.shape == (50, 4)
    assert len(np.unique(array.astype("f8"))) > (1 if name == "bool" else 9)
    write_npy(tmp_path / "a.npy", array)
    again = read_npy(tmp_path / "a.npy", tensor)
    assert again.dtype == array.dtype and again.tobytes() == array.tobytes()


def test_bf16_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = X.astype(bf16.numpy)
    x = nova.tensor(values, name="x")
    nova.compile(x * 2, inputs=[x]).save("model.nova")
    np.save("x.npy", values.view("V2"))
    assert main(["run", "model.nova", "--input", "x.npy", "--out", "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy").view(bf16.numpy).astype("f4"), X * 2)


def test_names_of_files_stay_in_the_folder() -> None:
    hostile = ["../../etc/passwd", "a/b", "a_b", "", "...", "\x1b[2J", "é" * 300, "x"]
    names = file_names(hostile)
    assert len(set(names)) == len(names)
    for name in names:
        assert Path(name).name == name and name.endswith(".npy") and not name.startswith(".")
        assert len(name) < 120 and name.isascii() and name.isprintable()
    assert names[-1] == "x.npy"


def test_file_names_never_meet() -> None:
    """A number that tells two names apart may make a third one."""
    names = file_names(["x_-2", "x/", "x:", "x?", "x_-3"])
    assert len(set(names)) == 5


def test_summary_of_odd_arrays() -> None:
    nothing = {"min": None, "max": None, "mean": None}
    assert summarize_array(np.array([np.nan, np.inf])) == {**nothing, "nonfinite": 2}
    assert summarize_array(np.zeros((0, 3))) == {**nothing, "nonfinite": 0}
    assert summarize_array(np.array([True, False]))["mean"] == 0.5
    assert summarize_array(np.array([1, np.nan], "f2")) == {
        **dict.fromkeys(("min", "max", "mean"), 1.0),
        "nonfinite": 1,
    }


# --- weights, and code for other machines --------------------------------------------------------


@pytest.fixture
def weighted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A product and a counter, whose file has values for both params."""
    monkeypatch.chdir(tmp_path)
    x, w = nova.tensor(X, name="x"), nova.tensor(W, name="w")
    count = nova.tensor(np.zeros(1, "f4"), name="count")
    program = nova.compile(x @ w, inputs=[x], params=[w, count], updates={count: count + 1})
    program.save("model.nova", weights="embed")
    program.save("plain.nova")
    np.save("x.npy", X)
    return "model.nova"


def test_weights_of_the_file(weighted: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(weighted).read_bytes()
    assert main(["run", weighted, "--input", "x.npy", "--repeat", "2", "--out", "out"]) == 0
    np.testing.assert_array_equal(np.load("out/y0.npy"), X @ W)
    assert np.load("out/count.npy") == 1
    assert Path(weighted).read_bytes() == data
    np.save("w.npy", W * 2)
    for words in (["x.npy", "w.npy"], ["x.npy", "w=w.npy"]):
        assert main(["run", weighted, "--input", *words, "--out", "out"]) == 0
        np.testing.assert_array_equal(np.load("out/y0.npy"), X @ (W * 2))
    assert main(["run", weighted, "--random", "--out", "out"]) == 0
    drawn = draw_array({"dtype": "f32", "shape": [2, 3]}, np.random.default_rng(0))
    np.testing.assert_allclose(np.load("out/y0.npy"), drawn @ W, rtol=1e-5)
    capsys.readouterr()
    assert "0 arrays given, 1 wanted: x" in fail(capsys, weighted)
    assert "1 arrays given, 3 wanted" in fail(capsys, "plain.nova", "--input", "x.npy")


def test_weights_of_another_file(weighted: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_safetensors("w.safetensors", {"w": W * 3, "count": np.zeros(1, "f4")})
    words = ["plain.nova", "--input", "x.npy", "--weights", "w.safetensors", "--out", "out"]
    assert main(["run", *words]) == 0
    np.testing.assert_array_equal(np.load("out/y0.npy"), X @ (W * 3))
    capsys.readouterr()
    output = fail(capsys, weighted, "--input", "x.npy", "--weights", "w.safetensors")
    assert "has its weights inside" in output


def test_a_file_for_another_machine_is_compiled_again(
    weighted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = "aarch64" if parse_target("cpu").arch == "x86_64" else "x86_64"
    plan = nova.load("plain.nova").plan
    Path("foreign.nova").write_bytes(build(plan, Settings(target=foreign), {}).data)
    assert main(["run", "foreign.nova", "--random", "--repeat", "2", "--json"]) == 0
    output = capsys.readouterr()
    answer = json.loads(output.out)
    assert answer["target"] == "cpu" and answer["why"] == "cpu of cpu"
    assert answer["timing"]["gflops"] > 0
    assert output.err.startswith("nova: warning: foreign.nova has no code for this CPU")
