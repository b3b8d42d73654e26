/* Loops of rows that NumPy has no ufunc for: choices, copies, conversions. */
#include "row_program.h"

#include <stdint.h>
#include <string.h>

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
    static void where_##type(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps) \
    { \
        const ptrdiff_t size = sizeof(type); \
        int contiguous = steps[0] == 1 && steps[1] == size && steps[2] == size && steps[3] == size; \
        EACH_ROW(4) { \
            type *out = (type *)at[3]; \
            if (contiguous) \
                for (ptrdiff_t k = 0; k < n; k++) { \
                    type a = ((const type *)at[1])[k], b = ((const type *)at[2])[k]; \
                    out[k] = choose_##type(at[0][k], a, b); \
                } \
            else \
                for (ptrdiff_t k = 0; k < n; k++) { \
                    type a = AT(type, 1), b = AT(type, 2); \
                    *(type *)(at[3] + k * steps[3]) = choose_##type(AT(char, 0), a, b); \
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
#define DEFINE_LOOP(name, statements) \
    static void name(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *unused) \
    { \
        (void)unused; \
        EACH_ROW(2) \
            for (ptrdiff_t k = 0; k < n; k++) { \
                statements \
            } \
    }
#define PUT_COMPLEX(to, first, second) \
    ((to *)at[1])[2 * k] = (to)(first); ((to *)at[1])[2 * k + 1] = (to)(second);
#define DEFINE_TO_COMPLEX(from, to) \
    DEFINE_LOOP(from##_to_complex_##to, PUT_COMPLEX(to, AT(from, 0), 0))
#define DEFINE_OF_COMPLEX(from, to) \
    DEFINE_LOOP(complex_##from##_to_complex_##to, \
                const from *pair = &AT(from, 0); PUT_COMPLEX(to, pair[0], pair[1]))
#define DEFINE_TESTS(from) DEFINE_LOOP(from##_to_bool, at[1][k] = AT(from, 0) != 0;)
#define DEFINE_TEST_OF_COMPLEX(from) \
    DEFINE_LOOP(complex_##from##_to_bool, \
                const from *pair = &AT(from, 0); at[1][k] = pair[0] != 0 || pair[1] != 0;)

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
