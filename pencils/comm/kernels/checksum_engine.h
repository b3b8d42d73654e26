/* The sum of mixed words. */
#include "block.h"

#include <string.h>
#include "machine.h"

/* Odd numbers without pattern, of the generator "splitmix64". */
#define STEP UINT64_C(0x9E3779B97F4A7C15)
#define FACTOR UINT64_C(0xBF58476D1CE4E5B9)

static inline ALWAYS_INLINE TARGET uint64_t mix(uint64_t word)
{
    word ^= word >> 32;
    word *= FACTOR;
    return word ^ word >> 29;
}

/* One loop for each width of words: the compiler makes vectors of it where there are any. */
#define DEFINE_SUM(type)                                                                   \
    static TARGET uint64_t sum_##type(const char *data, int64_t count, uint64_t at)        \
    {                                                                                      \
        uint64_t total = 0;                                                                \
        for (int64_t i = 0; i < count; i++) {                                              \
            type word;                                                                     \
            memcpy(&word, data + i * (int64_t)sizeof word, sizeof word);                   \
            total += mix(word + (at + (uint64_t)i) * STEP);                                \
        }                                                                                  \
        return total;                                                                      \
    }
DEFINE_SUM(uint8_t)
DEFINE_SUM(uint16_t)
DEFINE_SUM(uint32_t)
DEFINE_SUM(uint64_t)

#if HAVE_VECTORS
enum { LANES = WIDTH / 8, TOGETHER = 4 /* vectors, so that none waits for the one before */ };
typedef uint64_t Words __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef uint64_t Lanes __attribute__((vector_size(WIDTH)));

/* Words of eight bytes, most of all: whole vectors here, the rest by the plain loop. */
static TARGET uint64_t sum_long_words(const char *data, int64_t count, uint64_t at)
{
    const int64_t each = TOGETHER * LANES;
    int64_t whole = count - count % each;
    uint64_t lanes[TOGETHER * LANES], total = 0;
    Lanes ramp[TOGETHER], sums[TOGETHER];
    for (int i = 0; i < each; i++)
        lanes[i] = (at + (uint64_t)i) * STEP;
    memcpy(ramp, lanes, sizeof ramp);
    memset(sums, 0, sizeof sums);
    for (int64_t done = 0; done < whole; done += each) {
        UNROLL for (int i = 0; i < TOGETHER; i++) {
            Lanes word = *(const Words *)(data + 8 * done + i * WIDTH) + ramp[i];
            ramp[i] += (uint64_t)each * STEP;
            word ^= word >> 32;
            word *= FACTOR;
            sums[i] += word ^ word >> 29;
        }
    }
    memcpy(lanes, sums, sizeof lanes);
    for (int i = 0; i < each; i++)
        total += lanes[i];
    return total + sum_uint64_t(data + 8 * whole, count - whole, at + (uint64_t)whole);
}
#else
#define sum_long_words sum_uint64_t
#endif

static TARGET uint64_t sum_words(const Rows *rows)
{
    uint64_t total = 0, at = rows->first + 1;
    const char *row = rows->data;
    for (int64_t i = 0; i < rows->count; i++) {
        switch (rows->width) {
        case 1: total += sum_uint8_t(row, rows->words, at); break;
        case 2: total += sum_uint16_t(row, rows->words, at); break;
        case 4: total += sum_uint32_t(row, rows->words, at); break;
        default: total += sum_long_words(row, rows->words, at);
        }
        row += rows->pitch;
        at += rows->step;
    }
    return total;
}
