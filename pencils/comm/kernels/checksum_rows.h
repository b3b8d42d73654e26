/* Words to sum up. Plain C: knows nothing of Python. */
#ifndef PENCILS_CHECKSUM_ROWS_H
#define PENCILS_CHECKSUM_ROWS_H

#include <stdint.h>

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

#endif
