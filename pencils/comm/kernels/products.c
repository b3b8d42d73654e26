/* Products of matrices along all axes and an array, one row of the target after the other: rows of
   the source are added up, then elements of their sum. Matrices have few terms in each row; all rows
   along the last axis are alike, but some. Indices have been checked by pencils/comm/products.py. */
#include "arguments.h"

#include <string.h>
#include "machine.h"

enum {
    NEAR = 2048, /* bytes to fetch before they are needed */
    ROOM = 65536, /* bytes of rows that are added up at once */
    VIEWS = 3
};

/* Points of the source and their weights in each point of the target, and where these end. */
typedef struct {
    const int64_t *ends, *points;
    const double *weights;
} Matrix;

/* Along the last axis, the first `up` entries stand for `periods` of them each, which are `up` places
   apart in the target and `down` points in the source; other entries for one. */
typedef struct {
    int nouter, is_double, parts, add, stream, ends; /* whether there is a matrix along the last axis */
    ptrdiff_t item, up, down, periods, nplaces, pitch;
    const Py_buffer *target, *source;
    Matrix outer[MOST_AXES], last;
    const int64_t *places; /* of entries in a row of the target */
    double scale;
    ptrdiff_t most; /* rows of the source whose sums have room */
    char *sum, *room, *phases, *copies, *row, *memory;
    const char **rows, **planes;
    double *weights, *shares;
} Task;

static inline int64_t begin_of(const Matrix *matrix, ptrdiff_t entry)
{
    return entry ? matrix->ends[entry - 1] : 0;
}

#define MOVES(NAME, TYPE)                                                                          \
    static void split_##NAME(const void *given, void *into, ptrdiff_t points, ptrdiff_t down,      \
                             ptrdiff_t pitch)                                                      \
    {                                                                                              \
        const TYPE *from = given;                                                                  \
        TYPE *restrict to = into, *restrict other = to + pitch;                                    \
        if (down == 2) {                                                                           \
            for (ptrdiff_t i = 0; i < points / 2; i++)                                             \
                to[i] = from[2 * i], other[i] = from[2 * i + 1];                                   \
            if (points % 2)                                                                        \
                to[points / 2] = from[points - 1];                                                 \
        } else                                                                                     \
            for (ptrdiff_t i = 0; i < points; i++)                                                 \
                to[i % down * pitch + i / down] = from[i];                                         \
    }                                                                                              \
                                                                                                   \
    static void join_##NAME(const void *given, void *into, ptrdiff_t periods, ptrdiff_t up,        \
                            ptrdiff_t pitch)                                                       \
    {                                                                                              \
        const TYPE *from = given, *other = from + pitch;                                           \
        TYPE *restrict to = into;                                                                  \
        if (up == 2)                                                                               \
            for (ptrdiff_t i = 0; i < periods; i++)                                                \
                to[2 * i] = from[i], to[2 * i + 1] = other[i];                                     \
        else                                                                                       \
            for (ptrdiff_t i = 0; i < periods; i++)                                                \
                for (ptrdiff_t n = 0; n < up; n++)                                                 \
                    to[i * up + n] = from[n * pitch + i];                                          \
    }

typedef struct {
    double real, imag;
} Pair;

MOVES(4, float)
MOVES(8, double)
MOVES(16, Pair)

static void split(const Task *task, const char *from, ptrdiff_t points)
{
    ptrdiff_t pitch = task->pitch / task->item;
    (task->item == 4 ? split_4 : task->item == 8 ? split_8 : split_16)(from, task->phases, points,
                                                                       task->down, pitch);
}

static void join(const Task *task, char *to)
{
    ptrdiff_t pitch = task->pitch / task->item;
    (task->item == 4 ? join_4 : task->item == 8 ? join_8 : join_16)(task->copies, to, task->periods,
                                                                    task->up, pitch);
}

/* Add up rows, which are overwritten; some of them at once. */
static void add_up(const Task *task, char *to, const char **rows, double *weights, ptrdiff_t count,
                   ptrdiff_t bytes, int stream)
{
    for (ptrdiff_t done = 0; done < count; done += MOST_TERMS - 1) {
        ptrdiff_t some = count - done < MOST_TERMS ? count - done : MOST_TERMS;
        level.weigh(&(Weighted){to, rows + done, weights + done, (int)some, bytes, rows[done] + NEAR,
                                stream && some == count, 0},
                    task->is_double);
        if (some == count - done)
            return;
        rows[done + some - 1] = to, weights[done + some - 1] = 1;
    }
}

#define ADD_ELEMENT(REAL)                                                                        \
    for (int part = 0; part < task->parts; part++) {                                             \
        REAL sum = 0;                                                                            \
        for (int64_t i = begin; i < end; i++)                                                    \
            sum += (REAL)task->last.weights[i]                                                   \
                   * ((const REAL *)from)[task->last.points[i] * task->parts + part];            \
        ((REAL *)to)[task->places[entry] * task->parts + part] = sum;                            \
    }

/* Multiply by the matrix along the last axis. */
static void multiply_last(const Task *task, const char *from, char *to)
{
    ptrdiff_t alike = task->periods ? task->up : 0, bytes = task->periods * task->item;
    int64_t begin = 0, end;
    if (task->down > 1 && alike)
        split(task, from, task->source->shape[task->nouter]);
    for (ptrdiff_t entry = 0; entry < task->nplaces; entry++, begin = end) {
        end = task->last.ends[entry];
        if (entry >= alike) {
            if (task->is_double)
                ADD_ELEMENT(double)
            else
                ADD_ELEMENT(float)
            continue;
        }
        for (int64_t i = begin; i < end; i++) {
            int64_t point = task->last.points[i];
            task->rows[i - begin] = task->down == 1 ? from + point * task->item
                                                    : task->phases + point % task->down * task->pitch
                                                          + point / task->down * task->item;
            task->weights[i - begin] = task->last.weights[i];
        }
        char *sum = task->up == 1 ? to + task->places[0] * task->item
                                  : task->copies + entry * task->pitch;
        add_up(task, sum, task->rows, task->weights, end - begin, bytes, 0);
    }
    if (task->up > 1 && alike)
        join(task, to + task->places[0] * task->item);
}

/* List where the source begins for each product of terms along the first axes, with their weights. */
static ptrdiff_t find_planes(const Task *task, const ptrdiff_t *index)
{
    ptrdiff_t count = 1;
    task->planes[0] = task->source->buf, task->shares[0] = task->scale;
    for (int axis = 0; axis < task->nouter - 1; axis++) {
        const Matrix *matrix = &task->outer[axis];
        int64_t begin = begin_of(matrix, index[axis]);
        ptrdiff_t terms = matrix->ends[index[axis]] - begin;
        for (ptrdiff_t i = count - 1; i >= 0; i--) {
            const char *plane = task->planes[i];
            double share = task->shares[i];
            for (ptrdiff_t n = terms - 1; n >= 0; n--) {
                task->planes[i * terms + n] =
                    plane + matrix->points[begin + n] * task->source->strides[axis];
                task->shares[i * terms + n] = share * matrix->weights[begin + n];
            }
        }
        count *= terms;
    }
    return count;
}

/* Set a row of the target to a sum of rows, which are overwritten. */
static void run_row(const Task *task, char *target, ptrdiff_t count)
{
    ptrdiff_t points = task->source->shape[task->nouter];
    ptrdiff_t bytes = task->target->shape[task->nouter] * task->item;
    int past = task->stream && !task->add;
    char *to = task->add || (past && task->up > 1) ? task->row : target;
    if (!task->ends)
        add_up(task, to, task->rows, task->weights, count, bytes, past);
    else if (count == 1 && task->weights[0] == 1)
        multiply_last(task, task->rows[0], to);
    else {
        add_up(task, task->sum, task->rows, task->weights, count, points * task->item, 0);
        multiply_last(task, task->sum, to);
    }
    if (to != target) {
        const char *rows[MOST_TERMS] = {task->add ? target : to, to};
        double ones[MOST_TERMS] = {1, 1};
        add_up(task, target, rows, ones, 1 + task->add, bytes, past);
    }
}

/* Rows of the target from `first` on that are treated at once, and the rows of the source that they
   need: few enough that their sums stay in the cache, else those of one row. */
typedef struct {
    ptrdiff_t first, after, low, high;
} Chunk;

static Chunk next_chunk(const Task *task, const Matrix *matrix, ptrdiff_t first, ptrdiff_t rows)
{
    Chunk chunk = {first, first, PTRDIFF_MAX, 0};
    for (; chunk.after < rows; chunk.after++) {
        ptrdiff_t low = chunk.low, high = chunk.high;
        for (int64_t i = begin_of(matrix, chunk.after); i < matrix->ends[chunk.after]; i++) {
            low = matrix->points[i] < low ? matrix->points[i] : low;
            high = matrix->points[i] >= high ? matrix->points[i] + 1 : high;
        }
        if (high - low > task->most && chunk.after > first)
            break;
        chunk.low = low, chunk.high = high;
    }
    return chunk;
}

/* Treat all rows of a plane of the target; the planes of the source are given. */
static void run_plane(const Task *task, char *target, ptrdiff_t count)
{
    int axis = task->nouter - 1;
    const Matrix *matrix = &task->outer[axis];
    ptrdiff_t step = task->source->strides[axis], rows = task->target->shape[axis];
    ptrdiff_t bytes = task->source->shape[axis + 1] * task->item;
    for (Chunk chunk = {0}; chunk.after < rows;) {
        chunk = next_chunk(task, matrix, chunk.after, rows);
        int fits = chunk.high - chunk.low <= task->most;
        int summed = fits && (count > 1 || task->shares[0] != 1);
        ptrdiff_t apart = summed ? bytes : step, parts = step == bytes ? 1 : chunk.high - chunk.low;
        for (ptrdiff_t part = 0; part < parts && summed; part++) {
            for (ptrdiff_t i = 0; i < count; i++) {
                task->rows[i] = task->planes[i] + (chunk.low + part) * step;
                task->weights[i] = task->shares[i];
            }
            ptrdiff_t all = parts == 1 ? (chunk.high - chunk.low) * bytes : bytes;
            add_up(task, task->room + part * bytes, task->rows, task->weights, count, all, 0);
        }
        for (ptrdiff_t row = chunk.first; row < chunk.after; row++) {
            ptrdiff_t found = 0;
            for (int64_t i = begin_of(matrix, row); i < matrix->ends[row]; i++)
                for (ptrdiff_t plane = 0; plane < (summed ? 1 : count); plane++, found++) {
                    const char *base = summed ? task->room - chunk.low * bytes
                                              : task->planes[plane];
                    task->rows[found] = base + matrix->points[i] * apart;
                    task->weights[found] = matrix->weights[i] * (summed ? 1 : task->shares[plane]);
                }
            run_row(task, target + row * task->target->strides[axis], found);
        }
    }
}

static void run(void *own)
{
    const Task *task = own;
    ptrdiff_t index[MOST_AXES] = {0};
    char *place = task->target->buf;
    if (task->nouter == 0) {
        task->rows[0] = task->source->buf, task->weights[0] = task->scale;
        run_row(task, place, 1);
    } else
        do
            run_plane(task, place, find_planes(task, index));
        while (next_index(index, task->target->shape, task->nouter - 1, &place, task->target, 1));
    if (task->stream)
        streams_finish();
}

static void clear(void *own) { PyMem_Free(((Task *)own)->memory); }

/* Read a matrix, and the number of its entries; returns the most terms of an entry, or -1. */
static Py_ssize_t read_matrix(Prepared *self, Matrix *matrix, PyObject *ends, PyObject *points,
                              PyObject *weights, Py_ssize_t *count)
{
    Py_ssize_t terms, most = 1;
    matrix->ends = integers(&self->held, ends, 1, 0, count);
    matrix->points = matrix->ends ? integers(&self->held, points, 1, 0, &terms) : NULL;
    const Py_buffer *view = matrix->points ? hold(&self->held, weights, PyBUF_C_CONTIGUOUS) : NULL;
    if (!view)
        return -1;
    matrix->weights = view->buf;
    if (view->itemsize != 8 || view->len / 8 != terms || matrix->ends[*count - 1] != terms)
        return fail("each term has a point and a weight");
    for (Py_ssize_t i = 0; i < *count; i++) {
        Py_ssize_t each = matrix->ends[i] - begin_of(matrix, i);
        most = each > most ? each : most;
    }
    return most;
}

/* The strides of buffers say nothing about axes of one point. */
static int is_contiguous(const Py_buffer *view, int axis)
{
    return view->shape[axis] <= 1 || view->strides[axis] == view->itemsize;
}

static int read_arrays(Prepared *self, PyObject *target, PyObject *source)
{
    Task *task = self->own;
    int flags = PyBUF_FORMAT | PyBUF_STRIDED_RO;
    task->target = hold(&self->held, target, flags | PyBUF_WRITABLE);
    task->source = task->target ? hold(&self->held, source, flags) : NULL;
    if (!task->source)
        return -1;
    int element = element_of(task->target->format), last = task->target->ndim - 1;
    task->item = task->target->itemsize;
    if (element < 0 || last < 0 || last >= MOST_AXES || task->source->ndim != last + 1
        || strcmp(task->target->format, task->source->format) != 0
        || !is_contiguous(task->target, last) || !is_contiguous(task->source, last))
        return fail("arrays are floats of one type, contiguous along the last axis");
    task->nouter = last;
    task->is_double = element == DOUBLE || element == COMPLEX_DOUBLE;
    task->parts = element < COMPLEX_FLOAT ? 1 : 2;
    task->stream = task->target->len >= stream_from;
    self->bytes = task->target->len + task->source->len;
    return 0;
}

static ptrdiff_t whole_lines(ptrdiff_t bytes) { return (bytes + LINE - 1) / LINE * LINE + LINE; }

/* Allocate rows, and lists of so many terms. */
static int allocate(Task *task, Py_ssize_t terms)
{
    int last = task->nouter;
    ptrdiff_t source = whole_lines(task->source->shape[last] * task->item);
    ptrdiff_t target = whole_lines(task->target->shape[last] * task->item);
    ptrdiff_t split = task->source->shape[last] / task->down + 1;
    task->pitch = whole_lines((split > task->periods ? split : task->periods) * task->item);
    ptrdiff_t lists = whole_lines(2 * terms * (ptrdiff_t)(sizeof(char *) + sizeof(double)));
    ptrdiff_t rows = source + target + (task->up + task->down) * task->pitch + ROOM;
    task->most = ROOM / (task->source->shape[last] * task->item);
    task->memory = PyMem_Calloc(1, (size_t)(rows + lists + LINE));
    if (!task->memory) {
        PyErr_NoMemory();
        return -1;
    }
    task->sum = task->memory + (LINE - (uintptr_t)task->memory % LINE);
    task->room = task->sum + source;
    task->row = task->room + ROOM;
    task->phases = task->row + target;
    task->copies = task->phases + task->down * task->pitch;
    task->rows = (const char **)(task->copies + task->up * task->pitch);
    task->planes = task->rows + terms;
    task->weights = (double *)(task->planes + terms);
    task->shares = task->weights + terms;
    return 0;
}

static int fill(Prepared *self, PyObject *outer, PyObject *last)
{
    Task *task = self->own;
    Py_ssize_t terms = 1, count, most = 1;
    PyObject *ends, *points, *weights, *places;
    for (int axis = 0; axis < task->nouter; axis++) {
        if (!PyArg_ParseTuple(PyTuple_GetItem(outer, axis), "OOO", &ends, &points, &weights))
            return -1;
        Py_ssize_t each = read_matrix(self, &task->outer[axis], ends, points, weights, &count);
        if (each < 0)
            return -1;
        if (count != task->target->shape[axis])
            return fail("a matrix has an entry for each point of the target");
        terms *= each;
    }
    task->up = task->down = 1;
    if (!Py_IsNone(last)) {
        task->ends = 1;
        if (!PyArg_ParseTuple(last, "nnnOOOO", &task->up, &task->down, &task->periods, &places, &ends,
                              &points, &weights))
            return -1;
        task->places = integers(&self->held, places, 1, 0, &task->nplaces);
        most = task->places ? read_matrix(self, &task->last, ends, points, weights, &count) : -1;
        if (most < 0)
            return -1;
        if (count != task->nplaces || task->up < 1 || task->down < 1)
            return fail("the last matrix has an entry for each place");
    }
    return allocate(task, terms > most ? terms : most);
}

PyObject *product(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *target, *source, *outer, *last;
    double scale;
    int add;
    if (!PyArg_ParseTuple(arguments, "OOO!Odp", &target, &source, &PyTuple_Type, &outer, &last,
                          &scale, &add))
        return NULL;
    Py_ssize_t nviews = 2 + VIEWS * PyTuple_Size(outer) + VIEWS + 1;
    Prepared *self = prepared_new(nviews, sizeof(Task), run, clear);
    if (self) {
        Task *task = self->own;
        task->scale = scale, task->add = add;
        self->alone = 1; /* its rows are its own */
        int done = read_arrays(self, target, source) == 0;
        if (done && PyTuple_Size(outer) != task->nouter)
            done = fail("there is a matrix for each axis but the last") == 0;
        if (!done || fill(self, outer, last) < 0)
            Py_CLEAR(self);
    }
    return (PyObject *)self;
}
