/* What the Python module offers for checksums. */
#ifndef PENCILS_CHECKSUM_H
#define PENCILS_CHECKSUM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "checksum_rows.h"

/* Sum up by these instructions from now on. */
void use_summer(Summer *summer);

/* mixed_sum(data, width, first, count=1, step=0): `count` equal rows, `step` words apart. */
PyObject *mixed_sum(PyObject *module, PyObject *args);

#endif
