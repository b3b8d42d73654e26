"""Tools on top of everything else, which nothing below imports.

`command_line` reads the commands of ``python -m pencils``, which are in `run`, `planning`, `plot`
and `demo`. `profiling`, `recovery` and `testing` are for programs.
"""
