"""Tests marked `gpu` are skipped, not failed, on a machine that has none."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from projects import Project
from tritune.device import cuda

# A machine that does other work beside is slow, and that is no fault of a property.
settings.register_profile("tritune", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tritune")


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose lockfile is fresh; made once, and copied."""
    project = Project(tmp_path_factory.mktemp("fresh") / "project")
    project.lock()
    return project


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda.present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))
