/* What the Python module offers for checksums. */
#ifndef PENCILS_CHECKSUM_H
#define PENCILS_CHECKSUM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "checksum_rows.h"

/* Sum up by these instructions from now on. */
void use_summer(Summer *summer);

/* mixed_sum(data, width, first, words=all, count=1, step=0, pitch=0): `count` rows of `words` words
   of `width` bytes, which are `pitch` bytes apart in memory and `step` positions in the array. */
PyObject *mixed_sum(PyObject *module, PyObject *args);

#endif
