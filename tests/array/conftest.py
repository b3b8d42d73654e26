"""Every test that takes `pencil` runs on all layouts."""

import pytest
from fields import LAYOUTS, lay


@pytest.fixture(params=LAYOUTS)
def pencil(request, comm):
    return lay(comm, request.param)
