"""Non-maximum suppression of conch-triton-kernels, whose source is as it is in the wheel."""

import torch
from conch.ops.vision.nms import nms

import tritune


def nms_problem(N, threshold):
    """The boxes that overlap no better one by more than the threshold, best first."""
    corner, size = torch.rand(N, 2) * 100, torch.rand(N, 2) * 30 + 1
    boxes, scores = torch.cat((corner, corner + size), dim=-1), torch.rand(N)

    def reference():
        order = scores.argsort(descending=True, stable=True)
        low, high = boxes[order].split(2, dim=-1)
        sides = torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)
        both, area = sides.clamp(min=0).prod(dim=-1), (high - low).prod(dim=-1)
        overlaps = (both / (area[:, None] + area - both) > threshold).tolist()
        kept: list[int] = []
        for each in range(N):
            if not any(overlaps[better][each] for better in kept):
                kept.append(each)
        return order[kept]

    return tritune.Problem(lambda: nms(boxes, scores, threshold), reference=reference)
