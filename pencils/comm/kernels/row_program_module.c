/* Row programs for Python: arrays export the buffer protocol. */
#include "arguments.h"

#include <string.h>
#include "row_program.h"

enum { WORTH_UNLOCKING = 16384 /* elements of all instructions */, MOST_ARRAYS = 128,
       MOST_BYTES = 64 /* of an element */ };

/* The first members of NumPy's PyUFuncObject: they belong to its ABI, and extensions read them. */
typedef struct {
    PyObject_HEAD
    int nin, nout, nargs, identity;
    RowLoop **functions;
    void *const *data;
    int ntypes;
} UFunc;

/* An array that each call passes: how it looks, whether it is written. */
typedef struct {
    int ndim, written, type, odd; /* whether strides are no multiples of the alignment */
    Py_ssize_t item, alignment, shape[ROW_DIMS], strides[ROW_DIMS];
} Known;

typedef struct {
    PyObject_HEAD
    RowProgram program;
    PyObject *kept; /* the ufuncs, whose loops are called */
    Py_ssize_t narrays, elements;
    Known *arrays;
    size_t bytes;  /* of scratch memory */
    char *scratch; /* NULL while a call uses it: another one allocates its own */
} RowObject;

/* ---- arrays ---- */

/* Letters of a type of native byte order; NumPy has a sign before them if elements are not aligned. */
static const char *letters_of(const Py_buffer *view)
{
    const char *format = view->format;
    return format[0] && strchr("@=^", format[0]) ? format + 1 : format;
}

static int is_number(const char *format)
{
    int complex = format[0] == 'Z';
    const char *known = complex ? "fdg" : "?bBhHiIlLqQefdg", *letter = format + complex;
    return letter[0] && strchr(known, letter[0]) && !letter[1];
}

#define ALIGNMENT(type) offsetof(struct { char before; type one; }, one)

static Py_ssize_t alignment_of(const Py_buffer *view)
{
    Py_ssize_t part = letters_of(view)[0] == 'Z' ? view->itemsize / 2 : view->itemsize;
    if (part < (Py_ssize_t)sizeof(double))
        return part;
    return (Py_ssize_t)(part == sizeof(double) ? ALIGNMENT(double) : ALIGNMENT(long double));
}

/* Number a type as NumPy compares them: C has several integers of one size. */
static int type_of(const Py_buffer *view)
{
    const char *format = letters_of(view);
    int letter = format[0] == 'Z' ? 'Z' << 8 | format[1] : format[0];
    if (format[0] && strchr("bhilq", format[0]))
        letter = 'i';
    else if (format[0] && strchr("BHILQ", format[0]))
        letter = 'u';
    return letter << 8 | (int)view->itemsize;
}

static int learn(Known *known, PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0)
        return -1;
    int status = view.ndim <= ROW_DIMS ? 0 : fail("an array has too many axes");
    if (status == 0 && !is_number(letters_of(&view)))
        status = fail("an array has elements that are no numbers of native byte order");
    if (status == 0) {
        known->ndim = view.ndim;
        known->type = type_of(&view);
        known->item = view.itemsize;
        known->alignment = alignment_of(&view);
        for (int d = 0; d < view.ndim; d++) {
            known->shape[d] = view.shape[d];
            known->strides[d] = view.strides[d];
            known->odd |= view.shape[d] > 1 && view.strides[d] % known->alignment;
        }
    }
    PyBuffer_Release(&view);
    return status;
}

static int is_known(const Known *known, const Py_buffer *view)
{
    if (view->ndim != known->ndim || type_of(view) != known->type)
        return 0;
    for (int d = 0; d < known->ndim; d++)
        if (view->shape[d] != known->shape[d]
            || (view->shape[d] > 1 && view->strides[d] != known->strides[d]))
            return 0;
    return 1;
}

static int is_aligned(const Known *known, const Py_buffer *view)
{
    return !known->odd && (uintptr_t)view->buf % (size_t)known->alignment == 0;
}

/* ---- making a program ---- */

/* Whether all elements of a slot belong to its array. */
static int is_inside(const RowProgram *program, const RowSlot *slot, const Known *known)
{
    Py_ssize_t low = 0, high = 0, first = slot->offset, last = slot->offset;
    for (int d = 0; d < known->ndim; d++)
        *(known->strides[d] < 0 ? &low : &high) += (known->shape[d] - 1) * known->strides[d];
    if (first < low || last > high)
        return 0;
    for (int d = 0; d < program->ndim; d++) {
        ptrdiff_t step = slot->strides[d] < 0 ? -slot->strides[d] : slot->strides[d];
        if (step && program->shape[d] - 1 > (high - low) / step)
            return 0; /* the product would be too large */
        *(slot->strides[d] < 0 ? &first : &last) += (program->shape[d] - 1) * slot->strides[d];
    }
    return first >= low && last + slot->item <= high + known->item;
}

static int read_slots(RowObject *self, PyObject *slots)
{
    RowProgram *program = &self->program;
    for (int i = 0; i < program->nslots; i++) {
        RowSlot *slot = &program->slots[i];
        PyObject *strides;
        if (!PyArg_ParseTuple(PyTuple_GetItem(slots, i), "iiinO!", &slot->array, &slot->reg,
                              &slot->item, &slot->offset, &PyTuple_Type, &strides))
            return -1;
        if (slot->item < 1 || slot->item > MOST_BYTES)
            return fail("a slot has elements of no type");
        if (slot->reg >= program->nregisters || slot->array >= self->narrays)
            return fail("a slot of a register or array that there is not");
        if (slot->reg >= 0)
            continue;
        if (slot->array < 0 || PyTuple_Size(strides) != program->ndim)
            return fail("a slot needs a register, or an array and strides");
        for (int d = 0; d < program->ndim; d++)
            slot->strides[d] = PyLong_AsSsize_t(PyTuple_GetItem(strides, d));
        if (PyErr_Occurred())
            return -1;
        if (self->elements && !is_inside(program, slot, &self->arrays[slot->array]))
            return fail("a slot leaves its array");
    }
    return 0;
}

enum { WHERE, COPY, CAST, FORMULA, TOTAL }; /* functions that are no ufuncs; above are addresses */

/* Find the loop of a function; its number is that of the loop, of bytes, of types, or of results of
   a loop at an address; and its bytes are a formula. */
static int read_function(RowInstruction *instruction, PyObject *function, PyObject *given, int *wanted,
                         int *results)
{
    long number = PyLong_Check(given) ? PyLong_AsLong(given) : 0;
    *results = 1;
    if (PyErr_Occurred())
        return -1;
    if (!PyLong_Check(function)) {
        const UFunc *ufunc = (const UFunc *)function;
        if (number < 0 || number >= ufunc->ntypes)
            return fail("the ufunc has no such loop");
        instruction->loop = ufunc->functions[number];
        instruction->data = ufunc->data ? ufunc->data[number] : NULL;
        *wanted = ufunc->nargs;
        return 0;
    }
    size_t kind = PyLong_AsSize_t(function);
    instruction->rows = 1;
    if (kind > TOTAL) {
        instruction->loop = (RowLoop *)(uintptr_t)kind;
        *wanted = instruction->count;
        *results = (int)number;
        if (PyErr_Occurred())
            return -1;
        return number < 1 || number > *wanted ? fail("a loop has no such results") : 0;
    }
    if (kind == FORMULA) {
        Formula *formula = (Formula *)PyBytes_AsString(given);
        if (!formula)
            return -1;
        size_t bytes = (size_t)PyBytes_Size(given);
        if (bytes < sizeof *formula || bytes != sizeof *formula + formula->steps * sizeof(FormulaStep))
            return fail("a formula has other steps than it tells");
        instruction->loop = level.evaluate;
        instruction->data = formula;
        *wanted = formula->operands;
        return 0;
    }
    *wanted = kind == WHERE ? 4 : 2;
    instruction->data = (void *)(uintptr_t)number;
    instruction->loop = kind == WHERE ? row_where : row_copy;
    if ((kind == WHERE || kind == COPY) && !row_has_size((size_t)number))
        return fail("an instruction copies elements of so many bytes");
    if (kind == TOTAL)
        instruction->loop = row_total;
    if (kind == CAST)
        instruction->loop = row_cast((int)(number / 16), (int)(number % 16));
    return instruction->loop ? 0 : fail("no such conversion");
}

/* Check that the steps of a formula fit its operands. */
static int check_formula(const RowProgram *program, const RowInstruction *instruction)
{
    const Formula *formula = instruction->data;
    int item = formula->is_double ? sizeof(double) : sizeof(float), last = program->ndim - 1;
    int numbers[FORMULA_PLACES] = {0};
    for (int i = 0; i < instruction->count; i++) {
        const RowSlot *slot = &program->slots[instruction->slots[i]];
        ptrdiff_t step = slot->reg >= 0 ? item : slot->strides[last];
        numbers[i] = step == 0;
        if (slot->item != item || (step != 0 && step != item))
            return fail("a formula has operands that are not contiguous, or of another type");
    }
    int count = instruction->count, most = count + formula->kept;
    if (count == 0 || numbers[count - 1] || formula->kept > FORMULA_KEPT)
        return fail("a formula has one number as its result");
    for (int i = 0; i < formula->steps; i++) {
        FormulaStep step = formula->step[i];
        int kind = step.operation % FORMULA_NUMBER, number = step.operation >= FORMULA_NUMBER;
        int keeps = kind == FORMULA_KEEP;
        if (step.operation >= 2 * FORMULA_NUMBER || kind >= FORMULA_OPERATIONS || step.x >= most
            || step.y >= most || (keeps && step.x < count))
            return fail("a formula has a step that there is not");
        if (numbers[step.y] != number || numbers[step.x])
            return fail("a formula takes a number as a row, or a row as a number");
    }
    return 0;
}

static int read_instructions(RowObject *self, PyObject *instructions)
{
    RowProgram *program = &self->program;
    for (int i = 0; i < program->ninstructions + program->nexact; i++) {
        RowInstruction *instruction = &program->instructions[i];
        PyObject *function, *number, *slots;
        int wanted, results;
        if (!PyArg_ParseTuple(PyTuple_GetItem(instructions, i), "OOO!", &function, &number,
                              &PyTuple_Type, &slots))
            return -1;
        instruction->count = (int)PyTuple_Size(slots);
        if (read_function(instruction, function, number, &wanted, &results) < 0)
            return -1;
        if (instruction->count != wanted || wanted > ROW_OPERANDS)
            return fail("an instruction has too few or too many operands");
        for (int j = 0; j < instruction->count; j++) {
            long slot = PyLong_AsLong(PyTuple_GetItem(slots, j));
            if (slot < 0 || slot >= program->nslots)
                return PyErr_Occurred() ? -1 : fail("an instruction has no such operand");
            instruction->slots[j] = (int)slot;
        }
        if (instruction->loop == level.evaluate && check_formula(program, instruction) < 0)
            return -1;
        for (int j = wanted - results; j < wanted; j++) {
            const RowSlot *result = &program->slots[instruction->slots[j]];
            if (result->reg < 0)
                self->arrays[result->array].written = 1;
        }
        const RowSlot *total = &program->slots[instruction->slots[wanted - 1]];
        const Known *array = total->reg < 0 ? &self->arrays[total->array] : NULL;
        if (instruction->loop == row_total
            && (!array || (size_t)(array->shape[0] * array->item) < row_total_size()))
            return fail("a sum has no room");
    }
    return 0;
}

static int read_registers(RowObject *self, PyObject *registers)
{
    RowProgram *program = &self->program;
    size_t elements = (size_t)(program->planes * program->rows);
    elements *= (size_t)program->pitch;
    for (int i = 0; i < program->nregisters; i++) {
        size_t item = PyLong_AsSize_t(PyTuple_GetItem(registers, i));
        if (PyErr_Occurred())
            return -1;
        if (item > MOST_BYTES)
            return fail("a register has elements of no type");
        for (int j = 0; j < program->nslots; j++)
            if (program->slots[j].reg == i && (size_t)program->slots[j].item > item)
                return fail("a slot has larger elements than its register");
        /* One cache line more: registers at the same place of a page would evict each other. */
        program->registers[i + 1] = program->registers[i] + (elements * item + 63) / 64 * 64 + 64;
    }
    int largest = 0;
    for (int i = 0; i < program->nslots; i++)
        if (program->slots[i].item > largest)
            largest = program->slots[i].item;
    program->spare = elements * (size_t)largest;
    self->bytes = row_program_scratch(program);
    return 0;
}

static PyTypeObject *rows_type;

static RowObject *rows_new(int ndim, Py_ssize_t narrays, Py_ssize_t nslots,
                           Py_ssize_t ninstructions, Py_ssize_t nexact, Py_ssize_t nregisters)
{
    RowObject *self = (RowObject *)PyType_GenericAlloc(rows_type, 0);
    if (!self)
        return NULL;
    RowProgram *program = &self->program;
    *program = (RowProgram){.ndim = ndim, .nslots = (int)nslots, .nregisters = (int)nregisters,
                            .ninstructions = (int)(ninstructions - nexact), .nexact = (int)nexact};
    self->narrays = narrays;
    self->arrays = PyMem_Calloc((size_t)narrays + 1, sizeof(Known));
    program->slots = PyMem_Calloc((size_t)nslots + 1, sizeof(RowSlot));
    program->instructions = PyMem_Calloc((size_t)ninstructions + 1, sizeof(RowInstruction));
    program->registers = PyMem_Calloc((size_t)nregisters + 1, sizeof(size_t));
    if (self->arrays && program->slots && program->instructions && program->registers)
        return self;
    PyErr_NoMemory();
    Py_DECREF(self);
    return NULL;
}

PyObject *row_program(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *shape, *arrays, *slots, *instructions, *registers;
    Py_ssize_t planes, rows, columns, pitch, nexact;
    int nstores;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!nnnnni", &PyTuple_Type, &shape, &PyTuple_Type, &arrays,
                          &PyTuple_Type, &slots, &PyTuple_Type, &instructions, &PyTuple_Type,
                          &registers, &planes, &rows, &columns, &pitch, &nexact, &nstores))
        return NULL;
    Py_ssize_t ndim = PyTuple_Size(shape), narrays = PyTuple_Size(arrays);
    if (ndim < 3 || ndim > ROW_DIMS || narrays > MOST_ARRAYS || planes < 1 || rows < 1 || columns < 1
        || pitch < columns || nexact < 0
        || nexact > PyTuple_Size(instructions)) {
        fail("row programs have 3 to 16 axes, at most 128 arrays, and tiles of some elements");
        return NULL;
    }
    RowObject *self = rows_new((int)ndim, narrays, PyTuple_Size(slots), PyTuple_Size(instructions), nexact,
                               PyTuple_Size(registers));
    if (!self)
        return NULL;
    RowProgram *program = &self->program;
    program->planes = planes, program->rows = rows, program->columns = columns, program->pitch = pitch;
    program->nstores = nstores;
    self->kept = Py_NewRef(instructions);
    self->elements = 1;
    int status = 0;
    for (Py_ssize_t d = 0; d < ndim && status == 0; d++) {
        Py_ssize_t points = program->shape[d] = PyLong_AsSsize_t(PyTuple_GetItem(shape, d));
        if (PyErr_Occurred())
            status = -1;
        else if (points < 0 || (points && self->elements > PY_SSIZE_T_MAX / points))
            status = fail("an extent is negative, or the block too large");
        else
            self->elements *= points;
    }
    if (status == 0 && planes > PY_SSIZE_T_MAX / MOST_BYTES / 256 / rows / pitch)
        status = fail("a tile is too large");
    for (Py_ssize_t i = 0; i < narrays && status == 0; i++)
        status = learn(&self->arrays[i], PyTuple_GetItem(arrays, i));
    if (status < 0 || read_slots(self, slots) < 0 || read_instructions(self, instructions) < 0
        || read_registers(self, registers) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* ---- executing it ---- */

/* Ask arrays for their memory; returns how many were held, and tells whether all are aligned. */
static Py_ssize_t open_arrays(const RowObject *self, PyObject *arrays, Py_buffer *views, char **bases,
                              int *aligned)
{
    *aligned = 1;
    for (Py_ssize_t i = 0; i < self->narrays; i++) {
        int flags = (self->arrays[i].written ? PyBUF_STRIDED : PyBUF_STRIDED_RO) | PyBUF_FORMAT;
        if (PyObject_GetBuffer(PyTuple_GetItem(arrays, i), &views[i], flags) < 0)
            return i;
        bases[i] = views[i].buf;
        if (!is_known(&self->arrays[i], &views[i])) {
            PyErr_Format(PyExc_ValueError, "array %zd differs from that of the program", i);
            return i + 1;
        }
        *aligned &= is_aligned(&self->arrays[i], &views[i]);
    }
    return self->narrays;
}

/* List the instructions that raised exceptions, with these; None if there is none. */
static PyObject *report(const int *flags, int count)
{
    PyObject *found = NULL;
    for (int i = 0; i < count; i++) {
        if (!flags[i])
            continue;
        PyObject *pair = found || (found = PyList_New(0)) ? Py_BuildValue("ii", i, flags[i]) : NULL;
        int status = pair ? PyList_Append(found, pair) : -1;
        Py_XDECREF(pair);
        if (status < 0) {
            Py_XDECREF(found);
            return NULL;
        }
    }
    return found ? found : Py_NewRef(Py_None);
}

/* Read a box of the block, two indices for each axis; all of the block if there is none. */
static int read_box(const RowProgram *program, PyObject *given, ptrdiff_t (*box)[2])
{
    if (given && (!PyTuple_Check(given) || PyTuple_Size(given) != 2 * program->ndim))
        return fail("a box has two indices for each axis");
    for (int d = 0; d < program->ndim; d++) {
        box[d][0] = given ? PyLong_AsSsize_t(PyTuple_GetItem(given, 2 * d)) : 0;
        box[d][1] = given ? PyLong_AsSsize_t(PyTuple_GetItem(given, 2 * d + 1)) : program->shape[d];
        if (PyErr_Occurred())
            return -1;
        if (box[d][0] < 0 || box[d][1] > program->shape[d])
            return fail("the box leaves the block");
    }
    return 0;
}

static PyObject *rows_run(PyObject *object, PyObject *const *arguments, Py_ssize_t given)
{
    RowObject *self = (RowObject *)object;
    PyObject *arrays = given ? arguments[0] : NULL;
    ptrdiff_t box[ROW_DIMS][2];
    Py_buffer views[MOST_ARRAYS];
    char *bases[MOST_ARRAYS];
    PyObject *result = NULL;
    if (given < 1 || given > 3 || !PyTuple_Check(arrays) || PyTuple_Size(arrays) != self->narrays) {
        PyErr_SetString(PyExc_TypeError, "run takes a tuple of all arrays, a box, and exceptions");
        return NULL;
    }
    if (read_box(&self->program, given > 1 && arguments[1] != Py_None ? arguments[1] : NULL, box) < 0)
        return NULL;
    int ignored = given > 2 ? (int)PyLong_AsLong(arguments[2]) : 0;
    if (PyErr_Occurred())
        return NULL;
    int count = self->program.ninstructions + self->program.nexact;
    size_t nflags = (size_t)count * sizeof(int);
    char *scratch = self->scratch;
    self->scratch = NULL;
    if (!scratch)
        scratch = PyMem_Malloc(self->bytes + nflags);
    if (!scratch)
        return PyErr_NoMemory();
    int *flags = (int *)(scratch + self->bytes);
    memset(flags, 0, nflags);
    int aligned;
    Py_ssize_t held = open_arrays(self, arrays, views, bases, &aligned);
    if (!PyErr_Occurred() && !aligned) /* loops need it: NumPy copies what is not */
        result = Py_NewRef(Py_NotImplemented);
    else if (!PyErr_Occurred()) {
        PyThreadState *state = unlock(self->elements >= WORTH_UNLOCKING);
        row_program_run(&self->program, box, scratch, bases, flags, ignored);
        lock(state);
        if (!PyErr_Occurred()) /* loops of other libraries may raise */
            result = report(flags, count);
    }
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    if (self->scratch)
        PyMem_Free(scratch);
    else
        self->scratch = scratch;
    return result;
}

static void rows_dealloc(PyObject *object)
{
    RowObject *self = (RowObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->kept);
    PyMem_Free(self->arrays);
    PyMem_Free(self->program.slots);
    PyMem_Free(self->program.instructions);
    PyMem_Free(self->program.registers);
    PyMem_Free(self->scratch);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"run", (PyCFunction)(void (*)(void))rows_run, METH_FASTCALL,
     "run(arrays, box, ignored): execute for all points, or those of a box; returns None, or a list of "
     "instructions that raised floating-point exceptions, with these, if they are not ignored. It does "
     "nothing but return NotImplemented if elements are not aligned."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, (void *)"A row program, for arrays that look like those it was made of."},
    {Py_tp_dealloc, (void *)rows_dealloc},
    {Py_tp_methods, rows_methods},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "pencils.comm._kernels.RowProgram",
    .basicsize = sizeof(RowObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = rows_slots,
};

int row_program_set_up(PyObject *module)
{
    if (!rows_type)
        rows_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &rows_spec, NULL);
    return rows_type ? 0 : -1;
}
