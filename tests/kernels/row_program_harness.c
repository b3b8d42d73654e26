/* Compare row programs with plain loops, for many random cases; for sanitizers.

   row_program_harness           list what this processor can run
   row_program_harness LEVEL CASES */
#include "../../pencils/comm/kernels/row_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../pencils/comm/kernels/block.h"

Level level; /* that row_total.c adds with */

enum { ARRAYS = 5, AXES = 4, STEPS = 40, NUMBER = 3, OUT = 4 };

static uint64_t state = 1;

static ptrdiff_t random_below(ptrdiff_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (ptrdiff_t)((state >> 33) % (uint64_t)bound);
}

/* A padded array, all of whose memory is allocated by itself. */
typedef struct {
    ptrdiff_t shape[AXES], strides[AXES], first, bytes;
    char *memory;
} Padded;

static Padded new_padded(const ptrdiff_t *shape, ptrdiff_t item, int halo)
{
    Padded new = {.first = 0};
    ptrdiff_t step = item;
    for (int d = AXES - 1; d >= 0; d--) {
        ptrdiff_t before = random_below(halo + 1);
        new.shape[d] = shape[d] + before + random_below(halo + 1);
        new.strides[d] = step;
        new.first += before * step;
        step *= new.shape[d];
    }
    new.bytes = step;
    new.memory = malloc((size_t)step);
    for (ptrdiff_t i = 0; i < step / item; i++) {
        double value = 0.5 + (double)random_below(1000) / 500;
        if (item == sizeof(double))
            ((double *)new.memory)[i] = value;
        else
            ((float *)new.memory)[i] = (float)value;
    }
    return new;
}

/* An inner loop as of NumPy, which changes its arguments. */
static void add_doubles(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data)
{
    for (ptrdiff_t i = 0; i < *dimensions; i++) {
        *(double *)places[2] = *(double *)places[0] + *(double *)places[1];
        for (int k = 0; k < 3; k++)
            places[k] += steps[k];
    }
    (void)data;
}

static void add_floats(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data)
{
    for (ptrdiff_t i = 0; i < *dimensions; i++)
        *(float *)(places[2] + i * steps[2]) =
            *(float *)(places[0] + i * steps[0]) + *(float *)(places[1] + i * steps[1]);
    (void)data;
}

/* Operands are three rows, a number, and the result; kept values follow. */
static Formula *random_formula(int is_double)
{
    Formula *formula = malloc(sizeof *formula + STEPS * sizeof(FormulaStep));
    *formula = (Formula){.is_double = (uint8_t)is_double, .operands = ARRAYS, .kept = FORMULA_KEPT,
                         .steps = (uint8_t)(1 + random_below(STEPS))};
    int kept = 0;
    for (int i = 0; i < formula->steps; i++) {
        FormulaStep *step = &formula->step[i];
        int kind = i ? (int)random_below(FORMULA_OPERATIONS) : FORMULA_LOAD;
        if (kind == FORMULA_KEEP) {
            *step = (FormulaStep){FORMULA_KEEP, (uint8_t)(ARRAYS + kept), OUT};
            kept += kept < FORMULA_KEPT - 1;
            continue;
        }
        int y = (int)random_below(4 + kept), number = y == NUMBER;
        y += y > NUMBER;
        if (kind == FORMULA_NEGATE || kind == FORMULA_SQUARE)
            y = OUT, number = 0;
        *step = (FormulaStep){(uint8_t)(kind + number * FORMULA_NUMBER), (uint8_t)random_below(3),
                              (uint8_t)y};
    }
    return formula;
}

#define DEFINE_EXPECTED(type)                                                       \
    static type expected_##type(const Formula *formula, type *operands)             \
    {                                                                               \
        type value = 0;                                                             \
        for (int i = 0; i < formula->steps; i++) {                                  \
            FormulaStep step = formula->step[i];                                    \
            type x = operands[step.x], y = operands[step.y], product = x * y;       \
            switch (step.operation % FORMULA_NUMBER) {                              \
            case FORMULA_LOAD: value = y; break;                                    \
            case FORMULA_ADD: value = value + y; break;                             \
            case FORMULA_SUBTRACT: value = value - y; break;                        \
            case FORMULA_FROM: value = y - value; break;                            \
            case FORMULA_MULTIPLY: value = value * y; break;                        \
            case FORMULA_DIVIDE: value = value / y; break;                          \
            case FORMULA_INTO: value = y / value; break;                            \
            case FORMULA_ADD_PRODUCT: value = value + product; break;               \
            case FORMULA_SUBTRACT_PRODUCT: value = value - product; break;          \
            case FORMULA_FROM_PRODUCT: value = product - value; break;              \
            case FORMULA_NEGATE: value = -value; break;                             \
            case FORMULA_SQUARE: value = value * value; break;                      \
            default: operands[step.x] = value;                                      \
            }                                                                       \
        }                                                                           \
        return value;                                                               \
    }                                                                               \
    static int is_right_##type(const Formula *formula, char **places, type number)  \
    {                                                                               \
        type operands[FORMULA_PLACES] = {0}, found = *(type *)places[OUT];          \
        for (int i = 0; i < 3; i++)                                                 \
            operands[i] = *(type *)places[i];                                       \
        operands[NUMBER] = number;                                                  \
        operands[0] = operands[0] + operands[1];                                    \
        type expected = expected_##type(formula, operands);                         \
        expected = operands[2] != 0 ? expected : operands[2];                       \
        return memcmp(&found, &expected, sizeof found) == 0                         \
               || (expected != expected && found != found);                         \
    }
DEFINE_EXPECTED(double)
DEFINE_EXPECTED(float)

static int check(const Level *level)
{
    static const ptrdiff_t extents[] = {1, 2, 3, 5, 9, 16, 40, 150};
    ptrdiff_t shape[AXES], box[ROW_DIMS][2];
    int is_double = (int)random_below(2), halo = (int)random_below(3);
    ptrdiff_t item = is_double ? sizeof(double) : sizeof(float);
    for (int d = 0; d < AXES; d++) {
        shape[d] = extents[random_below(d < AXES - 1 ? 4 : 8)];
        box[d][0] = random_below(3) ? 0 : random_below(shape[d]);
        box[d][1] = random_below(3) ? shape[d] : box[d][0] + random_below(shape[d] - box[d][0] + 1);
    }
    double number = 1.25;
    float small = 1.25f;
    Padded arrays[ARRAYS];
    char *bases[ARRAYS];
    RowSlot slots[ARRAYS + 3] = {0};
    for (int i = 0; i < ARRAYS; i++) {
        arrays[i] = new_padded(shape, item, halo);
        bases[i] = i == NUMBER ? (is_double ? (char *)&number : (char *)&small) : arrays[i].memory;
        slots[i] = (RowSlot){.array = i, .reg = -1, .item = (int)item};
        if (i == NUMBER)
            continue;
        slots[i].offset = arrays[i].first;
        memcpy(slots[i].strides, arrays[i].strides, sizeof arrays[i].strides);
    }
    for (int i = 0; i < 3; i++) /* a sum, a formula, and whether a value is not 0 */
        slots[ARRAYS + i] = (RowSlot){-1, i, i < 2 ? (int)item : 1, 0, {0}};
    Formula *formula = random_formula(is_double);
    int type = is_double ? 10 : 9;
    RowInstruction instructions[] = {
        {is_double ? add_doubles : add_floats, NULL, 0, 3, {0, 1, 5}},
        {level->evaluate, formula, 1, 5, {5, 1, 2, NUMBER, 6}},
        {row_cast(type, 0), NULL, 1, 2, {2, 7}},
        {row_where, (void *)item, 1, 4, {7, 6, 2, OUT}},
    };
    RowProgram program = {.ndim = AXES, .nslots = ARRAYS + 3, .nregisters = 3, .ninstructions = 4,
                          .nstores = (int)random_below(2), .slots = slots,
                          .instructions = instructions};
    memcpy(program.shape, shape, sizeof shape);
    int whole = (int)random_below(2);
    program.columns = whole ? shape[AXES - 1] : 1 + random_below(shape[AXES - 1]);
    program.rows = 1 + random_below(shape[AXES - 2]);
    program.planes = program.rows == shape[AXES - 2] ? 1 + random_below(shape[AXES - 3]) : 1;
    ptrdiff_t pitch = arrays[0].shape[AXES - 1];
    program.pitch = whole && random_below(2) ? pitch : program.columns;
    size_t registers[4] = {0}, elements = (size_t)(program.planes * program.rows * program.pitch);
    for (int i = 0; i < 3; i++)
        registers[i + 1] = registers[i] + (elements * sizeof(double) + 63) / 64 * 64;
    program.registers = registers;
    program.spare = elements * sizeof(double);
    char *before = malloc((size_t)arrays[OUT].bytes), *scratch = malloc(row_program_scratch(&program));
    memcpy(before, arrays[OUT].memory, (size_t)arrays[OUT].bytes);
    int flags[4] = {0}, right = 1;
    row_program_run(&program, (const ptrdiff_t(*)[2])box, scratch, bases, flags, 0);
    for (ptrdiff_t at = 0; at < arrays[OUT].bytes; at += item) {
        char *places[ARRAYS];
        int inside = 1;
        ptrdiff_t index[AXES];
        for (int d = 0; d < AXES; d++) {
            ptrdiff_t start = arrays[OUT].first / arrays[OUT].strides[d] % arrays[OUT].shape[d];
            index[d] = at / arrays[OUT].strides[d] % arrays[OUT].shape[d] - start;
            inside &= index[d] >= box[d][0] && index[d] < box[d][1];
        }
        if (!inside) {
            right &= memcmp(before + at, arrays[OUT].memory + at, (size_t)item) == 0;
            continue;
        }
        for (int i = 0; i < ARRAYS; i++) {
            places[i] = arrays[i].memory + arrays[i].first;
            for (int d = 0; d < AXES; d++)
                places[i] += index[d] * arrays[i].strides[d];
        }
        right &= is_double ? is_right_double(formula, places, number)
                           : is_right_float(formula, places, small);
    }
    for (int i = 0; i < ARRAYS; i++)
        free(arrays[i].memory);
    free(formula), free(before), free(scratch);
    return right;
}

/* A sum of doubles, some rows at a time, against that of all at once. */
static int check_total(void)
{
    ptrdiff_t count = 1 + random_below(random_below(2) ? 300 : 5000), step = 1 + random_below(2);
    double *numbers = malloc((size_t)count * sizeof *numbers);
    double *strided = malloc((size_t)(step * count) * sizeof *numbers);
    double *total = calloc(1, row_total_size());
    for (ptrdiff_t i = 0; i < count; i++)
        numbers[i] = strided[i * step] = (double)random_below(1000) / 7;
    *(int64_t *)total = count;
    for (ptrdiff_t at = 0, some; at < count; at += some) {
        ptrdiff_t points = 1 + random_below(count - at), rows = 1 + random_below(3);
        rows = rows * points > count - at ? 1 : rows;
        ptrdiff_t extents[2] = {points, rows}, width = step * (ptrdiff_t)sizeof(double);
        ptrdiff_t steps[4] = {width, 0, points * width, 0};
        char *places[2] = {(char *)(strided + at * step), (char *)total};
        row_total(places, extents, steps, NULL);
        some = points * rows;
    }
    double expected = level.total(numbers, count);
    int right = memcmp(&total[1], &expected, sizeof expected) == 0;
    free(numbers), free(strided), free(total);
    return right;
}

int main(int count, char **arguments)
{
    Level levels[MOST_LEVELS];
    int known = levels_available(levels);
    for (int i = 0; count == 1 && i < known; i++)
        printf("%s\n", levels[i].name);
    for (int i = 0; count == 3 && i < known; i++)
        for (int at = 0; at < atoi(arguments[2]) && strcmp(levels[i].name, arguments[1]) == 0; at++) {
            level = levels[i];
            if (!check(&level) || !check_total()) {
                printf("case %d is wrong\n", at);
                return 1;
            }
        }
    return 0;
}
