/* The steps of a formula, for formula_engine.h, which defines REAL, the type of a number, LANE, a
   vector of some, and STEPS, the name of the function. */

/* Evaluate for so many vectors, so many bytes after the first element of a row; or for one vector of so
   many rows. */
FORMULA_INLINE void STEPS(const Formula *formula, FormulaRow *row, ptrdiff_t at, int lanes, int across)
{
    LANE value0 = {0}, value1 = {0}, value2 = {0}, value3 = {0};
    LANE value4 = {0}, value5 = {0}, value6 = {0}, value7 = {0};
    ptrdiff_t x_step = sizeof(LANE), y_step = x_step;
    for (int i = 0; i < formula->kept; i++) {
        row->at[formula->operands + i] = row->kept[i] - at;
        row->ups[formula->operands + i] = sizeof(LANE);
    }
    for (const FormulaStep *step = formula->step, *end = step + formula->steps; step < end; step++) {
        const char *y = row->at[step->y];
        char *x = row->at[step->x];
        if (across)
            x_step = row->ups[step->x], y_step = row->ups[step->y];
        switch (step->operation) {
            WITH_Y(FORMULA_LOAD, VALUE_LOAD)
            WITH_Y(FORMULA_ADD, VALUE_ADD)
            WITH_Y(FORMULA_SUBTRACT, VALUE_SUBTRACT)
            WITH_Y(FORMULA_FROM, VALUE_FROM)
            WITH_Y(FORMULA_MULTIPLY, VALUE_MULTIPLY)
            WITH_Y(FORMULA_DIVIDE, VALUE_DIVIDE)
            WITH_Y(FORMULA_INTO, VALUE_INTO)
            WITH_Y(FORMULA_ADD_PRODUCT, VALUE_ADD_PRODUCT)
            WITH_Y(FORMULA_SUBTRACT_PRODUCT, VALUE_SUBTRACT_PRODUCT)
            WITH_Y(FORMULA_FROM_PRODUCT, VALUE_FROM_PRODUCT)
        case FORMULA_NEGATE: EACH_LANE(VALUE_NEGATE, NOTHING) break;
        case FORMULA_SQUARE: EACH_LANE(VALUE_SQUARE, NOTHING) break;
        case FORMULA_KEEP: EACH_LANE(VALUE_KEEP, NOTHING) break;
        }
    }
    char *x = row->at[formula->operands - 1];
    if (across)
        x_step = row->ups[formula->operands - 1];
    EACH_LANE(VALUE_KEEP, NOTHING)
}
#undef LANE
#undef STEPS
