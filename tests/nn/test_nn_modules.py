"""Modules with torch's names: signatures, state_dict layout, values, and a small CNN trained."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.core.dtypes import TensorType
from nova.errors import AttributeValueError, ModuleError, ShapeError
from nova.graph.tensor import Tensor

SIGNAL, IMAGE, VOLUME = (2, 4, 9), (2, 4, 8, 6), (1, 4, 5, 6, 4)
BY_RANK = {1: SIGNAL, 2: IMAGE, 3: VOLUME}

# Class -> (positional arguments, keywords, shapes of the inputs).
MODULES: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    **{f"Conv{r}d": ((4, 6, 3), {"padding": 1}, (s,)) for r, s in BY_RANK.items()},
    **{f"ConvTranspose{r}d": ((4, 6, 2), {"stride": 2}, (s,)) for r, s in BY_RANK.items()},
    **{f"BatchNorm{r}d": ((4,), {}, (s,)) for r, s in BY_RANK.items()},
    **{f"InstanceNorm{r}d": ((4,), {"affine": True}, (s,)) for r, s in BY_RANK.items()},
    **{f"MaxPool{r}d": ((2,), {}, (s,)) for r, s in BY_RANK.items()},
    **{f"AvgPool{r}d": ((2,), {"stride": 1}, (s,)) for r, s in BY_RANK.items()},
    **{f"AdaptiveAvgPool{r}d": ((2,), {}, (s,)) for r, s in BY_RANK.items()},
    **{f"AdaptiveMaxPool{r}d": ((2,), {}, (s,)) for r, s in BY_RANK.items()},
    "GroupNorm": ((2, 4), {}, (IMAGE,)),
    "LocalResponseNorm": ((3,), {"alpha": 0.1}, (IMAGE,)),
    "Upsample": ((), {"scale_factor": 2, "mode": "bilinear"}, (IMAGE,)),
    "Unfold": (((2, 3),), {}, (IMAGE,)),
    "Fold": (((4, 4), (2, 2)), {}, ((2, 8, 9),)),
    "Flatten": ((), {}, (IMAGE,)),
    "Unflatten": ((1, (2, 2)), {}, (IMAGE,)),
    "PixelShuffle": ((2,), {}, (IMAGE,)),
    "PixelUnshuffle": ((2,), {}, (IMAGE,)),
    "Threshold": ((0.1, -1.0), {}, (IMAGE,)),
    "GLU": ((1,), {}, (IMAGE,)),
    "CosineSimilarity": ((), {}, (IMAGE, IMAGE)),
    **{
        name: ((), {}, (IMAGE,))
        for name in (
            *(
                "ReLU",
                "GELU",
                "SiLU",
                "Tanh",
                "ReLU6",
                "LeakyReLU",
                "ELU",
                "CELU",
                "SELU",
                "Mish",
                "Sigmoid",
                "LogSigmoid",
            ),
            *("Hardsigmoid", "Hardswish", "Hardtanh", "Softplus", "Softsign", "Tanhshrink"),
            *("Softshrink", "Hardshrink", "Identity"),
        )
    },
    "Softmax": ((-1,), {}, (IMAGE,)),
    "LogSoftmax": ((-1,), {}, (IMAGE,)),
    **{
        name: ((), {}, (IMAGE, IMAGE))
        for name in (
            *("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss"),
            *("SoftMarginLoss", "PoissonNLLLoss", "MultiLabelSoftMarginLoss"),
        )
    },
    "HingeEmbeddingLoss": ((), {"margin": 0.5}, (IMAGE, IMAGE)),
    "TripletMarginLoss": ((), {"p": 1.0}, ((4, 5), (4, 5), (4, 5))),
    "TripletMarginWithDistanceLoss": ((), {"swap": True}, ((4, 5), (4, 5), (4, 5))),
    **{
        f"{family}Pad{r}d": (
            (*((tuple(range(2 * r)),) if family != "Zero" else (2,)), *more),
            {},
            (s,),
        )
        for r, s in BY_RANK.items()
        for family, more in (
            ("Constant", (0.5,)),
            ("Zero", ()),
            ("Replication", ()),
            ("Circular", ()),
        )
    },
    **{f"ReflectionPad{r}d": ((1,), {}, (s,)) for r, s in BY_RANK.items()},
    **{f"Dropout{r}d": ((), {}, (s,)) for r, s in BY_RANK.items()},
    "LPPool1d": ((2.0, 3), {"stride": 2}, (SIGNAL,)),
    "LPPool2d": ((2.0, 2), {}, (IMAGE,)),
    "LPPool3d": ((2.0, 2), {}, (BY_RANK[3],)),
    "AlphaDropout": ((), {}, (IMAGE,)),
    "FeatureAlphaDropout": ((), {}, (IMAGE,)),
    "RReLU": ((), {}, (IMAGE,)),
    "Softmin": ((1,), {}, (IMAGE,)),
    "Softmax2d": ((), {}, (IMAGE,)),
    "ChannelShuffle": ((2,), {}, (IMAGE,)),
    "PairwiseDistance": ((3.0,), {"keepdim": True}, ((4, 5), (4, 5))),
    "UpsamplingNearest2d": ((), {"scale_factor": 2}, (IMAGE,)),
    "UpsamplingBilinear2d": (((5, 7),), {}, (IMAGE,)),
    "PReLU": ((4,), {}, (IMAGE,)),
    "Bilinear": ((5, 6, 3), {}, ((4, 5), (4, 6))),
    "TransformerEncoderLayer": ((8, 2, 12), {"activation": "gelu"}, ((5, 3, 8),)),
    "TransformerDecoderLayer": (
        (8, 2, 12),
        {"norm_first": True, "batch_first": True},
        ((3, 5, 8), (3, 4, 8)),
    ),
    "Transformer": ((8, 2, 2, 1, 12), {}, ((5, 3, 8), (4, 3, 8))),
}
# Their inputs are probabilities, classes or signs.
SPECIAL = (
    *("BCELoss", "KLDivLoss", "NLLLoss", "CrossEntropyLoss", "MarginRankingLoss"),
    *("CosineEmbeddingLoss", "GaussianNLLLoss", "MultiMarginLoss", "MultiLabelMarginLoss"),
)
# Built from a layer, compared on their own, or as parts of a model in another file.
ELSEWHERE = {
    *(f"MaxUnpool{rank}d" for rank in (1, 2, 3)),
    "CTCLoss",  # in test_ctc.py
    *("FractionalMaxPool2d", "FractionalMaxPool3d"),  # in test_nn_more_modules.py
    *("TransformerEncoder", "TransformerDecoder", "EmbeddingBag"),
    *("Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout"),
}
NOT_OF_TORCH = {"update_bn"}


def pair(name: str) -> tuple[nn.Module, torch.nn.Module]:
    args, attrs, _ = MODULES[name]
    theirs = getattr(torch.nn, name)(*args, **attrs)
    ours = getattr(nn, name)(*args, **attrs)
    rng = np.random.default_rng(3)
    for tensor in theirs.state_dict().values():
        if tensor.dtype.is_floating_point:
            tensor.copy_(torch.tensor(rng.uniform(0.2, 1.0, tuple(tensor.shape))))
    ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_values() -> None:
    """All modules in eval mode, in one program."""
    rng = np.random.default_rng(5)
    inputs, arrays, outputs, expected = [], [], [], []
    for name, (_, _, shapes) in MODULES.items():
        ours, theirs = pair(name)
        own = [rng.standard_normal(s).astype("f4") for s in shapes]
        tensors = [nova.tensor(a, name=f"{name}{i}") for i, a in enumerate(own)]
        outputs.append(ours.eval()(*tensors))
        expected.append(theirs.eval()(*map(torch.tensor, own)).detach().numpy())
        inputs += tensors
        arrays += own
    for name, got, want in zip(
        MODULES, nova.compile(outputs, inputs=inputs).run(arrays), expected, strict=True
    ):
        assert got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-5), name


def test_losses_of_special_inputs() -> None:
    rng = np.random.default_rng(6)
    logits = rng.standard_normal((4, 3)).astype("f4")
    shares = rng.uniform(0.1, 0.9, (4, 3)).astype("f4")
    classes, signs = np.array([0, 2, 1, 2]), np.array([1, -1, 1, -1], "f4")
    cases = {
        "BCELoss": (shares, (logits > 0).astype("f4")),
        "KLDivLoss": (logits, shares),
        "NLLLoss": (logits, classes),
        "CrossEntropyLoss": (logits, classes),
        "MarginRankingLoss": (logits[:, 0], logits[:, 1], signs),
        "CosineEmbeddingLoss": (logits, shares, signs),
        "GaussianNLLLoss": (logits, logits[::-1].copy(), shares),
        "MultiMarginLoss": (logits, classes),
        "MultiLabelMarginLoss": (logits, np.array([[2, 0, -1], [-1, 1, 0], [1, -1, 2], [0, 1, 2]])),
    }
    assert cases.keys() == set(SPECIAL)
    for name, arrays in cases.items():
        ours = getattr(nn, name)(reduction="sum")(*arrays).numpy()
        theirs = getattr(torch.nn, name)(reduction="sum")(*map(torch.tensor, arrays))
        assert np.allclose(ours, theirs.numpy(), rtol=1e-5), name


def test_every_module_is_compared_and_named_as_in_torch() -> None:
    homes = (
        *("convolution", "elementwise", "layers", "normalization", "padding"),
        *("pooling", "regularization", "transformer", "losses.modules", "losses.ctc"),
    )
    names = {
        n
        for n in nn.__all__
        if getattr(getattr(nn, n), "__module__", "") in [f"nova.nn.{h}" for h in homes]
    }
    assert names - NOT_OF_TORCH == {*MODULES, *SPECIAL, *ELSEWHERE}
    for name in {*MODULES, *SPECIAL} - {"Identity"}:
        theirs = inspect.signature(getattr(torch.nn, name).__init__).parameters
        for parameter in inspect.signature(getattr(nn, name).__init__).parameters.values():
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name == "self":
                continue
            assert parameter.name in theirs, f"{name}: {parameter.name}"


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_unpool(rank: int) -> None:
    x = np.random.default_rng(rank).standard_normal((2, 3, *(6, 4, 8)[:rank])).astype("f4")
    pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
    actual = getattr(nn, f"MaxUnpool{rank}d")(2)(*pool(x))
    pool = getattr(torch.nn, f"MaxPool{rank}d")(2, return_indices=True)
    expected = getattr(torch.nn, f"MaxUnpool{rank}d")(2)(*pool(torch.tensor(x)))
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_conv_options() -> None:
    x = np.random.default_rng(7).standard_normal(IMAGE).astype("f4")
    for options in (
        {"padding": "same", "padding_mode": "reflect"},
        {"padding": 1, "padding_mode": "circular", "stride": 2},
        {"groups": 2, "dilation": 2, "bias": False},
    ):
        theirs = torch.nn.Conv2d(4, 6, 3, **options)
        ours = nn.Conv2d(4, 6, 3, **options)
        ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
        want = theirs(torch.tensor(x)).detach().numpy()
        assert np.allclose(ours(x).numpy(), want, rtol=1e-4, atol=1e-5)
    drawn = nn.Conv2d(16, 8, 3).weight.data
    assert np.abs(drawn).max() <= 1 / np.sqrt(144) and drawn.std() > 0.04


class Net(nn.Module):
    def __init__(self) -> None:
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x: Any) -> Any:
        y = nova.max_pool2d(nova.relu(self.norm(self.conv(x))), 2)
        return self.head(nova.flatten(y, 1))


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(36, 3)

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(y.flatten(1))


def test_training_a_network_with_batch_norm(tmp_path: Any) -> None:
    theirs, ours = TorchNet(), Net()
    ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
    rng = np.random.default_rng(8)
    batches = [
        (rng.standard_normal((5, 2, 6, 6)).astype("f4"), rng.integers(0, 3, 5)) for _ in range(6)
    ]
    step = nova.train_step(
        ours,
        lambda net, x, y: nova.cross_entropy(net(x), y),
        nova.optim.SGD(ours.parameters(), lr=0.1),
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        assert abs(float(step(x, y)) - loss.item()) < 1e-4
    for name, tensor in theirs.state_dict().items():
        assert np.allclose(ours.state_dict()[name], tensor.numpy(), rtol=1e-3, atol=1e-4), name
    theirs.eval(), ours.eval()
    want = theirs(torch.tensor(batches[0][0])).detach().numpy()
    assert np.allclose(ours(batches[0][0]).numpy(), want, rtol=1e-3, atol=1e-3)
    saved = tmp_path / "net.safetensors"
    ours.save(saved)
    again = Net()
    again.load(saved)
    assert np.array_equal(again.eval()(batches[0][0]).numpy(), ours(batches[0][0]).numpy())
    theirs.train()
    nn.update_bn(batches, ours)
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x, _ in batches], theirs)
    for name, tensor in theirs.state_dict().items():
        assert np.allclose(ours.state_dict()[name], tensor.numpy(), rtol=1e-3, atol=1e-4), name
    want = theirs.eval()(torch.tensor(batches[0][0])).detach().numpy()
    assert np.allclose(ours(batches[0][0]).numpy(), want, rtol=1e-3, atol=1e-3)
    assert not ours.training
    ours.unfreeze()
    assert not ours.norm.running_mean.requires_grad


def test_a_graph_built_by_hand_leaves_the_statistics_outdated() -> None:
    """Nothing runs that graph together with the module: eval mode is then an error."""
    norm = nn.BatchNorm1d(3)
    norm(Tensor(TensorType((4, 3), nova.f32), name="x"))
    with pytest.raises(ModuleError, match="running statistics are those from before training"):
        norm.eval()(np.zeros((4, 3), "f4"))


def test_tracking_by_momentum_is_torchs() -> None:
    theirs, ours = torch.nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    batches = np.random.default_rng(9).standard_normal((4, 6, 3)).astype("f4")
    for batch in batches:
        theirs(torch.tensor(batch))
    nn.update_bn(list(batches), ours, cumulative=False)
    for name, tensor in theirs.state_dict().items():
        assert np.allclose(ours.state_dict()[name], tensor.numpy(), rtol=1e-5, atol=1e-6), name


def test_wrong_arguments() -> None:
    with pytest.raises(AttributeValueError, match=r"Conv2d: kernel_size \(3,\): not 2 sizes"):
        nn.Conv2d(4, 4, (3,))
    with pytest.raises(AttributeValueError, match="Conv2d: out_channels 6 is not divisible by gro"):
        nn.Conv2d(4, 6, 3, groups=4)
    with pytest.raises(AttributeValueError, match="in_channels 3 is not divisible by groups 2"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(AttributeValueError, match="ConvTranspose1d: groups is 0"):
        nn.ConvTranspose1d(3, 4, 3, groups=0)
    for mode in ("zeros", "reflect"):
        with pytest.raises(AttributeValueError, match=r"Conv2d: padding 'same' .* not \(2, 2\)"):
            nn.Conv2d(3, 4, 3, stride=2, padding="same", padding_mode=mode)
    with pytest.raises(AttributeValueError, match="padding 'full' is unknown"):
        nn.Conv1d(4, 6, 3, padding="full")
    with pytest.raises(AttributeValueError, match="padding_mode 'edge' is unknown"):
        nn.Conv1d(4, 6, 3, padding_mode="edge")
    with pytest.raises(AttributeValueError, match="channels 4 is not divisible by num_groups 3"):
        nn.GroupNorm(3, 4)
    with pytest.raises(AttributeValueError, match="BatchNorm2d: 0 channels"):
        nn.BatchNorm2d(0)
    with pytest.raises(ShapeError, match=r"BatchNorm2d: .* is not of rank 4 with 4 channels"):
        nn.BatchNorm2d(4)(np.zeros(SIGNAL, "f4"))
