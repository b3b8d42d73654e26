/* The compiled copies as a Python module, for arrays that export the buffer protocol. */
#include "arguments.h"

#include "machine.h"

enum {
    WORTH_UNLOCKING = 32768, /* bytes; copying fewer takes no longer than the lock */
    WORTH_STREAMING = 4096   /* bytes that another processor has in its cache */
};

static Level levels[MOST_LEVELS];
static int nlevels;

/* ---- one copy ---- */

static void complain(PyObject *target, PyObject *source)
{
    PyObject *to = PyObject_GetAttrString(target, "shape");
    PyObject *from = to ? PyObject_GetAttrString(source, "shape") : NULL;
    if (from)
        PyErr_Format(PyExc_ValueError,
                     "a target of shape %R cannot take a source of shape %R: shapes and item "
                     "sizes have to be the same", to, from);
    Py_XDECREF(to);
    Py_XDECREF(from);
}

static int alike(const Py_buffer *target, const Py_buffer *source)
{
    if (target->ndim != source->ndim || target->itemsize != source->itemsize)
        return 0;
    for (int i = 0; i < target->ndim; i++)
        if (target->shape[i] != source->shape[i])
            return 0;
    return 1;
}

/* Ask both arrays for their memory; on failure neither is held. */
static int open_views(Py_buffer *views, PyObject *target, PyObject *source)
{
    if (PyObject_GetBuffer(target, &views[0], PyBUF_STRIDED) < 0)
        return -1;
    if (PyObject_GetBuffer(source, &views[1], PyBUF_STRIDED_RO) < 0) {
        PyBuffer_Release(&views[0]);
        return -1;
    }
    if (alike(&views[0], &views[1]))
        return 0;
    complain(target, source);
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    return -1;
}

static void prepare(Block *block, const Py_buffer *views, Axis *axes)
{
    const Py_buffer *to = &views[0], *from = &views[1];
    for (int i = 0; i < to->ndim; i++)
        axes[i] = (Axis){to->shape[i], to->strides[i], from->strides[i]};
    block_prepare(block, to->buf, from->buf, to->itemsize, to->ndim, axes);
}

static void copy_blocks(Copier *copier, const Block *blocks, Py_ssize_t count, int stream)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (blocks[i].kind == WITHIN)
            block_move(&blocks[i]);
        else
            copier(&blocks[i], stream);
    if (stream)
        streams_finish();
}

static PyObject *copy(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer views[2];
    Axis axes[MOST_AXES];
    Block block;
    Py_ssize_t whole = 0;
    if (count != 2 && count != 3) {
        PyErr_SetString(PyExc_TypeError, "copy takes a target, a source and a number of bytes");
        return NULL;
    }
    if (count == 3 && (whole = PyLong_AsSsize_t(arguments[2])) == -1 && PyErr_Occurred())
        return NULL;
    if (open_views(views, arguments[0], arguments[1]) < 0)
        return NULL;
    prepare(&block, views, axes);
    Py_ssize_t bytes = block_bytes(&block);
    PyThreadState *state = unlock(bytes >= WORTH_UNLOCKING);
    copy_blocks(level.copy, &block, 1, (whole > bytes ? whole : bytes) >= stream_from);
    lock(state);
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    Py_RETURN_NONE;
}

static PyObject *moves(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer views[2];
    Axis axes[MOST_AXES];
    Block block;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "moves_within takes a target and a source");
        return NULL;
    }
    if (open_views(views, arguments[0], arguments[1]) < 0)
        return NULL;
    prepare(&block, views, axes);
    PyBuffer_Release(&views[0]);
    PyBuffer_Release(&views[1]);
    return PyBool_FromLong(block.within);
}

static PyObject *address(PyObject *Py_UNUSED(module), PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0)
        return NULL;
    PyObject *found = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return found;
}

/* ---- prepared copies ---- */

typedef struct {
    Py_ssize_t count, bytes;
    int past; /* whether targets are written past the cache, whatever their size */
    Copier *copier;
    Block *blocks;
} Copies;

static void copies_run(void *own)
{
    Copies *copies = own;
    int stream = (copies->past && copies->bytes >= WORTH_STREAMING) || copies->bytes >= stream_from;
    copy_blocks(copies->copier, copies->blocks, copies->count, stream);
}

static void copies_clear(void *own)
{
    Copies *copies = own;
    for (Py_ssize_t i = 0; i < copies->count; i++)
        PyMem_Free(copies->blocks[i].axes);
    PyMem_Free(copies->blocks);
}

static int copies_add(Prepared *self, PyObject *pair)
{
    Copies *copies = self->own;
    Py_buffer *views = &self->held.views[self->held.count];
    PyObject *arrays = PySequence_Tuple(pair);
    if (!arrays)
        return -1;
    int status = -1;
    if (PyTuple_Size(arrays) != 2)
        PyErr_SetString(PyExc_TypeError, "Copies takes pairs of a target and a source");
    else
        status = open_views(views, PyTuple_GetItem(arrays, 0), PyTuple_GetItem(arrays, 1));
    Py_DECREF(arrays); /* the views keep the arrays */
    if (status < 0)
        return -1;
    self->held.count += 2;
    Axis *axes = PyMem_Malloc((size_t)(views->ndim + 1) * sizeof(Axis));
    if (!axes) {
        PyErr_NoMemory();
        return -1;
    }
    Block *block = &copies->blocks[copies->count++];
    prepare(block, views, axes);
    self->bytes += block_bytes(block);
    return 0;
}

PyObject *copies(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords)
{
    PyObject *pairs;
    int past = 0;
    static char *names[] = {"pairs", "past", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|p", names, &pairs, &past))
        return NULL;
    pairs = PySequence_Tuple(pairs);
    if (!pairs)
        return NULL;
    Py_ssize_t count = PyTuple_Size(pairs);
    Prepared *self = prepared_new(2 * count, sizeof(Copies), copies_run, copies_clear);
    if (self) {
        Copies *copies = self->own;
        *copies = (Copies){0, 0, past, level.copy, PyMem_Calloc((size_t)count, sizeof(Block))};
        int status = copies->blocks ? 0 : -1;
        if (!copies->blocks)
            PyErr_NoMemory();
        for (Py_ssize_t i = 0; i < count && status == 0; i++)
            status = copies_add(self, PyTuple_GetItem(pairs, i));
        for (Py_ssize_t i = 0; i + 1 < copies->count; i++)
            if (copies->blocks[i].run)
                blocks_join(&copies->blocks[i], &copies->blocks[i + 1]);
        copies->bytes = self->bytes;
        if (status < 0)
            Py_CLEAR(self);
    }
    Py_DECREF(pairs);
    return (PyObject *)self;
}

/* ---- the module ---- */

static PyObject *available(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    PyObject *names = PyTuple_New(nlevels);
    for (int i = 0; names && i < nlevels; i++)
        if (PyTuple_SetItem(names, i, PyUnicode_FromString(levels[i].name)) < 0)
            Py_CLEAR(names);
    return names;
}

static PyObject *use(PyObject *Py_UNUSED(module), PyObject *name)
{
    for (int i = 0; i < nlevels; i++)
        if (PyUnicode_CompareWithASCIIString(name, levels[i].name) == 0) {
            level = levels[i];
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "this processor cannot run %R", name);
    return NULL;
}

static PyObject *stream(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    Py_ssize_t before = stream_from, given = PyLong_AsSsize_t(bytes);
    if (given == -1 && PyErr_Occurred())
        return NULL;
    stream_from = given;
    return PyLong_FromSsize_t(before);
}

#define WITH_KEYWORDS(function) \
    (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS
#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"copy", FAST(copy),
     "copy(target, source, whole=0): copy all elements; the arrays must not overlap, unless "
     "`moves_within` is true. The target is part of so many bytes."},
    {"moves_within", FAST(moves),
     "moves_within(target, source): whether they are parts of an array and may be copied at once."},
    {"Copies", WITH_KEYWORDS(copies),
     "Copies(pairs, past=False): copies of sources into targets, executed by calling the result; "
     "past the cache whatever their size if `past`."},
    {"Lines", WITH_KEYWORDS(lines),
     "Lines(program, sources, targets, axis, coefficients, bytes, fewest, most, besides=0): a "
     "program for all lines along an axis, executed by calling the result. Buffers have about so "
     "many bytes, and strips at least and at most so many lines."},
    {"Product", product, METH_VARARGS,
     "Product(target, source, outer, last, scale, add): a product of matrices along all axes and the "
     "source, executed by calling the result. See pencils/comm/products.py, which makes the lists."},
    {"RowProgram", row_program, METH_VARARGS,
     "RowProgram(shape, arrays, slots, instructions, registers, planes, rows, columns, pitch, "
     "exact, stores): see pencils/comm/row_program.py, which makes these lists."},
    {"address", address, METH_O, "address(array): where its first element is."},
    {"available", available, METH_NOARGS, "Names of what this processor can run, best first."},
    {"use", use, METH_O, "use(name): copy, add and sum up by these instructions from now on."},
    {"stream_from", stream, METH_O,
     "stream_from(bytes): write past the cache from this size on; returns the one before."},
    {"move", FAST(rows_move),
     "move(target, to, source, from): copy rows of the source to rows of the target."},
    {"locate", FAST(rows_locate),
     "locate(coords, cuts, steps, first, owners, offsets): find who owns points, and where."},
    {"fetch", FAST(rows_fetch),
     "fetch(coords, cuts, steps, first, table, target): read points in the blocks of all owners."},
    {"sort", FAST(rows_sort),
     "sort(owners, ends, order): sort numbers by their owner."},
    {"mixed_sum", mixed_sum, METH_VARARGS,
     "mixed_sum(data, width, first, words=all, count=1, step=0, pitch=0): sum up mixed words of "
     "`width` bytes, from that position on; or rows that are `pitch` bytes apart in the data, and "
     "`step` positions in the array."},
    {"running_sums", FAST(running_sums),
     "running_sums(sums, values, before, after, besides): add up values along their last axis, "
     "after the plane before them, and set the plane after them; the planes may be None. Other "
     "calls write so many bytes besides, which decides whether these are written past the cache. "
     "The arrays have to fit each other, and to be contiguous along their lines."},
    {"weighted_rows", FAST(weighted_rows),
     "weighted_rows(target, source, terms, columns): set each element of contiguous rows to the sum "
     "of neighbours, terms being (factor, offset, weight, ...); but some columns, each (number, "
     "column, weight, ...), to the sum of other ones times the same factor."},
    {"total", total, METH_O,
     "total(array): the sum of doubles, bit by bit that of NumPy; None if they are not contiguous."},
    {"pool_block", FAST(pool_block),
     "pool_block(nbytes, zero): memory that is used again when nobody views it."},
    {"pool_keep", pool_keep, METH_O,
     "pool_keep(nbytes): keep at most so much unused memory; returns the bound before."},
    {"pool_counts", pool_counts, METH_NOARGS,
     "Bytes in use, bytes that wait, their bound; blocks made and reused so far."},
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *module)
{
    nlevels = levels_available(levels);
    level = levels[0];
    if (prepared_set_up(module) < 0 || pool_set_up(module) < 0)
        return -1;
    return row_program_set_up(module);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)set_up}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pencils.comm._kernels",
    .m_doc = "Compiled copies between strided blocks of memory.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
