/* Row programs: inner loops of NumPy's ufuncs, executed on tiles of blocks that stay in the cache.

   A block has rows along its last axis, and planes of the last two ones. A tile is some planes, or
   some rows of one, or a part of one row. Each instruction is executed for a whole tile before the next one; results go to
   registers, which have room for a tile each, or to memory. */
#ifndef PENCILS_ROW_PROGRAM_H
#define PENCILS_ROW_PROGRAM_H

#include <stddef.h>

enum { ROW_DIMS = 16, ROW_OPERANDS = 64 };

/* An inner loop of NumPy: `dimensions[0]` elements of all operands, the result being the last one.
   Other loops take `dimensions[1]` rows: the steps within rows are followed by those from row to
   row, as in generalized ufuncs. */
typedef void RowLoop(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data);

/* An operand: a register, or a view of an array that is passed to each call. */
typedef struct {
    int array, reg; /* one of them is -1 */
    int item;       /* bytes */
    ptrdiff_t offset, strides[ROW_DIMS];
} RowSlot;

typedef struct {
    RowLoop *loop;
    void *data;
    int rows;  /* whether the loop takes rows */
    int count; /* operands, the result included */
    int slots[ROW_OPERANDS];
} RowInstruction;

typedef struct {
    int ndim, nslots, nregisters;
    int ninstructions, nexact; /* the second ones compute the same if there was an exception */
    int nstores; /* the last ones of both, which store values where operands may have been read */
    ptrdiff_t shape[ROW_DIMS];
    ptrdiff_t planes, rows, columns; /* most of a tile */
    ptrdiff_t pitch;         /* elements from one row of a register to the next, for whole rows */
    RowSlot *slots;
    RowInstruction *instructions;
    size_t spare;      /* bytes of a tile of the largest elements */
    size_t *registers; /* where they begin in the scratch memory, and how long all are */
} RowProgram;

/* Bytes of scratch memory of one execution. */
size_t row_program_scratch(const RowProgram *program);

/* Execute for the points of a box, from the first index along each axis to the one past the last;
   `flags` gets the floating-point exceptions that each instruction has raised, 0 at first, but those
   that are `ignored`. */
void row_program_run(const RowProgram *program, const ptrdiff_t (*box)[2], char *scratch,
                     char *const *arrays, int *flags, int ignored);

/* Loops of rows that NumPy has no ufunc for: choices and copies, for which `data` is the number of bytes of
   an element, one that `row_has_size` knows, and conversions. Those are of bool, int8, uint8, ...
   uint64, float, double, long double and the complex types of these three, numbered in this order;
   NULL if C converts otherwise. */
RowLoop row_where, row_copy;
int row_has_size(size_t bytes);
RowLoop *row_cast(int from, int to);

/* Adds elements of doubles to a sum of so many bytes, whose first 8 are the number of elements of the
   block: see row_total.c. */
RowLoop row_total;
size_t row_total_size(void);

#endif
