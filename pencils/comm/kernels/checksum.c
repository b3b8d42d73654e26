/* The checksum of pencils/io/checksum.py: the sum over all words of mix(word + STEP * position). */
#include "checksum.h"

#include <stdint.h>
#include <string.h>

enum { WORTH_UNLOCKING = 2048 /* bytes; summing fewer takes no longer than the lock */ };

/* Odd numbers without pattern, of the generator "splitmix64". */
#define STEP UINT64_C(0x9E3779B97F4A7C15)
#define FACTOR UINT64_C(0xBF58476D1CE4E5B9)

static inline uint64_t mix(uint64_t word)
{
    word ^= word >> 32;
    word *= FACTOR;
    return word ^ word >> 29;
}

/* One loop for each width of words: the compiler makes vectors of it where there are any. */
#define DEFINE_SUM(type)                                                       \
    static uint64_t sum_##type(const char *data, int64_t count, uint64_t at)   \
    {                                                                          \
        uint64_t total = 0;                                                    \
        for (int64_t i = 0; i < count; i++) {                                  \
            type word;                                                         \
            memcpy(&word, data + i * (int64_t)sizeof word, sizeof word);       \
            total += mix(word + (at + (uint64_t)i) * STEP);                    \
        }                                                                      \
        return total;                                                          \
    }
DEFINE_SUM(uint8_t)
DEFINE_SUM(uint16_t)
DEFINE_SUM(uint32_t)
DEFINE_SUM(uint64_t)

static uint64_t sum(const Py_buffer *view, int width, uint64_t at)
{
    int64_t count = view->len / width;
    switch (width) {
    case 1: return sum_uint8_t(view->buf, count, at);
    case 2: return sum_uint16_t(view->buf, count, at);
    case 4: return sum_uint32_t(view->buf, count, at);
    default: return sum_uint64_t(view->buf, count, at);
    }
}

PyObject *mixed_sum(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    int width;
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "y*iK", &view, &width, &first))
        return NULL;
    PyThreadState *state = view.len >= WORTH_UNLOCKING ? PyEval_SaveThread() : NULL;
    uint64_t total = sum(&view, width, first + 1);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(total);
}
