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

/* Arrays of one shape, but for planes before and after, which have one point along the lines. */
typedef struct {
    int last; /* axis */
    int is_double, stream;
    int parts; /* of a number: 2 if it is complex */
    ptrdiff_t shape[MOST_AXES];
    Py_buffer views[ARRAYS]; /* those left out have no memory */
} Task;

/* Lines side by side that are added up together: the first one, and how many. */
typedef struct {
    const Task *task;
    int count;
    char *first[ARRAYS];
} Group;

/* How far the lines of a group are apart. */
static ptrdiff_t apart(const Group *group, int which)
{
    const Task *task = group->task;
    return task->last ? task->views[which].strides[task->last - 1] : 0;
}

#define ADD_UP(REAL)                                                                               \
    static inline ALWAYS_INLINE void add_chains_##REAL(                                            \
        const REAL *const *from, REAL *to, REAL *totals, int chains, int parts, ptrdiff_t count,   \
        ptrdiff_t ahead)                                                                           \
    {                                                                                              \
        REAL sums[CHAINS];                                                                         \
        ptrdiff_t pitch = PITCH / sizeof(REAL), line = LINE / sizeof(REAL);                        \
        ptrdiff_t at = 0, end = count * parts;                                                     \
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
    /* Add up a piece of some lines; the totals before it become those after it. */                \
    static void add_piece_##REAL(const Group *group, char *sums, void *totals, ptrdiff_t offset,   \
                                 ptrdiff_t count)                                                  \
    {                                                                                              \
        const REAL *from[CHAINS];                                                                  \
        int parts = group->task->parts, chains = group->count * parts;                             \
        ptrdiff_t step = apart(group, VALUES), ahead = CHAINS / parts * step;                      \
        for (int i = 0; i < chains; i++)                                                           \
            from[i] = (const REAL *)(group->first[VALUES] + i / parts * step + offset) + i % parts;\
        if (chains == CHAINS && parts == 1)                                                        \
            add_chains_##REAL(from, (REAL *)sums, totals, CHAINS, 1, count, ahead);                \
        else if (chains == CHAINS)                                                                 \
            add_chains_##REAL(from, (REAL *)sums, totals, CHAINS, 2, count, ahead);                \
        else                                                                                       \
            add_chains_##REAL(from, (REAL *)sums, totals, chains, parts, count, ahead);            \
    }                                                                                              \
                                                                                                   \
    /* Nothing is added to -0.0, not even a sign. */                                               \
    static void clear_##REAL(REAL *totals)                                                         \
    {                                                                                              \
        for (int i = 0; i < CHAINS; i++)                                                           \
            totals[i] = (REAL)-0.0;                                                                \
    }

ADD_UP(double)
ADD_UP(float)

/* Copy the numbers of all lines, one for each, to or from a plane. */
static void copy_plane(const Group *group, int which, char *totals)
{
    ptrdiff_t size = group->task->views[SUMS].itemsize, step = apart(group, which);
    for (int i = 0; i < group->count; i++) {
        char *number = group->first[which] + i * step, *total = totals + i * size;
        memcpy(which == AFTER ? number : total, which == AFTER ? total : number, size);
    }
}

static void add_group(const Group *group)
{
    const Task *task = group->task;
    _Alignas(LINE) char sums[CHAINS * PITCH];
    _Alignas(LINE) double totals[CHAINS];
    ptrdiff_t size = task->views[SUMS].itemsize, bytes = task->shape[task->last] * size;
    if (task->is_double)
        clear_double(totals);
    else
        clear_float((float *)totals);
    if (task->views[BEFORE].obj)
        copy_plane(group, BEFORE, (char *)totals);
    for (ptrdiff_t at = 0; at < bytes; at += PIECE) {
        ptrdiff_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        Axis lines = {group->count, apart(group, SUMS), PITCH};
        Block block = {group->first[SUMS] + at, sums, piece, RUNS, 1, &lines};
        if (task->is_double)
            add_piece_double(group, sums, totals, at, piece / size);
        else
            add_piece_float(group, sums, totals, at, piece / size);
        level.copy(&block, task->stream);
    }
    if (task->views[AFTER].obj)
        copy_plane(group, AFTER, (char *)totals);
}

/* Add up all lines along the axis before the last one. */
static void add_side_by_side(const Task *task, char *const *first)
{
    int most = CHAINS / task->parts;
    Group group = {.task = task};
    memcpy(group.first, first, sizeof group.first);
    for (ptrdiff_t left = task->last ? task->shape[task->last - 1] : 1; left; left -= group.count) {
        group.count = left < most ? (int)left : most;
        add_group(&group);
        for (int i = 0; i < ARRAYS; i++)
            if (task->views[i].obj)
                group.first[i] += group.count * apart(&group, i);
    }
}

static void add_lines(const Task *task)
{
    ptrdiff_t index[MOST_AXES] = {0};
    char *first[ARRAYS];
    for (int i = 0; i <= task->last; i++)
        if (task->shape[i] == 0)
            return;
    for (int i = 0; i < ARRAYS; i++)
        first[i] = task->views[i].buf;
    do
        add_side_by_side(task, first);
    while (next_index(index, task->shape, task->last - 1, first, task->views, ARRAYS));
    if (task->stream)
        streams_finish();
}

/* ---- arguments ---- */

static int is_contiguous(const Py_buffer *view, int axis)
{
    return view->shape[axis] < 2 || view->strides[axis] == view->itemsize;
}

static int read_sums(Task *task)
{
    const Py_buffer *sums = &task->views[SUMS];
    int element = element_of(sums->format);
    if (sums->ndim < 1 || element < 0)
        return 0;
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->parts = element < COMPLEX_FLOAT ? 1 : 2;
    task->last = sums->ndim - 1;
    for (int i = 0; i < sums->ndim; i++)
        task->shape[i] = sums->shape[i];
    return is_contiguous(sums, task->last);
}

/* Whether values, or the plane before or after them, suit the sums. */
static int suits(const Task *task, int which)
{
    const Py_buffer *sums = &task->views[SUMS], *view = &task->views[which];
    if (view->ndim != sums->ndim || strcmp(view->format, sums->format) != 0)
        return 0;
    for (int i = 0; i < task->last; i++)
        if (view->shape[i] != task->shape[i])
            return 0;
    if (which != VALUES)
        return view->shape[task->last] == 1;
    return view->shape[task->last] == task->shape[task->last] && is_contiguous(view, task->last);
}

static const Py_ssize_t no_strides[MOST_AXES];

/* Read the arrays, of which the planes may be None; returns -1 if one cannot be held. */
static int read_arrays(Task *task, PyObject *const *arrays, int *suitable)
{
    *suitable = 1;
    for (int i = 0; i < ARRAYS; i++) {
        int flags = PyBUF_FORMAT | (i == SUMS || i == AFTER ? PyBUF_STRIDED : PyBUF_STRIDED_RO);
        if (Py_IsNone(arrays[i])) {
            task->views[i].strides = (Py_ssize_t *)no_strides;
            continue;
        }
        if (PyObject_GetBuffer(arrays[i], &task->views[i], flags) < 0)
            return -1;
        *suitable = *suitable && (i ? suits(task, i) : read_sums(task));
    }
    return 0;
}

PyObject *running_sums(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int suitable;
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
    int status = read_arrays(&task, arguments, &suitable);
    task.stream = task.views[SUMS].len + besides >= stream_from;
    if (status == 0 && suitable) {
        PyThreadState *state = unlock(task.views[SUMS].len >= WORTH_UNLOCKING);
        add_lines(&task);
        lock(state);
    }
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&task.views[i]); /* does nothing for those that are not held */
    if (status == 0 && !suitable)
        PyErr_SetString(PyExc_ValueError, "arrays do not fit each other, or are not contiguous "
                                          "along their lines");
    return status < 0 || !suitable ? NULL : Py_NewRef(Py_None);
}
