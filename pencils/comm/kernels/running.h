/* What the Python module offers for running sums along lines that are contiguous. */
#ifndef PENCILS_RUNNING_H
#define PENCILS_RUNNING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"

/* Copy by these instructions from now on. */
void use_for_running(Copier *copy);

/* Write targets of so many bytes past the cache. */
void stream_running_from(Py_ssize_t bytes);

PyObject *running_sums(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
