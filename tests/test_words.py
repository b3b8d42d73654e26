"""Words of other libraries raise errors that name ours; no name of ours is among them."""

import pytest

import pencils
from pencils.errors import MissingAttributeError, PencilsError
from pencils.errors import missing as words

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def objects(comm):
    """Return objects and the words that they explain."""
    pencil = pencils.Pencil((8, 6), comm)
    plan = pencils.fft.PencilFFT(pencil)
    tables = words.FIELDS, words.PENCILS, words.PLANS
    return list(zip((pencils.ones(pencil), pencil, plan), tables, strict=True))


def test_every_word_names_what_to_write(comm):
    for thing, table in objects(comm):
        for word, text in words.by_word(table).items():
            assert not hasattr(thing, word)
            with pytest.raises(MissingAttributeError) as caught:
                getattr(thing, word)
            kind = type(thing).__name__
            assert str(caught.value) == f"a {kind} has no attribute {word!r}: {text}"
        assert not words.by_word(table).keys() & {*dir(thing)}
        assert len(dir(thing)) > 20
    for word, text in words.by_word(words.MODULE).items():
        with pytest.raises(AttributeError, match=f"no attribute '{word}'") as caught:
            getattr(pencils, word)
        assert str(caught.value).endswith(f": {text}")


# What is written out of habit, and what the error names.
HABITS = {
    "u.redistribute(0)": "pencils.transpose(u, pencil)",
    "u.get((0, slice(None)))": "pencils.gather(u)",
    "u.plot()": "pencils.plot.plot_slice(u)",
    "u.v": "u.local",
    "u.scatter_forward()": "u.exchange_halo()",
    "u.backward()": "plan.backward(waves)",
    "u['g']": "plan.forward(u)",
    "u.__setitem__('c', 0)": "plan.forward(u)",
    "u.pencil.createGlobalVec()": "pencils.zeros(pencil)",
    "u.pencil.globalToLocal(u)": "u.exchange_halo()",
    "u.pencil.get_dealiased_space(1.5)": "dealias='3/2'",
    "pencils.exchange_halo(u)": "u.exchange_halo()",
    "pencils.newDistArray(u)": "pencils.zeros(pencil)",
    "pencils.Subcomm": "grid=",
    "pencils.DMDACreate": "pencils.Pencil(shape)",
    "pencils.PencilFFT": "pencils.fft.PencilFFT",
    "pencils.sin(u)": "write numpy.sin",
    "pencils.laplacian(u)": "pencils.derivative(u, axis)",
    "f'{u[0, 0]:.3f}'": "u.item() returns the value of one point",
}


@pytest.mark.parametrize("code", HABITS)
def test_habits(comm, code):
    u = pencils.ones(pencils.Pencil((8, 6), comm))
    with pytest.raises((AttributeError, TypeError)) as caught:
        eval(code, {"u": u, "pencils": pencils})
    assert HABITS[code] in str(caught.value)


def test_other_names_raise_as_usual(comm):
    for thing, _ in objects(comm):
        with pytest.raises(AttributeError, match="nothing_at_all") as caught:
            thing.nothing_at_all  # noqa: B018
        assert not isinstance(caught.value, PencilsError)
