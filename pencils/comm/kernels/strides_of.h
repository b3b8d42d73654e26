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
enum { NAMED(MANY) = 4 };

/* Elements of two vectors, of so many parts, that alternate, from some place on. */
#define MIXED_AT(place, parts, part) ((place) % 2 * LANES + (place) / 2 * (parts) + (part))
#define MIXED(lane, parts, first) MIXED_AT((first) + (lane) / (parts), parts, (lane) % (parts))

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

SUM_INLINE void NAMED(stride_vectors)(const Strided *sums, ptrdiff_t at, ptrdiff_t up, ptrdiff_t down,
                                      int parts, int count, int stream)
{
    NAMED(Vector) found[NAMED(MANY)], next[NAMED(MANY)];
    const REAL *from = (const REAL *)sums->source + at * down * parts;
    REAL *to = (REAL *)sums->target + at * up * parts;
    for (ptrdiff_t entry = 0; entry < up; entry++, to += parts) {
        NAMED(add_strided)(sums, entry, from, down, parts, count, found);
        if (up == 2)
            NAMED(add_strided)(sums, ++entry, from, down, parts, count, next);
        UNROLL for (int n = 0; n < count; n++)
            NAMED(put_strided)(to + n * LANES * up, found[n], next[n], up, parts, stream);
    }
}

/* Vectors at the ends overlap others. */
SUM_INLINE void NAMED(stride_all)(const Strided *sums, ptrdiff_t up, ptrdiff_t down, int parts)
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
            NAMED(stride_vectors)(sums, 0, up, down, parts, 1, 0);
    }
    for (; at + NAMED(MANY) * some <= sums->periods; at += NAMED(MANY) * some)
        NAMED(stride_vectors)(sums, at, up, down, parts, NAMED(MANY), stream);
    for (; at + some <= sums->periods; at += some)
        NAMED(stride_vectors)(sums, at, up, down, parts, 1, stream);
    if (at < sums->periods)
        NAMED(stride_vectors)(sums, sums->periods - some, up, down, parts, 1, 0);
}

static TARGET void NAMED(stride)(const Strided *sums)
{
    ptrdiff_t up = sums->up, down = sums->down;
    if (up == 2 && down == 1 && sums->parts == 1)
        NAMED(stride_all)(sums, 2, 1, 1);
    else if (up == 2 && down == 1)
        NAMED(stride_all)(sums, 2, 1, 2);
    else if (sums->parts == 1)
        NAMED(stride_all)(sums, up, down, 1);
    else
        NAMED(stride_all)(sums, up, down, 2);
}
#undef MIXED_AT
#undef MIXED
#else
static TARGET void NAMED(stride)(const Strided *sums)
{
    NAMED(stride_numbers)(sums);
}
#endif
