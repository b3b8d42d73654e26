"""Every test that takes `pencil` runs on all layouts."""

from fields import pencil  # noqa: F401 - a fixture
