/* Line programs: weighted sums of rows, executed for all lines of arrays along one axis. Plain C:
   knows nothing of Python. */
#ifndef PENCILS_LINES_H
#define PENCILS_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "block.h"

/* What is executed, as in pencils/comm/line_program.py. A weight has one or two numbers. */
typedef struct {
    int64_t rows, nsteps, nterms;
    const int64_t *targets, *ends;       /* for each step */
    const int64_t *as_complex;           /* whether its real weights are complex, for each step */
    const int64_t *rows_of, *factors_of; /* for each term */
    const double *weights;
    int complex_weights;
} Program;

/* An array whose points along the lines are consecutive rows. They are read or written where they
   lie if they are contiguous there; else blocks are copied, for strips of most lines and for those
   of fewer lines that remain. */
typedef struct {
    char *first;
    ptrdiff_t begin, count, step;
    ptrdiff_t strides[MOST_AXES + 1]; /* of the axes that number the lines */
    int in_place;
    Axis *axes;
    Block blocks[2];
} Segment;

/* Where rows lie: places are bytes after one of these bases, which move from strip to strip. */
enum { BUFFER, FACTORS, SEGMENTS };

typedef struct {
    Program program;
    Element element;
    int nsources, nsegments, naxes;
    Segment *segments; /* sources, then targets */
    ptrdiff_t extents[MOST_AXES + 1];
    const char *factors; /* coefficients: rows, `factor_step` bytes apart */
    int64_t nfactors;
    ptrdiff_t factor_step;
    ptrdiff_t bytes, fewest, most; /* of a buffer; lines of a strip */
    int stream;                    /* write targets past the cache if they are not sources */
    /* What follows is found by `lines_prepare`. */
    int64_t slots;         /* rows of the buffer */
    int copied;            /* whether segments are copied */
    int cut;               /* strips are parts of the axis before this one */
    ptrdiff_t inner, step; /* lines for each of its points, and points in a strip */
    ptrdiff_t pitch;       /* bytes from row to row of the buffer */
    char *memory, *buffer;
    char **bases;
    Sums sums;
} Lines;

/* Divide the lines in strips, and allocate memory; false if there is none; `lines_free` in any case.
   The program is right: pencils/comm/line_program.py has checked it. */
int lines_prepare(Lines *lines);

void lines_run(const Lines *lines, Copier *copy, Adder *add);

void lines_free(Lines *lines);

/* Translate the program to sums, whose places in the buffer are numbers of slots at first;
   the last two are for parts of long sums, and for ones. */
int lines_translate(Lines *lines);

/* Make bytes of slots, and decide when rows are fetched. */
int lines_place(Lines *lines);

/* Bytes of an element. */
ptrdiff_t size_of(Element element);

#endif
