/* Prepared line programs for Python: arrays that export the buffer protocol. */
#include "arguments.h"

#include "lines.h"

enum { PROGRAM_LISTS = 6, WEIGHTS = 5 /* number of that one */ };

typedef struct {
    Lines lines;
    Copier *copy;
    Adder *add;
    Py_ssize_t written;
} Task;

/* ---- arguments ---- */

static int read_element(const Py_buffer *view, Element *element)
{
    int found = element_of(view->format);
    *element = (Element)found;
    return found < 0 ? fail("elements are single or double precision numbers, real or complex") : 0;
}

/* Read a program: the number of rows, targets, ends, rows of terms, factors of terms, weights, and
   whether these multiply as complex numbers. */
static int read_program(Prepared *self, PyObject *program)
{
    Program *to = &((Task *)self->own)->lines.program;
    const int64_t *lists[PROGRAM_LISTS + 1];
    Py_ssize_t counts[PROGRAM_LISTS + 1];
    if (!PyTuple_Check(program) || PyTuple_Size(program) != 1 + PROGRAM_LISTS)
        return fail("a program has the number of rows and six lists");
    to->rows = PyLong_AsSsize_t(PyTuple_GetItem(program, 0));
    if (to->rows == -1 && PyErr_Occurred())
        return -1;
    for (int i = 1; i <= PROGRAM_LISTS; i++) {
        if (i == WEIGHTS)
            continue;
        lists[i] = integers(&self->held, PyTuple_GetItem(program, i), 0, 0, &counts[i]);
        if (!lists[i])
            return -1;
    }
    to->targets = lists[1], to->ends = lists[2], to->rows_of = lists[3];
    to->factors_of = lists[4], to->as_complex = lists[6];
    to->nsteps = counts[1], to->nterms = counts[3];
    Py_buffer *weights = hold(&self->held, PyTuple_GetItem(program, WEIGHTS),
                              PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
    if (!weights)
        return -1;
    to->weights = weights->buf;
    to->complex_weights = element_of(weights->format) == COMPLEX_DOUBLE;
    if (!to->complex_weights && element_of(weights->format) != DOUBLE)
        return fail("weights of a program are double precision numbers, real or complex");
    if (to->rows < 0 || counts[2] != to->nsteps || counts[6] != to->nsteps || counts[4] != to->nterms
        || weights->len / weights->itemsize != to->nterms)
        return fail("the lists of a program differ in length");
    return 0;
}

/* Read one array and where its first row is; all others must be like the first array. */
static int read_segment(Prepared *self, PyObject *pair, int axis, int is_target)
{
    Task *task = self->own;
    Lines *lines = &task->lines;
    Segment *segment = &lines->segments[lines->nsegments];
    Element element;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        return fail("a source or target is a row and an array");
    segment->begin = PyLong_AsSsize_t(PyTuple_GetItem(pair, 0));
    if (segment->begin == -1 && PyErr_Occurred())
        return -1;
    int flags = PyBUF_FORMAT | (is_target ? PyBUF_STRIDED : PyBUF_STRIDED_RO);
    Py_buffer *view = hold(&self->held, PyTuple_GetItem(pair, 1), flags);
    if (!view || read_element(view, &element) < 0)
        return -1;
    if (axis < 0 || axis >= view->ndim || view->ndim > MOST_AXES)
        return fail("an array has no such axis");
    int naxes = 0, first = lines->nsegments == 0, differs = 0;
    for (int i = 0; i < view->ndim; i++)
        if (i != axis) {
            differs |= !first && (naxes >= lines->naxes || lines->extents[naxes] != view->shape[i]);
            lines->extents[naxes] = view->shape[i];
            segment->strides[naxes++] = view->strides[i];
        }
    if (naxes == 0) { /* a single line */
        lines->extents[naxes] = 1;
        segment->strides[naxes++] = 0;
    }
    if (differs || (!first && (naxes != lines->naxes || element != lines->element)))
        return fail("sources and targets differ in type, or in shape except along the axis");
    lines->naxes = naxes;
    lines->element = element;
    segment->first = view->buf;
    segment->count = view->shape[axis];
    segment->step = view->strides[axis];
    lines->nsegments++;
    self->bytes += view->len;
    task->written += is_target ? view->len : 0;
    return 0;
}

static int read_factors(Prepared *self, PyObject *array)
{
    Lines *lines = &((Task *)self->own)->lines;
    Element element;
    Py_ssize_t count = 1;
    if (Py_IsNone(array))
        return 0;
    Py_buffer *view = hold(&self->held, array, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
    if (!view || read_element(view, &element) < 0)
        return -1;
    for (int i = 0; i < lines->naxes; i++)
        count *= lines->extents[i];
    if (view->ndim != 2 || view->shape[1] != count || element != lines->element)
        return fail("coefficients have the type of the arrays, and a column for each line");
    lines->factors = view->buf;
    lines->nfactors = view->shape[0];
    lines->factor_step = count * view->itemsize;
    self->bytes += view->len;
    return 0;
}

static int prepare(Lines *lines)
{
    switch (lines_prepare(lines)) {
    case PREPARED: return 0;
    case NO_MEMORY: PyErr_NoMemory(); return -1;
    case BAD_ENDS: return fail("terms of steps end in descending order, or are not all of them");
    case BAD_ROW: return fail("the program has a row that the buffer does not have");
    default: return fail("the program has a coefficient for which there is no row of numbers");
    }
}

static int fill(Prepared *self, PyObject *program, PyObject *sources, PyObject *targets, int axis,
                PyObject *factors)
{
    Task *task = self->own;
    Lines *lines = &task->lines;
    Py_ssize_t nsources = PyTuple_Size(sources), count = nsources + PyTuple_Size(targets);
    if (count == nsources || count > INT32_MAX)
        return fail("there is no target");
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
    if (read_factors(self, factors) < 0)
        return -1;
    if (lines->program.complex_weights && lines->element < COMPLEX_FLOAT)
        return fail("weights are complex, but elements are real");
    lines->stream = task->written >= stream_from;
    return prepare(lines);
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
    Py_ssize_t nviews = targets ? PyTuple_Size(sources) + PyTuple_Size(targets) : 0;
    Prepared *self
        = targets ? prepared_new(nviews + PROGRAM_LISTS + 1, sizeof(Task), run, clear) : NULL;
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
