/* Running sums along the last axis, which is contiguous. Each sum needs the one before it, so that
   several lines are added up side by side. */
#include "arguments.h"

#include <string.h>
#include "machine.h"

enum {
    CHAINS = 8,          /* sums side by side: numbers of lines, or parts of complex numbers */
    PIECE = 2048,        /* bytes of a line that stay in the nearest cache until they are copied */
    PITCH = PIECE + LINE, /* between lines, so that they do not drive each other out of the cache */
    WORTH_UNLOCKING = 32768,
    SUMS = 0, VALUES, BEFORE, AFTER, ARRAYS
};

/* Arrays of one shape, but for planes before and after, which have one point along the lines and
   may be left out. `apart` are the bytes from a line to the next. */
typedef struct {
    int last; /* axis */
    int is_double, stream;
    int parts; /* of a number: 2 if it is complex */
    ptrdiff_t bytes, apart[ARRAYS];
    const Py_ssize_t *shape;
    Py_buffer views[ARRAYS];
} Task;

/* Add up a piece of some lines; the totals before it become those after it. Then add up all pieces of
   some lines side by side. Nothing is added to -0.0, not even a sign. */
#define ADD_UP(REAL)                                                                               \
    static inline ALWAYS_INLINE void add_chains_##REAL(                                            \
        const REAL *const *from, REAL *to, REAL *totals, int chains, int parts, ptrdiff_t end,     \
        ptrdiff_t ahead)                                                                           \
    {                                                                                              \
        REAL sums[CHAINS];                                                                         \
        ptrdiff_t pitch = PITCH / sizeof(REAL), line = LINE / sizeof(REAL), at = 0;                \
        for (int i = 0; i < chains; i++)                                                           \
            sums[i] = totals[i];                                                                   \
        for (; at + line <= end; at += line) {                                                     \
            UNROLL for (int i = 0; i < chains; i += parts)                                         \
                PREFETCH((const char *)(from[i] + at) + ahead);                                    \
            for (ptrdiff_t each = at; each < at + line; each += parts)                             \
                UNROLL for (int i = 0; i < chains; i++)                                            \
                    to[i / parts * pitch + i % parts + each] = sums[i] += from[i][each];           \
        }                                                                                          \
        for (; at < end; at += parts)                                                              \
            for (int i = 0; i < chains; i++)                                                       \
                to[i / parts * pitch + i % parts + at] = sums[i] += from[i][at];                   \
        for (int i = 0; i < chains; i++)                                                           \
            totals[i] = sums[i];                                                                   \
    }                                                                                              \
                                                                                                   \
    static void add_lines_##REAL(const Task *task, char *const *first, int lines)                  \
    {                                                                                              \
        _Alignas(LINE) REAL sums[CHAINS * PITCH / sizeof(REAL)];                                   \
        REAL totals[CHAINS];                                                                       \
        const REAL *from[CHAINS];                                                                  \
        int parts = task->parts, chains = lines * parts;                                           \
        ptrdiff_t size = sizeof(REAL), ahead = CHAINS / parts * task->apart[VALUES];               \
        for (int i = 0; i < CHAINS; i++)                                                           \
            totals[i] = (REAL)-0.0;                                                                \
        for (int i = 0; i < lines && first[BEFORE]; i++)                                           \
            memcpy(&totals[i * parts], first[BEFORE] + i * task->apart[BEFORE], parts * size);     \
        for (ptrdiff_t at = 0, bytes; at < task->bytes; at += bytes) {                             \
            bytes = task->bytes - at < PIECE ? task->bytes - at : PIECE;                           \
            Axis axis = {lines, task->apart[SUMS], PITCH};                                         \
            Block block = {first[SUMS] + at, (char *)sums, bytes, RUNS, 1, &axis, NULL, 0};        \
            for (int i = 0; i < chains; i++)                                                       \
                from[i] = (const REAL *)(first[VALUES] + i / parts * task->apart[VALUES] + at)     \
                          + i % parts;                                                             \
            if (chains == CHAINS && parts == 1)                                                    \
                add_chains_##REAL(from, sums, totals, CHAINS, 1, bytes / size, ahead);             \
            else if (chains == CHAINS)                                                             \
                add_chains_##REAL(from, sums, totals, CHAINS, 2, bytes / size, ahead);             \
            else                                                                                   \
                add_chains_##REAL(from, sums, totals, chains, parts, bytes / size, ahead);         \
            level.copy(&block, task->stream);                                                      \
        }                                                                                          \
        for (int i = 0; i < lines && first[AFTER]; i++)                                            \
            memcpy(first[AFTER] + i * task->apart[AFTER], &totals[i * parts], parts * size);       \
    }

ADD_UP(double)
ADD_UP(float)

static void add_all(const Task *task)
{
    ptrdiff_t index[MOST_AXES] = {0};
    int most = CHAINS / task->parts;
    char *first[ARRAYS], *here[ARRAYS];
    if (task->views[SUMS].len == 0)
        return;
    for (int i = 0; i < ARRAYS; i++)
        first[i] = task->views[i].buf;
    do {
        memcpy(here, first, sizeof here);
        for (ptrdiff_t left = task->last ? task->shape[task->last - 1] : 1, lines; left;
             left -= lines) {
            lines = left < most ? left : most;
            (task->is_double ? add_lines_double : add_lines_float)(task, here, (int)lines);
            for (int i = 0; i < ARRAYS; i++)
                here[i] += here[i] ? lines * task->apart[i] : 0;
        }
    } while (next_index(index, task->shape, task->last - 1, first, task->views, ARRAYS));
    if (task->stream)
        streams_finish();
}

/* ---- arguments ---- */

/* Whether an array, of which there may be none, suits the sums, or is their array. */
static int suits(Task *task, int which)
{
    const Py_buffer *sums = &task->views[SUMS], *view = &task->views[which];
    int last = sums->ndim - 1, plane = which == BEFORE || which == AFTER;
    if (view->ndim < 1 || view->ndim != sums->ndim || strcmp(view->format, sums->format) != 0)
        return 0;
    for (int i = 0; i < last; i++)
        if (view->shape[i] != sums->shape[i])
            return 0;
    task->apart[which] = last ? view->strides[last - 1] : 0;
    if (plane)
        return view->shape[last] == 1;
    return view->shape[last] == sums->shape[last]
           && (view->shape[last] < 2 || view->strides[last] == view->itemsize);
}

/* Read the arrays, of which the planes may be None; -1 with an error if one is not right. */
static int read_arrays(Task *task, PyObject *const *arrays)
{
    static Py_ssize_t no_strides[MOST_AXES];
    int suitable = 1;
    for (int i = 0; i < ARRAYS; i++) {
        int flags = PyBUF_FORMAT | (i == SUMS || i == AFTER ? PyBUF_STRIDED : PyBUF_STRIDED_RO);
        if (Py_IsNone(arrays[i]))
            task->views[i].strides = no_strides;
        else if (PyObject_GetBuffer(arrays[i], &task->views[i], flags) < 0)
            return -1;
        else
            suitable = suitable && suits(task, i);
    }
    const Py_buffer *sums = &task->views[SUMS];
    int element = element_of(sums->format);
    if (!suitable || element < 0)
        return fail("arrays do not fit each other, or are not contiguous along their lines");
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->parts = element < COMPLEX_FLOAT ? 1 : 2;
    task->last = sums->ndim - 1;
    task->shape = sums->shape;
    task->bytes = sums->shape[task->last] * sums->itemsize;
    return 0;
}

PyObject *running_sums(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != ARRAYS + 1 || Py_IsNone(arguments[SUMS]) || Py_IsNone(arguments[VALUES])) {
        PyErr_SetString(PyExc_TypeError,
                        "running_sums takes sums, values, the planes before and after them or "
                        "None, and how many bytes are written besides");
        return NULL;
    }
    Py_ssize_t besides = PyLong_AsSsize_t(arguments[ARRAYS]);
    if (besides == -1 && PyErr_Occurred())
        return NULL;
    Task task = {0};
    int status = read_arrays(&task, arguments);
    if (status == 0) {
        task.stream = task.views[SUMS].len + besides >= stream_from;
        PyThreadState *state = unlock(task.views[SUMS].len >= WORTH_UNLOCKING);
        add_all(&task);
        lock(state);
    }
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&task.views[i]); /* does nothing for those that are not held */
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
