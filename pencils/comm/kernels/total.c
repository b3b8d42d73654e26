/* Sums of all elements of arrays. */
#include "total.h"

#include <stdint.h>

enum { WORTH_UNLOCKING = 65536 }; /* bytes; adding up fewer takes no longer than the lock */

static Totaler *totaler;

void use_for_totals(Totaler *of) { totaler = of; }

PyObject *total(PyObject *Py_UNUSED(module), PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0)
        return NULL;
    /* NumPy adds up unaligned numbers in another order. */
    if (view.itemsize != sizeof(double) || (uintptr_t)view.buf % sizeof(double)
        || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        Py_RETURN_NONE;
    }
    PyThreadState *state = view.len >= WORTH_UNLOCKING ? PyEval_SaveThread() : NULL;
    /* NumPy adds to 0: there is no sum of -0. */
    double found = 0.0 + totaler(view.buf, view.len / view.itemsize);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(found);
}
