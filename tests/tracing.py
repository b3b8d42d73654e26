"""Which files and classes of the library a call enters."""

import sys
from pathlib import Path

import pencils

PENCILS = Path(pencils.__file__).parent


def trace(call):
    """Return the files that a call enters, in order, and the names of the classes of methods."""
    files, classes = {}, set()

    def note(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PENCILS)):
            files.setdefault(str(Path(path).relative_to(PENCILS.parent)))
            bound = frame.f_locals.get("self")
            if type(bound).__module__.startswith("pencils."):
                classes.add(type(bound).__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(files), classes
