"""More bytes than 32-bit integers count, on each process: ``pytest --large``."""

import numpy as np
import pytest

import pencils

pytestmark = [pytest.mark.large, pytest.mark.parallel([1, 2])]

COLUMNS = 2**20  # 8 MiB a row, and more than 2 GiB on each process
ROWS = 264


def row(number):
    return number * float(COLUMNS) + np.arange(COLUMNS)


def fill(u):
    rows, columns = u.local_slices
    for number, values in enumerate(u.local, rows.start):
        values[...] = row(number)[columns]


def is_filled(u):
    rows, columns = u.local_slices
    numbered = enumerate(u.local, rows.start)
    return all(np.array_equal(values, row(number)[columns]) for number, values in numbered)


def test_blocks_of_more_than_two_gigabytes(comm, path, lab):
    pencil = pencils.Pencil((ROWS * comm.size, COLUMNS), comm)
    u = pencils.empty(pencil)
    assert u.local.nbytes > 2**31
    fill(u)
    pencils.save(path, {"u": u})
    assert pencils.verify(path) == ["u"]
    u.local[...] = 0
    pencils.load(path, into={"u": u})
    assert lab.everywhere(is_filled(u))
    del u  # room for the next one
    assert lab.everywhere(is_filled(pencils.load(path, pencil.with_(decomp=1))["u"]))
