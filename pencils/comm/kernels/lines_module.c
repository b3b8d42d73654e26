/* Line programs for Python: arrays export the buffer protocol. Their shapes and types, and the numbers
   of rows and coefficients, have been checked by pencils/comm/line_program.py. */
#include "arguments.h"

#include "lines.h"

typedef struct {
    Lines lines;
    Copier *copy;
    Adder *add;
    Py_ssize_t written; /* bytes */
} Task;

/* Read a program: the number of rows, targets, ends, rows of terms, factors of terms, weights, and
   whether these multiply as complex numbers. */
static int read_program(Prepared *self, PyObject *program)
{
    Program *to = &((Task *)self->own)->lines.program;
    PyObject *given[5], *weights;
    const int64_t **lists[] = {&to->targets, &to->ends, &to->rows_of, &to->factors_of,
                               &to->as_complex};
    Py_ssize_t rows, counts[5];
    if (!PyArg_ParseTuple(program, "nOOOOOO", &rows, &given[0], &given[1], &given[2], &given[3],
                          &weights, &given[4]))
        return -1;
    for (int i = 0; i < 5; i++) {
        *lists[i] = integers(&self->held, given[i], 0, 0, &counts[i]);
        if (!*lists[i])
            return -1;
    }
    Py_buffer *view = hold(&self->held, weights, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
    if (!view)
        return -1;
    to->rows = rows, to->nsteps = counts[0], to->nterms = counts[2];
    to->weights = view->buf;
    to->complex_weights = element_of(view->format) == COMPLEX_DOUBLE;
    return 0;
}

/* Read one array and where its first row is; all others are like the first array. */
static int read_segment(Prepared *self, PyObject *pair, int axis, int is_target)
{
    Task *task = self->own;
    Lines *lines = &task->lines;
    Segment *segment = &lines->segments[lines->nsegments];
    PyObject *array;
    Py_ssize_t begin;
    int flags = PyBUF_FORMAT | (is_target ? PyBUF_STRIDED : PyBUF_STRIDED_RO), naxes = 0;
    if (!PyArg_ParseTuple(pair, "nO", &begin, &array))
        return -1;
    const Py_buffer *view = hold(&self->held, array, flags);
    if (!view)
        return -1;
    int element = element_of(view->format);
    if (element < 0 || axis < 0 || axis >= view->ndim || view->ndim > MOST_AXES)
        return fail("arrays are floats, real or complex, and have this axis");
    for (int i = 0; i < view->ndim; i++)
        if (i != axis) {
            lines->extents[naxes] = view->shape[i];
            segment->strides[naxes++] = view->strides[i];
        }
    if (naxes == 0) { /* a single line */
        lines->extents[naxes] = 1;
        segment->strides[naxes++] = 0;
    }
    lines->naxes = naxes;
    lines->element = (Element)element;
    segment->begin = begin;
    segment->first = view->buf;
    segment->count = view->shape[axis];
    segment->step = view->strides[axis];
    lines->nsegments++;
    self->bytes += view->len;
    task->written += is_target ? view->len : 0;
    return 0;
}

/* Read all arguments but the numbers. */
static int fill(Prepared *self, PyObject *program, PyObject *sources, PyObject *targets, int axis,
                PyObject *factors)
{
    Task *task = self->own;
    Lines *lines = &task->lines;
    Py_ssize_t nsources = PyTuple_Size(sources), count = nsources + PyTuple_Size(targets);
    lines->nsources = (int)nsources;
    lines->segments = PyMem_Calloc((size_t)count, sizeof(Segment));
    if (!lines->segments) {
        PyErr_NoMemory();
        return -1;
    }
    if (read_program(self, program) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = i < nsources ? PyTuple_GetItem(sources, i)
                                      : PyTuple_GetItem(targets, i - nsources);
        if (read_segment(self, pair, axis, i >= nsources) < 0)
            return -1;
    }
    if (!Py_IsNone(factors)) {
        const Py_buffer *view = hold(&self->held, factors, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
        if (!view)
            return -1;
        lines->factors = view->buf;
        lines->nfactors = view->shape[0];
        lines->factor_step = view->shape[1] * view->itemsize;
        self->bytes += view->len;
    }
    lines->stream = task->written >= stream_from;
    if (lines_prepare(lines))
        return 0;
    PyErr_NoMemory();
    return -1;
}

static void run(void *own)
{
    Task *task = own;
    lines_run(&task->lines, task->copy, task->add);
}

static void clear(void *own)
{
    Task *task = own;
    lines_free(&task->lines);
    PyMem_Free(task->lines.segments);
}

PyObject *lines(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords)
{
    PyObject *program, *sources, *targets, *factors;
    int axis;
    Task given = {.copy = level.copy, .add = level.add};
    static char *names[] = {"program", "sources", "targets", "axis", "coefficients", "bytes",
                            "fewest", "most", "besides", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOiOnnn|n", names, &program, &sources,
                                     &targets, &axis, &factors, &given.lines.bytes,
                                     &given.lines.fewest, &given.lines.most, &given.written))
        return NULL;
    sources = PySequence_Tuple(sources);
    targets = sources ? PySequence_Tuple(targets) : NULL;
    Py_ssize_t nviews = targets ? PyTuple_Size(sources) + PyTuple_Size(targets) + 7 : 0;
    Prepared *self = targets ? prepared_new(nviews, sizeof(Task), run, clear) : NULL;
    if (self) {
        *(Task *)self->own = given;
        self->alone = 1; /* it has one buffer */
        if (fill(self, program, sources, targets, axis, factors) < 0)
            Py_CLEAR(self);
    }
    Py_XDECREF(sources);
    Py_XDECREF(targets);
    return (PyObject *)self;
}
