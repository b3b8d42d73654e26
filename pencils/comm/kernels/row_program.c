#include "row_program.h"

#include <fenv.h>
#include <stdint.h>
#include <string.h>

/* Elements of a row: to call a loop for so few takes longer than to copy them. */
enum { SHORT = 128, LINE = 64, EXCEPTIONS = FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID };

/* ---- tiles ---- */

typedef struct {
    const RowProgram *program;
    char **places;          /* of all slots, at the first element of the tile */
    char *spare;            /* room for a result whose rows are copied to an array */
    ptrdiff_t planes, rows, columns, pitch;
    int *flags;
} Tile;

/* The operands of an instruction; their steps in a row, and after these those from row to row; and
   those from plane to plane. */
typedef struct {
    char *places[ROW_OPERANDS];
    ptrdiff_t steps[2 * ROW_OPERANDS], *ups, planes[ROW_OPERANDS];
} Operands;

/* Find operands; returns whether all rows can be treated as one, the elements between them included,
   but for the result, whose rows may be apart. */
static int find_operands(const Tile *tile, const RowInstruction *instruction, Operands *found)
{
    const RowProgram *program = tile->program;
    int last = program->ndim - 1, joined = 1;
    found->ups = found->steps + instruction->count;
    for (int i = 0; i < instruction->count; i++) {
        const RowSlot *slot = &program->slots[instruction->slots[i]];
        found->places[i] = tile->places[instruction->slots[i]];
        if (slot->reg >= 0) {
            found->steps[i] = slot->item;
            found->ups[i] = tile->pitch * slot->item;
            found->planes[i] = tile->rows * found->ups[i];
            continue;
        }
        found->steps[i] = slot->strides[last];
        found->ups[i] = slot->strides[last - 1];
        found->planes[i] = slot->strides[last - 2];
        if (i < instruction->count - 1)
            joined &= found->ups[i] == tile->pitch * found->steps[i];
    }
    return joined;
}

/* Call the loop for some rows of a plane. */
static void call(const RowInstruction *instruction, const Operands *all, ptrdiff_t plane,
                 ptrdiff_t points, ptrdiff_t rows)
{
    ptrdiff_t extents[2] = {points, rows}, calls = instruction->rows ? 1 : rows;
    for (ptrdiff_t row = 0; row < calls; row++) {
        char *at[ROW_OPERANDS]; /* loops may change it */
        for (int i = 0; i < instruction->count; i++)
            at[i] = all->places[i] + plane * all->planes[i] + row * all->ups[i];
        instruction->loop(at, extents, all->steps, instruction->data);
    }
}

static void copy_rows(const Tile *tile, char *to, ptrdiff_t up, ptrdiff_t item)
{
    for (ptrdiff_t row = 0; row < tile->rows; row++)
        memcpy(to + row * up, tile->spare + row * tile->pitch * item, (size_t)(tile->columns * item));
}

static void execute(const Tile *tile, const RowInstruction *instruction, int apart)
{
    Operands all;
    int joined = find_operands(tile, instruction, &all), last = instruction->count - 1;
    int gaps = tile->pitch != tile->columns;
    const RowSlot *result = &tile->program->slots[instruction->slots[last]];
    char *target = all.places[last];
    ptrdiff_t plane_step = all.planes[last];
    /* Nothing may be written between the rows of an array. */
    int fits = all.ups[last] == tile->pitch * all.steps[last] && !(gaps && result->reg < 0);
    int spare = !fits && !instruction->rows && all.steps[last] == result->item;
    joined &= !(gaps && (apart || (instruction->rows && tile->columns >= SHORT)))
              && (fits || (spare && tile->columns < SHORT));
    if (joined && spare)
        all.places[last] = tile->spare, all.planes[last] = 0;
    for (ptrdiff_t plane = 0; plane < tile->planes; plane++) {
        if (!joined) {
            call(instruction, &all, plane, tile->columns, tile->rows);
            continue;
        }
        call(instruction, &all, plane, (tile->rows - 1) * tile->pitch + tile->columns, 1);
        if (spare)
            copy_rows(tile, target + plane * plane_step, all.ups[last], result->item);
    }
}

/* Take the exceptions that were raised, numbered as NumPy does. */
static int take_exceptions(void)
{
    int raised = fetestexcept(EXCEPTIONS);
    if (!raised)
        return 0;
    feclearexcept(FE_ALL_EXCEPT);
    return (raised & FE_DIVBYZERO ? 1 : 0) | (raised & FE_OVERFLOW ? 2 : 0)
           | (raised & FE_UNDERFLOW ? 4 : 0) | (raised & FE_INVALID ? 8 : 0);
}

/* Execute for a tile; returns whether exceptions have to be attributed by the exact instructions,
   before anything is stored where operands were read. Elements between rows are no points of the
   block, and a sum has several operations. */
static int run_tile(const Tile *tile)
{
    const RowProgram *program = tile->program;
    int exact = program->nexact == 0 && tile->pitch == tile->columns;
    for (int i = 0; i < program->ninstructions; i++) {
        execute(tile, &program->instructions[i], 0);
        int raised = i < program->ninstructions - program->nstores ? take_exceptions() : 0;
        if (raised && !exact)
            return 1;
        tile->flags[i] |= raised;
    }
    return 0;
}

static void run_exactly(const Tile *tile)
{
    const RowProgram *program = tile->program;
    const RowInstruction *first = program->instructions;
    int count = program->nexact ? program->nexact : program->ninstructions;
    first += program->nexact ? program->ninstructions : 0;
    for (int i = 0; i < count; i++) {
        execute(tile, &first[i], 1);
        tile->flags[i] |= i < count - program->nstores ? take_exceptions() : 0;
    }
}

static void find_places(const RowProgram *program, char *const *arrays, const ptrdiff_t *index,
                        char **places)
{
    for (int i = 0; i < program->nslots; i++) {
        const RowSlot *slot = &program->slots[i];
        if (slot->reg >= 0)
            continue;
        places[i] = arrays[slot->array] + slot->offset;
        for (int d = 0; d < program->ndim; d++)
            places[i] += index[d] * slot->strides[d];
    }
}

static size_t round_up(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

size_t row_program_scratch(const RowProgram *program)
{
    size_t places = (size_t)program->nslots * sizeof(char *);
    return program->registers[program->nregisters] + round_up(places) + program->spare + LINE;
}

static ptrdiff_t least(ptrdiff_t one, ptrdiff_t other) { return one < other ? one : other; }

void row_program_run(const RowProgram *program, const ptrdiff_t (*box)[2], char *scratch,
                     char *const *arrays, int *flags)
{
    int last = program->ndim - 1, outer = last - 2;
    const ptrdiff_t *planes = box[outer], *lines = box[last - 1], *points = box[last];
    ptrdiff_t index[ROW_DIMS], *plane = &index[outer], *line = &index[last - 1], *point = &index[last];
    char *first = (char *)round_up((size_t)(uintptr_t)scratch);
    Tile tile = {.program = program, .flags = flags, .pitch = program->pitch};
    tile.places = (char **)(first + program->registers[program->nregisters]);
    tile.spare = (char *)tile.places + round_up((size_t)program->nslots * sizeof(char *));
    for (int d = 0; d <= last; d++) {
        index[d] = box[d][0];
        if (index[d] >= box[d][1])
            return;
    }
    for (int i = 0; i < program->nslots; i++)
        if (program->slots[i].reg >= 0)
            tile.places[i] = first + program->registers[program->slots[i].reg];
    feclearexcept(FE_ALL_EXCEPT);
    for (;;) {
        for (*plane = planes[0]; *plane < planes[1]; *plane += program->planes)
            for (*line = lines[0]; *line < lines[1]; *line += program->rows)
                for (*point = points[0]; *point < points[1]; *point += program->columns) {
                    tile.planes = least(program->planes, planes[1] - *plane);
                    tile.rows = least(program->rows, lines[1] - *line);
                    tile.columns = least(program->columns, points[1] - *point);
                    find_places(program, arrays, index, tile.places);
                    if (run_tile(&tile))
                        run_exactly(&tile);
                }
        int d = outer - 1;
        for (; d >= 0; d--) {
            if (++index[d] < box[d][1])
                break;
            index[d] = box[d][0];
        }
        if (d < 0)
            return;
    }
}
