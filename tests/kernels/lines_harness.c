/* Compare line programs with plain loops over the lines, for many random cases; for sanitizers.

   lines_harness CASES: at every level of this processor. All numbers are small integers, so that
   sums are equal in whatever order they are computed. */
#include "../../pencils/comm/kernels/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 3, ARRAYS = 7, ROWS = 14, STEPS = 14, TERMS = 25, LARGEST = 1 << 21 };

static uint64_t state = 1;

static ptrdiff_t random_below(ptrdiff_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (ptrdiff_t)((state >> 33) % (uint64_t)bound);
}

static int one_in(int many) { return random_below(many) == 0; }

/* An integer between -most and most. */
static double random_number(int most) { return (double)(random_below(2 * most + 1) - most); }

typedef struct {
    char *memory; /* unless another array has it */
    char *expected;
    ptrdiff_t size, offset, step, strides[AXES], begin, count;
} Array;

typedef struct {
    Element element;
    int naxes, nsources, narrays, complex_weights;
    int in_place; /* whether lines lie side by side, so that they need not be copied */
    ptrdiff_t extents[AXES], nlines;
    Array arrays[ARRAYS]; /* sources, then targets */
    int64_t rows, nsteps, nterms, nfactors;
    int64_t targets[STEPS + ROWS], ends[STEPS + ROWS], as_complex[STEPS + ROWS];
    int64_t rows_of[STEPS * TERMS], factors_of[STEPS * TERMS];
    double weights[STEPS * TERMS][2];
    char *factors;
} Case;

/* ---- numbers: parts are real and imaginary ones ---- */

static int parts_of(const Case *of) { return of->element >= COMPLEX_FLOAT ? 2 : 1; }

static double get(const Case *of, const char *at, int part)
{
    float number;
    double wide;
    if (of->element == FLOAT || of->element == COMPLEX_FLOAT) {
        memcpy(&number, at + part * (int)sizeof number, sizeof number);
        return (double)number;
    }
    memcpy(&wide, at + part * (int)sizeof wide, sizeof wide);
    return wide;
}

static void set(const Case *of, char *at, int part, double wide)
{
    float number = (float)wide;
    if (of->element == FLOAT || of->element == COMPLEX_FLOAT)
        memcpy(at + part * (int)sizeof number, &number, sizeof number);
    else
        memcpy(at + part * (int)sizeof wide, &wide, sizeof wide);
}

static char *random_numbers(const Case *of, ptrdiff_t bytes, int most)
{
    ptrdiff_t item = size_of(of->element);
    char *memory = malloc((size_t)bytes + 1);
    for (ptrdiff_t at = 0; at + item <= bytes; at += item)
        for (int part = 0; part < parts_of(of); part++)
            set(of, memory + at, part, random_number(most));
    return memory;
}

/* ---- cases ---- */

/* Choose the order of axes in memory, fastest last; number `naxes` is the one along the lines. */
static void choose_order(const Case *of, int *order)
{
    int last = of->naxes;
    for (int i = 0; i <= last; i++) {
        int j = one_in(3) ? (int)random_below(i + 1) : i;
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; of->in_place && i < last; i++)
        if (order[i] == last - 1) {
            order[i] = order[last];
            order[last] = last - 1;
        }
}

/* Put an array of random memory order, gaps and directions in memory that ends where it ends. */
static void make_array(const Case *of, Array *array)
{
    ptrdiff_t item = size_of(of->element), stride = item, last = 0;
    int order[AXES + 1] = {0};
    choose_order(of, order);
    array->count = random_below(of->rows + 1);
    array->begin = random_below(of->rows - array->count + 1);
    array->offset = 0;
    for (int i = of->naxes; i >= 0; i--) {
        int axis = order[i], plain = of->in_place && i == of->naxes, turned = !plain && one_in(9);
        ptrdiff_t extent = axis < of->naxes ? of->extents[axis] : array->count;
        ptrdiff_t way = extent > 0 ? extent - 1 : 0;
        stride *= !plain && one_in(9) ? 2 : 1;
        *(axis < of->naxes ? &array->strides[axis] : &array->step) = turned ? -stride : stride;
        array->offset += turned ? way * stride : 0;
        last += way * stride;
        stride = stride * extent + (one_in(4) ? item * random_below(9) : 0);
    }
    array->size = last + item;
    array->memory = random_numbers(of, array->size, 4);
}

/* Let a target be rows of a source, of the same numbers or of others. */
static void share_array(const Case *of, Array *array, const Array *source)
{
    ptrdiff_t ahead = random_below(source->count + 1);
    *array = *source;
    array->expected = NULL;
    array->count = random_below(source->count - ahead + 1);
    array->offset += ahead * array->step;
    array->begin = one_in(2) ? source->begin + ahead : random_below(of->rows - array->count + 1);
}

static void make_arrays(Case *of)
{
    of->nsources = 1 + (int)random_below(3);
    of->narrays = of->nsources + 1 + (one_in(2) ? (int)random_below(ARRAYS - of->nsources) : 0);
    for (int i = 0; i < of->narrays; i++) {
        int source = i - of->nsources;
        if (source >= 0 && source < of->nsources && one_in(2))
            share_array(of, &of->arrays[i], &of->arrays[source]);
        else
            make_array(of, &of->arrays[i]);
    }
}

/* Add a step. Numbers are at most as large as `bounds` says, so that they are exact. */
static void add_step(Case *of, double *bounds, int64_t target, int count)
{
    double bound = 0;
    for (int i = 0; i < count; i++, of->nterms++) {
        int64_t row = random_below(of->rows);
        double *weight = of->weights[of->nterms], size = 2 * parts_of(of) * bounds[row];
        int fits = bound + size * parts_of(of) <= LARGEST;
        weight[0] = fits ? random_number(2) : 0;
        weight[1] = fits && of->complex_weights && one_in(2) ? random_number(2) : 0;
        of->rows_of[of->nterms] = row;
        of->factors_of[of->nterms] = of->nfactors && one_in(3) ? random_below(of->nfactors) : -1;
        bound += fits ? size * parts_of(of) : 0;
    }
    bounds[target] = bound;
    of->targets[of->nsteps] = target;
    of->as_complex[of->nsteps] = one_in(2); /* the same for numbers that are finite */
    of->ends[of->nsteps++] = of->nterms;
}

static void make_program(Case *of)
{
    double bounds[ROWS] = {0};
    for (int i = 0; i < of->nsources; i++)
        for (ptrdiff_t j = 0; j < of->arrays[i].count; j++)
            bounds[of->arrays[i].begin + j] = 4;
    for (int64_t row = 0; row < of->rows; row++)
        if (bounds[row] == 0) /* no source fills it */
            add_step(of, bounds, row, 0);
    for (ptrdiff_t left = random_below(STEPS + 1); left > 0; left--)
        add_step(of, bounds, random_below(of->rows), (int)random_below(one_in(4) ? TERMS : 6));
}

static void make_case(Case *of)
{
    static const ptrdiff_t most[AXES + 1] = {0, 1500, 60, 12};
    memset(of, 0, sizeof *of);
    of->element = (Element)random_below(4);
    of->rows = 1 + random_below(ROWS);
    of->naxes = 1 + (int)random_below(AXES);
    of->nlines = 1;
    of->in_place = one_in(2);
    for (int i = 0; i < of->naxes; i++) {
        of->extents[i] = 1 + random_below(of->in_place ? 5 : most[of->naxes]);
        if (of->in_place && i == of->naxes - 1)
            of->extents[i] = 32 + random_below(400);
        if (one_in(30))
            of->extents[i] = random_below(2);
        of->nlines *= of->extents[i];
    }
    of->nfactors = one_in(2) ? random_below(4) : 0;
    of->complex_weights = parts_of(of) > 1 && one_in(2);
    of->factors = random_numbers(of, of->nfactors * of->nlines * size_of(of->element), 1);
    make_arrays(of);
    make_program(of);
}

static void free_case(Case *of)
{
    for (int i = 0; i < of->narrays; i++)
        if (of->arrays[i].expected) {
            free(of->arrays[i].memory);
            free(of->arrays[i].expected);
        }
    free(of->factors);
}

/* ---- what the results are ---- */

static void times(double *number, const double *factor)
{
    double real = number[0] * factor[0] - number[1] * factor[1];
    number[1] = number[0] * factor[1] + number[1] * factor[0];
    number[0] = real;
}

static void execute(const Case *of, double (*buffer)[2], ptrdiff_t line)
{
    for (int64_t step = 0, i = 0; step < of->nsteps; step++) {
        double total[2] = {0, 0};
        for (; i < of->ends[step]; i++) {
            double term[2] = {of->weights[i][0], of->weights[i][1]}, factor[2] = {1, 0};
            ptrdiff_t at = (of->factors_of[i] * of->nlines + line) * size_of(of->element);
            for (int part = 0; part < parts_of(of) && of->factors_of[i] >= 0; part++)
                factor[part] = get(of, of->factors + at, part);
            times(term, factor);
            times(term, buffer[of->rows_of[i]]);
            total[0] += term[0];
            total[1] += term[1];
        }
        memcpy(buffer[of->targets[step]], total, sizeof total);
    }
}

/* The memory that an array is in, with the numbers that should be there. */
static char *expected_of(const Case *of, const Array *array)
{
    for (int i = 0; i < of->narrays; i++)
        if (of->arrays[i].memory == array->memory && of->arrays[i].expected)
            return of->arrays[i].expected;
    return NULL;
}

static void compute(Case *of)
{
    for (int i = 0; i < of->narrays; i++) {
        Array *array = &of->arrays[i];
        if (!expected_of(of, array)) {
            array->expected = malloc((size_t)array->size);
            memcpy(array->expected, array->memory, (size_t)array->size);
        }
    }
    for (ptrdiff_t line = 0; line < of->nlines; line++) {
        double buffer[ROWS][2] = {{0}};
        for (int i = 0; i < of->narrays; i++) {
            const Array *array = &of->arrays[i];
            char *at = expected_of(of, array) + array->offset;
            ptrdiff_t left = line;
            for (int axis = of->naxes - 1; axis >= 0; axis--) {
                at += left % of->extents[axis] * array->strides[axis];
                left /= of->extents[axis];
            }
            if (i == of->nsources)
                execute(of, buffer, line);
            for (ptrdiff_t j = 0; j < array->count; j++, at += array->step)
                for (int part = 0; part < parts_of(of); part++) {
                    double *number = &buffer[array->begin + j][part];
                    if (i < of->nsources)
                        *number = get(of, at, part);
                    else
                        set(of, at, part, *number);
                }
        }
    }
}

/* ---- execution ---- */

static int prepare(const Case *of, Lines *lines, Segment *segments)
{
    memset(lines, 0, sizeof *lines);
    memset(segments, 0, ARRAYS * sizeof *segments);
    double *weights = malloc(2 * STEPS * TERMS * sizeof *weights);
    int width = 1 + of->complex_weights;
    for (int64_t i = 0; i < of->nterms; i++)
        memcpy(&weights[i * width], of->weights[i], (size_t)width * sizeof *weights);
    lines->program = (Program){of->rows,       of->nsteps,  of->nterms,     of->targets, of->ends,
                               of->as_complex, of->rows_of, of->factors_of, weights,
                               of->complex_weights};
    lines->element = of->element;
    lines->nsources = of->nsources;
    lines->nsegments = of->narrays;
    lines->naxes = of->naxes;
    lines->segments = segments;
    memcpy(lines->extents, of->extents, sizeof of->extents);
    for (int i = 0; i < of->narrays; i++) {
        const Array *array = &of->arrays[i];
        segments[i].first = array->memory + array->offset;
        segments[i].begin = array->begin;
        segments[i].count = array->count;
        segments[i].step = array->step;
        memcpy(segments[i].strides, array->strides, sizeof array->strides);
    }
    lines->factors = of->nfactors ? of->factors : NULL;
    lines->nfactors = of->nfactors;
    lines->factor_step = of->nlines * size_of(of->element);
    lines->bytes = one_in(2) ? 1 << 17 : 64 << random_below(10);
    lines->fewest = 1 + random_below(9);
    lines->most = 1 + random_below(64);
    lines->stream = one_in(2);
    int prepared = lines_prepare(lines);
    free(weights); /* it is not used any more */
    return prepared;
}

static int has_expected(const Case *of)
{
    ptrdiff_t item = size_of(of->element);
    for (int i = 0; i < of->narrays; i++)
        for (ptrdiff_t at = 0; of->arrays[i].expected && at < of->arrays[i].size; at += item)
            for (int part = 0; part < parts_of(of); part++)
                if (get(of, of->arrays[i].memory + at, part)
                    != get(of, of->arrays[i].expected + at, part))
                    return 0;
    return 1;
}

static int check_case(const Level *level)
{
    Case *of = malloc(sizeof *of);
    Lines lines;
    Segment segments[ARRAYS];
    make_case(of);
    compute(of);
    int right = prepare(of, &lines, segments);
    if (right)
        lines_run(&lines, level->copy, level->add);
    right = right && has_expected(of);
    lines_free(&lines);
    free_case(of);
    free(of);
    return right;
}

int main(int argc, char **argv)
{
    Level levels[MOST_LEVELS];
    int count = levels_available(levels), cases = argc > 1 ? atoi(argv[1]) : 100;
    for (int n = 0; n < cases; n++)
        if (!check_case(&levels[n % count])) {
            printf("%s: case %d is wrong\n", levels[n % count].name, n);
            return 1;
        }
    return 0;
}
