/* Memory of fields that is used again: what one block gives back, the next of its size gets.
 *
 * A block exports its memory by the buffer protocol, and every array that views it holds it. When
 * it dies, its memory joins those that wait, up to a bound; beyond it, the memory that has waited
 * longest is freed. All calls hold the lock of the interpreter. */
#ifdef __linux__
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#include <unistd.h>
#endif
#include "arguments.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    STEPS = 8,               /* sizes from one power of two to the next: an eighth is wasted */
    LEAST = 4096,            /* bytes of the smallest size */
    SIZES = STEPS * 64,
    WORTH_UNLOCKING = 32768, /* bytes; setting fewer takes no longer than the lock */
    HUGE_FROM = 4 << 20,     /* bytes; NumPy asks for huge pages from here on, too */
};

/* ---- memory that waits ---- */

typedef struct Link {
    struct Link *before, *after;
} Link;

/* At the beginning of memory that nobody uses. */
typedef struct {
    Link age;        /* among all, newest first */
    Link alike;      /* among those of the same size, newest first */
    void *allocated; /* to be freed */
    size_t size;
} Waiting;

static Link ages = {&ages, &ages};
static Link sizes[SIZES]; /* rings, made when the module is */
static size_t live, waiting, bound;
static unsigned long long made, reused;

static void link_first(Link *ring, Link *link)
{
    link->before = ring;
    link->after = ring->after;
    ring->after->before = link;
    ring->after = link;
}

static void unlink_one(Link *link)
{
    link->before->after = link->after;
    link->after->before = link->before;
}

/* Round up to the next of the sizes, and tell its number. */
static int round_size(size_t *nbytes)
{
    size_t size = *nbytes < LEAST ? LEAST : *nbytes;
    int power = 0;
    while (size >> power >= 2 * STEPS)
        power++;
    size_t steps = (size + (((size_t)1 << power) - 1)) >> power; /* STEPS to 2 * STEPS */
    *nbytes = steps << power;
    return STEPS * power + (int)(steps - STEPS);
}

static void leave(Waiting *one)
{
    unlink_one(&one->age);
    unlink_one(&one->alike);
    waiting -= one->size;
}

static void free_oldest_above(size_t most)
{
    while (waiting > most) {
        Waiting *oldest = (Waiting *)((char *)ages.before - offsetof(Waiting, age));
        leave(oldest);
        PyMem_Free(oldest->allocated);
    }
}

/* ---- blocks ---- */

typedef struct {
    PyObject_HEAD
    void *allocated;
    char *memory; /* begins at a cache line */
    size_t size;
    Py_ssize_t nbytes; /* that were asked for */
} PoolBlock;

static PyTypeObject *block_type;

static void *allocate(size_t nbytes, int zero)
{
    void *memory = zero ? PyMem_Calloc(1, nbytes) : PyMem_Malloc(nbytes);
    if (!memory && waiting) {
        free_oldest_above(0);
        memory = zero ? PyMem_Calloc(1, nbytes) : PyMem_Malloc(nbytes);
    }
    return memory;
}

static void prefer_huge_pages(char *memory, size_t size)
{
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_FROM) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = ((uintptr_t)memory + page - 1) & ~(page - 1);
        madvise((void *)start, (uintptr_t)memory + size - start, MADV_HUGEPAGE); /* advice only */
    }
#else
    (void)memory, (void)size;
#endif
}

static void set_zero(char *memory, size_t nbytes)
{
    PyThreadState *state = unlock(nbytes >= WORTH_UNLOCKING);
    memset(memory, 0, nbytes);
    lock(state);
}

/* Fill in the memory: some that waits, or new. */
static int block_fill(PoolBlock *self, int zero)
{
    /* Memory has a line more than its size: blocks that begin later in a line need no larger one. */
    self->size -= self->size < LINE ? self->size : LINE;
    Link *ring = &sizes[round_size(&self->size)];
    if (ring->after != ring) {
        Waiting *newest = (Waiting *)((char *)ring->after - offsetof(Waiting, alike));
        leave(newest);
        self->allocated = newest->allocated;
        self->memory = (char *)newest;
        reused++;
        if (zero)
            set_zero(self->memory, (size_t)self->nbytes);
    } else {
        self->allocated = allocate(self->size + 2 * LINE, zero);
        if (!self->allocated) {
            PyErr_NoMemory();
            return -1;
        }
        self->memory = (char *)(((uintptr_t)self->allocated + LINE - 1) & ~(uintptr_t)(LINE - 1));
        prefer_huge_pages(self->memory, self->size);
        made++;
    }
    live += self->size;
    return 0;
}

PyObject *pool_block(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "pool_block takes a number of bytes and whether to zero");
        return NULL;
    }
    Py_ssize_t nbytes = PyNumber_AsSsize_t(arguments[0], PyExc_OverflowError);
    int zero = PyObject_IsTrue(arguments[1]);
    if ((nbytes == -1 && PyErr_Occurred()) || zero < 0)
        return NULL;
    if (nbytes < 0) {
        PyErr_Format(PyExc_ValueError, "a block cannot have %zd bytes", nbytes);
        return NULL;
    }
    if (nbytes > PY_SSIZE_T_MAX / 2)
        return PyErr_NoMemory();
    PoolBlock *self = PyObject_New(PoolBlock, block_type);
    if (!self)
        return NULL;
    self->allocated = NULL;
    self->size = (size_t)nbytes;
    self->nbytes = nbytes;
    if (block_fill(self, zero) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void block_dealloc(PyObject *object)
{
    PoolBlock *self = (PoolBlock *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->allocated) {
        live -= self->size;
        if (self->size <= bound) {
            Waiting *one = (Waiting *)self->memory;
            one->allocated = self->allocated;
            one->size = self->size;
            link_first(&ages, &one->age);
            link_first(&sizes[round_size(&self->size)], &one->alike);
            waiting += self->size;
            free_oldest_above(bound);
        } else {
            PyMem_Free(self->allocated);
        }
    }
    PyObject_Free(object);
    Py_DECREF(type);
}

static int block_buffer(PyObject *object, Py_buffer *view, int flags)
{
    PoolBlock *self = (PoolBlock *)object;
    return PyBuffer_FillInfo(view, object, self->memory, self->nbytes, 0, flags);
}

static PyType_Slot block_slots[] = {
    {Py_tp_doc, (void *)"Memory of a field, which is used again when nobody views it."},
    {Py_tp_dealloc, (void *)block_dealloc},
    {Py_bf_getbuffer, (void *)block_buffer},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "pencils.comm._kernels.PoolBlock",
    .basicsize = sizeof(PoolBlock),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

/* ---- the module ---- */

PyObject *pool_keep(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    size_t before = bound;
    Py_ssize_t given = PyNumber_AsSsize_t(bytes, PyExc_OverflowError);
    if (given == -1 && PyErr_Occurred())
        return NULL;
    if (given < 0) {
        PyErr_Format(PyExc_ValueError, "a pool cannot keep %zd bytes", given);
        return NULL;
    }
    bound = (size_t)given;
    free_oldest_above(bound);
    return PyLong_FromSize_t(before);
}

PyObject *pool_counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return Py_BuildValue("(nnnKK)", (Py_ssize_t)live, (Py_ssize_t)waiting, (Py_ssize_t)bound, made,
                         reused);
}

int pool_set_up(PyObject *module)
{
    if (block_type) /* one for the process: blocks may outlive a module */
        return 0;
    for (int i = 0; i < SIZES; i++)
        sizes[i] = (Link){&sizes[i], &sizes[i]};
    block_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &block_spec, NULL);
    return block_type ? 0 : -1;
}
