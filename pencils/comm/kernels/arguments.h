/* What the files of the Python module share: arrays export the buffer protocol. */
#ifndef PENCILS_ARGUMENTS_H
#define PENCILS_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"

#ifdef __GNUC__ /* names of other libraries may not replace these */
#pragma GCC visibility push(hidden)
#endif

extern Level level;            /* the instructions in use from now on */
extern Py_ssize_t stream_from; /* targets of so many bytes are written past the cache */

typedef PyObject *Function(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
Function rows_move, rows_locate, rows_fetch, rows_sort; /* rows_module.c */
Function running_sums, weighted_rows;                   /* running.c, weighted.c */
Function pool_block;                                    /* pool.c, as what follows */
PyObject *pool_keep(PyObject *module, PyObject *bytes);
PyObject *pool_counts(PyObject *module, PyObject *nothing);
PyObject *total(PyObject *module, PyObject *array);     /* total.c */
PyObject *mixed_sum(PyObject *module, PyObject *args);  /* checksum.c */

PyObject *copies(PyObject *module, PyObject *args, PyObject *keywords); /* module.c */
PyObject *lines(PyObject *module, PyObject *args, PyObject *keywords);  /* lines_module.c */
PyObject *product(PyObject *module, PyObject *args);    /* products.c */
PyObject *row_program(PyObject *module, PyObject *args); /* row_program_module.c */

/* Make the types; 0 if they are there. */
int prepared_set_up(PyObject *module);
int pool_set_up(PyObject *module);
int row_program_set_up(PyObject *module);

/* Release Python's lock if that is worth the time; the result is for `lock`. */
static inline PyThreadState *unlock(int worth) { return worth ? PyEval_SaveThread() : NULL; }

static inline void lock(PyThreadState *state)
{
    if (state)
        PyEval_RestoreThread(state);
}

/* Raise ValueError; returns -1. */
static inline int fail(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

/* Memory that was asked for, to be released together; `views` has room for all. */
typedef struct {
    Py_ssize_t count;
    Py_buffer *views;
} Held;

/* A call that is prepared: an object that Python calls without arguments. It views arrays, for all
   that it does, and owns memory of its own, which begins with zeros. */
typedef struct Prepared {
    PyObject_HEAD
    PyObject *weakrefs;
    Held held;
    Py_ssize_t bytes;            /* for many, the lock of the interpreter is released */
    int alone, busy;             /* whether only one thread may execute it, and one does */
    void *own;
    void (*run)(void *own);
    void (*clear)(void *own);    /* frees what the memory of its own refers to */
} Prepared;

/* Make one with room for so many views, and so much memory of its own; NULL with an error. */
Prepared *prepared_new(Py_ssize_t nviews, size_t bytes, void (*run)(void *), void (*clear)(void *));

Py_buffer *hold(Held *held, PyObject *array, int flags);
void release(Held *held);

/* Numbers of 8 bytes in a row, at least so many of them; `count` becomes their number. */
int64_t *integers(Held *held, PyObject *array, Py_ssize_t least, int flags, Py_ssize_t *count);

/* The element type of floats, real or complex, in the order of the machine; -1 for any other. */
int element_of(const char *format);

/* Move the places in arrays to those of the next index along some axes, the last one first; false
   after the last index. */
static inline int next_index(ptrdiff_t *index, const ptrdiff_t *shape, int naxes, char **places,
                             const Py_buffer *views, int nviews)
{
    for (int axis = naxes - 1; axis >= 0; axis--) {
        ptrdiff_t back = ++index[axis] < shape[axis] ? 0 : shape[axis];
        for (int i = 0; i < nviews; i++)
            places[i] += (1 - back) * views[i].strides[axis];
        if (!back)
            return 1;
        index[axis] = 0;
    }
    return 0;
}

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
