/* Prepared line programs for Python: arrays that export the buffer protocol. */
#include "arguments.h"

#include <structmember.h>
#include "lines.h"
#include "machine.h"

enum {
    PROGRAM_LISTS = 6, WEIGHTS = 5, /* number of that one */
    WORTH_UNLOCKING = 32768 /* bytes; treating fewer takes no longer than the lock */
};

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs;
    Lines lines;
    Copier *copy;
    Adder *add;
    Py_ssize_t bytes, written;
    int busy;
    Held held; /* of lists of the program, of segments, and of coefficients */
} Prepared_lines;

/* ---- arguments ---- */

static int read_element(const Py_buffer *view, Element *element)
{
    int found = element_of(view->format);
    *element = (Element)found;
    return found < 0 ? fail("elements are single or double precision numbers, real or complex") : 0;
}

/* Read a program: the number of rows, targets, ends, rows of terms, factors of terms, weights, and
   whether these multiply as complex numbers. */
static int read_program(Prepared_lines *self, PyObject *program)
{
    Program *to = &self->lines.program;
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
static int read_segment(Prepared_lines *self, PyObject *pair, int axis, int is_target)
{
    Lines *lines = &self->lines;
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
    self->written += is_target ? view->len : 0;
    return 0;
}

static int read_factors(Prepared_lines *self, PyObject *array)
{
    Lines *lines = &self->lines;
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

static int prepare(Prepared_lines *self)
{
    switch (lines_prepare(&self->lines)) {
    case PREPARED: return 0;
    case NO_MEMORY: PyErr_NoMemory(); return -1;
    case BAD_ENDS: return fail("terms of steps end in descending order, or are not all of them");
    case BAD_ROW: return fail("the program has a row that the buffer does not have");
    default: return fail("the program has a coefficient for which there is no row of numbers");
    }
}

static int fill(Prepared_lines *self, PyObject *program, PyObject *sources, PyObject *targets,
                int axis, PyObject *factors)
{
    Py_ssize_t nsources = PyTuple_Size(sources), count = nsources + PyTuple_Size(targets);
    if (count == nsources || count > INT32_MAX)
        return fail("there is no target");
    self->copy = level.copy;
    self->add = level.add;
    self->lines.nsources = (int)nsources;
    self->lines.segments = PyMem_Calloc(count, sizeof(Segment));
    self->held.views = PyMem_Calloc(PROGRAM_LISTS + count + 1, sizeof(Py_buffer));
    if (!self->lines.segments || !self->held.views) {
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
    if (self->lines.program.complex_weights && self->lines.element < COMPLEX_FLOAT)
        return fail("weights are complex, but elements are real");
    self->lines.stream = self->written >= stream_from;
    return prepare(self);
}

/* ---- the type ---- */

static PyObject *lines_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *program, *sources, *targets, *factors;
    int axis;
    Py_ssize_t bytes, fewest, most, besides = 0;
    static char *names[] = {"program", "sources", "targets", "axis", "coefficients", "bytes",
                            "fewest", "most", "besides", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOiOnnn|n", names, &program, &sources,
                                     &targets, &axis, &factors, &bytes, &fewest, &most,
                                     &besides))
        return NULL;
    sources = PySequence_Tuple(sources);
    targets = sources ? PySequence_Tuple(targets) : NULL;
    Prepared_lines *self = targets ? (Prepared_lines *)PyType_GenericAlloc(type, 0) : NULL;
    if (self) {
        self->lines.bytes = bytes;
        self->lines.fewest = fewest;
        self->lines.most = most;
        self->written = besides;
        if (fill(self, program, sources, targets, axis, factors) < 0)
            Py_CLEAR(self);
    }
    Py_XDECREF(sources);
    Py_XDECREF(targets);
    return (PyObject *)self;
}

static PyObject *lines_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Prepared_lines *self = (Prepared_lines *)object;
    if (PyTuple_Size(arguments) != 0 || (keywords && PyDict_Size(keywords) != 0)) {
        PyErr_SetString(PyExc_TypeError, "prepared lines take no arguments");
        return NULL;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread executes these lines: prepare others");
        return NULL;
    }
    if (self->held.count == 0) /* the arrays were given back to the collector of garbage */
        Py_RETURN_NONE;
    self->busy = 1;
    /* For other processes that share memory: see `prepare_ordered_copies`. */
    ORDER_MEMORY();
    PyThreadState *state = unlock(self->bytes >= WORTH_UNLOCKING);
    lines_run(&self->lines, self->copy, self->add);
    lock(state);
    ORDER_MEMORY();
    self->busy = 0;
    Py_RETURN_NONE;
}

static int lines_traverse(PyObject *object, visitproc visit, void *arg)
{
    Prepared_lines *self = (Prepared_lines *)object;
    Py_VISIT(Py_TYPE(object));
    for (Py_ssize_t i = 0; i < self->held.count; i++)
        Py_VISIT(self->held.views[i].obj);
    return 0;
}

static int lines_clear(PyObject *object)
{
    release(&((Prepared_lines *)object)->held);
    return 0;
}

static void lines_dealloc(PyObject *object)
{
    Prepared_lines *self = (Prepared_lines *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs)
        PyObject_ClearWeakRefs(object);
    lines_clear(object);
    lines_free(&self->lines);
    PyMem_Free(self->lines.segments);
    PyMem_Free(self->held.views);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMemberDef lines_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Prepared_lines, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot lines_slots[] = {
    {Py_tp_doc, (void *)"Lines(program, sources, targets, axis, coefficients, bytes, fewest, most): "
                        "a program for all lines along an axis, executed by calling it. Buffers "
                        "have about so many bytes, and strips at least and at most so many lines."},
    {Py_tp_new, (void *)lines_new},
    {Py_tp_call, (void *)lines_call},
    {Py_tp_traverse, (void *)lines_traverse},
    {Py_tp_clear, (void *)lines_clear},
    {Py_tp_dealloc, (void *)lines_dealloc},
    {Py_tp_members, lines_members},
    {0, NULL},
};

static PyType_Spec lines_spec = {
    .name = "pencils.comm._kernels.Lines",
    .basicsize = sizeof(Prepared_lines),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = lines_slots,
};

int lines_set_up(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&lines_spec);
    int status = type ? PyModule_AddObjectRef(module, "Lines", type) : -1;
    Py_XDECREF(type);
    return status;
}
