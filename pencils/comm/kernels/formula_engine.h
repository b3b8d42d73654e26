/* Formulas for vectors, several at once; the last ones of a row overlap those before. */
#include "formula.h"

#include "machine.h"

#define FORMULA_INLINE static inline ALWAYS_INLINE TARGET

/* Where operands are in a row, and kept values, which are at the same place for all vectors. */
typedef struct {
    char *at[UINT8_MAX + 1];
    ALIGNED char kept[FORMULA_KEPT][FORMULA_LANES * WIDTH];
} FormulaRow;

/* One step for up to FORMULA_LANES values: y is an operand, or a number. */
#define EACH_LANE(DO, Y) \
    DO(0, Y(0)) DO(1, Y(1)) DO(2, Y(2)) DO(3, Y(3)) DO(4, Y(4)) DO(5, Y(5)) DO(6, Y(6)) DO(7, Y(7))
#define WITH_Y(operation, DO)                            \
    case operation: EACH_LANE(DO, Y_AT) break;         \
    case operation + FORMULA_NUMBER:                   \
        number = *(const REAL *)y_row - (LANE){0};     \
        EACH_LANE(DO, Y_NUMBER)                        \
        break;
#define LANE_AT(row, k) ((LANE *)((row) + at + (ptrdiff_t)sizeof(LANE) * (k)))
#define Y_AT(k) *LANE_AT(y_row, k)
#define Y_NUMBER(k) number
#define VALUE_IS(k, expression) if (k < lanes) value##k = expression;
#define VALUE_LOAD(k, y) VALUE_IS(k, y)
#define VALUE_ADD(k, y) VALUE_IS(k, value##k + y)
#define VALUE_SUBTRACT(k, y) VALUE_IS(k, value##k - y)
#define VALUE_FROM(k, y) VALUE_IS(k, y - value##k)
#define VALUE_MULTIPLY(k, y) VALUE_IS(k, value##k * y)
#define VALUE_DIVIDE(k, y) VALUE_IS(k, value##k / y)
#define VALUE_INTO(k, y) VALUE_IS(k, y / value##k)
#define VALUE_ADD_PRODUCT(k, y) VALUE_IS(k, value##k + *LANE_AT(x_row, k) * y)
#define VALUE_SUBTRACT_PRODUCT(k, y) VALUE_IS(k, value##k - *LANE_AT(x_row, k) * y)
#define VALUE_FROM_PRODUCT(k, y) VALUE_IS(k, *LANE_AT(x_row, k) * y - value##k)
#define VALUE_NEGATE(k, y) VALUE_IS(k, -value##k)
#define VALUE_SQUARE(k, y) VALUE_IS(k, value##k * value##k)
#define VALUE_KEEP(k, y) if (k < lanes) *LANE_AT(x_row, k) = value##k;

#if HAVE_VECTORS
typedef float FloatLane __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef double DoubleLane __attribute__((vector_size(WIDTH), aligned(4), may_alias));
#else
typedef float FloatLane;
typedef double DoubleLane;
#endif

#define REAL float
#define LANE FloatLane
#define STEPS float_steps
#include "formula_of.h"
#define LANE float
#define STEPS float_step
#include "formula_of.h"
#undef REAL

#define REAL double
#define LANE DoubleLane
#define STEPS double_steps
#include "formula_of.h"
#define LANE double
#define STEPS double_step
#include "formula_of.h"
#undef REAL

/* Take so many vectors at the next place, or the last ones if more than half of them remain. */
#define TAKE_LANES(n)                                                                    \
    if (left >= (n) * WIDTH || (bytes >= (n) * WIDTH && left > (n) / 2 * WIDTH)) { \
        at = left >= (n) * WIDTH ? at : bytes - (n) * WIDTH;                       \
        if (formula->is_double)                                                    \
            double_steps(formula, row, at, n);                                     \
        else                                                                       \
            float_steps(formula, row, at, n);                                      \
        return at + (n) * WIDTH;                                                   \
    }

/* Evaluate at some bytes of a row; returns where to go on. */
static TARGET ptrdiff_t evaluate_at(const Formula *formula, FormulaRow *row, ptrdiff_t at,
                                    ptrdiff_t bytes)
{
    ptrdiff_t left = bytes - at;
    TAKE_LANES(8)
    TAKE_LANES(4)
    TAKE_LANES(2)
    TAKE_LANES(1)
    if (formula->is_double)
        double_step(formula, row, at, 1);
    else
        float_step(formula, row, at, 1);
    return at + (formula->is_double ? sizeof(double) : sizeof(float));
}

static TARGET void evaluate(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps,
                            void *data)
{
    const Formula *formula = data;
    FormulaRow row;
    int count = formula->operands;
    ptrdiff_t bytes = dimensions[0] * (formula->is_double ? sizeof(double) : sizeof(float));
    for (ptrdiff_t r = 0; r < dimensions[1]; r++) {
        for (int i = 0; i < count; i++)
            row.at[i] = places[i] + r * steps[count + i];
        for (ptrdiff_t at = 0; at < bytes;)
            at = evaluate_at(formula, &row, at, bytes);
    }
}
