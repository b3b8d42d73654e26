/* Rows and points for Python: arrays that export the buffer protocol. Callers have made sure that
   numbers are within bounds; here it is only checked that lists are integers and long enough. */
#include "arguments.h"

#include "rows.h"

enum {
    MOST = 64,             /* dimensions, as in NumPy */
    WORTH_UNLOCKING = 2048 /* items; moving fewer takes no longer than the lock */
};

/* ---- move(target, to, source, from) ---- */

typedef struct {
    Py_ssize_t rows, columns, step, column_step, item;
    char *first;
} Table;

static int read_table(Table *table, const Py_buffer *view)
{
    if (!view)
        return -1;
    if (view->ndim != 1 && view->ndim != 2)
        return fail("rows are arrays of one or two dimensions");
    int wide = view->ndim == 2;
    *table = (Table){view->shape[0], wide ? view->shape[1] : 1, view->strides[0],
                     wide ? view->strides[1] : view->itemsize, view->itemsize, view->buf};
    return 0;
}

static int read_list(Held *held, PyObject *list, const int64_t **numbers, Py_ssize_t *count)
{
    *numbers = NULL;
    if (Py_IsNone(list))
        return 0;
    *numbers = integers(held, list, 0, 0, count);
    return *numbers ? 0 : -1;
}

static int move(Held *held, PyObject *const *arguments)
{
    Table target, source;
    const int64_t *to, *from;
    if (read_table(&target, hold(held, arguments[0], PyBUF_STRIDED)) < 0
        || read_table(&source, hold(held, arguments[2], PyBUF_STRIDED_RO)) < 0)
        return -1;
    Py_ssize_t written = target.rows, read = source.rows;
    if (read_list(held, arguments[1], &to, &written) < 0
        || read_list(held, arguments[3], &from, &read) < 0)
        return -1;
    if (written != read || target.item != source.item || target.columns != source.columns)
        return fail("the target cannot take these rows of the source");
    if (target.column_step == target.item && source.column_step == source.item) {
        target.item *= target.columns; /* each row is one item */
        target.columns = 1;
    }
    PyThreadState *state = unlock(read >= WORTH_UNLOCKING);
    for (Py_ssize_t i = 0; i < target.columns; i++)
        moves_run(&(Moves){target.first + i * target.column_step,
                           source.first + i * source.column_step, to, from, target.step,
                           source.step, target.item, read});
    lock(state);
    return 0;
}

/* ---- points ---- */

typedef struct {
    Points points;
    const int64_t *coords[MOST];
    Along along[MOST];
} Where;

/* Read coords, cuts and steps, tuples with an entry for each dimension, and who is first. */
static int read_points(Held *held, Where *where, PyObject *const *arguments)
{
    Points *points = &where->points;
    Py_ssize_t ndim = PyTuple_Size(arguments[0]), count, parts;
    if (ndim < 0)
        return -1;
    if (ndim < 1 || ndim > MOST || PyTuple_Size(arguments[1]) != ndim
        || PyTuple_Size(arguments[2]) != ndim)
        return fail("every dimension needs coordinates, cuts and a step");
    for (int dim = 0; dim < ndim; dim++) {
        Along *along = &where->along[dim];
        PyObject *coords = PyTuple_GetItem(arguments[0], dim);
        where->coords[dim] = integers(held, coords, dim ? points->count : 0, 0, &count);
        if (!where->coords[dim])
            return -1;
        points->count = dim ? points->count : count;
        along->cuts = integers(held, PyTuple_GetItem(arguments[1], dim), 2, 0, &parts);
        if (!along->cuts)
            return -1;
        along->parts = parts - 1;
        along->step = PyLong_AsSsize_t(PyTuple_GetItem(arguments[2], dim));
        if (along->step == -1 && PyErr_Occurred())
            return -1;
    }
    *points = (Points){(int)ndim, points->count, where->coords, where->along,
                       PyLong_AsSsize_t(arguments[3])};
    return points->first == -1 && PyErr_Occurred() ? -1 : 0;
}

static int locate(Held *held, PyObject *const *arguments)
{
    Where where;
    if (read_points(held, &where, arguments) < 0)
        return -1;
    Py_ssize_t count = where.points.count, room;
    int64_t *owners = integers(held, arguments[4], count, PyBUF_WRITABLE, &room);
    int64_t *offsets = owners ? integers(held, arguments[5], count, PyBUF_WRITABLE, &room) : NULL;
    if (!offsets)
        return -1;
    PyThreadState *state = unlock(count >= WORTH_UNLOCKING);
    points_locate(&where.points, owners, offsets);
    lock(state);
    return 0;
}

static int fetch(Held *held, PyObject *const *arguments)
{
    Where where;
    Table target;
    if (read_points(held, &where, arguments) < 0)
        return -1;
    Py_ssize_t room;
    const int64_t *table = integers(held, arguments[4], 1 + where.points.ndim, 0, &room);
    if (!table || read_table(&target, hold(held, arguments[5], PyBUF_STRIDED)) < 0)
        return -1;
    if (target.rows != where.points.count || target.columns != 1)
        return fail("the target has another size than there are points");
    PyThreadState *state = unlock(target.rows >= WORTH_UNLOCKING);
    points_fetch(&where.points, table, target.first, target.item, target.step);
    lock(state);
    return 0;
}

/* ---- owners ---- */

static int sort(Held *held, PyObject *const *arguments)
{
    Py_ssize_t count, size, room;
    const int64_t *owners = integers(held, arguments[0], 0, 0, &count);
    int64_t *ends = owners ? integers(held, arguments[1], 0, PyBUF_WRITABLE, &size) : NULL;
    int64_t *order = ends ? integers(held, arguments[2], count, PyBUF_WRITABLE, &room) : NULL;
    if (!order)
        return -1;
    PyThreadState *state = unlock(count >= WORTH_UNLOCKING);
    owners_sort(owners, count, size, ends, order);
    lock(state);
    return 0;
}

/* ---- the functions of the module ---- */

static PyObject *call(int (*work)(Held *, PyObject *const *), PyObject *const *arguments,
                      Py_ssize_t count, Py_ssize_t wanted)
{
    Py_buffer views[2 * MOST + 4];
    Held held = {0, views};
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", wanted, count);
        return NULL;
    }
    int status = work(&held, arguments);
    release(&held);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

#define FUNCTION(name, wanted)                                                                      \
    PyObject *rows_##name(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) \
    {                                                                                               \
        return call(name, arguments, count, wanted);                                                \
    }
FUNCTION(move, 4)
FUNCTION(locate, 6)
FUNCTION(fetch, 6)
FUNCTION(sort, 3)
