"""The cache of compiled functions: one process compiles, what is broken is made anew."""

import ctypes
import logging
import shutil
import subprocess
import sys
from hashlib import sha256

import pytest

from pencils.comm import c_library

SOURCE = "int answer(void) { return 42; }"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Return a cache folder for a process that has compiled nothing."""
    monkeypatch.setattr(c_library, "_libraries", {})
    monkeypatch.setattr(c_library, "_reported", set())
    monkeypatch.setattr(c_library, "_hanging", set())
    monkeypatch.setenv("PENCILS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counting(tmp_path):
    """Return a slow compiler, and a function that counts how often it has compiled."""
    log, command = tmp_path / "log", tmp_path / "slow-cc"
    command.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo x >> "{log}"; sleep 0.3;; esac\nexec cc "$@"\n'
    )
    command.chmod(0o700)
    return str(command), lambda: len(log.read_text().split()) if log.exists() else 0


def answer(compiler="cc"):
    """Return what the compiled function returns."""
    found = c_library.addresses_of(SOURCE, ["answer"], compiler)
    return found and ctypes.CFUNCTYPE(ctypes.c_int)(found[0])()


def forget():
    """Do as a process that has loaded nothing."""
    c_library._libraries.clear()


def started(compiler, count=1):
    """Start processes that compile the same."""
    code = (
        "import sys; from pencils.comm.c_library import addresses_of\n"
        "sys.exit(not addresses_of(sys.argv[1], ['answer'], sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, SOURCE, compiler]
    return [subprocess.Popen(command) for _ in range(count)]


def test_a_second_process_does_not_compile(cache, counting):
    compiler, count = counting
    assert [process.wait(60) for process in started(compiler)] == [0]
    assert answer(compiler) == answer(compiler) == 42
    assert count() == 1
    (library,) = cache.iterdir()
    assert library.suffix == ".so"
    assert cache.stat().st_mode & 0o777 == 0o700


def test_one_of_several_processes_compiles(cache, counting):
    compiler, count = counting
    assert [process.wait(60) for process in started(compiler, 3)] == [0, 0, 0]
    assert count() == 1
    assert len(list(cache.iterdir())) == 1


def test_broken_files_are_replaced(cache, counting):
    compiler, count = counting
    assert answer(compiler) == 42
    (library,) = cache.iterdir()
    whole, other = library.read_bytes(), b"x" * 1000
    for broken in (b"", whole[:5000], whole[:-20], other, other + sha256(other).digest()):
        library.unlink()  # the memory of a loaded one would change
        library.write_bytes(broken)
        before = count()
        (process,) = started(compiler)
        assert process.wait(60) == 0
        assert count() == before + 1
        assert len(library.read_bytes()) == len(whole)


def test_the_lock_of_a_killed_process_is_ignored(cache, counting, monkeypatch):
    compiler, count = counting
    assert answer(compiler) == 42
    (library,) = cache.iterdir()
    library.unlink()
    library.with_suffix(".lock").touch()
    forget()
    monkeypatch.setattr(c_library, "_LONGEST_WAIT", 0.5)
    assert answer(compiler) == 42
    assert count() == 2
    assert list(cache.iterdir()) == [library]


def test_folders_that_others_can_write_to_are_not_used(cache, monkeypatch):
    cache.mkdir()
    cache.chmod(0o777)
    assert answer() == 42
    assert not list(cache.iterdir())
    forget()
    cache.chmod(0o700)
    (cache / "file").touch()
    monkeypatch.setenv("PENCILS_CACHE", str(cache / "file" / "below"))
    assert answer() == 42
    monkeypatch.delenv("PENCILS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    forget()
    assert answer() == 42
    assert len(list((cache / "pencils").iterdir())) == 1


@pytest.mark.parametrize("text", [None, "exit 3", 'echo "no disk" >&2; exit 1', "exit 0"])
def test_failures_are_logged_once(cache, tmp_path, caplog, text):
    command = tmp_path / "broken-cc"
    if text is not None:
        command.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) {text};; esac\n')
        command.chmod(0o700)
    with caplog.at_level(logging.WARNING, logger="pencils"):
        assert answer(str(command)) is None
        assert answer(str(command)) is None
        assert c_library.addresses_of("another one", ["answer"], str(command)) is None
    (record,) = caplog.records
    assert "broken-cc does not compile" in record.message
    assert text is None or "disk" not in text or "no disk" in record.message
    assert not cache.exists() or not list(cache.iterdir())


def test_a_compiler_that_hangs_is_called_once(cache, tmp_path, monkeypatch):
    log, command = tmp_path / "log", tmp_path / "hanging-cc"
    command.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo x >> "{log}"; exec sleep 60;; esac\n'
    )
    command.chmod(0o700)
    monkeypatch.setattr(c_library, "_SECONDS", 0.5)
    assert answer(str(command)) is None
    assert c_library.addresses_of("another one", ["answer"], str(command)) is None
    assert log.read_text() == "x\n"
    assert not list(cache.iterdir())
    assert answer() == 42


def test_the_folder_may_be_the_current_one(cache, monkeypatch):
    cache.mkdir(mode=0o700)
    monkeypatch.chdir(cache)
    monkeypatch.setenv("PENCILS_CACHE", ".")
    assert answer() == 42
    assert len(list(cache.iterdir())) == 1
