/* What the Python module offers for line programs. */
#ifndef PENCILS_LINES_MODULE_H
#define PENCILS_LINES_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"

/* Copy and add by these instructions in what is prepared from now on. */
void use_for_lines(Copier *copy, Adder *add);

/* Write targets of so many bytes past the cache. */
void stream_lines_from(Py_ssize_t bytes);

/* Add the type `Lines` to a module. */
int lines_set_up(PyObject *module);

#endif
