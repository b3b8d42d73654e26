/* What the Python module offers for sums of all elements. */
#ifndef PENCILS_TOTAL_H
#define PENCILS_TOTAL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"

/* Add by these instructions from now on. */
void use_for_totals(Totaler *totaler);

PyObject *total(PyObject *module, PyObject *array);

#endif
