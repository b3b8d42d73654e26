/* Copies between strided blocks of memory. Plain C: knows nothing of Python. */
#ifndef PENCILS_BLOCK_H
#define PENCILS_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "formula.h"
#include "sums.h"

enum {
    MOST_AXES = 64,  /* as in NumPy and in the buffer protocol */
    LINE = 64,       /* bytes of a cache line */
    LONG_RUN = 256   /* bytes from which a run is copied by itself */
};

typedef struct {
    ptrdiff_t extent;
    ptrdiff_t target;  /* strides in bytes */
    ptrdiff_t source;
} Axis;

typedef enum { RUNS, MOVES, TILES, WITHIN } Kind;

/* One copy, brought to its simplest form: runs of bytes that are contiguous on both sides, and the
   axes that repeat them, slowest in the target first. There is always at least one axis. In TILES
   the last two are the one that is fastest in the source and the one fastest in the target. WITHIN
   moves a part of an array over itself: run by run, so that none is overwritten before it is read. */
typedef struct Block {
    char *target;
    const char *source;
    ptrdiff_t run;
    Kind kind;
    int naxes;
    Axis *axes;
    const struct Block *twin; /* is copied together with this one, item by item */
    int within; /* whether both are parts of an array that overlap, but may be copied at once */
} Block;

/* Simplify a copy of items. The axes come in any order, with strides of any sign; they are
   simplified in place, in an array with room for at least one, and belong to the caller. */
void block_prepare(Block *block, char *target, const char *source, ptrdiff_t itemsize, int naxes,
                   Axis *axes);

/* Bytes that the copy moves. */
ptrdiff_t block_bytes(const Block *block);

/* Let the first of two copies do what the second one does, if that can be done at once: both move
   single numbers the same steps apart, of lines that need to come into the cache once then. */
void blocks_join(Block *first, Block *second);

/* Execute a copy of kind WITHIN; the kernels execute all others. */
void block_move(const Block *block);

/* Execute one copy; `stream` past the cache, for targets too large to stay in it. */
typedef void Copier(const Block *block, int stream);

/* Make streamed data visible to others before anything stored later. */
void streams_finish(void);

/* Rows of words at equal distances in memory, and in the array that they are a part of. */
typedef struct {
    const char *data;
    int width;      /* bytes of a word: 1, 2, 4 or 8 */
    int64_t words;  /* of a row */
    int64_t count;  /* of rows */
    int64_t pitch;  /* bytes in memory from a row to the next */
    uint64_t first; /* position of the first word of the first row */
    uint64_t step;  /* from a row to the next */
} Rows;

/* Sum up mix(word + STEP * (position + 1)), modulo 2**64. */
typedef uint64_t Summer(const Rows *rows);

/* What is compiled for one instruction set. */
typedef struct {
    const char *name;
    Copier *copy;
    Summer *sum;
    Adder *add;
    Weigher *weigh;
    Strider *stride;
    Windower *windows;
    Totaler *total;
    Evaluator *evaluate;
} Level;

/* What this processor can run, best first; the last is "portable". */
int levels_available(Level *levels);
enum { MOST_LEVELS = 3 };

#endif
