/* What the Python module offers for checksums. */
#ifndef PENCILS_CHECKSUM_H
#define PENCILS_CHECKSUM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *mixed_sum(PyObject *module, PyObject *args);

#endif
