"""Files that were damaged at random, read in a process of its own, as it might never end.

``PENCILS_CORRUPTIONS=5000`` damages that many.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("corrupt_files.py")
COUNT = int(os.environ.get("PENCILS_CORRUPTIONS", "280"))


def test_damage_is_found_or_harmless():
    seed = random.randrange(10**9)
    command = [sys.executable, SCRIPT, "--count", str(COUNT), "--seed", str(seed)]
    print("seed", seed)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + COUNT)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr
