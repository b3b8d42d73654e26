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
    ptrdiff_t planes, rows, columns, pitch;
    int *flags;
} Tile;

/* The operands of an instruction; their steps in a row, and after these those from row to row; and
   those from plane to plane. */
typedef struct {
    char *places[ROW_OPERANDS];
    ptrdiff_t steps[2 * ROW_OPERANDS], *ups, planes[ROW_OPERANDS];
} Operands;

/* Find operands; returns whether all rows can be treated as one, the elements between them included,
   but for the result, whose rows may be apart. */
static int find_operands(const Tile *tile, const RowInstruction *instruction, Operands *found)
{
    const RowProgram *program = tile->program;
    int last = program->ndim - 1, joined = 1;
    found->ups = found->steps + instruction->count;
    for (int i = 0; i < instruction->count; i++) {
        const RowSlot *slot = &program->slots[instruction->slots[i]];
        found->places[i] = tile->places[instruction->slots[i]];
        if (slot->reg >= 0) {
            found->steps[i] = slot->item;
            found->ups[i] = tile->pitch * slot->item;
            found->planes[i] = tile->rows * found->ups[i];
            continue;
        }
        found->steps[i] = slot->strides[last];
        found->ups[i] = slot->strides[last - 1];
        found->planes[i] = slot->strides[last - 2];
        if (i < instruction->count - 1)
            joined &= found->ups[i] == tile->pitch * found->steps[i];
    }
    return joined;
}

/* Call the loop for some rows of a plane. */
static void call(const RowInstruction *instruction, const Operands *all, ptrdiff_t plane,
                 ptrdiff_t points, ptrdiff_t rows)
{
    ptrdiff_t extents[2] = {points, rows}, calls = instruction->rows ? 1 : rows;
    for (ptrdiff_t row = 0; row < calls; row++) {
        char *at[ROW_OPERANDS]; /* loops may change it */
        for (int i = 0; i < instruction->count; i++)
            at[i] = all->places[i] + plane * all->planes[i] + row * all->ups[i];
        instruction->loop(at, extents, all->steps, instruction->data);
    }
}

static void copy_rows(const Tile *tile, char *to, ptrdiff_t up, ptrdiff_t item)
{
    for (ptrdiff_t row = 0; row < tile->rows; row++)
        memcpy(to + row * up, tile->spare + row * tile->pitch * item, (size_t)(tile->columns * item));
}

static void execute(const Tile *tile, const RowInstruction *instruction, int apart)
{
    Operands all;
    int joined = find_operands(tile, instruction, &all), last = instruction->count - 1;
    int gaps = tile->pitch != tile->columns;
    const RowSlot *result = &tile->program->slots[instruction->slots[last]];
    char *target = all.places[last];
    ptrdiff_t plane_step = all.planes[last];
    /* Nothing may be written between the rows of an array. */
    int fits = all.ups[last] == tile->pitch * all.steps[last] && !(gaps && result->reg < 0);
    int spare = !fits && !instruction->rows && all.steps[last] == result->item;
    joined &= !(gaps && (apart || (instruction->rows && tile->columns >= SHORT)))
              && (fits || (spare && tile->columns < SHORT));
    if (joined && spare)
        all.places[last] = tile->spare, all.planes[last] = 0;
    for (ptrdiff_t plane = 0; plane < tile->planes; plane++) {
        if (!joined) {
            call(instruction, &all, plane, tile->columns, tile->rows);
            continue;
        }
        call(instruction, &all, plane, (tile->rows - 1) * tile->pitch + tile->columns, 1);
        if (spare)
            copy_rows(tile, target + plane * plane_step, all.ups[last], result->item);
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

void row_program_run(const RowProgram *program, const ptrdiff_t (*box)[2], char *scratch,
                     char *const *arrays, int *flags)
{
    int last = program->ndim - 1, outer = last - 2;
    const ptrdiff_t *planes = box[outer], *lines = box[last - 1], *points = box[last];
    ptrdiff_t index[ROW_DIMS], *plane = &index[outer], *line = &index[last - 1], *point = &index[last];
    char *first = (char *)round_up((size_t)(uintptr_t)scratch);
    Tile tile = {.program = program, .flags = flags, .pitch = program->pitch};
    tile.places = (char **)(first + program->registers[program->nregisters]);
    tile.spare = (char *)tile.places + round_up((size_t)program->nslots * sizeof(char *));
    for (int d = 0; d <= last; d++) {
        index[d] = box[d][0];
        if (index[d] >= box[d][1])
            return;
    }
    for (int i = 0; i < program->nslots; i++)
        if (program->slots[i].reg >= 0)
            tile.places[i] = first + program->registers[program->slots[i].reg];
    feclearexcept(FE_ALL_EXCEPT);
    for (;;) {
        for (*plane = planes[0]; *plane < planes[1]; *plane += program->planes)
            for (*line = lines[0]; *line < lines[1]; *line += program->rows)
                for (*point = points[0]; *point < points[1]; *point += program->columns) {
                    tile.planes = least(program->planes, planes[1] - *plane);
                    tile.rows = least(program->rows, lines[1] - *line);
                    tile.columns = least(program->columns, points[1] - *point);
                    find_places(program, arrays, index, tile.places);
                    if (run_tile(&tile))
                        run_exactly(&tile);
                }
        int d = outer - 1;
        for (; d >= 0; d--) {
            if (++index[d] < box[d][1])
                break;
            index[d] = box[d][0];
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

/* Loops of rows: `at` are the operands of one, of which there are `count`. */
#define EACH_ROW(count) \
    char *at[count]; \
    const ptrdiff_t n = dimensions[0]; \
    for (ptrdiff_t row = 0; row < dimensions[1] && place_row(at, count, places, steps, row); row++)
#define AT(type, i) (*(const type *)(at[i] + k * steps[i]))

static inline int place_row(char **at, int count, char *const *places, const ptrdiff_t *steps,
                            ptrdiff_t row)
{
    for (int i = 0; i < count; i++)
        at[i] = places[i] + row * steps[count + i];
    return 1;
}

/* `step` of a constant is 0; the compiler makes vectors of the contiguous cases. */
#define DEFINE_WHERE(type) \
    static void where_##type(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps) \
    { \
        const ptrdiff_t size = sizeof(type); \
        int contiguous = steps[0] == 1 && steps[1] == size && steps[2] == size && steps[3] == size; \
        EACH_ROW(4) { \
            type *out = (type *)at[3]; \
            if (contiguous) \
                for (ptrdiff_t k = 0; k < n; k++) { \
                    type a = ((const type *)at[1])[k], b = ((const type *)at[2])[k]; \
                    out[k] = at[0][k] ? a : b; \
                } \
            else \
                for (ptrdiff_t k = 0; k < n; k++) { \
                    type a = AT(type, 1), b = AT(type, 2); \
                    *(type *)(at[3] + k * steps[3]) = AT(char, 0) ? a : b; \
                } \
        } \
    } \
    static void copy_##type(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps) \
    { \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) \
                *(type *)(at[1] + k * steps[1]) = AT(type, 0); \
    }
SIZES(DEFINE_WHERE)

#define CASE_SIZE(type) case sizeof(type):
#define CASE_WHERE(type) case sizeof(type): where_##type(places, dimensions, steps); break;
#define CASE_COPY(type) case sizeof(type): copy_##type(places, dimensions, steps); break;

int row_has_size(size_t bytes)
{
    switch (bytes) {
        SIZES(CASE_SIZE) return 1;
    }
    return 0;
}

void row_where(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data)
{
    switch ((uintptr_t)data) {
        SIZES(CASE_WHERE)
    }
}

void row_copy(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data)
{
    ptrdiff_t size = (ptrdiff_t)(uintptr_t)data;
    if (steps[0] == size && steps[1] == size) {
        EACH_ROW(2)
            memmove(at[1], at[0], (size_t)(n * size));
        return;
    }
    switch (size) {
        SIZES(CASE_COPY)
    }
}

/* ---- conversions that lose at most digits, as C does them, and NumPy ---- */

typedef uint8_t Bool;
typedef long double LongDouble;

/* Complex numbers are two of these. */
#define DEFINE_CAST(from, to) \
    static void from##_to_##to(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, \
                               void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) { \
            to *out = (to *)at[1]; \
            if (steps[0] == sizeof(from)) \
                for (ptrdiff_t k = 0; k < n; k++) \
                    out[k] = (to)((const from *)at[0])[k]; \
            else \
                for (ptrdiff_t k = 0; k < n; k++) \
                    out[k] = (to)AT(from, 0); \
        } \
    }
#define DEFINE_TO_COMPLEX(from, to) \
    static void from##_to_complex_##to(char **places, const ptrdiff_t *dimensions, \
                                       const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) { \
                ((to *)at[1])[2 * k] = (to)AT(from, 0); \
                ((to *)at[1])[2 * k + 1] = 0; \
            } \
    }
#define DEFINE_OF_COMPLEX(from, to) \
    static void complex_##from##_to_complex_##to(char **places, const ptrdiff_t *dimensions, \
                                                 const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) { \
                const from *pair = (const from *)(at[0] + k * steps[0]); \
                ((to *)at[1])[2 * k] = (to)pair[0]; \
                ((to *)at[1])[2 * k + 1] = (to)pair[1]; \
            } \
    }
#define DEFINE_TESTS(from) \
    static void from##_to_bool(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, \
                               void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) \
                at[1][k] = AT(from, 0) != 0; \
    }
#define DEFINE_TEST_OF_COMPLEX(from) \
    static void complex_##from##_to_bool(char **places, const ptrdiff_t *dimensions, \
                                         const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) { \
                const from *pair = (const from *)(at[0] + k * steps[0]); \
                at[1][k] = pair[0] != 0 || pair[1] != 0; \
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
