"""Memory of fields that is used again: who gets it, how much waits, and when it goes."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import pencils
from pencils.comm import pool
from pencils.comm.memory import LINE, address
from pencils.errors import ArgumentError

kernels = pool._kernels
needs_pool = pytest.mark.skipif(kernels is None, reason="there are no compiled kernels")
MIB = 2**20


@pytest.fixture(autouse=True)
def _as_before():
    bound = kernels and kernels.pool_keep(2**28)
    pencils.memory().empty()
    yield
    if kernels:
        kernels.pool_keep(bound)


def run(code, **variables):
    """Run a program of its own and return what it prints."""
    program = [sys.executable, "-c", code]
    found = subprocess.run(program, env=os.environ | variables, capture_output=True, text=True)  # noqa: PLW1510
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.mark.parametrize("nbytes", [1, 4096, pool.LEAST - 1, pool.LEAST, 3 * MIB + 1])
def test_bytes_begin_at_a_line_and_zeros_are_zero(nbytes):
    for make in (pool.empty_bytes, pool.zero_bytes) * 2:
        block = make(nbytes)
        assert block.shape == (nbytes,)
        assert address(block) % LINE == 0
        assert make is pool.empty_bytes or not block.any()
        block[:] = 7
        del block


@pytest.mark.parametrize("shape", [(0, 5), (3,), (40, 50, 60)])
@pytest.mark.parametrize("dtype", ["f8", "c16", "V3", "?"])
def test_arrays_are_writeable_and_in_c_order(shape, dtype):
    array = pool.empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable


@needs_pool
def test_memory_is_used_again_newest_first():
    one, other = pool.empty_bytes(MIB), pool.empty_bytes(MIB)
    first, second = address(one), address(other)
    before = pencils.memory()
    del one, other
    assert pencils.memory().pooled == before.pooled + 2 * MIB
    assert pencils.memory().live == before.live - 2 * MIB
    again = [pool.empty_bytes(MIB) for _ in range(3)]
    assert [address(block) for block in again[:2]] == [second, first]
    assert pencils.memory().reused == before.reused + 2
    assert pencils.memory().made == before.made + 1


@needs_pool
def test_sizes_differ_by_an_eighth_at_most():
    rng = np.random.default_rng(1)
    for nbytes in [*rng.integers(pool.LEAST, 40 * MIB, 40), pool.LEAST, MIB, 9 * MIB // 8 + 1]:
        before = pencils.memory().live
        block = pool.empty_bytes(int(nbytes))
        taken = pencils.memory().live - before
        assert nbytes - LINE <= taken <= nbytes * 9 / 8  # a line more is there in any case
        del block


@needs_pool
def test_every_view_holds_its_memory_and_no_two_blocks_share_any():
    blocks, held = [], []
    rng = np.random.default_rng(2)
    for number in range(400):
        block = pool.empty((rng.integers(90, 120), 100), np.dtype(float))
        block[:] = number
        view = block[3:-3].T.reshape(-1, 2)[::2] if number % 2 else block.view(np.int64)[5:]
        held.append((number, view, view.copy()))
        blocks.append(memoryview(block) if number % 3 else None)
        del block, view
        for _ in range(rng.integers(0, 3)):
            if held:
                held.pop(rng.integers(len(held)))
        assert all((view == copy).all() for _, view, copy in held)


@needs_pool
def test_what_has_waited_longest_goes_first():
    kernels.pool_keep(4 * MIB)
    blocks = [pool.empty_bytes(nbytes) for nbytes in (MIB, 2 * MIB, MIB, MIB, 8 * MIB)]
    places = list(map(address, blocks))
    for _ in range(3):
        del blocks[0]
    assert pencils.memory().pooled == 4 * MIB
    del blocks[0]  # the first one has to go
    assert pencils.memory().pooled == 4 * MIB
    del blocks[0]  # this one is too large
    assert pencils.memory().pooled == 4 * MIB
    before = pencils.memory()
    again = [pool.empty_bytes(MIB), pool.empty_bytes(MIB), pool.empty_bytes(2 * MIB)]
    assert [address(block) for block in again] == [places[3], places[2], places[1]]
    assert pencils.memory()[3:] == (before.made, before.reused + 3)
    pencils.memory().empty()
    assert pencils.memory().pooled == 0
    assert pencils.memory().bound == 4 * MIB
    kernels.pool_keep(0)
    before = pencils.memory()
    pool.empty_bytes(MIB)
    assert (pencils.memory().pooled, pencils.memory().made) == (0, before.made + 1)


@needs_pool
def test_wrong_arguments():
    kinds = {
        (TypeError, "a number of bytes and whether"): (5,),
        (TypeError, "str"): ("5", 0),
        (ValueError, "-5 bytes"): (-5, 0),
        (OverflowError, "int"): (2**64, 0),
    }
    for (kind, text), arguments in kinds.items():
        with pytest.raises(kind, match=text):
            kernels.pool_block(*arguments)
    with pytest.raises(ValueError, match="keep -1 bytes"):
        kernels.pool_keep(-1)
    with pytest.raises(TypeError):
        kernels.pool_keep(None)
    block = kernels.pool_block(5, 1)
    assert bytes(block) == bytes(5)
    with pytest.raises(TypeError, match="cannot create"):
        type(block)()


@needs_pool
@pytest.mark.parametrize("nbytes", [2**61, 2**62 + 1, 2**63 - 1])
def test_what_cannot_be_had_empties_the_pool_and_raises(nbytes):
    pool.empty_bytes(MIB)
    with pytest.raises(MemoryError):
        pool.empty_bytes(nbytes)
    before = pencils.memory()
    assert before.pooled in (0, MIB)
    assert pool.zero_bytes(MIB).sum() == 0


@needs_pool
def test_blocks_die_in_other_threads():
    before = pencils.memory().live

    def work(seed):
        rng = np.random.default_rng(seed)
        mine = []
        for _ in range(300):
            block = pool.zero_bytes(int(rng.integers(1, 5)) * pool.LEAST)
            wrong.append(block.any())
            block[:] = seed
            mine.append(block)
            handed.append(mine.pop(0))  # dies in the thread that takes it
            if len(handed) > 8:
                handed.pop(0)

    wrong, handed = [], []
    threads = [threading.Thread(target=work, args=(1 + n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(wrong)
    handed.clear()
    assert pencils.memory().live == before


def test_sizes_are_read():
    sizes = {"0": 0, "1000": 1000, "3k": 3072, "1.5 GiB": 3 * 2**29, "2TB": 2**41}
    for text, nbytes in (sizes | {"9" * 400: pool._MOST}).items():
        assert pool.read_bytes(text) == nbytes
    for text in ("", "much", "-1", "5X", "M"):
        with pytest.raises(ArgumentError, match=f"PENCILS_POOL={text!r} must be a number of bytes"):
            pool.read_bytes(text)


@needs_pool
def test_the_environment_sets_the_bound():
    code = "import pencils; print(pencils.memory().bound)"
    assert run(code, PENCILS_POOL="3M") == str(3 * MIB)
    assert 0 < int(run(f"import os; os.environ.pop('PENCILS_POOL', 0); {code}")) <= 2**30


def test_without_kernels_nothing_is_kept():
    code = """if True:
        import numpy as np, pencils
        u = pencils.ones(pencils.Pencil((64, 64, 64)))
        v = pencils.zeros(u.pencil) + u
        del u
        pencils.memory().empty()
        print(v.sum(), *pencils.memory())"""
    assert run(code, PENCILS_KERNELS="numpy") == "262144.0 0 0 0 0 0"


@needs_pool
def test_the_end_of_the_interpreter():
    code = """if True:
        import pencils, sys, threading
        from pencils.comm import pool
        u = pencils.ones(pencils.Pencil((64, 64, 64)))
        sys.kept = [u, pool.empty_bytes(10**6)]
        sys.kept.append(sys.kept)  # a circle, which only the end of the interpreter frees
        threading.Thread(target=lambda: pool.empty_bytes(10**6)).start()
        del u
        print("ended")"""
    assert run(code) == "ended"


@needs_pool
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_has_its_own_memory():
    code = """if True:
        import os
        import numpy as np
        from pencils.comm import pool
        kept, gone = pool.zero_bytes(10**6), pool.zero_bytes(10**6)
        del gone
        child = os.fork()
        kept[:] = 1 if child else 2
        block = pool.zero_bytes(10**6)
        block[:] = 3 if child else 4
        right = not child or os.waitpid(child, 0)[1] == 0
        right &= bool((kept == (1 if child else 2)).all() and (block == (3 if child else 4)).all())
        del kept, block
        os._exit(0 if right and pool.memory().live == 0 else 1)"""
    run(code)


FAULTS = """if True:
    import resource
    import numpy as np
    import pencils

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def step(u):
        u.exchange_halo()
        change = u.shift((1, 0, 0)) + u.shift((-1, 0, 0)) - 2 * u
        return u.copy(), np.sqrt(change * change + 1) / (u + 3)

    u = pencils.ones(pencils.Pencil({shape}, periodic=True), halo=1)
    counts = []
    for _ in range(12):
        before = faults()
        step(u)
        counts.append(faults() - before)
    print(min(counts))  # the system may take pages away at any time"""
TEMPORARIES = 9


@needs_pool
@pytest.mark.skipif(sys.platform != "linux", reason="counted on Linux")
@pytest.mark.parametrize("pages", ["", "glibc.malloc.hugetlb=1"])
@pytest.mark.parametrize("shape", [(64, 64, 32), (128, 128, 64)])
def test_loops_over_temporaries_cause_no_page_faults(shape, pages):
    code = FAULTS.format(shape=shape)
    # Without the pool, malloc shall not keep fields instead, but buffers of NumPy, of 64 KiB.
    system = {"GLIBC_TUNABLES": pages, "MALLOC_MMAP_THRESHOLD_": "524288"}
    without = int(run(code, PENCILS_POOL="0", **system))
    if without < TEMPORARIES:
        pytest.skip("this system counts no page faults, or causes none")
    assert int(run(code, PENCILS_POOL="1G", **system)) < TEMPORARIES
