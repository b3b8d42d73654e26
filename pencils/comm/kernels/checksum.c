/* The checksum of pencils/io/direct.py: the sum over all words of mix(word + STEP * position). */
#include "arguments.h"

enum { WORTH_UNLOCKING = 8192 /* bytes; summing fewer takes no longer than the lock */ };

/* Check that the rows lie within the bytes; leave an error of Python if they do not. */
static int check(Rows *rows, Py_ssize_t bytes)
{
    int width = rows->width;
    if (width != 1 && width != 2 && width != 4 && width != 8) {
        PyErr_Format(PyExc_ValueError, "words have 1, 2, 4 or 8 bytes, not %d", width);
        return -1;
    }
    if (rows->count == 1 && rows->words == -1)
        rows->words = bytes / width;
    int fits = rows->count >= 1 && rows->words >= 0 && rows->words <= bytes / width
               && rows->pitch >= 0;
    if (fits && rows->count > 1) {
        int64_t last = bytes - rows->words * width; /* where the last row may begin */
        fits = rows->pitch <= last / (rows->count - 1);
    }
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%lld rows of %lld words, %lld bytes apart, exceed %zd bytes",
                     (long long)rows->count, (long long)rows->words, (long long)rows->pitch, bytes);
        return -1;
    }
    return 0;
}

PyObject *mixed_sum(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    unsigned long long first, step = 0;
    long long words = -1, count = 1, pitch = 0;
    Rows rows;
    if (!PyArg_ParseTuple(args, "y*iK|LLKL", &view, &rows.width, &first, &words, &count, &step,
                          &pitch))
        return NULL;
    rows = (Rows){view.buf, rows.width, words, count, pitch, first, step};
    if (check(&rows, view.len) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    int worth = rows.words > 0 && rows.count >= WORTH_UNLOCKING / rows.width / rows.words;
    PyThreadState *state = unlock(worth);
    uint64_t total = level.sum(&rows);
    lock(state);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(total);
}
