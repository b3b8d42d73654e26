/* The steps of a formula, for formula_engine.h, which defines REAL, the type of a number, LANE, a
   vector of some, and STEPS, the name of the function. */

/* Evaluate for so many vectors, so many bytes after the first element of a row. */
FORMULA_INLINE void STEPS(const Formula *formula, FormulaRow *row, ptrdiff_t at, int lanes)
{
    LANE value0 = {0}, value1 = {0}, value2 = {0}, value3 = {0}, number;
    LANE value4 = {0}, value5 = {0}, value6 = {0}, value7 = {0};
    int kept = formula->operands;
    for (int i = 0; i < FORMULA_KEPT; i++)
        row->at[kept + i] = row->kept[i] - at;
    for (const FormulaStep *step = formula->step, *end = step + formula->steps; step < end; step++) {
        const char *y_row = row->at[step->y];
        char *x_row = row->at[step->x];
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
        case FORMULA_NEGATE: EACH_LANE(VALUE_NEGATE, Y_NUMBER) break;
        case FORMULA_SQUARE: EACH_LANE(VALUE_SQUARE, Y_NUMBER) break;
        case FORMULA_KEEP: EACH_LANE(VALUE_KEEP, Y_NUMBER) break;
        }
    }
    char *x_row = row->at[kept - 1];
    EACH_LANE(VALUE_KEEP, Y_NUMBER)
}
#undef LANE
#undef STEPS
