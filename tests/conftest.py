"""Tests marked `gpu` are skipped, not failed, on a machine that has none."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from projects import Project
from tritune import misses, silicon, switches
from tritune.device import cuda

# Tests edit a module twice in a second, and bytecode knows its source by the second and the size.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# A machine that does other work beside is slow, and that is no fault of a property.
settings.register_profile("tritune", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tritune")


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose lockfile is fresh; made once, and copied."""
    project = Project(tmp_path_factory.mktemp("fresh") / "project")
    project.lock()
    return project


@pytest.fixture
def plain_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter, none of the user's settings, and nothing said or known before."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in ("TRITUNE", "TRITUNE_MISS", "TRITUNE_LOG", "TRITUNE_LOCKFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(misses, "_said", set())
    monkeypatch.setattr(switches, "_said", set())
    monkeypatch.setattr(silicon, "_no_driver", set())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda.present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))
