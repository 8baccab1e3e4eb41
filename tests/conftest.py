"""Tests marked `gpu` are skipped, not failed, on a machine that has none."""

from __future__ import annotations

import pytest

from tritune.device import cuda


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda.present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))
