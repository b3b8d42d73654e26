/* Weighted sums of arrays, row by row: each element of the target is written once. */
#include "arguments.h"

#include <string.h>
#include "machine.h"

enum {
    MOST_SOURCES = 256,
    PIECE = 4096, /* bytes of a row that are added at once, so that parts of sums stay near */
    FAR = 4096    /* bytes to fetch before they are needed */
};

/* Arrays of one shape whose last axis is contiguous; the first one is the target. */
typedef struct {
    int count; /* of sources */
    int last;  /* axis */
    int lead;  /* the source that is farthest in memory */
    int is_double, is_complex, stream;
    ptrdiff_t bytes; /* of a row */
    ptrdiff_t shape[MOST_AXES];
    Py_buffer views[1 + MOST_SOURCES];
    double weights[MOST_SOURCES];
} Task;

/* Add up a row of few sources. */
static void add_few(const Task *task, char *target, const char *const *rows)
{
    Weighted sum = {target, rows, task->weights, task->count, task->bytes,
                    rows[task->lead] + FAR, task->stream, task->is_complex};
    level.weigh(&sum, task->is_double);
}

/* Add up a row of many sources: parts of the sum are terms of the next sums. */
static void add_many(const Task *task, char *target, const char *const *rows)
{
    _Alignas(64) char parts[PIECE];
    const char *terms[MOST_TERMS] = {parts};
    double weights[MOST_TERMS] = {1};
    for (ptrdiff_t at = 0; at < task->bytes; at += PIECE) {
        ptrdiff_t bytes = task->bytes - at < PIECE ? task->bytes - at : PIECE;
        for (int done = 0; done < task->count;) {
            int first = done == 0, n = !first;
            for (; n < MOST_TERMS && done < task->count; n++, done++) {
                terms[n] = rows[done] + at;
                weights[n] = task->weights[done];
            }
            int last = done == task->count;
            Weighted sum = {last ? target + at : parts, terms, weights, n, bytes,
                            rows[task->lead] + at + FAR, last && task->stream,
                            task->is_complex ? 2 - first : 0};
            level.weigh(&sum, task->is_double);
            terms[0] = parts;
            weights[0] = 1;
        }
    }
}

static void add_rows(const Task *task)
{
    ptrdiff_t index[MOST_AXES] = {0};
    char *rows[1 + MOST_SOURCES];
    void (*add)(const Task *, char *, const char *const *)
        = task->count > MOST_TERMS ? add_many : add_few;
    for (int i = 0; i <= task->last; i++)
        if (task->shape[i] == 0)
            return;
    for (int i = 0; i <= task->count; i++)
        rows[i] = task->views[i].buf;
    do
        add(task, rows[0], (const char *const *)rows + 1);
    while (next_index(index, task->shape, task->last, rows, task->views, 1 + task->count));
    if (task->stream)
        streams_finish();
}

/* ---- arguments ---- */

/* Whether a source suits the target: same shape and type, and rows that are contiguous. */
static int suits(const Task *task, const Py_buffer *view)
{
    const Py_buffer *target = &task->views[0];
    if (view->ndim != target->ndim || strcmp(view->format, target->format) != 0)
        return 0;
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] != target->shape[i])
            return 0;
    return view->shape[task->last] < 2 || view->strides[task->last] == view->itemsize;
}

static int read_target(Task *task)
{
    const Py_buffer *target = &task->views[0];
    int element = element_of(target->format);
    if (target->ndim < 1 || element < 0)
        return 0;
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->is_complex = element >= COMPLEX_FLOAT;
    task->last = target->ndim - 1;
    for (int i = 0; i < target->ndim; i++)
        task->shape[i] = target->shape[i];
    task->bytes = target->shape[task->last] * target->itemsize;
    task->stream = target->len >= stream_from;
    return suits(task, target);
}

/* Read the arrays; returns how many are held, and whether all suit. */
static int read_arrays(Task *task, PyObject *const *arrays, int *suitable)
{
    for (int i = 0; i <= task->count; i++) {
        Py_buffer *view = &task->views[i];
        int flags = PyBUF_FORMAT | (i ? PyBUF_STRIDED_RO : PyBUF_STRIDED);
        if (PyObject_GetBuffer(arrays[i], view, flags) < 0)
            return i;
        *suitable = *suitable && (i ? suits(task, view) : read_target(task));
        if (i > 1 && (char *)view->buf > (char *)task->views[1 + task->lead].buf)
            task->lead = i - 1;
    }
    return task->count + 1;
}

static int read_weights(Task *task, PyObject *const *weights)
{
    for (int i = 0; i < task->count; i++) {
        task->weights[i] = PyFloat_AsDouble(weights[i]);
        if (task->weights[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

PyObject *weighted_sum(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int sources = (int)((count - 1) / 2), suitable = 1, held = 0;
    if (count < 3 || count % 2 == 0) {
        PyErr_SetString(PyExc_TypeError, "weighted_sum takes a target, sources, and their weights");
        return NULL;
    }
    if (count > 2 * MOST_SOURCES)
        Py_RETURN_FALSE;
    Task *task = PyMem_Calloc(1, sizeof(Task));
    if (!task)
        return PyErr_NoMemory();
    task->count = sources;
    if (read_weights(task, arguments + 1 + sources) == 0)
        held = read_arrays(task, arguments, &suitable);
    int complete = held == sources + 1;
    if (complete && suitable) {
        PyThreadState *state = unlock(task->views[0].len >= PIECE * 8);
        add_rows(task);
        lock(state);
    }
    while (held > 0)
        PyBuffer_Release(&task->views[--held]);
    PyMem_Free(task);
    return complete ? PyBool_FromLong(suitable) : NULL;
}
