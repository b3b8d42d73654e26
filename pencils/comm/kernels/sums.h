/* Weighted sums of rows in memory. */
#ifndef PENCILS_SUMS_H
#define PENCILS_SUMS_H

#include <stddef.h>
#include <stdint.h>

typedef enum { FLOAT, DOUBLE, COMPLEX_FLOAT, COMPLEX_DOUBLE } Element;

/* A row begins so many bytes after one of the bases, which differ from strip to strip. */
typedef struct {
    ptrdiff_t base, offset;
} Place;

typedef struct {
    Place row, factor; /* the factor has a number for each element of the row */
    double weight[2];
} Term;

/* Whether weights are real, and there are factors; and the most terms of a sum. Complex rows with
   real weights are added as real ones. */
typedef enum { REAL_SUM, REAL_FACTORS, COMPLEX_SUM, COMPLEX_FACTORS } SumKind;
enum { MOST_TERMS = 8, MOST_FACTORS = 4 };

/* The target, which may be one of the rows, becomes the sum of the next so many terms. Then it is
   copied past the cache if there is a base for the copy; sums with real weights may be written past
   it at once. Before, so many rows have been fetched. */
typedef struct {
    Place target, copy;
    SumKind kind;
    int count, past, continues; /* the first term is what was added so far: no product */
    ptrdiff_t fetched;
} Sum;

/* So many bytes are fetched from memory before they are needed. */
typedef struct {
    Place place;
    ptrdiff_t bytes;
} Fetch;

typedef struct {
    Element element;
    ptrdiff_t count, nterms, nfetches;
    Sum *sums;
    Term *terms;
    Fetch *fetches;
    int inside; /* whether rows are fetched while sums are computed, not before */
} Sums;

/* Compute one sum after the other, of rows of so many elements. */
typedef void Adder(const Sums *sums, char *const *bases, ptrdiff_t width);

/* One sum of rows with real weights; complex rows are real ones of twice as many numbers. The bytes
   from `ahead` on, if it is not NULL, are fetched meanwhile, and the target, no row of the sum, is
   written past the cache if `stream` is set. With `as_complex`, the sum is one of complex numbers, as
   NumPy takes products: where one part of a row is infinite or NaN, 0 times this makes NaN of the
   other part. */
typedef struct {
    char *target;
    const char *const *rows;
    const double *weights;
    int count; /* up to MOST_TERMS */
    ptrdiff_t bytes;
    const char *ahead;
    int stream, as_complex;
} Weighted;

typedef void Weigher(const Weighted *sum, int is_double);

/* Sums along a row, `up` of them in each period, which are `up` elements apart in the target and `down`
   in the source. Each sum has terms up to its end: points of the source in the first period, and
   weights. A complex element has two parts. */
typedef struct {
    char *target;
    const char *source;
    const int64_t *ends, *points;
    const double *weights;
    ptrdiff_t up, down, periods;
    int parts, stream;
} Strided;

typedef void Strider(const Strided *sums, int is_double);

/* Sums of `terms` successive elements of a row, for places of the target from `place` on: those from
   `point` on, and two elements farther on for each following place. All elements lie in the row. Other
   places may be overwritten. */
enum { MOST_WINDOW = 4 };
typedef struct {
    char *target;
    const char *source;
    const double *weights;
    int terms; /* from 2 up to MOST_WINDOW */
    ptrdiff_t place, point, number;
    ptrdiff_t width, length; /* of the rows of target and source */
    int parts, stream;
} Windows;

typedef void Windower(const Windows *sums, int is_double);

/* The sum of contiguous numbers, added in the order of NumPy. */
typedef double Totaler(const double *numbers, ptrdiff_t count);

#endif
