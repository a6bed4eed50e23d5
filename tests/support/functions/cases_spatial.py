"""Cases of convolutions, pooling and resizing."""

from __future__ import annotations

from typing import Any

import torch
from function_cases import case

import nova


def _unpool(rank: int, kernel: int = 2, output_size: Any = None, **options: Any) -> Any:
    """Pool with indices, scale, and unpool, in either library."""

    def call(unpool: Any, x: Any) -> Any:
        home = torch.nn.functional if isinstance(x, torch.Tensor) else nova
        pool = getattr(home, f"max_pool{rank}d")
        values, at = pool(x, kernel, **options, return_indices=True)
        return unpool(values * 2.0, at, kernel, **options, output_size=output_size)

    return call


CONVOLUTIONS = (
    case("conv1d", (2, 4, 9), (6, 4, 3), (6,), padding=1),
    case("conv1d", (4, 9), (6, 2, 3), (6,), stride=2, groups=2, dilation=2),
    case("conv2d", (2, 4, 7, 8), (6, 4, 3, 3), (6,), padding=1),
    case("conv2d", (2, 4, 7, 8), (6, 2, 3, 2), stride=(2, 1), padding=(1, 0), groups=2),
    case("conv2d", (2, 4, 7, 8), (4, 1, 3, 3), (4,), padding="same", groups=4),
    case("conv2d", (2, 4, 7, 8), (8, 1, 3, 3), padding="valid", groups=4, dilation=2),
    case("conv2d", (2, 4, 5, 5), (6, 4, 1, 1)),
    case("conv2d", (2, 4, 5, 5), (6, 4, 1, 1), stride=2),
    case("conv3d", (1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (3,), padding=1, stride=(1, 2, 2)),
    case("conv_transpose1d", (2, 4, 5), (4, 3, 3), (3,), stride=2, padding=1, output_padding=1),
    case("conv_transpose2d", (2, 4, 4, 5), (4, 3, 3, 2), (3,), stride=(2, 1), padding=1),
    case("conv_transpose2d", (2, 4, 4, 5), (4, 3, 2, 2), stride=2, groups=2, dilation=2),
    case("conv_transpose3d", (1, 2, 3, 3, 2), (2, 3, 2, 2, 2), (3,), stride=2),
    case("unfold", (2, 3, 6, 7), args=((3, 2),), padding=1, stride=2),
    case("fold", (2, 12, 12), args=((5, 5), (2, 2)), stride=(1, 2), dilation=1, padding=(0, 1)),
)

POOLS = (
    case("max_pool1d", (2, 3, 9), args=(3,), stride=2, padding=1),
    case("max_pool2d", (2, 3, 7, 8), args=(2,)),
    case("max_pool2d", (2, 3, 7, 8), args=(3,), stride=2, padding=1, ceil_mode=True),
    case("max_pool2d", (2, 3, 9, 8), args=((3, 2),), stride=1, dilation=(2, 1)),
    case("max_pool3d", (1, 2, 4, 5, 6), args=(2,)),
    case(
        "max_pool2d",
        (2, 3, 7, 8),
        args=(3,),
        stride=2,
        padding=1,
        ceil_mode=True,
        return_indices=True,
    ),
    case("max_pool3d", (1, 2, 4, 5, 6), args=((2, 3, 2),), stride=1, return_indices=True),
    case("adaptive_max_pool2d", (2, 3, 7, 8), args=((3, 4),), return_indices=True),
    case("adaptive_max_pool1d", (3, 7), args=(4,), return_indices=True),
    *(
        case(
            f"max_unpool{rank}d",
            ((2, 3, *(6, 4, 8)[:rank]), "distinct"),
            torch=getattr(torch.nn.functional, f"max_unpool{rank}d"),
            call=_unpool(rank),
        )
        for rank in (1, 2, 3)
    ),
    case(
        "max_unpool2d",
        ((3, 7, 5), "distinct"),
        torch=torch.nn.functional.max_unpool2d,
        call=_unpool(2, 2, stride=2, padding=1, output_size=(7, 5)),
    ),
    case("avg_pool1d", (2, 3, 9), args=(3,), stride=2, padding=1),
    case("avg_pool2d", (2, 3, 7, 8), args=(3,), stride=2, padding=1, count_include_pad=False),
    case("avg_pool2d", (2, 3, 7, 8), args=(3,), stride=2, padding=1, ceil_mode=True),
    case("avg_pool3d", (1, 2, 4, 5, 6), args=(2,)),
    case("avg_pool3d", (1, 2, 4, 5, 6), args=(2,), divisor_override=3),
    case("avg_pool2d", (2, 3, 7, 8), args=(3,), padding=1, ceil_mode=True, divisor_override=-2),
    case("adaptive_avg_pool1d", (2, 3, 7), args=(3,)),
    case("adaptive_avg_pool2d", (2, 3, 7, 8), args=((1, 1),)),
    case("adaptive_avg_pool2d", (2, 3, 7, 8), args=((3, None),)),
    case("adaptive_avg_pool3d", (1, 2, 4, 5, 6), args=((2, 3, 4),)),
    case("adaptive_max_pool1d", (2, 3, 7), args=(3,)),
    case("adaptive_max_pool2d", (2, 3, 7, 8), args=((3, 4),)),
    case("adaptive_max_pool3d", (1, 2, 4, 5, 6), args=((2, 3, 4),)),
    case("lp_pool1d", (2, 3, 8), args=(2.0, 2)),
    case("lp_pool2d", (2, 3, 8, 6), args=(2.0, 2)),
    case("lp_pool3d", (1, 2, 4, 5, 6), args=(2.0, 2)),
    case("lp_pool1d", ((2, 3, 7), "positive"), args=(3.0, 2), ceil_mode=True),
    case("lp_pool2d", ((1, 2, 5, 7), "positive"), args=(2.0, 3), stride=2, ceil_mode=True),
    case("lp_pool2d", ((1, 2, 5, 7), "positive"), args=(1.0, (2, 3)), ceil_mode=True),
    case("interpolate", (2, 3, 4, 5), scale_factor=2, mode="nearest"),
    case("interpolate", (2, 3, 4, 5), size=(7, 3), mode="bilinear"),
    case("interpolate", (2, 3, 4, 5), size=(7, 3), mode="bilinear", align_corners=True),
    case("interpolate", (2, 3, 4, 5), scale_factor=(1.7, 2.5), mode="bilinear"),
    case(
        "interpolate",
        (2, 3, 4, 5),
        scale_factor=1.7,
        mode="bilinear",
        recompute_scale_factor=True,
    ),
    case("interpolate", (2, 3, 5), size=8, mode="linear"),
    case("interpolate", (2, 3, 5), size=8, mode="nearest-exact"),
    case("interpolate", (1, 2, 3, 4, 2), scale_factor=2, mode="trilinear"),
    case("interpolate", (2, 3, 4, 5), size=(7, 3), mode="bicubic"),
    case("interpolate", (2, 3, 4, 5), scale_factor=1.6, mode="bicubic", align_corners=True),
    case("interpolate", (2, 3, 4, 5), size=(2, 3), mode="area"),
)

SAMPLES = (
    *(
        case(
            "grid_sample",
            (2, 3, 4, 5),
            (2, 3, 2, 2),
            mode=mode,
            padding_mode=padding,
            align_corners=corners,
        )
        for mode in ("bilinear", "bicubic", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    case("grid_sample", (1, 2, 3, 4, 2), (1, 2, 2, 3, 3), align_corners=False),
    case("affine_grid", (2, 2, 3), args=((2, 1, 3, 4),), align_corners=False),
    case("affine_grid", (1, 3, 4), args=((1, 1, 2, 3, 2),), align_corners=True),
)

CASES = (*CONVOLUTIONS, *POOLS, *SAMPLES)
