/* Sums along rows of one type, at distances that differ in source and target; after sums_of.h. */

/* Treat all periods number by number. */
SUM_INLINE void NAMED(stride_numbers)(const Strided *sums)
{
    ptrdiff_t parts = sums->parts;
    for (ptrdiff_t n = 0, begin = 0; n < sums->up; begin = sums->ends[n++])
        for (ptrdiff_t period = 0; period < sums->periods; period++) {
            REAL *to = (REAL *)sums->target + (period * sums->up + n) * parts;
            const REAL *from = (const REAL *)sums->source + period * sums->down * parts;
            for (int part = 0; part < parts; part++)
                to[part] = (REAL)-0.0;
            for (ptrdiff_t i = begin; i < sums->ends[n]; i++)
                for (int part = 0; part < parts; part++)
                    to[part] = NUMBER_MULTIPLY_ADD((REAL)sums->weights[i],
                                                   from[sums->points[i] * parts + part], to[part]);
        }
}

#if HAVE_VECTORS
#define LANES ((int)(WIDTH / sizeof(REAL)))
enum { NAMED(MANY) = 4, NAMED(MOST_WINDOW) = 4 };

/* Each second element, of so many parts, of two vectors, and those between; all elements but the
   first of one and the first of the other; and elements of both that alternate, from some place on. */
#define SECOND_OF(lane, parts) ((lane) / (parts) * 2 * (parts) + (lane) % (parts))
#define BETWEEN(lane, parts) (SECOND_OF(lane, parts) + (parts))
#define NEXT_TO(lane, parts) ((lane) + (parts))
#define MIXED_AT(place, parts, part) ((place) % 2 * LANES + (place) / 2 * (parts) + (part))
#define MIXED(lane, parts, first) MIXED_AT((first) + (lane) / (parts), parts, (lane) % (parts))
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, PAIRED(EACH)(__VA_ARGS__))

/* The elements that are `down` apart, as many as a vector has. */
SUM_INLINE NAMED(Vector) NAMED(strided)(const REAL *from, ptrdiff_t down, int parts)
{
    NAMED(Vector) row = NAMED(vector_at)((const char *)from, 0);
    if (down > 1)
        UNROLL for (int lane = 0; lane < LANES; lane++)
            row[lane] = from[lane / parts * down * parts + lane % parts];
    return row;
}

SUM_INLINE void NAMED(put)(REAL *to, NAMED(Vector) found, int stream)
{
    if (stream)
        STREAM_VECTOR(to, found);
    else
        *(NAMED(Vector) *)to = found;
}

/* Write sums, which are `up` apart; the next ones, if there are two of each period. */
SUM_INLINE void NAMED(put_strided)(REAL *to, NAMED(Vector) found, NAMED(Vector) next, ptrdiff_t up,
                                   int parts, int stream)
{
    if (up == 1)
        NAMED(put)(to, found, stream);
    else if (up == 2) {
        NAMED(put)(to, parts == 1 ? SHUFFLED(found, next, MIXED, 1, 0)
                                  : SHUFFLED(found, next, MIXED, 2, 0), stream);
        NAMED(put)(to + LANES, parts == 1 ? SHUFFLED(found, next, MIXED, 1, LANES)
                                          : SHUFFLED(found, next, MIXED, 2, LANES / 2), stream);
    } else
        UNROLL for (int lane = 0; lane < LANES; lane++)
            to[lane / parts * up * parts + lane % parts] = found[lane];
}

/* Add up one of the entries, in so many vectors. */
SUM_INLINE void NAMED(add_strided)(const Strided *sums, ptrdiff_t entry, const REAL *from,
                                   ptrdiff_t down, int parts, int count, NAMED(Vector) *found)
{
    UNROLL for (int n = 0; n < count; n++)
        found[n] = NAMED(all)((REAL)-0.0);
    for (ptrdiff_t i = entry ? sums->ends[entry - 1] : 0; i < sums->ends[entry]; i++) {
        const REAL *at = from + sums->points[i] * parts;
        NAMED(Vector) weight = NAMED(all)((REAL)sums->weights[i]);
        UNROLL for (int n = 0; n < count; n++)
            found[n] = NAMED(multiply_add)(weight, NAMED(strided)(at + n * LANES * down, down, parts),
                                           found[n]);
    }
}

/* Elements of even and of odd numbers, as many of each as a vector has. */
typedef struct {
    NAMED(Vector) even, odd;
} NAMED(Halves);

SUM_INLINE NAMED(Halves) NAMED(halves_at)(const REAL *from, int parts)
{
    NAMED(Vector) row = NAMED(vector_at)((const char *)from, 0);
    NAMED(Vector) next = NAMED(vector_at)((const char *)from, WIDTH);
    if (parts == 1)
        return (NAMED(Halves)){SHUFFLED(row, next, SECOND_OF, 1), SHUFFLED(row, next, BETWEEN, 1)};
    return (NAMED(Halves)){SHUFFLED(row, next, SECOND_OF, 2), SHUFFLED(row, next, BETWEEN, 2)};
}

SUM_INLINE NAMED(Vector) NAMED(next_to)(NAMED(Vector) row, NAMED(Vector) next, int parts)
{
    if (parts == 1)
        return SHUFFLED(row, next, NEXT_TO, 1);
    return SHUFFLED(row, next, NEXT_TO, 2);
}

/* Add up windows of so many successive elements, two elements apart, in so many vectors: each element
   is read once, and none behind the last window. */
SUM_INLINE void NAMED(add_windows)(const Strided *sums, const REAL *from, int parts, int terms,
                                   int count, NAMED(Vector) *found)
{
    NAMED(Halves) here = NAMED(halves_at)(from += sums->points[0] * parts, parts), next = here;
    UNROLL for (int n = 0; n < count; n++, here = next) {
        from += 2 * LANES;
        if (n < count - 1)
            next = NAMED(halves_at)(from, parts);
        else
            UNROLL for (int part = 0; part < parts; part++) {
                next.even[part] = terms > 2 ? from[part] : 0;
                next.odd[part] = terms > 3 ? from[parts + part] : 0;
            }
        const NAMED(Vector) rows[NAMED(MOST_WINDOW)] = {
            here.even, here.odd, NAMED(next_to)(here.even, next.even, parts),
            NAMED(next_to)(here.odd, next.odd, parts)};
        found[n] = NAMED(all)((REAL)-0.0);
        UNROLL for (int i = 0; i < terms; i++)
            found[n] = NAMED(multiply_add)(NAMED(all)((REAL)sums->weights[i]), rows[i], found[n]);
    }
}

/* Of windows, the number of terms is given. */
SUM_INLINE void NAMED(stride_vectors)(const Strided *sums, ptrdiff_t at, ptrdiff_t up, ptrdiff_t down,
                                      int parts, int terms, int count, int stream)
{
    NAMED(Vector) found[NAMED(MANY)], next[NAMED(MANY)];
    const REAL *from = (const REAL *)sums->source + at * down * parts;
    REAL *to = (REAL *)sums->target + at * up * parts;
    for (ptrdiff_t entry = 0; entry < up; entry++, to += parts) {
        if (terms)
            NAMED(add_windows)(sums, from, parts, terms, count, found);
        else
            NAMED(add_strided)(sums, entry, from, down, parts, count, found);
        if (up == 2)
            NAMED(add_strided)(sums, ++entry, from, down, parts, count, next);
        UNROLL for (int n = 0; n < count; n++)
            NAMED(put_strided)(to + n * LANES * up, found[n], next[n], up, parts, stream);
    }
}

/* Vectors at the ends overlap others. */
SUM_INLINE void NAMED(stride_all)(const Strided *sums, ptrdiff_t up, ptrdiff_t down, int parts,
                                  int terms)
{
    ptrdiff_t some = LANES / parts, at = 0, bytes = up * parts * (ptrdiff_t)sizeof(REAL);
    int stream = sums->stream && up <= 2 && (uintptr_t)sums->target % bytes == 0;
    if (sums->periods < some) {
        NAMED(stride_numbers)(sums);
        return;
    }
    if (stream) { /* from the first vector on that can be written past the cache */
        at = (-(uintptr_t)sums->target & (WIDTH - 1)) / bytes;
        if (at)
            NAMED(stride_vectors)(sums, 0, up, down, parts, terms, 1, 0);
    }
    for (; at + NAMED(MANY) * some <= sums->periods; at += NAMED(MANY) * some)
        NAMED(stride_vectors)(sums, at, up, down, parts, terms, NAMED(MANY), stream);
    for (; at + some <= sums->periods; at += some)
        NAMED(stride_vectors)(sums, at, up, down, parts, terms, 1, stream);
    if (at < sums->periods)
        NAMED(stride_vectors)(sums, sums->periods - some, up, down, parts, terms, 1, 0);
}

/* The terms of windows that are two elements apart, else 0: successive elements, a few of them. */
SUM_INLINE int NAMED(window_of)(const Strided *sums)
{
    ptrdiff_t terms = sums->ends[0];
    int is_window = sums->up == 1 && sums->down == 2 && terms > 1 && terms <= NAMED(MOST_WINDOW);
    for (ptrdiff_t i = 1; i < terms && is_window; i++)
        is_window = sums->points[i] == sums->points[0] + i;
    return is_window ? (int)terms : 0;
}

#define WINDOWS(terms)                                                                        \
    case 2 * terms: NAMED(stride_all)(sums, 1, 2, 1, terms); return;                          \
    case 2 * terms + 1: NAMED(stride_all)(sums, 1, 2, 2, terms); return;

static TARGET void NAMED(stride)(const Strided *sums)
{
    ptrdiff_t up = sums->up, down = sums->down;
    switch (2 * NAMED(window_of)(sums) + sums->parts - 1) { WINDOWS(2) WINDOWS(3) WINDOWS(4) }
    if (up == 2 && down == 1 && sums->parts == 1)
        NAMED(stride_all)(sums, 2, 1, 1, 0);
    else if (up == 2 && down == 1)
        NAMED(stride_all)(sums, 2, 1, 2, 0);
    else if (sums->parts == 1)
        NAMED(stride_all)(sums, up, down, 1, 0);
    else
        NAMED(stride_all)(sums, up, down, 2, 0);
}
#undef WINDOWS
#undef LANES
#undef SECOND_OF
#undef BETWEEN
#undef NEXT_TO
#undef MIXED_AT
#undef MIXED
#undef SHUFFLED
#else
static TARGET void NAMED(stride)(const Strided *sums)
{
    NAMED(stride_numbers)(sums);
}
#endif
