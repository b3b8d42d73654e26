/* Transposes of small squares of elements in vector registers, for engine.h. A square has as many
   rows as a vector has elements. Written with the vector extensions of GCC and clang, which turn
   each shuffle into the one or two instructions that a processor has for it. */

#define VECTOR(element, bytes) \
    element __attribute__((vector_size(bytes), aligned(1), may_alias))

/* Interleaving the first and the second half of the rows, log2(rows) times, transposes a square;
   for vectors of 16 bytes every processor interleaves in one instruction. */
#define INTERLEAVE(name, element, rows, low, high)                                           \
    INLINE void name(char *to, ptrdiff_t pitch, const char *from, ptrdiff_t stride)          \
    {                                                                                        \
        typedef VECTOR(element, 16) Vector;                                                  \
        Vector a[rows], b[rows];                                                             \
        UNROLL for (int i = 0; i < rows; i++)                                                \
            a[i] = *(const Vector *)(from + i * stride);                                     \
        UNROLL for (int width = 1; width < rows; width *= 2) {                               \
            UNROLL for (int i = 0; i < rows / 2; i++) {                                      \
                b[2 * i] = __builtin_shufflevector(a[i], a[i + rows / 2], low);              \
                b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + rows / 2], high);         \
            }                                                                                \
            UNROLL for (int i = 0; i < rows; i++)                                            \
                a[i] = b[i];                                                                 \
        }                                                                                    \
        UNROLL for (int i = 0; i < rows; i++)                                                \
            *(Vector *)(to + i * pitch) = a[i];                                              \
    }

#define LOW_2 0, 2
#define HIGH_2 1, 3
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

INTERLEAVE(square_1_narrow, uint8_t, 16, LOW_16, HIGH_16)
INTERLEAVE(square_2_narrow, uint16_t, 8, LOW_8, HIGH_8)
INTERLEAVE(square_4_narrow, uint32_t, 4, LOW_4, HIGH_4)
INTERLEAVE(square_8_narrow, uint64_t, 2, LOW_2, HIGH_2)

/* Wider vectors exchange blocks instead: of h elements between rows h apart, for h = 1, 2, 4...
   KEEP lists what the upper row becomes, SWAP the lower one, lane by lane of n. */
#define KEEP(lane, h, n) ((lane) & (h) ? (n) + (lane) - (h) : (lane))
#define SWAP(lane, h, n) ((lane) & (h) ? (n) + (lane) : (lane) + (h))
#define LANES_4(f, h) f(0, h, 4), f(1, h, 4), f(2, h, 4), f(3, h, 4)
#define LANES_8(f, h) \
    f(0, h, 8), f(1, h, 8), f(2, h, 8), f(3, h, 8), f(4, h, 8), f(5, h, 8), f(6, h, 8), f(7, h, 8)
#define LANES_16(f, h)                                                                      \
    f(0, h, 16), f(1, h, 16), f(2, h, 16), f(3, h, 16), f(4, h, 16), f(5, h, 16),           \
    f(6, h, 16), f(7, h, 16), f(8, h, 16), f(9, h, 16), f(10, h, 16), f(11, h, 16),         \
    f(12, h, 16), f(13, h, 16), f(14, h, 16), f(15, h, 16)

#define EXCHANGE(a, rows, between, lanes, h)                                                 \
    UNROLL for (int i = 0; i < rows; i++)                                                    \
        if (!(i & (between))) {                                                              \
            Vector upper = a[i], lower = a[i + (between)];                                   \
            a[i] = __builtin_shufflevector(upper, lower, lanes(KEEP, h));                    \
            a[i + (between)] = __builtin_shufflevector(upper, lower, lanes(SWAP, h));        \
        }

#define SQUARE(name, element, rows, exchanges)                                               \
    INLINE void name(char *to, ptrdiff_t pitch, const char *from, ptrdiff_t stride)          \
    {                                                                                        \
        typedef VECTOR(element, WIDTH) Vector;                                               \
        Vector a[rows];                                                                      \
        UNROLL for (int i = 0; i < rows; i++)                                                \
            a[i] = *(const Vector *)(from + i * stride);                                     \
        exchanges                                                                            \
        UNROLL for (int i = 0; i < rows; i++)                                                \
            *(Vector *)(to + i * pitch) = a[i];                                              \
    }

#if WIDTH == 64
SQUARE(square_4, uint32_t, 16,
       EXCHANGE(a, 16, 8, LANES_16, 8) EXCHANGE(a, 16, 4, LANES_16, 4)
       EXCHANGE(a, 16, 2, LANES_16, 2) EXCHANGE(a, 16, 1, LANES_16, 1))
SQUARE(square_8, uint64_t, 8,
       EXCHANGE(a, 8, 4, LANES_8, 4) EXCHANGE(a, 8, 2, LANES_8, 2) EXCHANGE(a, 8, 1, LANES_8, 1))
SQUARE(square_16, uint64_t, 4, EXCHANGE(a, 4, 2, LANES_8, 4) EXCHANGE(a, 4, 1, LANES_8, 2))
#elif WIDTH == 32
SQUARE(square_4, uint32_t, 8,
       EXCHANGE(a, 8, 4, LANES_8, 4) EXCHANGE(a, 8, 2, LANES_8, 2) EXCHANGE(a, 8, 1, LANES_8, 1))
SQUARE(square_8, uint64_t, 4, EXCHANGE(a, 4, 2, LANES_4, 2) EXCHANGE(a, 4, 1, LANES_4, 1))
SQUARE(square_16, uint64_t, 2, EXCHANGE(a, 2, 1, LANES_4, 2))
#endif
