"""Giving a file its name, in one process: what it replaces stays whole, nothing is left behind."""

import errno
import os
import threading
from pathlib import Path

import pytest

from pencils.io import commit as module
from pencils.io.commit import commit, make_temporary


def replace(target, text):
    temporary = make_temporary(target)
    temporary.write_text(text)
    commit(temporary, target)


def open_files(folder):
    """Files in a folder that this process holds open, also those without a name."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [str(link.readlink()) for link in links if str(folder) in str(link.readlink())]


@pytest.fixture(params=["it is small", "a thread frees it", "there are no more threads"])
def threads(request, monkeypatch):
    if request.param != "it is small":
        monkeypatch.setattr(module, "_LARGE", 0)

    def fail(_):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    if request.param == "there are no more threads":
        monkeypatch.setattr(threading.Thread, "start", fail)


@pytest.mark.usefixtures("threads")
def test_nobody_holds_a_file_that_was_replaced(tmp_path):
    target = tmp_path / "a"
    for number in range(3):
        replace(target, f"{number}")
        assert target.read_text() == f"{number}"
    module.wait_for_space()
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == [target]


def test_a_reader_keeps_what_it_opened(tmp_path):
    target = tmp_path / "a"
    replace(target, "old")
    with target.open() as reader:
        replace(target, "new")
        module.wait_for_space()
        assert reader.read() == "old"
    assert target.read_text() == "new"


def test_a_replaced_file_that_tells_no_size(tmp_path, monkeypatch):
    def refuse(handle, fstat=os.fstat):
        if Path(f"/proc/self/fd/{handle}").readlink() == target:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return fstat(handle)

    target = tmp_path / "a"
    replace(target, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", refuse)
        replace(target, "new")
    assert target.read_text() == "new"
    assert open_files(tmp_path) == []


def test_a_file_that_cannot_be_replaced_is_held_by_nobody(tmp_path, monkeypatch):
    def fail(_, target):
        raise PermissionError(target)

    target = tmp_path / "a"
    replace(target, "old")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PermissionError):
        replace(target, "new")
    module.wait_for_space()
    assert target.read_text() == "old"
    assert not [name for name in open_files(tmp_path) if name == str(target)]
