"""A disk that fails at any system call: the error of the system, and no temporary left."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Of all calls, that many from one that fails to the next; 1 for all.
STRIDE = os.environ.get("PENCILS_FAULT_STRIDE", "47")


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="wants LD_PRELOAD")
def test_any_call_may_fail(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    library = tmp_path / "faults.so"
    source = HERE / "faults.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    ran = subprocess.run(
        [sys.executable, HERE / "fail_disk.py", "--stride", STRIDE],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
