/* Compare the compiled copies with plain loops, for many random blocks; for sanitizers.

   harness LEVEL CASES [THREADS]: with threads, all copy parts of one block at the same time. */
#include "../../pencils/comm/kernels/block.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5, SLACK = 80 };

static uint64_t state = 1;

static ptrdiff_t random_below(ptrdiff_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (ptrdiff_t)((state >> 33) % (uint64_t)bound);
}

typedef struct {
    unsigned char *raw;
    size_t size;
    char *first; /* element 0, ..., 0 */
    ptrdiff_t strides[MOST];
} Memory;

/* Put an array of random memory order, gaps and directions into memory of its own. */
static Memory memory_new(int naxes, const ptrdiff_t *extents, ptrdiff_t item)
{
    Memory memory;
    int order[MOST] = {0};
    ptrdiff_t stride = item, offset = random_below(SLACK);
    for (int i = 0; i < naxes; i++) {
        int j = (int)random_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < naxes; i++) {
        int turned = random_below(5) == 0, axis = order[i];
        stride *= random_below(4) ? 1 : 1 + random_below(3);
        memory.strides[axis] = turned ? -stride : stride;
        if (turned)
            offset += (extents[axis] > 0 ? extents[axis] - 1 : 0) * stride;
        stride *= extents[axis] + (random_below(3) ? 0 : random_below(4));
    }
    memory.size = (size_t)(stride + SLACK);
    memory.raw = malloc(memory.size);
    memory.first = (char *)memory.raw + offset;
    for (size_t i = 0; i < memory.size; i++)
        memory.raw[i] = (unsigned char)random_below(256);
    return memory;
}

static void copy_plainly(char *to, const ptrdiff_t *steps, const char *from,
                         const ptrdiff_t *strides, int naxes, const ptrdiff_t *extents,
                         ptrdiff_t item)
{
    if (naxes == 0)
        memcpy(to, from, (size_t)item);
    else
        for (ptrdiff_t i = 0; i < extents[0]; i++)
            copy_plainly(to + i * steps[0], steps + 1, from + i * strides[0], strides + 1,
                         naxes - 1, extents + 1, item);
}

typedef struct {
    Copier *copy;
    Block block;
    Axis axes[MOST];
    int stream;
} Part;

static void *run_part(void *argument)
{
    Part *part = argument;
    part->copy(&part->block, part->stream);
    streams_finish();
    return NULL;
}

/* Cut the first axis into parts and copy each in a thread, or one part here. */
static void copy_parts(Copier *copy, int stream, const Memory *target, const Memory *source,
                       int naxes, const ptrdiff_t *extents, ptrdiff_t item, int nparts)
{
    Part *parts = calloc((size_t)nparts, sizeof(Part));
    pthread_t *threads = calloc((size_t)nparts, sizeof(pthread_t));
    for (int n = 0; n < nparts; n++) {
        ptrdiff_t start = naxes ? extents[0] * n / nparts : 0;
        ptrdiff_t stop = naxes ? extents[0] * (n + 1) / nparts : 1;
        for (int i = 0; i < naxes; i++)
            parts[n].axes[i] = (Axis){extents[i], target->strides[i], source->strides[i]};
        if (naxes)
            parts[n].axes[0].extent = stop - start;
        parts[n].copy = copy;
        parts[n].stream = stream;
        block_prepare(&parts[n].block, target->first + (naxes ? start * target->strides[0] : 0),
                      source->first + (naxes ? start * source->strides[0] : 0), item, naxes,
                      parts[n].axes);
        if (nparts == 1)
            run_part(&parts[n]);
        else
            pthread_create(&threads[n], NULL, run_part, &parts[n]);
    }
    for (int n = 0; nparts > 1 && n < nparts; n++)
        pthread_join(threads[n], NULL);
    free(threads);
    free(parts);
}

/* Copy one random block and look at every byte of the target's memory; false if one is wrong. */
static int check_one(Copier *copy, int nparts)
{
    static const ptrdiff_t items[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 64, 100, 300};
    static const ptrdiff_t most[MOST + 1] = {1, 3000, 200, 50, 12, 7};
    ptrdiff_t extents[MOST] = {0}, item = items[random_below(14)];
    int naxes = nparts > 1 ? 1 + (int)random_below(MOST) : (int)random_below(MOST + 1);
    for (int i = 0; i < naxes; i++)
        extents[i] = random_below(100) ? 1 + random_below(most[naxes]) : random_below(2);
    Memory target = memory_new(naxes, extents, item), source = memory_new(naxes, extents, item);
    char *expected = malloc(target.size);
    memcpy(expected, target.raw, target.size);
    copy_plainly(expected + (target.first - (char *)target.raw), target.strides, source.first,
                 source.strides, naxes, extents, item);
    copy_parts(copy, (int)random_below(2), &target, &source, naxes, extents, item, nparts);
    int right = memcmp(expected, target.raw, target.size) == 0;
    free(expected);
    free(target.raw);
    free(source.raw);
    return right;
}

int main(int argc, char **argv)
{
    Level levels[MOST_LEVELS];
    int count = levels_available(levels), cases = argc > 2 ? atoi(argv[2]) : 100;
    int nparts = argc > 3 ? atoi(argv[3]) : 1;
    if (argc < 2) {
        for (int i = 0; i < count; i++)
            puts(levels[i].name);
        return 0;
    }
    for (int i = 0; i < count; i++)
        if (strcmp(levels[i].name, argv[1]) == 0) {
            for (int n = 0; n < cases; n++)
                if (!check_one(levels[i].copy, nparts)) {
                    printf("%s: case %d is wrong\n", argv[1], n);
                    return 1;
                }
            return 0;
        }
    printf("%s is not available\n", argv[1]);
    return 2;
}
