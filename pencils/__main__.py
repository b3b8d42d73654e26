"""Command line: ``python -m pencils info | plan | run | simulate | show | verify | demo``."""

from pencils.tools.command_line import main

if __name__ == "__main__":
    main()
