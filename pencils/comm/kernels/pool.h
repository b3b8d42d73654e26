/* Memory of fields that is used again: what the Python module offers of it. */
#ifndef PENCILS_POOL_H
#define PENCILS_POOL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *pool_block(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *pool_keep(PyObject *module, PyObject *bytes);
PyObject *pool_counts(PyObject *module, PyObject *nothing);
int pool_set_up(PyObject *module);

#endif
