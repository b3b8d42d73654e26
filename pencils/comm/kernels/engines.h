/* All that is compiled once for each instruction set. Whoever includes this defines NAME, that of the
   set, LEVEL, its table, TARGET, the attribute of every function, WIDTH, the bytes of a vector, STREAM,
   which writes one past the cache, and FUSED if a multiplication and an addition are one. */
#include "engine.h"

#include "checksum_engine.h"
#include "formula_engine.h"
#include "sums_engine.h"
#include "total_engine.h"

const Level LEVEL = {NAME, copy_block, sum_words, add_sums, weigh, stride, add_windows,
                     total_of, evaluate};
