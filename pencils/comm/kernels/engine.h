/* The copies themselves. */
#include "block.h"

#include <stdint.h>
#include <string.h>
#include "machine.h"

#define KERNEL static TARGET
#define INLINE static inline ALWAYS_INLINE TARGET

enum {
    SCRATCH = 65536, /* bytes put together in a near cache before they are written out */
    SPAN = 512,      /* bytes that a tile takes of each row of the source, to stay on its page */
    ROWS = 128,      /* most rows of a tile */
    STRIP = 8,       /* tiles side by side in the target that are copied one after the other */
    CHUNK = 4096,    /* bytes of short runs put together before they are written out */
    AHEAD = 4096,    /* bytes to fetch before they are needed */
    NEAR = 1024,     /* the same within a long run; processors stop at the end of each page */
    CROWDED = 2048   /* rows that are multiples of this apart drive each other out of the cache */
};

#ifdef __GNUC__
typedef uint8_t Wide __attribute__((vector_size(WIDTH), aligned(1), may_alias));
#else
typedef struct {
    uint8_t bytes[WIDTH];
} Wide;
#endif

#if HAVE_VECTORS
#include "transpose.h"
#endif

INLINE ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
INLINE ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
INLINE ptrdiff_t past_line(const char *address) { return (uintptr_t)address & (LINE - 1); }

/* ---- contiguous bytes ---- */

INLINE void stream_line(char *to, const char *from)
{
    UNROLL for (int i = 0; i < LINE; i += WIDTH)
        STREAM(to + i, *(const Wide *)(from + i));
}

/* Write past the cache: whole lines, and ordinary bytes before the first and after the last. */
KERNEL void stream_run(char *to, const char *from, ptrdiff_t bytes, const char *ahead)
{
    ptrdiff_t head = least(bytes, -(uintptr_t)to & (LINE - 1)), at = head;
    memcpy(to, from, head);
    for (; at + LINE <= bytes; at += LINE) {
        PREFETCH(ahead + at);
        stream_line(to + at, from + at);
    }
    memcpy(to + at, from + at, bytes - at);
}

/* Target bytes that follow each other, collected until there are whole lines to write. */
typedef struct {
    char *bytes;
    char *target;
    ptrdiff_t filled;
} Writer;

KERNEL void flush(Writer *writer)
{
    stream_run(writer->target, writer->bytes, writer->filled, writer->bytes);
    writer->target += writer->filled;
    writer->filled = 0;
}

/* Keep the last, partial line: its rest is about to come. */
KERNEL void flush_lines(Writer *writer)
{
    ptrdiff_t rest = least(writer->filled, past_line(writer->target + writer->filled));
    writer->filled -= rest;
    ptrdiff_t written = writer->filled;
    flush(writer);
    memcpy(writer->bytes, writer->bytes + written, rest);
    writer->filled = rest;
}

/* Where the next so many bytes of the target are to be put together. */
INLINE char *room(Writer *writer, char *target, ptrdiff_t bytes)
{
    if (target != writer->target + writer->filled) {
        flush(writer);
        writer->target = target;
    } else if (writer->filled + bytes > SCRATCH + LINE)
        flush_lines(writer);
    char *here = writer->bytes + writer->filled;
    writer->filled += bytes;
    return here;
}

/* ---- steps along the axes ---- */

typedef struct {
    char *target;
    const char *source;
    ptrdiff_t at[MOST_AXES];
} Walk;

INLINE void walk_start(Walk *walk, const Block *block, int naxes)
{
    walk->target = block->target;
    walk->source = block->source;
    for (int i = 0; i < naxes; i++)
        walk->at[i] = 0;
}

/* Go to the next point; false after the last one. */
INLINE int walk_step(Walk *walk, const Axis *axes, int naxes)
{
    for (int i = naxes - 1; i >= 0; i--) {
        walk->target += axes[i].target;
        walk->source += axes[i].source;
        if (++walk->at[i] < axes[i].extent)
            return 1;
        walk->target -= axes[i].extent * axes[i].target;
        walk->source -= axes[i].extent * axes[i].source;
        walk->at[i] = 0;
    }
    return 0;
}

/* ---- long runs ---- */

KERNEL void copy_runs(const Block *block, int stream)
{
    Walk here, ahead;
    int more = 1;
    walk_start(&here, block, block->naxes);
    walk_start(&ahead, block, block->naxes);
    for (ptrdiff_t bytes = 0; more && bytes < AHEAD; bytes += block->run)
        more = walk_step(&ahead, block->axes, block->naxes);
    do {
        if (stream)
            stream_run(here.target, here.source, block->run,
                       block->run >= AHEAD ? here.source + NEAR : ahead.source);
        else {
            if (block->run < AHEAD)
                for (ptrdiff_t at = 0; at < block->run; at += LINE)
                    PREFETCH(ahead.source + at);
            memcpy(here.target, here.source, block->run);
        }
        if (more)
            more = walk_step(&ahead, block->axes, block->naxes);
    } while (walk_step(&here, block->axes, block->naxes));
}

/* ---- short runs ---- */

#define MOVE(size)                                             \
    case size:                                                 \
        if (far)                                               \
            for (ptrdiff_t i = 0; i < count; i++) {            \
                PREFETCH(from + (i + 16) * stride);            \
                memcpy(to + i * step, from + i * stride, size); \
            }                                                  \
        else                                                   \
            for (ptrdiff_t i = 0; i < count; i++)              \
                memcpy(to + i * step, from + i * stride, size); \
        break;

KERNEL void move_runs(char *to, ptrdiff_t step, const char *from, ptrdiff_t stride,
                      ptrdiff_t count, ptrdiff_t run)
{
    int far = stride >= LINE || stride <= -LINE;
    switch (run) {
        MOVE(1) MOVE(2) MOVE(4) MOVE(8) MOVE(12) MOVE(16) MOVE(24) MOVE(32) MOVE(48) MOVE(64)
    default:
        for (ptrdiff_t i = 0; i < count; i++) {
            PREFETCH(from + (i + 16) * stride);
            PREFETCH(from + (i + 16) * stride + run - 1);
            memcpy(to + i * step, from + i * stride, run);
        }
    }
}

#define MOVE_BOTH(size)                                        \
    case size:                                                 \
        for (ptrdiff_t i = 0; i < count; i++) {                \
            PREFETCH(from + (i + 16) * step);                  \
            PREFETCH(other_from + (i + 16) * step);            \
            memcpy(to + i * step, from + i * step, size);      \
            memcpy(other_to + i * step, other_from + i * step, size); \
        }                                                      \
        break;

/* Copy a block and its twin, which has the same axes. */
KERNEL void move_both(const Block *block)
{
    int outer = block->naxes - 1;
    ptrdiff_t count = block->axes[outer].extent, step = block->axes[outer].target;
    Walk walk;
    walk_start(&walk, block, outer);
    do {
        char *to = walk.target, *other_to = block->twin->target + (to - block->target);
        const char *from = walk.source;
        const char *other_from = block->twin->source + (from - block->source);
        switch (block->run) { MOVE_BOTH(4) MOVE_BOTH(8) MOVE_BOTH(16) }
    } while (walk_step(&walk, block->axes, outer));
}

KERNEL void copy_moves(const Block *block, int stream, Writer *writer)
{
    int outer = block->naxes - 1;
    Axis axis = block->axes[outer];
    ptrdiff_t run = block->run;
    /* Runs within one line gain nothing from streaming: all of the source is read anyway. */
    ptrdiff_t chunk = stream && axis.target == run && run > LINE ? CHUNK / run : 0;
    Walk walk;
    walk_start(&walk, block, outer);
    do {
        if (chunk == 0)
            move_runs(walk.target, axis.target, walk.source, axis.source, axis.extent, run);
        else
            for (ptrdiff_t i = 0, n; i < axis.extent; i += n) {
                n = least(chunk, axis.extent - i);
                move_runs(room(writer, walk.target + i * run, n * run), run,
                          walk.source + i * axis.source, axis.source, n, run);
            }
    } while (walk_step(&walk, block->axes, outer));
}

/* ---- changed memory order ---- */

typedef void Square(char *to, ptrdiff_t pitch, const char *from, ptrdiff_t stride);

/* Cover a tile with squares of n elements; the last ones overlap those before. */
INLINE int cover(Square *square, ptrdiff_t n, char *to, ptrdiff_t pitch, const char *from,
                 ptrdiff_t stride, ptrdiff_t run, ptrdiff_t rows, ptrdiff_t columns, int large)
{
    if (rows < n || columns < n)
        return 0;
    for (ptrdiff_t i = 0; i < columns; i += n) {
        ptrdiff_t column = least(i, columns - n);
        for (ptrdiff_t j = 0; j < rows; j += n) {
            ptrdiff_t row = least(j, rows - n);
            const char *here = from + column * stride + row * run;
            if (large && row * run % LINE < n * run) /* once for a line */
                UNROLL for (ptrdiff_t k = 2 * n; k < 3 * n; k++)
                    PREFETCH(here + k * stride);
            square(to + row * pitch + column * run, pitch, here, stride);
        }
    }
    return 1;
}

#define COVER(square, n) cover(square, n, to, pitch, from, stride, run, rows, columns, large)

/* Transpose a tile with the widest squares that fit into it; false if there are none. */
#if HAVE_VECTORS
KERNEL int cover_tile(char *to, ptrdiff_t pitch, const char *from, ptrdiff_t stride,
                      ptrdiff_t run, ptrdiff_t rows, ptrdiff_t columns, int large)
{
    switch (run) {
    case 1: return COVER(square_1_narrow, 16);
    case 2: return COVER(square_2_narrow, 8);
#if WIDTH > 16
    case 4: return COVER(square_4, WIDTH / 4) || COVER(square_4_narrow, 4);
    case 8: return COVER(square_8, WIDTH / 8) || COVER(square_8_narrow, 2);
    case 16: return COVER(square_16, WIDTH / 16);
#else
    case 4: return COVER(square_4_narrow, 4);
    case 8: return COVER(square_8_narrow, 2);
#endif
    default: return 0;
    }
}
#else
#define cover_tile(to, pitch, from, stride, run, rows, columns, large) ((void)(large), 0)
#endif

KERNEL void fill_tile(char *to, ptrdiff_t pitch, const char *from, const Axis *axes,
                      ptrdiff_t run, ptrdiff_t rows, ptrdiff_t columns, int large)
{
    if (axes[0].source == run
        && cover_tile(to, pitch, from, axes[1].source, run, rows, columns, large))
        return;
    for (ptrdiff_t i = 0; i < rows; i++)
        move_runs(to + i * pitch, run, from + i * axes[0].source, axes[1].source, columns, run);
}

/* Columns of a tile lie along the axis that is fastest in the target, rows along the other. */
typedef struct {
    ptrdiff_t rows, columns;
    ptrdiff_t pitch; /* bytes from row to row */
    int dense;       /* tiles follow each other in the target without gaps */
} Tiling;

KERNEL Tiling tiling_of(const Block *block)
{
    const Axis *axes = block->axes + block->naxes - 2;
    ptrdiff_t run = block->run, line = most(1, LINE / (run & -run));
    Tiling tiling;
    tiling.rows = least(ROWS, most(1, SPAN / most(run, axes[0].source)));
    tiling.rows = least(axes[0].extent, tiling.rows);
    tiling.columns = (SCRATCH / tiling.rows - 3 * LINE) / run;
    tiling.columns = least(axes[1].extent, tiling.columns - tiling.columns % line);
    /* Rows have the same offset from a line as in the target, and room for one before them. */
    tiling.pitch = (tiling.columns * run / LINE + 2) * LINE + (axes[0].target & (LINE - 1));
    tiling.dense = tiling.columns == axes[1].extent && axes[1].target == run
                   && axes[0].target == run * axes[1].extent;
    if (tiling.dense) {
        ptrdiff_t rows = SCRATCH / (tiling.columns * run);
        tiling.rows = least(axes[0].extent, rows > line ? rows - rows % line : rows);
        tiling.pitch = tiling.columns * run;
    }
    return tiling;
}

/* Rows up to the first that starts a line of the source, if they all do. */
INLINE ptrdiff_t rows_to_line(const char *source, ptrdiff_t run, ptrdiff_t stride)
{
    ptrdiff_t past = past_line(source);
    return past && stride % LINE == 0 && (LINE - past) % run == 0 ? (LINE - past) / run : 0;
}

/* Stream a row of a tile. A partial line at its end, unless it is the last one, waits before the
   row in the tile for what comes next, and a row that is not the first one begins with it. */
KERNEL void stream_row(char *to, char *row, ptrdiff_t bytes, int first, int last)
{
    ptrdiff_t past = past_line(to), before = first ? 0 : past, rest = last ? 0 : past;
    stream_run(to - before, row - before, before + bytes - rest, row);
    memcpy(row - rest, row + bytes - rest, rest);
}

/* Write the rows of a tile to where they belong. */
KERNEL void write_tile(char *to, const Axis *axes, char *tile, ptrdiff_t run, const Tiling *tiling,
                       ptrdiff_t columns, int first, int last, int stream)
{
    for (ptrdiff_t i = 0; i < tiling->rows; i++) {
        char *row = tile + i * tiling->pitch;
        if (axes[1].target != run)
            move_runs(to, axes[1].target, row, run, columns, run);
        else if (stream)
            stream_row(to, row, columns * run, first, last);
        else
            memcpy(to, row, columns * run);
        to += axes[0].target;
    }
}

/* Copy what two axes span. */
KERNEL void copy_plane(char *target, const char *source, const Axis *axes, ptrdiff_t run,
                       Tiling tiling, int stream, Writer *writer)
{
    ptrdiff_t all = axes[1].extent, full = tiling.rows;
    ptrdiff_t first_rows = rows_to_line(source, run, axes[1].source);
    for (ptrdiff_t i = 0; i < axes[0].extent; i += tiling.rows) {
        tiling.rows = least(i == 0 && first_rows ? first_rows : full, full);
        tiling.rows = least(tiling.rows, axes[0].extent - i);
        for (ptrdiff_t j = 0; j < all; j += tiling.columns) {
            ptrdiff_t columns = least(tiling.columns, all - j);
            char *to = target + i * axes[0].target + j * axes[1].target;
            const char *from = source + i * axes[0].source + j * axes[1].source;
            if (!stream && axes[1].target == run && axes[0].target % CROWDED) {
                fill_tile(to, axes[0].target, from, axes, run, tiling.rows, columns, 0);
                continue;
            }
            int dense = stream && tiling.dense;
            char *tile = dense ? room(writer, to, tiling.rows * columns * run)
                               : writer->bytes + past_line(to);
            fill_tile(tile, tiling.pitch, from, axes, run, tiling.rows, columns, stream);
            if (!dense)
                write_tile(to, axes, tile, run, &tiling, columns, j == 0, j + columns == all,
                           stream);
        }
    }
}

KERNEL void copy_tiles(const Block *block, int stream, Writer *writer)
{
    int outer = block->naxes - 2;
    Axis axes[2] = {block->axes[outer], block->axes[outer + 1]};
    ptrdiff_t columns = axes[1].extent;
    Tiling tiling = tiling_of(block);
    Walk walk;
    walk_start(&walk, block, outer);
    do
        for (ptrdiff_t j = 0; j < columns; j += axes[1].extent) {
            axes[1].extent = least(STRIP * tiling.columns, columns - j);
            copy_plane(walk.target + j * axes[1].target, walk.source + j * axes[1].source, axes,
                       block->run, tiling, stream, writer);
        }
    while (walk_step(&walk, block->axes, outer));
}

KERNEL void copy_block(const Block *block, int stream)
{
    if (block->run == 0)
        return;
    if (block->twin) {
        move_both(block);
        return;
    }
    if (block->kind == RUNS) {
        copy_runs(block, stream);
        return;
    }
    ALIGNED char bytes[SCRATCH + 2 * LINE];
    Writer writer = {bytes, block->target, 0};
    if (block->kind == MOVES)
        copy_moves(block, stream, &writer);
    else
        copy_tiles(block, stream, &writer);
    flush(&writer);
}
