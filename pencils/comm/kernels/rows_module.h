/* What the Python module offers for rows and points. */
#ifndef PENCILS_ROWS_MODULE_H
#define PENCILS_ROWS_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef PyObject *Function(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
Function rows_move, rows_locate, rows_fetch, rows_sort;

#endif
