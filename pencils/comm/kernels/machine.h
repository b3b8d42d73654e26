/* What compilers and processors offer, under names of our own. */
#ifndef PENCILS_MACHINE_H
#define PENCILS_MACHINE_H

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif

#if !defined(HAVE_VECTORS) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAVE_VECTORS 1
#endif
#endif
#ifndef HAVE_VECTORS
#define HAVE_VECTORS 0
#endif

#ifdef __GNUC__
#define ALWAYS_INLINE __attribute__((always_inline))
#define NOT_INLINE __attribute__((noinline))
#define ALIGNED __attribute__((aligned(64)))
#define PREFETCH(address) __builtin_prefetch(address, 0, 1) /* into the second level */
#define PREFETCH_NEAR(address) __builtin_prefetch(address, 0, 3) /* into the first one */
#define UNROLL _Pragma("GCC unroll 16")
#define ORDER_MEMORY() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#else
#include <stdatomic.h>
#define ORDER_MEMORY() atomic_thread_fence(memory_order_seq_cst)
#define ALWAYS_INLINE
#define NOT_INLINE
#define ALIGNED
#define PREFETCH(address) ((void)0)
#define PREFETCH_NEAR(address) ((void)0)
#define UNROLL
#endif

#endif
