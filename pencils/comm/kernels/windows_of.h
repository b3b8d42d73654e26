/* Sums of successive elements of rows of one type, two elements apart; after strides_of.h. */

/* Treat all sums number by number. */
SUM_INLINE void NAMED(window_numbers)(const Windows *sums)
{
    ptrdiff_t parts = sums->parts;
    const REAL *from = (const REAL *)sums->source + sums->point * parts;
    REAL *to = (REAL *)sums->target + sums->place * parts;
    for (ptrdiff_t at = 0; at < sums->number; at++, from += 2 * parts, to += parts)
        for (ptrdiff_t part = 0; part < parts; part++) {
            to[part] = (REAL)-0.0;
            for (int n = 0; n < sums->terms; n++)
                to[part] = NUMBER_MULTIPLY_ADD((REAL)sums->weights[n], from[n * parts + part], to[part]);
        }
}

#if HAVE_VECTORS
/* Each second element, of so many parts, of two vectors, and those between; elements of one, and the
   first one of the other, or before them the last one; and the parts of an element, again and again. */
#define SECOND_OF(lane, parts) ((lane) / (parts) * 2 * (parts) + (lane) % (parts))
#define BETWEEN(lane, parts) (SECOND_OF(lane, parts) + (parts))
#define AFTER(lane, parts) ((lane) + (parts))
#define BEFORE(lane, parts) (LANES + (lane) - (parts))
#define REPEATED(lane, parts) ((lane) % (parts) * LANES + (lane))
#define MOVED(a, b, how, parts)                                                               \
    (parts == 1 ? (NAMED(Vector))SHUFFLED(a, b, how, 1) : (NAMED(Vector))SHUFFLED(a, b, how, 2))

/* Elements of even and of odd numbers, as many of each as a vector has. */
typedef struct {
    NAMED(Vector) even, odd;
} NAMED(Halves);

SUM_INLINE NAMED(Halves) NAMED(halves_at)(const REAL *from, int parts)
{
    NAMED(Vector) row = NAMED(vector_at)((const char *)from, 0);
    NAMED(Vector) next = NAMED(vector_at)((const char *)from, WIDTH);
    return (NAMED(Halves)){MOVED(row, next, SECOND_OF, parts), MOVED(row, next, BETWEEN, parts)};
}

SUM_INLINE void NAMED(repeat)(NAMED(Vector) *row, const REAL *from, int parts)
{
    *row = MOVED(NAMED(all)(from[0]), NAMED(all)(from[parts - 1]), REPEATED, parts);
}

/* A vector of sums. Of the halves before and after these, one element is used. */
SUM_INLINE NAMED(Vector) NAMED(window_sum)(const double *weights, NAMED(Halves) last,
                                           NAMED(Halves) here, NAMED(Halves) next, int parts,
                                           int terms, int late)
{
    const NAMED(Vector) rows[] = {MOVED(last.odd, here.odd, BEFORE, parts), here.even, here.odd,
                                  MOVED(here.even, next.even, AFTER, parts),
                                  MOVED(here.odd, next.odd, AFTER, parts)};
    NAMED(Vector) sum = NAMED(all)((REAL)-0.0);
    UNROLL for (int i = 0; i < terms; i++)
        sum = NAMED(multiply_add)(NAMED(all)((REAL)weights[i]), rows[i + 1 - late], sum);
    return sum;
}

/* Write so many vectors of sums. Nothing outside of the row is read: only other places need it. */
SUM_INLINE void NAMED(window_vectors)(const Windows *sums, const REAL *from, REAL *to, ptrdiff_t count,
                                      int parts, int terms, int late, int stream)
{
    const REAL *begin = (const REAL *)sums->source, *end = begin + sums->length * parts;
    NAMED(Halves) here = NAMED(halves_at)(from, parts), last = here, next;
    if (late && from > begin)
        NAMED(repeat)(&last.odd, from - parts, parts);
    for (; count > 1; count--, to += LANES, last = here, here = next) {
        next = NAMED(halves_at)(from += 2 * LANES, parts);
        NAMED(put)(to, NAMED(window_sum)(sums->weights, last, here, next, parts, terms, late), stream);
    }
    next = here, from += 2 * LANES;
    if (terms > 2 + late && from < end)
        NAMED(repeat)(&next.even, from, parts);
    if (terms > 3 + late && from + parts < end)
        NAMED(repeat)(&next.odd, from + parts, parts);
    NAMED(put)(to, NAMED(window_sum)(sums->weights, last, here, next, parts, terms, late), stream);
}

/* Vectors of the row begin with the first element of a window, or, if that is `late`, with its second
   one: so they are aligned in most rows. At the ends of the target they overlap others. */
SUM_INLINE void NAMED(sum_windows)(const Windows *sums, int parts, int terms, int late)
{
    ptrdiff_t some = LANES / parts, base = sums->point + late, place = sums->place;
    ptrdiff_t back = place < base / 2 ? place : base / 2; /* other places come before, and after */
    base -= 2 * back, place -= back;
    ptrdiff_t number = (sums->length - base) / 2, room = sums->width - place, at = 0;
    const REAL *from = (const REAL *)sums->source + base * parts;
    REAL *to = (REAL *)sums->target + place * parts;
    uintptr_t item = (uintptr_t)parts * sizeof(REAL);
    int stream = sums->stream && (uintptr_t)to % item == 0;
    number = number < room ? number : room;
    if (number < some) {
        NAMED(window_numbers)(sums);
        return;
    }
    if (stream) /* from the first vector on that can be written past the cache */
        at = (ptrdiff_t)((-(uintptr_t)to & (WIDTH - 1)) / item);
    if (at)
        NAMED(window_vectors)(sums, from, to, 1, parts, terms, late, 0);
    if (at + some <= number)
        NAMED(window_vectors)(sums, from + 2 * at * parts, to + at * parts, (number - at) / some,
                              parts, terms, late, stream);
    if ((number - at) % some) {
        at = number - some;
        NAMED(window_vectors)(sums, from + 2 * at * parts, to + at * parts, 1, parts, terms, late, 0);
    }
}

#define WINDOW(terms, late)                                                                   \
    case (terms * 2 + late) * 2 + 1: NAMED(sum_windows)(sums, 1, terms, late); break;         \
    case (terms * 2 + late) * 2 + 2: NAMED(sum_windows)(sums, 2, terms, late); break;

static TARGET void NAMED(add_windows)(const Windows *sums)
{
    uintptr_t item = sizeof(REAL) << (sums->parts - 1);
    uintptr_t first = (uintptr_t)sums->source + (uintptr_t)sums->point * item;
    int late = sums->terms > 2 && (first & item);
    switch ((sums->terms * 2 + late) * 2 + sums->parts) {
        WINDOW(2, 0) WINDOW(3, 0) WINDOW(3, 1) WINDOW(4, 0) WINDOW(4, 1)
    }
}
#undef SECOND_OF
#undef BETWEEN
#undef AFTER
#undef BEFORE
#undef REPEATED
#undef MOVED
#undef WINDOW
#else
static TARGET void NAMED(add_windows)(const Windows *sums)
{
    NAMED(window_numbers)(sums);
}
#endif
