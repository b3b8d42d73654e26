#include "row_program.h"

#include <fenv.h>
#include <stdint.h>
#include <string.h>

/* Elements of a row: to call a loop for so few takes longer than to copy them. */
enum { SHORT = 128, LINE = 64, EXCEPTIONS = FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID };

/* ---- tiles ---- */

typedef struct {
    const RowProgram *program;
    char **places;          /* of all slots, at the first element of the tile */
    char *spare;            /* room for a result whose rows are copied to an array */
    ptrdiff_t rows, columns, pitch;
    int *flags;
} Tile;

/* The operands of an instruction, their steps in a row, and those from a row to the next. */
typedef struct {
    char *places[ROW_OPERANDS];
    ptrdiff_t steps[ROW_OPERANDS], ups[ROW_OPERANDS];
} Operands;

/* Find operands; returns whether all rows can be treated as one, the elements between them included,
   but for the result, whose rows may be apart. */
static int find_operands(const Tile *tile, const RowInstruction *instruction, Operands *found)
{
    const RowProgram *program = tile->program;
    int last = program->ndim - 1, joined = 1;
    for (int i = 0; i < instruction->count; i++) {
        const RowSlot *slot = &program->slots[instruction->slots[i]];
        found->places[i] = tile->places[instruction->slots[i]];
        if (slot->reg >= 0) {
            found->steps[i] = slot->item;
            found->ups[i] = tile->pitch * slot->item;
            continue;
        }
        found->steps[i] = slot->strides[last];
        found->ups[i] = slot->strides[last - 1];
        if (i < instruction->count - 1)
            joined &= found->ups[i] == tile->pitch * found->steps[i];
    }
    return joined;
}

static void copy_rows(const Tile *tile, char *to, ptrdiff_t up, const char *from, ptrdiff_t item)
{
    size_t bytes = (size_t)(tile->columns * item);
    for (ptrdiff_t row = 0; row < tile->rows; row++)
        memcpy(to + row * up, from + row * tile->pitch * item, bytes);
}

static void execute(const Tile *tile, const RowInstruction *instruction, int apart)
{
    Operands all;
    int joined = find_operands(tile, instruction, &all), last = instruction->count - 1;
    char **places = all.places;
    int gaps = tile->pitch != tile->columns;
    if (joined && !(gaps && apart)) {
        ptrdiff_t count = (tile->rows - 1) * tile->pitch + tile->columns;
        const RowSlot *result = &tile->program->slots[instruction->slots[last]];
        /* Nothing may be written between the rows of an array. */
        int fits = all.ups[last] == tile->pitch * all.steps[last] && !(gaps && result->reg < 0);
        if (fits) {
            instruction->loop(places, &count, all.steps, instruction->data);
            return;
        }
        if (tile->columns < SHORT && all.steps[last] == result->item) {
            char *target = places[last];
            places[last] = tile->spare;
            instruction->loop(places, &count, all.steps, instruction->data);
            copy_rows(tile, target, all.ups[last], tile->spare, result->item);
            return;
        }
    }
    for (ptrdiff_t row = 0; row < tile->rows; row++) {
        char *at[ROW_OPERANDS]; /* loops may change it */
        for (int i = 0; i < instruction->count; i++)
            at[i] = places[i] + row * all.ups[i];
        instruction->loop(at, &tile->columns, all.steps, instruction->data);
    }
}

/* Take the exceptions that were raised, numbered as NumPy does. */
static int take_exceptions(void)
{
    int raised = fetestexcept(EXCEPTIONS);
    if (!raised)
        return 0;
    feclearexcept(FE_ALL_EXCEPT);
    return (raised & FE_DIVBYZERO ? 1 : 0) | (raised & FE_OVERFLOW ? 2 : 0)
           | (raised & FE_UNDERFLOW ? 4 : 0) | (raised & FE_INVALID ? 8 : 0);
}

/* Execute for a tile; returns whether exceptions have to be attributed by the exact instructions,
   before anything is stored where operands were read. Elements between rows are no points of the
   block, and a sum has several operations. */
static int run_tile(const Tile *tile)
{
    const RowProgram *program = tile->program;
    int exact = program->nexact == 0 && tile->pitch == tile->columns;
    for (int i = 0; i < program->ninstructions; i++) {
        execute(tile, &program->instructions[i], 0);
        int raised = i < program->ninstructions - program->nstores ? take_exceptions() : 0;
        if (raised && !exact)
            return 1;
        tile->flags[i] |= raised;
    }
    return 0;
}

static void run_exactly(const Tile *tile)
{
    const RowProgram *program = tile->program;
    const RowInstruction *first = program->instructions;
    int count = program->nexact ? program->nexact : program->ninstructions;
    first += program->nexact ? program->ninstructions : 0;
    for (int i = 0; i < count; i++) {
        execute(tile, &first[i], 1);
        tile->flags[i] |= i < count - program->nstores ? take_exceptions() : 0;
    }
}

static void find_places(const RowProgram *program, char *const *arrays, const ptrdiff_t *index,
                        char **places)
{
    for (int i = 0; i < program->nslots; i++) {
        const RowSlot *slot = &program->slots[i];
        if (slot->reg >= 0)
            continue;
        places[i] = arrays[slot->array] + slot->offset;
        for (int d = 0; d < program->ndim; d++)
            places[i] += index[d] * slot->strides[d];
    }
}

static size_t round_up(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

size_t row_program_scratch(const RowProgram *program)
{
    size_t places = (size_t)program->nslots * sizeof(char *);
    return program->registers[program->nregisters] + round_up(places) + program->spare + LINE;
}

static ptrdiff_t least(ptrdiff_t one, ptrdiff_t other) { return one < other ? one : other; }

void row_program_run(const RowProgram *program, char *scratch, char *const *arrays, int *flags)
{
    int last = program->ndim - 1;
    const ptrdiff_t *shape = program->shape;
    ptrdiff_t index[ROW_DIMS] = {0};
    char *first = (char *)round_up((size_t)(uintptr_t)scratch);
    Tile tile = {.program = program, .flags = flags};
    tile.places = (char **)(first + program->registers[program->nregisters]);
    tile.spare = (char *)tile.places + round_up((size_t)program->nslots * sizeof(char *));
    for (int d = 0; d <= last; d++)
        if (shape[d] < 1)
            return;
    for (int i = 0; i < program->nslots; i++)
        if (program->slots[i].reg >= 0)
            tile.places[i] = first + program->registers[program->slots[i].reg];
    feclearexcept(FE_ALL_EXCEPT);
    for (;;) {
        for (index[last - 1] = 0; index[last - 1] < shape[last - 1];
             index[last - 1] += program->rows)
            for (index[last] = 0; index[last] < shape[last]; index[last] += program->columns) {
                tile.rows = least(program->rows, shape[last - 1] - index[last - 1]);
                tile.columns = least(program->columns, shape[last] - index[last]);
                tile.pitch = tile.columns == shape[last] ? program->pitch : tile.columns;
                find_places(program, arrays, index, tile.places);
                if (run_tile(&tile))
                    run_exactly(&tile);
            }
        int d = last - 2;
        for (; d >= 0; d--) {
            if (++index[d] < shape[d])
                break;
            index[d] = 0;
        }
        if (d < 0)
            return;
    }
}

/* ---- choices and copies, by the size of elements ---- */

typedef struct { uint64_t parts[2]; } Two;
typedef struct { uint64_t parts[4]; } Four;
typedef struct { uint32_t parts[3]; } Three; /* long double of some processors of 32 bits, */
typedef struct { uint32_t parts[6]; } Six;   /* and its complex numbers */

#define SIZES(DO) \
    DO(uint8_t) DO(uint16_t) DO(uint32_t) DO(uint64_t) DO(Two) DO(Four) DO(Three) DO(Six)

#define AT(type, i) (*(const type *)(places[i] + k * steps[i]))

/* Choose without a branch: conditions of neighbouring points may differ. */
#define DEFINE_CHOOSE(type) \
    static inline type choose_##type(char chosen, type a, type b) \
    { \
        type all = (type)-(type)(chosen != 0); \
        return (type)(b ^ ((a ^ b) & all)); \
    }
#define DEFINE_BRANCH(type) \
    static inline type choose_##type(char chosen, type a, type b) { return chosen ? a : b; }
DEFINE_CHOOSE(uint8_t) DEFINE_CHOOSE(uint16_t) DEFINE_CHOOSE(uint32_t) DEFINE_CHOOSE(uint64_t)
DEFINE_BRANCH(Two) DEFINE_BRANCH(Four) DEFINE_BRANCH(Three) DEFINE_BRANCH(Six)

/* `step` of a constant is 0; the compiler makes vectors of the contiguous cases. */
#define DEFINE_WHERE(type) \
    static void where_##type(char **places, ptrdiff_t n, const ptrdiff_t *steps) \
    { \
        type *out = (type *)places[3]; \
        const ptrdiff_t size = sizeof(type); \
        if (steps[0] == 1 && steps[3] == size && steps[1] == size && steps[2] == size) { \
            const char *chosen = places[0]; \
            const type *one = (const type *)places[1], *other = (const type *)places[2]; \
            for (ptrdiff_t k = 0; k < n; k++) { \
                type a = one[k], b = other[k]; \
                out[k] = choose_##type(chosen[k], a, b); \
            } \
            return; \
        } \
        for (ptrdiff_t k = 0; k < n; k++) { \
            type a = AT(type, 1), b = AT(type, 2); \
            *(type *)(places[3] + k * steps[3]) = choose_##type(AT(char, 0), a, b); \
        } \
    } \
    static void copy_##type(char **places, ptrdiff_t n, const ptrdiff_t *steps) \
    { \
        for (ptrdiff_t k = 0; k < n; k++) \
            *(type *)(places[1] + k * steps[1]) = AT(type, 0); \
    }
SIZES(DEFINE_WHERE)

#define CASE_SIZE(type) case sizeof(type):
#define CASE_WHERE(type) case sizeof(type): where_##type(places, *count, steps); break;
#define CASE_COPY(type) case sizeof(type): copy_##type(places, *count, steps); break;

int row_has_size(size_t bytes)
{
    switch (bytes) {
        SIZES(CASE_SIZE) return 1;
    }
    return 0;
}

void row_where(char **places, const ptrdiff_t *count, const ptrdiff_t *steps, void *data)
{
    switch ((uintptr_t)data) {
        SIZES(CASE_WHERE)
    }
}

void row_copy(char **places, const ptrdiff_t *count, const ptrdiff_t *steps, void *data)
{
    ptrdiff_t size = (ptrdiff_t)(uintptr_t)data;
    if (steps[0] == size && steps[1] == size) {
        memmove(places[1], places[0], (size_t)(*count * size));
        return;
    }
    switch (size) {
        SIZES(CASE_COPY)
    }
}

/* ---- sums: each product and each sum is rounded, as NumPy does it ---- */

#define TERM(k) (weights[k] * at[k][i])
#define SUM_OF(k, sum) case k: for (ptrdiff_t i = 0; i < n; i++) out[i] = sum; return;
#define DEFINE_SUM(type) \
    static void sum_##type(char **places, ptrdiff_t n, const ptrdiff_t *steps, unsigned code) \
    { \
        int count = (int)(code & 15), last = count; \
        const type *at[ROW_TERMS]; \
        type weights[ROW_TERMS]; \
        int contiguous = 1; \
        for (int k = 0; k < count; k++) { \
            at[k] = (const type *)places[k]; \
            contiguous &= steps[k] == (ptrdiff_t)sizeof(type); \
            weights[k] = code >> (12 + k) & 1 ? *(const type *)places[last++] : 1; \
            if (code >> (4 + k) & 1) \
                weights[k] = -weights[k]; \
        } \
        type *restrict out = (type *)places[last]; \
        if (contiguous) \
            switch (count) { \
                SUM_OF(2, TERM(0) + TERM(1)) \
                SUM_OF(3, TERM(0) + TERM(1) + TERM(2)) \
                SUM_OF(4, TERM(0) + TERM(1) + TERM(2) + TERM(3)) \
                SUM_OF(5, TERM(0) + TERM(1) + TERM(2) + TERM(3) + TERM(4)) \
                SUM_OF(6, TERM(0) + TERM(1) + TERM(2) + TERM(3) + TERM(4) + TERM(5)) \
                SUM_OF(7, TERM(0) + TERM(1) + TERM(2) + TERM(3) + TERM(4) + TERM(5) + TERM(6)) \
                SUM_OF(8, TERM(0) + TERM(1) + TERM(2) + TERM(3) + TERM(4) + TERM(5) + TERM(6) \
                              + TERM(7)) \
            } \
        for (ptrdiff_t i = 0; i < n; i++) { \
            type total = weights[0] * *(const type *)(places[0] + i * steps[0]); \
            for (int k = 1; k < count; k++) \
                total += weights[k] * *(const type *)(places[k] + i * steps[k]); \
            out[i] = total; \
        } \
    }
DEFINE_SUM(double)
DEFINE_SUM(float)

void row_sum(char **places, const ptrdiff_t *count, const ptrdiff_t *steps, void *data)
{
    unsigned code = (unsigned)(uintptr_t)data;
    if (code >> 20)
        sum_float(places, *count, steps, code);
    else
        sum_double(places, *count, steps, code);
}

/* ---- conversions that lose at most digits, as C does them, and NumPy ---- */

typedef uint8_t Bool;
typedef long double LongDouble;

/* Complex numbers are two of these. */
#define DEFINE_CAST(from, to) \
    static void from##_to_##to(char **places, const ptrdiff_t *count, const ptrdiff_t *steps, \
                               void *unused) \
    { \
        (void)unused; \
        to *out = (to *)places[1]; \
        if (steps[0] == sizeof(from)) \
            for (ptrdiff_t k = 0; k < *count; k++) \
                out[k] = (to)((const from *)places[0])[k]; \
        else \
            for (ptrdiff_t k = 0; k < *count; k++) \
                out[k] = (to)AT(from, 0); \
    }
#define DEFINE_TO_COMPLEX(from, to) \
    static void from##_to_complex_##to(char **places, const ptrdiff_t *count, \
                                       const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        to *out = (to *)places[1]; \
        for (ptrdiff_t k = 0; k < *count; k++) { \
            out[2 * k] = (to)AT(from, 0); \
            out[2 * k + 1] = 0; \
        } \
    }
#define DEFINE_OF_COMPLEX(from, to) \
    static void complex_##from##_to_complex_##to(char **places, const ptrdiff_t *count, \
                                                 const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        to *out = (to *)places[1]; \
        for (ptrdiff_t k = 0; k < *count; k++) { \
            const from *pair = (const from *)(places[0] + k * steps[0]); \
            out[2 * k] = (to)pair[0]; \
            out[2 * k + 1] = (to)pair[1]; \
        } \
    }
#define DEFINE_TESTS(from) \
    static void from##_to_bool(char **places, const ptrdiff_t *count, const ptrdiff_t *steps, \
                               void *unused) \
    { \
        (void)unused; \
        for (ptrdiff_t k = 0; k < *count; k++) \
            places[1][k] = AT(from, 0) != 0; \
    }
#define DEFINE_TEST_OF_COMPLEX(from) \
    static void complex_##from##_to_bool(char **places, const ptrdiff_t *count, \
                                         const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        for (ptrdiff_t k = 0; k < *count; k++) { \
            const from *pair = (const from *)(places[0] + k * steps[0]); \
            places[1][k] = pair[0] != 0 || pair[1] != 0; \
        } \
    }

#define WITH_INTEGERS(DO, from) \
    DO(from, int8_t) DO(from, uint8_t) DO(from, int16_t) DO(from, uint16_t) DO(from, int32_t) \
    DO(from, uint32_t) DO(from, int64_t) DO(from, uint64_t)
#define WITH_FLOATS(DO, from) DO(from, float) DO(from, double) DO(from, LongDouble)
#define EACH_INTEGER(DO) \
    DO(Bool) DO(int8_t) DO(uint8_t) DO(int16_t) DO(uint16_t) DO(int32_t) DO(uint32_t) DO(int64_t) \
    DO(uint64_t)
#define EACH_FLOAT(DO) DO(float) DO(double) DO(LongDouble)

#define DEFINE_OF_INTEGER(from) \
    WITH_INTEGERS(DEFINE_CAST, from) WITH_FLOATS(DEFINE_CAST, from) \
    WITH_FLOATS(DEFINE_TO_COMPLEX, from) DEFINE_TESTS(from)
#define DEFINE_OF_FLOAT(from) \
    WITH_FLOATS(DEFINE_CAST, from) WITH_FLOATS(DEFINE_TO_COMPLEX, from) \
    WITH_FLOATS(DEFINE_OF_COMPLEX, from) DEFINE_TESTS(from) DEFINE_TEST_OF_COMPLEX(from)

EACH_INTEGER(DEFINE_OF_INTEGER)
EACH_FLOAT(DEFINE_OF_FLOAT)

/* Where conversions are in the table. */
enum {
    AT_Bool, AT_int8_t, AT_uint8_t, AT_int16_t, AT_uint16_t, AT_int32_t, AT_uint32_t, AT_int64_t,
    AT_uint64_t, AT_float, AT_double, AT_LongDouble, COMPLEX, TYPES = COMPLEX + 3
};
#define ENTRY(from, to) [AT_##from][AT_##to] = from##_to_##to,
#define ENTRY_TO_COMPLEX(from, to) \
    [AT_##from][COMPLEX + AT_##to - AT_float] = from##_to_complex_##to,
#define ENTRY_OF_COMPLEX(from, to) \
    [COMPLEX + AT_##from - AT_float][COMPLEX + AT_##to - AT_float] = \
        complex_##from##_to_complex_##to,
#define ENTRIES_OF_INTEGER(from) \
    WITH_INTEGERS(ENTRY, from) WITH_FLOATS(ENTRY, from) WITH_FLOATS(ENTRY_TO_COMPLEX, from) \
    [AT_##from][AT_Bool] = from##_to_bool,
#define ENTRIES_OF_FLOAT(from) \
    WITH_FLOATS(ENTRY, from) WITH_FLOATS(ENTRY_TO_COMPLEX, from) \
    WITH_FLOATS(ENTRY_OF_COMPLEX, from) [AT_##from][AT_Bool] = from##_to_bool, \
    [COMPLEX + AT_##from - AT_float][AT_Bool] = complex_##from##_to_bool,

static RowLoop *const casts[TYPES][TYPES] = {
    EACH_INTEGER(ENTRIES_OF_INTEGER) EACH_FLOAT(ENTRIES_OF_FLOAT)
};

RowLoop *row_cast(int from, int to)
{
    return from < 0 || from >= TYPES || to < 0 || to >= TYPES ? NULL : casts[from][to];
}
