/* The checksum of pencils/io/checksum.py: the sum over all words of mix(word + STEP * position). */
#include "checksum.h"

enum { WORTH_UNLOCKING = 8192 /* bytes; summing fewer takes no longer than the lock */ };

static Summer *current;

void use_summer(Summer *summer) { current = summer; }

/* Cut the bytes into rows of whole words; leave an error of Python if that is impossible. */
static int cut(Rows *rows, Py_ssize_t bytes)
{
    int width = rows->width;
    if (width != 1 && width != 2 && width != 4 && width != 8) {
        PyErr_Format(PyExc_ValueError, "words have 1, 2, 4 or 8 bytes, not %d", width);
        return -1;
    }
    if (rows->count < 1 || bytes % width || bytes / width % rows->count) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not %lld rows of words of %d bytes", bytes,
                     (long long)rows->count, width);
        return -1;
    }
    rows->words = bytes / width / rows->count;
    return 0;
}

PyObject *mixed_sum(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    unsigned long long first, step = 0;
    long long count = 1;
    Rows rows;
    if (!PyArg_ParseTuple(args, "y*iK|LK", &view, &rows.width, &first, &count, &step))
        return NULL;
    rows.data = view.buf;
    rows.count = count;
    rows.first = first;
    rows.step = step;
    if (cut(&rows, view.len) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    PyThreadState *state = view.len >= WORTH_UNLOCKING ? PyEval_SaveThread() : NULL;
    uint64_t total = current(&rows);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(total);
}
