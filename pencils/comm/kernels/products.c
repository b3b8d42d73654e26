/* Products of matrices along all axes and an array, one row of the target after the other: rows of
   the source are added up, then elements of their sum. Matrices have few terms in each row; all rows
   along the last axis are alike, but some. Points and places are not checked here: callers know them. */
#include "arguments.h"

#include <string.h>
#include "machine.h"

enum {
    ROOM = 65536, /* bytes of rows that are added up at once */
    KEPT = 524288, /* bytes of rows that are kept until they are added up */
    FAR = 3, /* rows behind the last one that is needed, from where on rows are fetched */
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
    int nouter, is_double, parts, add, stream;
    int ends, again; /* is there a matrix along the last axis; are rows needed by several ones */
    int window; /* number of terms along the last axis, if their points are successive, else 0 */
    ptrdiff_t item, up, down, periods, nplaces;
    ptrdiff_t ahead; /* bytes to the next row where rows are left out, else 0 */
    const Py_buffer *target, *source;
    Matrix outer[MOST_AXES], last;
    const int64_t *places; /* of entries in a row of the target */
    double scale;
    ptrdiff_t most; /* rows that have room: of the source for sums, or of the target in each slot */
    ptrdiff_t slots; /* for planes of the source that are multiplied along the last two axes first */
    char *sum, *room, *row, *memory;
    const char **rows, **planes, **kept, **sums;
    double *weights, *shares;
} Task;

static ptrdiff_t whole_lines(ptrdiff_t bytes) { return (bytes + LINE - 1) / LINE * LINE + LINE; }

static inline int64_t begin_of(const Matrix *matrix, ptrdiff_t entry)
{
    return entry ? matrix->ends[entry - 1] : 0;
}

/* Add up rows, which are overwritten, so many at once: processors fetch few rows side by side. */
static void add_up(const Task *task, char *to, const char **rows, double *weights, ptrdiff_t count,
                   ptrdiff_t at_once, ptrdiff_t bytes, int stream)
{
    for (ptrdiff_t done = 0, some; done < count; done += some) {
        int more = done > 0; /* what was added so far is a row, too */
        some = count - done < at_once ? count - done : at_once;
        if (more)
            rows[done - 1] = to, weights[done - 1] = 1;
        const char *ahead = task->ahead ? rows[done] + task->ahead : NULL;
        level.weigh(&(Weighted){to, rows + done - more, weights + done - more, (int)some + more,
                                bytes, ahead, stream && done + some == count, 0},
                    task->is_double);
    }
}

#define ADD_ELEMENT(REAL)                                                                        \
    for (int part = 0; part < task->parts; part++) {                                             \
        REAL sum = (REAL)-0.0;                                                                   \
        for (int64_t i = begin_of(&task->last, entry); i < task->last.ends[entry]; i++)          \
            sum += (REAL)task->last.weights[i]                                                   \
                   * ((const REAL *)from)[task->last.points[i] * task->parts + part];            \
        ((REAL *)to)[task->places[entry] * task->parts + part] = sum;                            \
    }

/* Multiply by the matrix along the last axis. */
static void multiply_last(const Task *task, const char *from, char *to, int stream)
{
    const Matrix *last = &task->last;
    if (task->window)
        level.windows(&(Windows){to, from, last->weights, task->window, task->places[0],
                                 last->points[0], task->periods, task->target->shape[task->nouter],
                                 task->source->shape[task->nouter], task->parts, stream},
                      task->is_double);
    else if (task->periods)
        level.stride(&(Strided){to + task->places[0] * task->item, from, last->ends, last->points,
                                last->weights, task->up, task->down, task->periods, task->parts,
                                stream},
                     task->is_double);
    for (ptrdiff_t entry = task->periods ? task->up : 0; entry < task->nplaces; entry++)
        if (task->is_double)
            ADD_ELEMENT(double)
        else
            ADD_ELEMENT(float)
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

/* Rows of the target from `first` on that are treated at once, and the rows of the source that they
   need: few enough that their sums stay in the cache, else those of one row. Where no row is needed
   twice, sums need not be kept, and all rows are treated at once. */
typedef struct {
    ptrdiff_t first, after, low, high;
} Chunk;

static Chunk next_chunk(const Task *task, ptrdiff_t first)
{
    const Matrix *matrix = &task->outer[task->nouter - 1];
    Chunk chunk = {first, first, PTRDIFF_MAX, 0};
    for (; chunk.after < task->target->shape[task->nouter - 1]; chunk.after++) {
        ptrdiff_t low = chunk.low, high = chunk.high;
        for (int64_t i = begin_of(matrix, chunk.after); i < matrix->ends[chunk.after]; i++) {
            low = matrix->points[i] < low ? matrix->points[i] : low;
            high = matrix->points[i] >= high ? matrix->points[i] + 1 : high;
        }
        ptrdiff_t number = task->slots ? chunk.after - first + 1 : high - low;
        if ((task->slots || task->again) && number > task->most && chunk.after > first)
            break;
        chunk.low = low, chunk.high = high;
    }
    return chunk;
}

/* Rows that are set, `stride` bytes apart, to sums of rows of so many planes, which are `apart` bytes
   apart; meanwhile so many bytes of the last plane are fetched, from `FAR` rows farther on. */
typedef struct {
    char *target;
    ptrdiff_t stride;
    const char *const *planes;
    const double *shares;
    ptrdiff_t count, at_once, apart, ahead;
    int add, stream;
} Wanted;

/* Set a row of the target to the product. */
static void run_row(const Task *task, const Wanted *wanted, ptrdiff_t row, char *target)
{
    const Matrix one = {&(const int64_t){1}, &(const int64_t){0}, &(const double){1}};
    const Matrix *matrix = task->nouter ? &task->outer[task->nouter - 1] : &one;
    ptrdiff_t found = 0, bytes = task->source->shape[task->nouter] * task->item;
    int stream = wanted->stream && !wanted->add; /* past the cache, and whole rows of that */
    int apart = wanted->add || (stream && task->nplaces > task->up);
    char *to = apart ? task->row : target, *sum = task->ends ? task->sum : to;
    for (int64_t i = begin_of(matrix, row); i < matrix->ends[row]; i++)
        for (ptrdiff_t plane = 0; plane < wanted->count; plane++, found++) {
            task->rows[found] = wanted->planes[plane] + matrix->points[i] * wanted->apart;
            task->weights[found] = matrix->weights[i] * wanted->shares[plane];
        }
    for (ptrdiff_t at = 0; at < wanted->ahead; at += LINE)
        PREFETCH(task->rows[found - 1] + FAR * wanted->apart + at);
    if (!task->ends || found > 1 || task->weights[0] != 1)
        add_up(task, sum, task->rows, task->weights, found, wanted->at_once, bytes,
               stream && !task->ends);
    else
        sum = (char *)task->rows[0];
    if (task->ends)
        multiply_last(task, sum, to, stream && !apart);
    if (apart) {
        const char *rows[MOST_TERMS] = {to, target};
        double ones[MOST_TERMS] = {1, 1};
        bytes = task->target->shape[task->nouter] * task->item;
        add_up(task, target, rows, ones, 1 + wanted->add, 2, bytes, stream);
    }
}

static void run_rows(const Task *task, const Chunk *chunk, const Wanted *wanted)
{
    for (ptrdiff_t row = chunk->first; row < chunk->after; row++)
        run_row(task, wanted, row, wanted->target + (row - chunk->first) * wanted->stride);
}

/* Return the rows of a chunk of a plane of the source, multiplied along the last two axes: those that
   are kept, or new ones in the place of a plane that is not needed now. */
static const char *keep_plane(const Task *task, const Chunk *chunk, const char *plane,
                              ptrdiff_t count)
{
    static const double one = 1;
    int axis = task->nouter - 1;
    ptrdiff_t bytes = task->target->shape[axis + 1] * task->item;
    ptrdiff_t room = whole_lines(task->most * bytes);
    ptrdiff_t step = task->source->strides[axis], slot = 0, unused = 0;
    for (; slot < task->slots && task->kept[slot] != plane; slot++) {
        ptrdiff_t i = 0;
        while (i < count && task->planes[i] != task->kept[slot])
            i++;
        unused = i == count ? slot : unused;
    }
    if (slot == task->slots) {
        ptrdiff_t ahead = task->source->shape[axis] / task->target->shape[axis] * step;
        slot = unused, task->kept[slot] = plane;
        run_rows(task, chunk, &(Wanted){task->room + slot * room, bytes, &plane, &one, 1,
                                        MOST_TERMS - 1, step, ahead, 0, 0});
    }
    return task->room + slot * room;
}

/* Treat some rows of a plane of the target by way of kept planes. */
static void run_kept(const Task *task, const Chunk *chunk, char *target, ptrdiff_t count)
{
    int axis = task->nouter - 1;
    ptrdiff_t bytes = task->target->shape[axis + 1] * task->item;
    ptrdiff_t stride = task->target->strides[axis], number = chunk->after - chunk->first;
    ptrdiff_t parts = stride == bytes ? 1 : number;
    for (ptrdiff_t i = 0; i < count; i++)
        task->sums[i] = keep_plane(task, chunk, task->planes[i], count);
    for (ptrdiff_t part = 0; part < parts; part++) {
        char *to = target + part * stride;
        task->rows[0] = to, task->weights[0] = 1; /* read before it is written, if at all */
        for (ptrdiff_t i = 0; i < count; i++) {
            task->rows[i + task->add] = task->sums[i] + part * bytes;
            task->weights[i + task->add] = task->shares[i];
        }
        add_up(task, to, task->rows, task->weights, count + task->add, MOST_TERMS - 1,
               number * bytes / parts, task->stream && !task->add);
    }
}

/* Treat some rows of a plane of the target; the planes of the source are given. */
static void run_chunk(const Task *task, const Chunk *chunk, char *target, ptrdiff_t count)
{
    int axis = task->nouter - 1;
    ptrdiff_t step = task->source->strides[axis], number = chunk->high - chunk->low;
    ptrdiff_t bytes = task->source->shape[axis + 1] * task->item;
    ptrdiff_t stride = task->target->strides[axis], parts = step == bytes ? 1 : number;
    target += chunk->first * stride;
    if (task->slots) {
        run_kept(task, chunk, target, count);
        return;
    }
    int summed = task->again && number <= task->most && (count > 1 || task->shares[0] != 1);
    for (ptrdiff_t part = 0; part < parts && summed; part++) {
        for (ptrdiff_t i = 0; i < count; i++) {
            task->rows[i] = task->planes[i] + (chunk->low + part) * step;
            task->weights[i] = task->shares[i];
        }
        add_up(task, task->room + part * bytes, task->rows, task->weights, count,
               MOST_TERMS - 1, number * bytes / parts, 0);
    }
    ptrdiff_t at_once = !summed && count < MOST_TERMS ? count : MOST_TERMS - 1;
    Wanted wanted = {target, stride, task->planes, task->shares, count, at_once, step, 0,
                     task->add, task->stream};
    if (summed) {
        task->planes[0] = task->room - chunk->low * bytes, task->shares[0] = 1;
        wanted.count = 1, wanted.apart = bytes;
    }
    run_rows(task, chunk, &wanted);
}

static void run(void *own)
{
    const Task *task = own;
    if (task->nouter == 0) {
        const char *plane = task->source->buf;
        run_row(task, &(Wanted){NULL, 0, &plane, &task->scale, 1, 1, 0, 0, task->add, task->stream},
                0, task->target->buf);
    } else
        for (Chunk chunk = {0}; chunk.after < task->target->shape[task->nouter - 1];) {
            ptrdiff_t index[MOST_AXES] = {0};
            char *place = task->target->buf;
            chunk = next_chunk(task, chunk.after);
            memset(task->kept, 0, (size_t)task->slots * sizeof(char *));
            do
                run_chunk(task, &chunk, place, find_planes(task, index));
            while (next_index(index, task->target->shape, task->nouter - 1, &place, task->target, 1));
        }
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

/* Allocate rows, and lists of so many terms. */
static int allocate(Task *task, Py_ssize_t terms)
{
    int last = task->nouter;
    ptrdiff_t from = task->source->shape[last] * task->item;
    ptrdiff_t to = task->target->shape[last] * task->item;
    ptrdiff_t lists = whole_lines((4 * terms + 1) * (ptrdiff_t)sizeof(char *)
                                  + (2 * terms + 1) * (ptrdiff_t)sizeof(double));
    ptrdiff_t kept = KEPT / (task->slots ? task->slots : 1) / to, room = ROOM;
    task->most = ROOM / from;
    if (task->slots) {
        task->most = kept ? kept : 1;
        room = task->slots * whole_lines(task->most * to);
    }
    ptrdiff_t rows = whole_lines(from) + whole_lines(to);
    task->memory = PyMem_Calloc(1, (size_t)(rows + room + lists + LINE));
    if (!task->memory) {
        PyErr_NoMemory();
        return -1;
    }
    task->sum = task->memory + (LINE - (uintptr_t)task->memory % LINE);
    task->room = task->sum + whole_lines(from);
    task->row = task->room + room;
    task->rows = (const char **)(task->row + whole_lines(to));
    task->planes = task->rows + terms + 1;
    task->kept = task->planes + terms;
    task->sums = task->kept + terms;
    task->weights = (double *)(task->sums + terms);
    task->shares = task->weights + terms + 1;
    return 0;
}

/* Number of terms along the last axis, if these are windows, two points farther on each time. */
static int window_of(const Task *task)
{
    ptrdiff_t terms = task->last.ends[0];
    int is_window = task->periods && task->up == 1 && task->down == 2 && terms > 1;
    is_window = is_window && terms <= MOST_WINDOW;
    for (ptrdiff_t i = 1; is_window && i < terms; i++)
        is_window = task->last.points[i] == task->last.points[0] + i;
    return is_window ? (int)terms : 0;
}

static int fill(Prepared *self, PyObject *outer, PyObject *last)
{
    Task *task = self->own;
    Py_ssize_t terms = 1, count, most = 1, planes = 1;
    int kept = 0, end = task->nouter;
    PyObject *ends, *points, *weights, *places;
    for (int axis = 0; axis < task->nouter; axis++) {
        if (!PyArg_ParseTuple(PyTuple_GetItem(outer, axis), "OOO", &ends, &points, &weights))
            return -1;
        Py_ssize_t each = read_matrix(self, &task->outer[axis], ends, points, weights, &count);
        if (each < 0)
            return -1;
        if (count != task->target->shape[axis])
            return fail("a matrix has an entry for each point of the target");
        if (axis < task->nouter - 1) {
            planes *= each;
            kept |= task->outer[axis].ends[count - 1] > task->source->shape[axis];
        }
        terms *= each;
        task->again = task->outer[axis].ends[count - 1] > task->source->shape[axis];
        task->ahead = 0;
        if (task->outer[axis].ends[count - 1] < task->source->shape[axis])
            task->ahead = task->source->shape[axis] / count * task->source->strides[axis];
    }
    if (kept && task->target->shape[end] * task->target->shape[end - 1]
                    < task->source->shape[end] * task->source->shape[end - 1])
        task->slots = planes;
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
        task->window = window_of(task);
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
