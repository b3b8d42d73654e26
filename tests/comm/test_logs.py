"""RootFilter: which records pass, and what they tell about ranks."""

import io
import logging

import pytest

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def logged(comm, **options):
    """Text that a handler with the filter writes on this rank."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(rank)d/%(size)d %(message)s"))
    handler.addFilter(pencils.logs.RootFilter(comm, **options))
    logger = logging.getLogger(f"pencils.test{comm.rank}")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("hello")
    finally:
        logger.removeHandler(handler)
    return text.getvalue()


def test_records_of_one_rank_pass(comm):
    last = comm.size - 1
    for options, root in (({}, 0), ({"root": last}, last)):
        expected = f"{root}/{comm.size} hello\n" if comm.rank == root else ""
        assert logged(comm, **options) == expected


def test_records_of_all_ranks_pass_with_their_rank(comm):
    assert logged(comm, root=None) == f"{comm.rank}/{comm.size} hello\n"


def test_a_root_outside_is_an_error(comm):
    with pytest.raises(pencils.errors.PencilsError, match="root"):
        pencils.logs.RootFilter(comm, root=comm.size)
