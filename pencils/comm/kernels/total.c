/* Sums of all elements of arrays. */
#include "arguments.h"

enum { WORTH_UNLOCKING = 65536 }; /* bytes; adding up fewer takes no longer than the lock */

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
    PyThreadState *state = unlock(view.len >= WORTH_UNLOCKING);
    /* NumPy adds to 0: there is no sum of -0. */
    double found = 0.0 + level.total(view.buf, view.len / view.itemsize);
    lock(state);
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(found);
}
