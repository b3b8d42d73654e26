/* Weighted sums of neighbours in contiguous rows, with other sums in few columns.

   All rows are treated as one, and what is wrong at their ends is replaced in a buffer before it is
   written to the target: rows need not be transposed, and each element is read and written once. */
#include "arguments.h"

#include <stdlib.h>
#include <string.h>

/* The buffer stays in the first-level cache, beside what is fetched for it. */
enum { MOST_COLUMNS = 8, BUFFER = 4096, FAR = 2048 };

/* A column, which becomes the sum of other columns times their weights. */
typedef struct {
    ptrdiff_t at; /* bytes from the beginning of a row */
    double weights[MOST_TERMS];
    int count;
    Py_buffer terms[MOST_TERMS];
} Column;

typedef struct {
    int is_double, parts; /* of an element: two if it is complex */
    int as_complex;       /* whether the factor multiplies complex numbers, not their parts */
    int count, ncolumns, stream;
    ptrdiff_t rows, bytes, item; /* bytes of a row, and of an element */
    ptrdiff_t offsets[MOST_TERMS];
    double weights[MOST_TERMS], factor; /* of all sums, those of columns included */
    Py_buffer target, source;
    Column columns[MOST_COLUMNS];
} Task;

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

/* Add a term to a column of some rows, of real or of imaginary parts. */
#define ADD_TERM(name, REAL)                                                                      \
    static void name(char *to, ptrdiff_t pitch, const char *term, ptrdiff_t stride, double weight, \
                     int first, ptrdiff_t rows)                                                   \
    {                                                                                             \
        REAL by = (REAL)weight;                                                                   \
        if (first)                                                                                \
            for (ptrdiff_t row = 0; row < rows; row++)                                            \
                *(REAL *)(to + row * pitch) = by * *(const REAL *)(term + row * stride);          \
        else                                                                                      \
            for (ptrdiff_t row = 0; row < rows; row++)                                            \
                *(REAL *)(to + row * pitch) += by * *(const REAL *)(term + row * stride);         \
    }
ADD_TERM(add_floats, float)
ADD_TERM(add_doubles, double)
#undef ADD_TERM

static void fill_column(const Task *task, const Column *column, char *buffer, ptrdiff_t row,
                        ptrdiff_t rows)
{
    ptrdiff_t part = task->item / task->parts;
    for (int i = 0; i < column->count; i++)
        for (int j = 0; j < task->parts; j++) {
            const Py_buffer *term = &column->terms[i];
            const char *from = (const char *)term->buf + row * term->strides[0] + j * part;
            (task->is_double ? add_doubles : add_floats)(buffer + column->at + j * part,
                                                         task->bytes, from, term->strides[0],
                                                         column->weights[i], i == 0, rows);
        }
}

/* Treat some rows, from `begin` on. */
static void add_some(const Task *task, char *buffer, ptrdiff_t begin, ptrdiff_t bytes)
{
    const char *source = task->source.buf, *rows[MOST_TERMS];
    ptrdiff_t first = begin, end = begin + bytes;
    for (int i = 0; i < task->count; i++) {
        first = most(first, -task->offsets[i]);
        end = least(end, task->rows * task->bytes - task->offsets[i]);
    }
    for (int i = 0; i < task->count; i++)
        rows[i] = source + first + task->offsets[i];
    if (first < end)
        level.weigh(&(Weighted){buffer + first - begin, rows, task->weights, task->count, end - first,
                              source + first + FAR, 0, 0},
                  task->is_double);
    for (int i = 0; i < task->ncolumns; i++)
        fill_column(task, &task->columns[i], buffer, begin / task->bytes, bytes / task->bytes);
    const char *row = buffer;
    level.weigh(&(Weighted){(char *)task->target.buf + begin, &row, &task->factor, 1, bytes, buffer,
                          task->stream, task->as_complex},
              task->is_double);
}

static int add_rows(const Task *task)
{
    ptrdiff_t some = task->bytes * most(1, BUFFER / most(1, task->bytes));
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

/* ---- arguments ---- */

static int read_arrays(Task *task, PyObject *target, PyObject *source)
{
    if (PyObject_GetBuffer(source, &task->source, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0
        || PyObject_GetBuffer(target, &task->target,
                              PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
        return -1;
    const Py_buffer *to = &task->target, *from = &task->source;
    int element = element_of(to->format);
    if (to->ndim < 1 || to->ndim != from->ndim || strcmp(to->format, from->format) != 0
        || element < 0)
        return fail("rows are floats, real or complex, in two arrays of one type");
    for (int i = 0; i < to->ndim; i++)
        if (to->shape[i] != from->shape[i])
            return fail("rows are in two arrays of one shape");
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->parts = element < COMPLEX_FLOAT ? 1 : 2;
    task->item = to->itemsize;
    task->bytes = to->shape[to->ndim - 1] * task->item;
    task->rows = task->bytes ? to->len / task->bytes : 0;
    task->stream = to->len >= stream_from;
    return 0;
}

/* Read the factor, and the offset and weight of each term. */
static int read_terms(Task *task, PyObject *terms)
{
    Py_ssize_t size = PyTuple_Check(terms) ? PyTuple_Size(terms) : 0;
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
        if (offset <= -task->bytes / task->item || offset >= task->bytes / task->item)
            return fail("an offset leaves its row");
        task->offsets[i] = offset * task->item;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Read the number of a column, and the terms with their weights. */
static int read_column(Task *task, PyObject *given)
{
    Column *column = &task->columns[task->ncolumns++];
    Py_ssize_t size = PyTuple_Check(given) ? PyTuple_Size(given) : 0;
    if (size < 3 || size % 2 == 0 || size > 1 + 2 * MOST_TERMS)
        return fail("a column has a number, and up to eight terms and weights");
    Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GetItem(given, 0));
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0 || number >= task->bytes / task->item)
        return fail("there is no such column");
    column->at = number * task->item;
    for (Py_ssize_t i = 1; i < size; i += 2) {
        Py_buffer *term = &column->terms[column->count];
        column->weights[column->count] = PyFloat_AsDouble(PyTuple_GetItem(given, i + 1));
        if (PyErr_Occurred()
            || PyObject_GetBuffer(PyTuple_GetItem(given, i), term, PyBUF_FORMAT | PyBUF_STRIDED_RO)
                   < 0)
            return -1;
        column->count++; /* of those to be released */
        if (term->ndim != 1 || term->shape[0] != task->rows
            || strcmp(term->format, task->target.format) != 0)
            return fail("a term has an element for each row");
    }
    return 0;
}

static int read_task(Task *task, PyObject *const *arguments)
{
    PyObject *columns = arguments[3];
    if (read_arrays(task, arguments[0], arguments[1]) < 0
        || (task->rows && read_terms(task, arguments[2]) < 0))
        return -1;
    Py_ssize_t count = PyTuple_Check(columns) ? PyTuple_Size(columns) : MOST_COLUMNS + 1;
    if (count > MOST_COLUMNS)
        return fail("there are up to eight columns with sums of their own");
    for (Py_ssize_t i = 0; i < count && task->rows; i++)
        if (read_column(task, PyTuple_GetItem(columns, i)) < 0)
            return -1;
    return 0;
}

static void release_task(Task *task)
{
    for (int i = 0; i < task->ncolumns; i++)
        for (int j = 0; j < task->columns[i].count; j++)
            PyBuffer_Release(&task->columns[i].terms[j]);
    PyBuffer_Release(&task->source);
    PyBuffer_Release(&task->target);
    PyMem_Free(task);
}

PyObject *weighted_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "weighted_rows takes a target, a source, terms, columns");
        return NULL;
    }
    Task *task = PyMem_Calloc(1, sizeof(Task));
    if (!task)
        return PyErr_NoMemory();
    int done = read_task(task, arguments) == 0;
    if (done && task->rows) {
        PyThreadState *state = PyEval_SaveThread();
        int added = add_rows(task);
        PyEval_RestoreThread(state);
        if (!added)
            PyErr_NoMemory();
        done = added;
    }
    release_task(task);
    return done ? Py_NewRef(Py_None) : NULL;
}
