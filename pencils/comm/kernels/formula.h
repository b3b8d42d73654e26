/* Formulas: operations on real numbers, whose values between stay in registers of the processor. */
#ifndef PENCILS_FORMULA_H
#define PENCILS_FORMULA_H

#include <stddef.h>
#include <stdint.h>

/* Steps compute with a value, and operands: x, the first one, and y, which is another one or a
   number for all elements of a row. Each product, sum and quotient is rounded. */
typedef enum {
    FORMULA_LOAD,         /* the value becomes y */
    FORMULA_ADD,          /* value + y */
    FORMULA_SUBTRACT,     /* value - y */
    FORMULA_FROM,         /* y - value */
    FORMULA_MULTIPLY,     /* value * y */
    FORMULA_DIVIDE,       /* value / y */
    FORMULA_INTO,         /* y / value */
    FORMULA_ADD_PRODUCT,  /* value + x * y */
    FORMULA_SUBTRACT_PRODUCT,
    FORMULA_FROM_PRODUCT, /* x * y - value */
    FORMULA_NEGATE,
    FORMULA_SQUARE,
    FORMULA_KEEP,         /* the value is the operand x from now on */
    FORMULA_OPERATIONS,
    FORMULA_NUMBER = 16   /* is added where y is a number */
} FormulaOperation;

enum {
    FORMULA_KEPT = 8,                    /* most values that are kept, */
    FORMULA_PLACES = 64 + FORMULA_KEPT,  /* and operands besides */
    FORMULA_LANES = 8                    /* vectors at once */
};

typedef struct {
    uint8_t operation, x, y;
} FormulaStep;

/* The last operand is the result; so many kept values follow. */
typedef struct {
    uint8_t is_double, operands, steps, kept;
    FormulaStep step[];
} Formula;

/* Evaluate a formula for rows: a loop of rows as in row_program.h, whose data are a formula. Elements
   of operands are contiguous, but for numbers. */
typedef void Evaluator(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data);

#endif
