/* Formulas for vectors, several at once: those of a row, the last of which overlap those before, or of
   several rows if these are short. */
#include "formula.h"

#include "machine.h"

#define FORMULA_INLINE static inline ALWAYS_INLINE TARGET

/* Where operands are in a row, and bytes to the next row; and kept values, which are at the same place
   whatever the row. */
typedef struct {
    char *at[FORMULA_PLACES];
    ptrdiff_t ups[FORMULA_PLACES];
    ALIGNED char kept[FORMULA_KEPT][FORMULA_LANES * WIDTH];
} FormulaRow;

/* One step for up to FORMULA_LANES values: y is an operand, or a number. */
#define EACH_LANE(DO, Y) \
    DO(0, Y(0)) DO(1, Y(1)) DO(2, Y(2)) DO(3, Y(3)) DO(4, Y(4)) DO(5, Y(5)) DO(6, Y(6)) DO(7, Y(7))
#define WITH_Y(operation, DO)                  \
    case operation: EACH_LANE(DO, Y_AT) break; \
    case operation + FORMULA_NUMBER: EACH_LANE(DO, Y_NUMBER) break;
#define X_AT(k) *(LANE *)(x + at + x_step * (k))
#define Y_AT(k) *(const LANE *)(y + at + y_step * (k))
#define Y_NUMBER(k) (*(const REAL *)(y + (across ? y_step * (k) : 0)) - (LANE){0})
#define NOTHING(k)
#define VALUE_IS(k, expression) if (k < lanes) value##k = expression;
#define VALUE_LOAD(k, operand) VALUE_IS(k, operand)
#define VALUE_ADD(k, operand) VALUE_IS(k, value##k + operand)
#define VALUE_SUBTRACT(k, operand) VALUE_IS(k, value##k - operand)
#define VALUE_FROM(k, operand) VALUE_IS(k, operand - value##k)
#define VALUE_MULTIPLY(k, operand) VALUE_IS(k, value##k * operand)
#define VALUE_DIVIDE(k, operand) VALUE_IS(k, value##k / operand)
#define VALUE_INTO(k, operand) VALUE_IS(k, operand / value##k)
#define VALUE_ADD_PRODUCT(k, operand) VALUE_IS(k, value##k + X_AT(k) * operand)
#define VALUE_SUBTRACT_PRODUCT(k, operand) VALUE_IS(k, value##k - X_AT(k) * operand)
#define VALUE_FROM_PRODUCT(k, operand) VALUE_IS(k, X_AT(k) * operand - value##k)
#define VALUE_NEGATE(k, operand) VALUE_IS(k, -value##k)
#define VALUE_SQUARE(k, operand) VALUE_IS(k, value##k * value##k)
#define VALUE_KEEP(k, operand) if (k < lanes) X_AT(k) = value##k;

#if HAVE_VECTORS
typedef float FloatLane __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef double DoubleLane __attribute__((vector_size(WIDTH), aligned(4), may_alias));
#else
typedef float FloatLane;
typedef double DoubleLane;
#endif
#define LANE_BYTES(formula) \
    (ptrdiff_t)((formula)->is_double ? sizeof(DoubleLane) : sizeof(FloatLane))
#define NUMBER_BYTES(formula) (ptrdiff_t)((formula)->is_double ? sizeof(double) : sizeof(float))

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
#define TAKE_LANES(n)                                                              \
    if (left >= (n) * width || (bytes >= (n) * width && left > (n) / 2 * width)) { \
        at = left >= (n) * width ? at : bytes - (n) * width;                       \
        if (formula->is_double)                                                    \
            double_steps(formula, row, at, n, 0);                                  \
        else                                                                       \
            float_steps(formula, row, at, n, 0);                                   \
        return at + (n) * width;                                                   \
    }

/* Evaluate at some bytes of a row; returns where to go on. */
static TARGET ptrdiff_t evaluate_at(const Formula *formula, FormulaRow *row, ptrdiff_t at,
                                    ptrdiff_t bytes)
{
    ptrdiff_t left = bytes - at, width = LANE_BYTES(formula);
    TAKE_LANES(8)
    TAKE_LANES(4)
    TAKE_LANES(2)
    TAKE_LANES(1)
    if (formula->is_double)
        double_step(formula, row, at, 1, 0);
    else
        float_step(formula, row, at, 1, 0);
    return at + NUMBER_BYTES(formula);
}

/* The same in FORMULA_LANES rows. */
static TARGET ptrdiff_t evaluate_across(const Formula *formula, FormulaRow *row, ptrdiff_t at,
                                        ptrdiff_t bytes)
{
    ptrdiff_t width = LANE_BYTES(formula), wide = bytes >= width;
    ptrdiff_t place = wide && at > bytes - width ? bytes - width : at;
    if (formula->is_double && wide)
        double_steps(formula, row, place, FORMULA_LANES, 1);
    else if (formula->is_double)
        double_step(formula, row, place, FORMULA_LANES, 1);
    else if (wide)
        float_steps(formula, row, place, FORMULA_LANES, 1);
    else
        float_step(formula, row, place, FORMULA_LANES, 1);
    return place + (wide ? width : NUMBER_BYTES(formula));
}

static TARGET void evaluate(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps,
                            void *data)
{
    const Formula *formula = data;
    FormulaRow row;
    int count = formula->operands;
    ptrdiff_t bytes = dimensions[0] * NUMBER_BYTES(formula);
    int across = bytes <= FORMULA_LANES / 2 * LANE_BYTES(formula);
    for (int i = 0; i < count; i++)
        row.ups[i] = steps[count + i];
    for (ptrdiff_t r = 0, rows; r < dimensions[1]; r += rows) {
        rows = across && r + FORMULA_LANES <= dimensions[1] ? FORMULA_LANES : 1;
        for (int i = 0; i < count; i++)
            row.at[i] = places[i] + r * row.ups[i];
        for (ptrdiff_t at = 0; at < bytes;)
            at = rows > 1 ? evaluate_across(formula, &row, at, bytes)
                          : evaluate_at(formula, &row, at, bytes);
    }
}
