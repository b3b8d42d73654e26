"""Command line: ``python -m simmpi -n N app.py``."""

from simmpi.command import main, parse

if __name__ == "__main__":
    main(parse())
