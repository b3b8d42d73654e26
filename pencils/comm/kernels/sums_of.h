/* Weighted sums of rows of one type, for sums_engine.h, which defines REAL, the type of a number,
   NAMED, which adds the type to a name, and PAIRED, which adds the lanes of a vector to a name. */

#if HAVE_VECTORS
typedef REAL NAMED(Vector) __attribute__((vector_size(WIDTH), aligned(4), may_alias));
#else
typedef REAL NAMED(Vector);
#endif

/* Each number of `a` times that of `b`, plus that of `c`: rounded once where processors can. */
SUM_INLINE NAMED(Vector) NAMED(multiply_add)(NAMED(Vector) a, NAMED(Vector) b, NAMED(Vector) c)
{
    return (NAMED(Vector))VECTOR_MULTIPLY_ADD(a, b, c);
}

SUM_INLINE NAMED(Vector) NAMED(all)(REAL number)
{
    return number - (NAMED(Vector)){0};
}

/* ---- terms at one place of all rows: of whole vectors, and of the numbers that remain ---- */

SUM_INLINE NAMED(Vector) NAMED(vector_at)(const char *row, ptrdiff_t at)
{
    return *(const NAMED(Vector) *)(row + at);
}

SUM_INLINE REAL NAMED(number_at)(const char *row, ptrdiff_t at)
{
    return *(const REAL *)(row + at);
}

/* Where the rows of all terms begin. */
typedef struct {
    const char *rows[MOST_TERMS], *factors[MOST_TERMS];
    REAL real[MOST_TERMS], imag[MOST_TERMS];
} NAMED(Terms);

SUM_INLINE void NAMED(find)(NAMED(Terms) *found, const Term *terms, char *const *bases, int count,
                            int factors, int imag)
{
    UNROLL for (int i = 0; i < count; i++) {
        found->rows[i] = bases[terms[i].row.base] + terms[i].row.offset;
        found->real[i] = (REAL)terms[i].weight[0];
        if (imag)
            found->imag[i] = (REAL)terms[i].weight[1];
        if (factors)
            found->factors[i] = bases[terms[i].factor.base] + terms[i].factor.offset;
    }
}

/* ---- real weights ---- */

/* A row, or the product with its factors. */
#define ROW_AT(type, load)                                                                    \
    type row = load(found->rows[i], at);                                                      \
    if (factors)                                                                              \
        row *= load(found->factors[i], at)

SUM_INLINE NAMED(Vector) NAMED(vector_sum)(const NAMED(Terms) *found, ptrdiff_t at, int count,
                                           int factors)
{
    NAMED(Vector) sum = {0};
    UNROLL for (int i = 0; i < count; i++) {
        ROW_AT(NAMED(Vector), NAMED(vector_at));
        sum = i ? NAMED(multiply_add)(NAMED(all)(found->real[i]), row, sum)
                : (NAMED(Vector))(found->real[0] * row); /* which may be -0.0 */
    }
    return sum;
}

/* What makes a sum of real numbers one of complex ones, as NumPy takes products: where one part of a
   row is infinite or NaN, 0 times this makes NaN of the other part. */
SUM_INLINE REAL NAMED(other_number)(const NAMED(Terms) *found, ptrdiff_t at, int count)
{
    ptrdiff_t one = sizeof(REAL), is_imag = at / one % 2;
    REAL other = (REAL)-0.0;
    for (int i = 0; i < count; i++)
        other += (is_imag ? (REAL)0 : (REAL)-0.0)
                 * NAMED(number_at)(found->rows[i], at + (is_imag ? -one : one));
    return other;
}

#if HAVE_VECTORS
SUM_INLINE NAMED(Vector) NAMED(other_vector)(const NAMED(Terms) *found, NAMED(Vector) zeros,
                                             ptrdiff_t at, int count)
{
    NAMED(Vector) other = zeros * NAMED(vector_at)(found->rows[0], at);
    UNROLL for (int i = 1; i < count; i++)
        other += zeros * NAMED(vector_at)(found->rows[i], at);
    return __builtin_shufflevector(other, other, PAIRED(OTHER));
}
#else
#define other_vector_float(found, zeros, at, count) zeros
#define other_vector_double(found, zeros, at, count) zeros
#endif

SUM_INLINE void NAMED(add_numbers)(char *to, const NAMED(Terms) *found, ptrdiff_t at,
                                   ptrdiff_t end, int count, int factors, int as_complex)
{
    for (; at < end; at += (ptrdiff_t)sizeof(REAL)) {
        REAL sum = 0;
        UNROLL for (int i = 0; i < count; i++) {
            ROW_AT(REAL, NAMED(number_at));
            sum = i ? NUMBER_MULTIPLY_ADD(found->real[i], row, sum) : found->real[0] * row;
        }
        if (as_complex)
            sum += NAMED(other_number)(found, at, count);
        *(REAL *)(to + at) = sum;
    }
}
#undef ROW_AT

/* A loop over vectors of its own for each way to store, so that nothing is asked inside it. */
#define ADD_VECTORS(condition, store)                                                         \
    for (; (condition) && at + step <= end; at += step) {                                     \
        if (fetches == NEARBY)                                                                \
            PREFETCH_NEAR(ahead->rows[0] + at);                                               \
        else if (fetches)                                                                     \
            fetch_ahead(ahead, at);                                                           \
        NAMED(Vector) sum = NAMED(vector_sum)(found, at, count, factors);                     \
        if (as_complex)                                                                       \
            sum += NAMED(other_vector)(found, zeros, at, count);                              \
        store;                                                                                \
    }

SUM_INLINE void NAMED(add_real)(char *to, const NAMED(Terms) *found, ptrdiff_t bytes,
                                const Ahead *ahead, int count, int factors, int past, int fetches,
                                int as_complex)
{
    ptrdiff_t at = 0, end = HAVE_VECTORS || !as_complex ? bytes : 0; /* of whole vectors */
    ptrdiff_t step = sizeof(NAMED(Vector)), number = sizeof(REAL) << (as_complex != 0);
    int stream = HAVE_VECTORS && past && (uintptr_t)to % (uintptr_t)number == 0;
    NAMED(Vector) zeros = {0};
#if HAVE_VECTORS
    for (int i = 1; i < (int)(sizeof zeros / sizeof(REAL)); i += 2)
        zeros[i] = (REAL)-0.0;
#endif
    if (stream) { /* from the first vector on that can be written past the cache */
        at = -(uintptr_t)to & (WIDTH - 1);
        at = at < bytes ? at : bytes;
        NAMED(add_numbers)(to, found, 0, at, count, factors, as_complex);
    }
    ADD_VECTORS(stream, STREAM_VECTOR(to + at, sum))
    ADD_VECTORS(1, *(NAMED(Vector) *)(to + at) = sum)
    NAMED(add_numbers)(to, found, at, bytes, count, factors, as_complex);
}
#undef ADD_VECTORS

/* ---- one sum with real weights, of rows that are given ---- */

#define WEIGH(count)                                                                          \
    case count:                                                                               \
        UNROLL for (int i = 0; i < count; i++) {                                              \
            found.rows[i] = sum->rows[i];                                                     \
            found.real[i] = (REAL)sum->weights[i];                                            \
        }                                                                                     \
        if (sum->ahead)                                                                       \
            NAMED(add_real)(sum->target, &found, sum->bytes, &ahead, count, 0, sum->stream,   \
                            NEARBY, sum->as_complex);                                         \
        else                                                                                  \
            NAMED(add_real)(sum->target, &found, sum->bytes, &ahead, count, 0, sum->stream,   \
                            0, sum->as_complex);                                              \
        break;

static TARGET void NAMED(weigh)(const Weighted *sum)
{
    NAMED(Terms) found;
    Ahead ahead = {{sum->ahead}, 1};
    switch (sum->count) { WEIGH(1) WEIGH(2) WEIGH(3) WEIGH(4) WEIGH(5) WEIGH(6) WEIGH(7) WEIGH(8) }
}
#undef WEIGH

/* ---- complex weights: real and imaginary parts alternate ---- */

typedef struct {
    REAL real, imag;
} NAMED(Pair);

SUM_INLINE NAMED(Pair) NAMED(pair_at)(const char *row, ptrdiff_t at)
{
    const REAL *parts = (const REAL *)(row + at);
    return (NAMED(Pair)){parts[0], parts[1]};
}

SUM_INLINE NAMED(Pair) NAMED(multiply)(NAMED(Pair) a, NAMED(Pair) b)
{
    return (NAMED(Pair)){a.real * b.real - a.imag * b.imag, a.imag * b.real + a.real * b.imag};
}

SUM_INLINE NAMED(Pair) NAMED(pair_term)(const NAMED(Terms) *found, int i, ptrdiff_t at,
                                        int factors)
{
    NAMED(Pair) weight = {found->real[i], found->imag[i]};
    NAMED(Pair) term = NAMED(multiply)(NAMED(pair_at)(found->rows[i], at), weight);
    return factors ? NAMED(multiply)(term, NAMED(pair_at)(found->factors[i], at)) : term;
}

#if HAVE_VECTORS
SUM_INLINE NAMED(Vector) NAMED(vector_term)(const NAMED(Terms) *found, int i, ptrdiff_t at,
                                            int factors, NAMED(Vector) signs)
{
    NAMED(Vector) row = NAMED(vector_at)(found->rows[i], at);
    NAMED(Vector) other = __builtin_shufflevector(row, row, PAIRED(OTHER));
    NAMED(Vector) term = found->real[i] * row + found->imag[i] * signs * other;
    if (!factors)
        return term;
    NAMED(Vector) factor = NAMED(vector_at)(found->factors[i], at);
    other = __builtin_shufflevector(term, term, PAIRED(OTHER));
    return __builtin_shufflevector(factor, factor, PAIRED(FIRST)) * term
           + __builtin_shufflevector(factor, factor, PAIRED(SECOND)) * signs * other;
}
#endif

SUM_INLINE void NAMED(add_complex)(char *to, const Term *terms, char *const *bases,
                                   ptrdiff_t bytes, int count, int factors, int continues)
{
    NAMED(Terms) found;
    ptrdiff_t at = 0;
    NAMED(find)(&found, terms, bases, count, factors, 1);
#if HAVE_VECTORS
    NAMED(Vector) signs = {0};
    for (int i = 0; i < (int)(sizeof signs / sizeof(REAL)); i++)
        signs[i] = (REAL)(i % 2 ? 1 : -1);
    for (; at + (ptrdiff_t)sizeof signs <= bytes; at += (ptrdiff_t)sizeof signs) {
        NAMED(Vector) sum = continues ? NAMED(vector_at)(found.rows[0], at)
                                      : NAMED(vector_term)(&found, 0, at, factors, signs);
        UNROLL for (int i = 1; i < count; i++)
            sum += NAMED(vector_term)(&found, i, at, factors, signs);
        *(NAMED(Vector) *)(to + at) = sum;
    }
#endif
    for (; at < bytes; at += 2 * (ptrdiff_t)sizeof(REAL)) {
        NAMED(Pair) sum = continues ? NAMED(pair_at)(found.rows[0], at)
                                    : NAMED(pair_term)(&found, 0, at, factors);
        UNROLL for (int i = 1; i < count; i++) {
            NAMED(Pair) term = NAMED(pair_term)(&found, i, at, factors);
            sum.real += term.real;
            sum.imag += term.imag;
        }
        *(NAMED(Pair) *)(to + at) = sum;
    }
}

/* ---- all sums ---- */

#define ADD_REAL(count, factors)                                                              \
    NAMED(find)(&found, terms, bases, count, factors, 0);                                     \
    NAMED(add_real)(to, &found, bytes, &ahead, count, factors, 0, 0, 0)
#define ADD_COMPLEX(count, factors)                                                           \
    NAMED(add_complex)(to, terms, bases, bytes, count, factors, sum->continues)
#define FACTORS_CASES(kind, add, factors)                     \
    case 16 * kind + 1: add(1, factors); break;               \
    case 16 * kind + 2: add(2, factors); break;               \
    case 16 * kind + 3: add(3, factors); break;               \
    case 16 * kind + 4: add(4, factors); break;

/* Sums that are written past the cache, or rows fetched meanwhile, in a function for each number of
   terms: in one for all of them, the addresses would not stay in registers. */
#define ADD_APART(number)                                                                      \
    static NOT_INLINE TARGET void NAMED(add_apart_##number)(                                   \
        char *to, const Sum *sum, const Term *terms, char *const *bases, ptrdiff_t bytes,     \
        const Ahead *ahead)                                                                   \
    {                                                                                         \
        NAMED(Terms) found;                                                                   \
        NAMED(find)(&found, terms, bases, number, 0, 0);                                       \
        if (number <= MOST_FETCHED && ahead->count)                                            \
            NAMED(add_real)(to, &found, bytes, ahead, number, 0, sum->past, 1, 0);             \
        else                                                                                  \
            NAMED(add_real)(to, &found, bytes, ahead, number, 0, sum->past, 0, 0);             \
    }
#define APART_CASE(count)                                                                     \
    case 16 * APART + count:                                                                  \
        NAMED(add_apart_##count)(to, sum, terms, bases, bytes, &ahead);                       \
        break;
#define UP_TO_8(make) make(1) make(2) make(3) make(4) make(5) make(6) make(7) make(8)

UP_TO_8(ADD_APART)

static TARGET void NAMED(add_all)(const Sums *sums, char *const *bases, ptrdiff_t bytes)
{
    const Term *terms = sums->terms;
    const Fetch *fetch = sums->fetches;
    for (const Sum *sum = sums->sums; sum < sums->sums + sums->count; sum++) {
        char *to = bases[sum->target.base] + sum->target.offset;
        NAMED(Terms) found;
        Ahead ahead;
        ahead.count = 0;
        for (; fetch < sums->fetches + sum->fetched; fetch++) {
            const char *row = bases[fetch->place.base] + fetch->place.offset;
            if (sums->inside && sum->kind == REAL_SUM && sum->count <= MOST_FETCHED
                && ahead.count < MOST_TERMS)
                ahead.rows[ahead.count++] = row;
            else
                for (ptrdiff_t at = 0; at < fetch->bytes; at += LINE)
                    PREFETCH(row + at);
        }
        switch (16 * (ahead.count || sum->past ? APART : (int)sum->kind) + sum->count) {
            UP_TO_8(APART_CASE)
            FACTORS_CASES(REAL_SUM, ADD_REAL, 0)
        case 5: ADD_REAL(5, 0); break;
        case 6: ADD_REAL(6, 0); break;
        case 7: ADD_REAL(7, 0); break;
        case 8: ADD_REAL(8, 0); break;
            FACTORS_CASES(REAL_FACTORS, ADD_REAL, 1)
            FACTORS_CASES(COMPLEX_SUM, ADD_COMPLEX, 0)
            FACTORS_CASES(COMPLEX_FACTORS, ADD_COMPLEX, 1)
        default: memset(to, 0, (size_t)bytes);
        }
        terms += sum->count;
        if (sum->copy.base >= 0)
            stream_run(bases[sum->copy.base] + sum->copy.offset, to, bytes, to);
    }
}

#undef ADD_REAL
#undef ADD_COMPLEX
#undef FACTORS_CASES
#undef ADD_APART
#undef APART_CASE
#undef UP_TO_8
