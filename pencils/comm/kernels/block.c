/* Bringing a copy to its simplest form: fewest axes, longest runs, target walked in order. */
#include "block.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Drop the axes of one point and let the others rise in the target; returns how many are left. */
static int straighten(Block *block, int naxes)
{
    int kept = 0;
    for (int i = 0; i < naxes; i++) {
        Axis axis = block->axes[i];
        if (axis.extent == 1)
            continue;
        if (axis.target < 0 && axis.extent > 0) {
            block->target += (axis.extent - 1) * axis.target;
            block->source += (axis.extent - 1) * axis.source;
            axis.target = -axis.target;
            axis.source = -axis.source;
        }
        block->axes[kept++] = axis;
    }
    return kept;
}

static int slower(const Axis *a, const Axis *b)
{
    if (a->target != b->target)
        return a->target > b->target;
    return llabs(a->source) > llabs(b->source);
}

static void sort(Axis *axes, int naxes)
{
    for (int i = 1; i < naxes; i++) {
        Axis axis = axes[i];
        int j = i;
        for (; j > 0 && slower(&axis, &axes[j - 1]); j--)
            axes[j] = axes[j - 1];
        axes[j] = axis;
    }
}

/* Join neighbouring axes that are one axis in both arrays; returns how many are left. */
static int merge(Axis *axes, int naxes)
{
    int kept = 0;
    for (int i = 0; i < naxes; i++) {
        Axis inner = axes[i], outer = kept > 0 ? axes[kept - 1] : (Axis){0, 0, 0};
        if (kept > 0 && outer.target == inner.extent * inner.target
            && outer.source == inner.extent * inner.source) {
            inner.extent *= outer.extent;
            kept--;
        }
        axes[kept++] = inner;
    }
    return kept;
}

/* The axis along which the source's neighbours lie in one cache line, or -1. */
static int fastest_in_source(const Block *block)
{
    int best = -1;
    ptrdiff_t least = LINE;
    for (int i = 0; i < block->naxes; i++) {
        ptrdiff_t stride = llabs(block->axes[i].source);
        if (stride < least) {
            best = i;
            least = stride;
        }
    }
    return best;
}

/* Choose how to copy; tiles want their two axes last. */
static Kind choose(Block *block)
{
    int last = block->naxes - 1, fastest = fastest_in_source(block);
    if (block->run >= LONG_RUN)
        return RUNS;
    if (fastest < 0 || fastest == last || block->run > LINE)
        return MOVES;
    Axis axis = block->axes[fastest];
    for (int i = fastest; i < last - 1; i++)
        block->axes[i] = block->axes[i + 1];
    if (axis.source < 0) {  /* tiles read forwards */
        block->target += (axis.extent - 1) * axis.target;
        block->source += (axis.extent - 1) * axis.source;
        axis.target = -axis.target;
        axis.source = -axis.source;
    }
    block->axes[last - 1] = axis;
    return TILES;
}

/* Whether items that begin at multiples of a step from both addresses share no byte. */
static int apart(const char *one, const char *other, ptrdiff_t item, ptrdiff_t step)
{
    ptrdiff_t past = ((intptr_t)one - (intptr_t)other) % step;
    past += past < 0 ? step : 0;
    return past >= item && past <= step - item;
}

/* Whether runs lie one behind the other in the order of the axes, and equally in target and source:
   1 if they overlap, 2 if those of both alternate, else 0. */
static int moves_within(const Block *block)
{
    ptrdiff_t span = block->run, way = (intptr_t)block->target - (intptr_t)block->source;
    ptrdiff_t step = block->axes[block->naxes - 1].target;
    int alternate = step > 0 && apart(block->target, block->source, block->run, step);
    for (int i = block->naxes - 1; i >= 0; i--) {
        Axis axis = block->axes[i];
        if (axis.extent < 1 || axis.target != axis.source || axis.target < span)
            return 0;
        alternate = alternate && axis.target % step == 0;
        span += (axis.extent - 1) * axis.target;
    }
    return way < span && -way < span ? 1 + alternate : 0;
}

static void move_along(const Block *block, int number, ptrdiff_t at, int down)
{
    if (number == block->naxes) {
        memmove(block->target + at, block->source + at, (size_t)block->run);
        return;
    }
    Axis axis = block->axes[number];
    for (ptrdiff_t i = 0; i < axis.extent; i++)
        move_along(block, number + 1, at + (down ? axis.extent - 1 - i : i) * axis.target, down);
}

void block_move(const Block *block)
{
    move_along(block, 0, 0, (uintptr_t)block->target > (uintptr_t)block->source);
}

void block_prepare(Block *block, char *target, const char *source, ptrdiff_t itemsize, int naxes,
                   Axis *axes)
{
    block->axes = axes;
    block->target = target;
    block->source = source;
    block->run = itemsize;
    block->twin = NULL;
    naxes = straighten(block, naxes);
    for (int i = 0; i < naxes; i++)
        if (axes[i].extent == 0)
            block->run = 0;
    if (block->run == 0)
        naxes = 0;
    sort(axes, naxes);
    while (naxes > 0 && axes[naxes - 1].target == block->run
           && axes[naxes - 1].source == block->run)
        block->run *= axes[--naxes].extent;
    naxes = merge(axes, naxes);
    if (naxes == 0)
        axes[naxes++] = (Axis){1, block->run, block->run};
    block->naxes = naxes;
    block->within = moves_within(block);
    block->kind = block->within == 1 ? WITHIN : choose(block);
}

ptrdiff_t block_bytes(const Block *block)
{
    ptrdiff_t bytes = block->run;
    for (int i = 0; i < block->naxes; i++)
        bytes *= block->axes[i].extent;
    return bytes;
}

/* Whether both copies move single numbers along the same axes, which repeat one step. */
static int move_alike(const Block *first, const Block *second)
{
    if (first->kind != MOVES || second->kind != MOVES || first->naxes != second->naxes
        || first->run != second->run || (first->run != 4 && first->run != 8 && first->run != 16))
        return 0;
    ptrdiff_t step = first->axes[first->naxes - 1].target;
    for (int i = 0; i < first->naxes; i++) {
        const Axis *axis = &first->axes[i], *other = &second->axes[i];
        if (axis->extent != other->extent || step <= 0 || axis->target % step
            || axis->source != axis->target || other->target != axis->target
            || other->source != axis->target)
            return 0;
    }
    return 1;
}

void blocks_join(Block *first, Block *second)
{
    if (!move_alike(first, second))
        return;
    ptrdiff_t item = first->run, step = first->axes[first->naxes - 1].target;
    if (apart(first->target, second->target, item, step)
        && apart(first->target, second->source, item, step)
        && apart(first->source, second->target, item, step)) {
        first->twin = second;
        second->run = 0;
    }
}
