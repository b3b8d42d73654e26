/* What the Python module offers for weighted sums of arrays. */
#ifndef PENCILS_WEIGHTED_H
#define PENCILS_WEIGHTED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"

/* Add up by these instructions from now on. */
void use_for_weights(Weigher *weigh);

/* Write targets of so many bytes past the cache. */
void stream_weighted_from(Py_ssize_t bytes);

/* Compute one sum by them; whether targets of so many bytes are written past the cache. */
void weigh_row(const Weighted *sum, int is_double);
int weights_are_streamed(Py_ssize_t bytes);

PyObject *weighted_sum(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *weighted_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
