/* Weighted sums of neighbours in contiguous rows, with other sums in few columns; each element of the
   target is written once: weighted_rows(target, source, terms, columns). */
#include "arguments.h"

#include <stdlib.h>
#include <string.h>
#include "machine.h"

enum {
    MOST_COLUMNS = 8,
    PIECE = 4096, /* bytes that are added at once, and stay in the first-level cache */
    NEAR = 2048   /* bytes to fetch before they are needed */
};

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

/* A column, which becomes the sum of other columns times their weights. */
typedef struct {
    ptrdiff_t at; /* bytes from the beginning of a row */
    double weights[MOST_TERMS];
    int count;
    const Py_buffer *terms;
} Column;

/* All rows are treated as one, and wrong numbers at their ends are replaced in a buffer before it is
   written to the target: rows need not be transposed. */
typedef struct {
    int is_double, parts; /* of a number: two if it is complex */
    int stream;
    int as_complex; /* whether the factor multiplies complex numbers, not their parts */
    int count, ncolumns;
    ptrdiff_t bytes, rows, offsets[MOST_TERMS]; /* bytes of a row */
    double weights[MOST_TERMS], factor; /* of all sums, those of columns included */
    const Py_buffer *target, *source;
    Column columns[MOST_COLUMNS];
    Held held;
    Py_buffer views[2 + MOST_COLUMNS * MOST_TERMS];
} Rows_task;

/* Read the form of two contiguous arrays; false if they differ, or are no rows of floats. */
static int read_form(Rows_task *task)
{
    const Py_buffer *target = task->target, *source = task->source;
    int element = element_of(target->format), same = source->ndim == target->ndim;
    for (int i = 0; same && i < target->ndim; i++)
        same = source->shape[i] == target->shape[i];
    if (!same || target->ndim < 1 || element < 0 || strcmp(source->format, target->format) != 0)
        return 0;
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->parts = element < COMPLEX_FLOAT ? 1 : 2;
    task->bytes = target->shape[target->ndim - 1] * target->itemsize;
    task->rows = task->bytes ? target->len / task->bytes : 0;
    task->stream = target->len >= stream_from;
    return 1;
}

#define ADD_TERM(REAL)                                                                            \
    for (ptrdiff_t row = 0; row < rows; row++) {                                                  \
        REAL *number = (REAL *)(to + row * task->bytes);                                     \
        REAL product = (REAL)column->weights[i] * *(const REAL *)(from + row * stride);           \
        *number = i ? *number + product : product;                                                \
    }

static void fill_column(const Rows_task *task, const Column *column, char *buffer, ptrdiff_t first,
                        ptrdiff_t rows)
{
    for (int i = 0; i < column->count; i++)
        for (int part = 0; part < task->parts; part++) {
            const Py_buffer *term = &column->terms[i];
            ptrdiff_t stride = term->strides[0], at = part * term->itemsize / task->parts;
            const char *from = (const char *)term->buf + first * stride + at;
            char *to = buffer + column->at + at;
            if (task->is_double)
                ADD_TERM(double)
            else
                ADD_TERM(float)
        }
}

/* Treat some rows, from `begin` on. */
static void add_some(const Rows_task *task, char *buffer, ptrdiff_t begin, ptrdiff_t bytes)
{
    const char *source = task->source->buf, *rows[MOST_TERMS];
    ptrdiff_t first = begin, end = begin + bytes, row = task->bytes;
    for (int i = 0; i < task->count; i++) {
        first = most(first, -task->offsets[i]);
        end = least(end, task->rows * row - task->offsets[i]);
    }
    for (int i = 0; i < task->count; i++)
        rows[i] = source + first + task->offsets[i];
    if (first < end)
        level.weigh(&(Weighted){buffer + first - begin, rows, task->weights, task->count,
                                end - first, source + first + NEAR, 0, 0},
                    task->is_double);
    for (int i = 0; i < task->ncolumns; i++)
        fill_column(task, &task->columns[i], buffer, begin / row, bytes / row);
    rows[0] = buffer;
    level.weigh(&(Weighted){(char *)task->target->buf + begin, rows, &task->factor, 1, bytes,
                            buffer, task->stream, task->as_complex},
                task->is_double);
}

static int add_rows(const Rows_task *task)
{
    ptrdiff_t some = task->bytes * most(1, PIECE / most(1, task->bytes));
    ptrdiff_t all = task->rows * task->bytes;
    char *memory = calloc((size_t)some + LINE, 1);
    if (!memory)
        return 0;
    char *buffer = memory + (LINE - (uintptr_t)memory % LINE) % LINE;
    for (ptrdiff_t begin = 0; begin < all; begin += some)
        add_some(task, buffer, begin, least(some, all - begin));
    if (task->stream)
        streams_finish();
    free(memory);
    return 1;
}

/* Read the factor, and the offset and weight of each term. */
static int read_terms(Rows_task *task, PyObject *terms)
{
    Py_ssize_t size = PyTuple_Check(terms) ? PyTuple_Size(terms) : 0, item = task->target->itemsize;
    if (size < 3 || size % 2 == 0 || size > 1 + 2 * MOST_TERMS)
        return fail("terms are a factor, and up to eight offsets and weights");
    task->count = (int)(size / 2);
    task->factor = PyComplex_RealAsDouble(PyTuple_GetItem(terms, 0));
    task->as_complex = task->parts == 2 && PyComplex_Check(PyTuple_GetItem(terms, 0));
    for (int i = 0; i < task->count; i++) {
        Py_ssize_t offset = PyLong_AsSsize_t(PyTuple_GetItem(terms, 1 + 2 * i));
        task->weights[i] = PyFloat_AsDouble(PyTuple_GetItem(terms, 2 + 2 * i));
        if (PyErr_Occurred())
            return -1;
        if (offset <= -task->bytes / item || offset >= task->bytes / item)
            return fail("an offset leaves its row");
        task->offsets[i] = offset * item;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Read the number of a column, and the terms with their weights. */
static int read_column(Rows_task *task, Column *column, PyObject *given)
{
    Py_ssize_t size = PyTuple_Check(given) ? PyTuple_Size(given) : 0, item = task->target->itemsize;
    if (size < 3 || size % 2 == 0 || size > 1 + 2 * MOST_TERMS)
        return fail("a column has a number, and up to eight terms and weights");
    Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GetItem(given, 0));
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0 || number >= task->bytes / item)
        return fail("there is no such column");
    column->at = number * item;
    column->terms = &task->views[task->held.count];
    for (Py_ssize_t i = 1; i < size; i += 2) {
        column->weights[column->count++] = PyFloat_AsDouble(PyTuple_GetItem(given, i + 1));
        const Py_buffer *term = PyErr_Occurred() ? NULL
                                                 : hold(&task->held, PyTuple_GetItem(given, i),
                                                        PyBUF_FORMAT | PyBUF_STRIDED_RO);
        if (!term)
            return -1;
        if (term->ndim != 1 || term->shape[0] != task->rows
            || strcmp(term->format, task->target->format) != 0)
            return fail("a term has an element for each row");
    }
    return 0;
}

static int read_task(Rows_task *task, PyObject *const *arguments)
{
    PyObject *columns = arguments[3];
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS;
    task->source = hold(&task->held, arguments[1], flags);
    task->target = task->source ? hold(&task->held, arguments[0], flags | PyBUF_WRITABLE) : NULL;
    if (!task->target)
        return -1;
    if (!read_form(task))
        return fail("rows are floats, real or complex, in two arrays of one shape and type");
    if (task->rows && read_terms(task, arguments[2]) < 0)
        return -1;
    Py_ssize_t count = PyTuple_Check(columns) ? PyTuple_Size(columns) : MOST_COLUMNS + 1;
    if (count > MOST_COLUMNS)
        return fail("there are up to eight columns with sums of their own");
    for (task->ncolumns = 0; task->ncolumns < count && task->rows; task->ncolumns++)
        if (read_column(task, &task->columns[task->ncolumns],
                        PyTuple_GetItem(columns, task->ncolumns))
            < 0)
            return -1;
    return 0;
}

PyObject *weighted_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "weighted_rows takes a target, a source, terms, columns");
        return NULL;
    }
    Rows_task *task = PyMem_Calloc(1, sizeof(Rows_task));
    if (!task)
        return PyErr_NoMemory();
    task->held.views = task->views;
    int done = read_task(task, arguments) == 0;
    if (done && task->rows) {
        PyThreadState *state = unlock(1);
        done = add_rows(task);
        lock(state);
        if (!done)
            PyErr_NoMemory();
    }
    release(&task->held);
    PyMem_Free(task);
    return done ? Py_NewRef(Py_None) : NULL;
}
