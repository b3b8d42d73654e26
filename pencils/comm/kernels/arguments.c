/* What the files of the Python module share. */
#include "arguments.h"

#include <structmember.h>
#include <string.h>
#include "machine.h"

Level level;
Py_ssize_t stream_from = 8 << 20;

Py_buffer *hold(Held *held, PyObject *array, int flags)
{
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(array, view, flags) < 0)
        return NULL;
    held->count++;
    return view;
}

void release(Held *held)
{
    while (held->count > 0)
        PyBuffer_Release(&held->views[--held->count]);
}

int64_t *integers(Held *held, PyObject *array, Py_ssize_t least, int flags, Py_ssize_t *count)
{
    Py_buffer *view = hold(held, array, PyBUF_C_CONTIGUOUS | flags);
    if (!view)
        return NULL;
    *count = view->len / 8;
    if (view->itemsize == 8 && *count >= least)
        return view->buf;
    fail("a list is too short, or not of 64-bit integers");
    return NULL;
}

int element_of(const char *format)
{
    static const char *const formats[] = {"f", "d", "Zf", "Zd"}; /* as in Element */
    format += format[0] == '@' || format[0] == '=';
    for (int i = 0; i < 4; i++)
        if (strcmp(format, formats[i]) == 0)
            return i;
    return -1;
}

/* ---- prepared calls ---- */

enum { WORTH_UNLOCKING = 32768 /* bytes; treating fewer takes no longer than the lock */ };

static PyTypeObject *prepared_type;

Prepared *prepared_new(Py_ssize_t nviews, size_t bytes, void (*run)(void *), void (*clear)(void *))
{
    Prepared *self = (Prepared *)PyType_GenericAlloc(prepared_type, 0);
    if (!self)
        return NULL;
    self->run = run;
    self->held.views = PyMem_Calloc((size_t)nviews + 1, sizeof(Py_buffer));
    self->own = self->held.views ? PyMem_Calloc(1, bytes) : NULL;
    if (!self->own) {
        PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    self->clear = clear;
    return self;
}

static PyObject *prepared_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Prepared *self = (Prepared *)object;
    if (PyTuple_Size(arguments) != 0 || (keywords && PyDict_Size(keywords) != 0)) {
        PyErr_SetString(PyExc_TypeError, "prepared calls take no arguments");
        return NULL;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread executes these lines: prepare others");
        return NULL;
    }
    if (self->held.count == 0) /* no arrays, or they were given back to the collector of garbage */
        Py_RETURN_NONE;
    self->busy = self->alone;
    /* For other processes that share memory: see `prepare_ordered_copies`. */
    ORDER_MEMORY();
    PyThreadState *state = unlock(self->bytes >= WORTH_UNLOCKING);
    self->run(self->own);
    lock(state);
    ORDER_MEMORY();
    self->busy = 0;
    Py_RETURN_NONE;
}

static int prepared_traverse(PyObject *object, visitproc visit, void *arg)
{
    Prepared *self = (Prepared *)object;
    Py_VISIT(Py_TYPE(object));
    for (Py_ssize_t i = 0; i < self->held.count; i++)
        Py_VISIT(self->held.views[i].obj);
    return 0;
}

static int prepared_clear(PyObject *object)
{
    release(&((Prepared *)object)->held);
    return 0;
}

static void prepared_dealloc(PyObject *object)
{
    Prepared *self = (Prepared *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs)
        PyObject_ClearWeakRefs(object);
    release(&self->held);
    if (self->clear)
        self->clear(self->own);
    PyMem_Free(self->own);
    PyMem_Free(self->held.views);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMemberDef prepared_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Prepared, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot prepared_slots[] = {
    {Py_tp_doc, (void *)"A prepared call, executed by calling it."},
    {Py_tp_call, (void *)prepared_call},
    {Py_tp_traverse, (void *)prepared_traverse},
    {Py_tp_clear, (void *)prepared_clear},
    {Py_tp_dealloc, (void *)prepared_dealloc},
    {Py_tp_members, prepared_members},
    {0, NULL},
};

static PyType_Spec prepared_spec = {
    .name = "pencils.comm._kernels.Prepared",
    .basicsize = sizeof(Prepared),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = prepared_slots,
};

int prepared_set_up(PyObject *module)
{
    if (!prepared_type) /* one for the process: objects may outlive a module */
        prepared_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &prepared_spec, NULL);
    return prepared_type ? 0 : -1;
}
