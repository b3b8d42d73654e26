/* Rows and points for Python: arrays that export the buffer protocol. Callers have made sure that
   numbers are within bounds; here it is only checked that lists are integers and long enough. */
#include "rows_module.h"

#include "rows.h"

enum {
    MOST = 64,             /* dimensions, as in NumPy */
    WORTH_UNLOCKING = 2048 /* items; moving fewer takes no longer than the lock */
};

/* ---- arguments ---- */

/* Memory that was asked for, to be released together. */
typedef struct {
    int count;
    Py_buffer views[2 * MOST + 4];
} Held;

static void release(Held *held)
{
    while (held->count > 0)
        PyBuffer_Release(&held->views[--held->count]);
}

static Py_buffer *hold(Held *held, PyObject *array, int flags)
{
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(array, view, flags) < 0)
        return NULL;
    held->count++;
    return view;
}

/* Numbers of 8 bytes in a row, at least so many of them. */
static int64_t *integers(Held *held, PyObject *array, Py_ssize_t least, int flags)
{
    Py_buffer *view = hold(held, array, PyBUF_C_CONTIGUOUS | flags);
    if (!view)
        return NULL;
    if (view->itemsize == 8 && view->len / 8 >= least)
        return view->buf;
    PyErr_SetString(PyExc_ValueError, "a list is too short, or not of 64-bit integers");
    return NULL;
}

static int check_count(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", wanted, count);
    return -1;
}

static PyThreadState *unlock(Py_ssize_t count)
{
    return count >= WORTH_UNLOCKING ? PyEval_SaveThread() : NULL;
}

static void lock(PyThreadState *state)
{
    if (state)
        PyEval_RestoreThread(state);
}

/* ---- move(target, to, source, from) ---- */

typedef struct {
    Py_ssize_t rows, columns, step, column_step, item;
    char *first;
} Table;

static int read_table(Table *table, const Py_buffer *view)
{
    if (!view)
        return -1;
    if (view->ndim != 1 && view->ndim != 2) {
        PyErr_SetString(PyExc_ValueError, "rows are arrays of one or two dimensions");
        return -1;
    }
    int wide = view->ndim == 2;
    *table = (Table){view->shape[0], wide ? view->shape[1] : 1, view->strides[0],
                     wide ? view->strides[1] : view->itemsize, view->itemsize, view->buf};
    return 0;
}

/* See each row as one item, where its values follow each other on both sides. */
static void join(Table *target, Table *source)
{
    Table *both[] = {target, source};
    if (target->column_step != target->item || source->column_step != source->item)
        return;
    for (int i = 0; i < 2; i++) {
        both[i]->item *= both[i]->columns;
        both[i]->columns = 1;
    }
}

static int read_list(Held *held, PyObject *list, const int64_t **numbers, Py_ssize_t *count)
{
    *numbers = NULL;
    if (Py_IsNone(list))
        return 0;
    *numbers = integers(held, list, 0, 0);
    if (!*numbers)
        return -1;
    *count = held->views[held->count - 1].len / 8;
    return 0;
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
    if (written != read || target.item != source.item || target.columns != source.columns) {
        PyErr_SetString(PyExc_ValueError, "the target cannot take these rows of the source");
        return -1;
    }
    join(&target, &source);
    PyThreadState *state = unlock(read);
    for (Py_ssize_t i = 0; i < target.columns; i++)
        moves_run(&(Moves){target.first + i * target.column_step,
                           source.first + i * source.column_step, to, from, target.step,
                           source.step, target.item, read});
    lock(state);
    return 0;
}

static PyObject *result(Held *held, int status)
{
    release(held);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *rows_move(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Held held;
    held.count = 0;
    if (check_count(count, 4) < 0)
        return NULL;
    return result(&held, move(&held, arguments));
}

/* ---- points ---- */

typedef struct {
    Points points;
    const int64_t *coords[MOST];
    Along along[MOST];
} Where;

/* Read one dimension: its coordinates, cuts and step. */
static int read_dimension(Held *held, Where *where, int dim, PyObject *coords, PyObject *cuts,
                          PyObject *step)
{
    Py_ssize_t least = dim ? where->points.count : 0;
    where->coords[dim] = integers(held, coords, least, 0);
    if (!where->coords[dim])
        return -1;
    if (dim == 0)
        where->points.count = held->views[held->count - 1].len / 8;
    where->along[dim].cuts = integers(held, cuts, 2, 0);
    if (!where->along[dim].cuts)
        return -1;
    where->along[dim].parts = held->views[held->count - 1].len / 8 - 1;
    where->along[dim].step = PyLong_AsSsize_t(step);
    return where->along[dim].step == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Read coords, cuts and steps, tuples with an entry for each dimension, and who is first. */
static int read_points(Held *held, Where *where, PyObject *const *arguments)
{
    Py_ssize_t ndim = PyTuple_Size(arguments[0]);
    if (ndim < 0)
        return -1;
    if (ndim < 1 || ndim > MOST || PyTuple_Size(arguments[1]) != ndim
        || PyTuple_Size(arguments[2]) != ndim) {
        PyErr_SetString(PyExc_ValueError, "every dimension needs coordinates, cuts and a step");
        return -1;
    }
    for (int dim = 0; dim < ndim; dim++)
        if (read_dimension(held, where, dim, PyTuple_GetItem(arguments[0], dim),
                           PyTuple_GetItem(arguments[1], dim),
                           PyTuple_GetItem(arguments[2], dim)) < 0)
            return -1;
    where->points.ndim = (int)ndim;
    where->points.coords = where->coords;
    where->points.along = where->along;
    where->points.first = PyLong_AsSsize_t(arguments[3]);
    return where->points.first == -1 && PyErr_Occurred() ? -1 : 0;
}

static int locate(Held *held, PyObject *const *arguments)
{
    Where where;
    if (read_points(held, &where, arguments) < 0)
        return -1;
    Py_ssize_t count = where.points.count;
    int64_t *owners = integers(held, arguments[4], count, PyBUF_WRITABLE);
    int64_t *offsets = owners ? integers(held, arguments[5], count, PyBUF_WRITABLE) : NULL;
    if (!offsets)
        return -1;
    PyThreadState *state = unlock(count);
    points_locate(&where.points, owners, offsets);
    lock(state);
    return 0;
}

PyObject *rows_locate(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Held held;
    held.count = 0;
    if (check_count(count, 6) < 0)
        return NULL;
    return result(&held, locate(&held, arguments));
}

static int fetch(Held *held, PyObject *const *arguments)
{
    Where where;
    Table target;
    if (read_points(held, &where, arguments) < 0)
        return -1;
    const int64_t *table = integers(held, arguments[4], 1 + where.points.ndim, 0);
    if (!table || read_table(&target, hold(held, arguments[5], PyBUF_STRIDED)) < 0)
        return -1;
    if (target.rows != where.points.count || target.columns != 1) {
        PyErr_SetString(PyExc_ValueError, "the target has another size than there are points");
        return -1;
    }
    PyThreadState *state = unlock(target.rows);
    points_fetch(&where.points, table, target.first, target.item, target.step);
    lock(state);
    return 0;
}

PyObject *rows_fetch(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Held held;
    held.count = 0;
    if (check_count(count, 6) < 0)
        return NULL;
    return result(&held, fetch(&held, arguments));
}

/* ---- owners ---- */

static int sort(Held *held, PyObject *const *arguments)
{
    const int64_t *owners = integers(held, arguments[0], 0, 0);
    Py_ssize_t count = owners ? held->views[0].len / 8 : 0;
    int64_t *ends = owners ? integers(held, arguments[1], 0, PyBUF_WRITABLE) : NULL;
    Py_ssize_t size = ends ? held->views[1].len / 8 : 0;
    int64_t *order = ends ? integers(held, arguments[2], count, PyBUF_WRITABLE) : NULL;
    if (!order)
        return -1;
    PyThreadState *state = unlock(count);
    owners_sort(owners, count, size, ends, order);
    lock(state);
    return 0;
}

PyObject *rows_sort(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Held held;
    held.count = 0;
    if (check_count(count, 3) < 0)
        return NULL;
    return result(&held, sort(&held, arguments));
}
