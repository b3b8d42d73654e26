/* Programs translated to sums of rows, each of which lies in an array or in a slot of a buffer. */
#include "lines.h"

#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 8192,       /* bytes that are fetched before they are needed */
    NEAR_BYTES = 32768, /* of a buffer that stays in the first-level cache */
    PIECE = 512         /* bytes of copied arrays that are fetched together */
};

static const Place nowhere = {-1, 0};

/* What is known of a row while steps are translated. */
typedef struct {
    Place now;                     /* where it is read */
    Place target;                  /* where it has to be at the end, if anywhere */
    int64_t last_write, last_read; /* steps */
    int64_t slot;                  /* of the buffer, or -1 */
    int fetched;
} Row;

typedef struct {
    Lines *lines;
    Row *rows;
    char *factors; /* which ones were fetched */
    int64_t *free; /* slots that may be used again */
    int64_t nfree;
    int fixed; /* whether rows have slots of their own, as copies of blocks need */
    Term *term;
} State;

ptrdiff_t size_of(Element element)
{
    static const ptrdiff_t sizes[] = {4, 8, 8, 16};
    return sizes[element];
}

static int same(Place a, Place b) { return a.base == b.base && a.offset == b.offset; }

/* ---- places ---- */

static Place slot_place(int64_t slot) { return (Place){BUFFER, slot}; }

/* These two slots come after all others, whose number is known at the end. */
static const Place part_row = {BUFFER, -2}, row_of_ones = {BUFFER, -1};

static int64_t take_slot(State *state, int64_t row)
{
    Row *of = &state->rows[row];
    if (of->slot < 0)
        of->slot = state->fixed       ? row
                   : state->nfree > 0 ? state->free[--state->nfree]
                                      : state->lines->slots++;
    return of->slot;
}

/* Give the slot of a row back once the row is neither read nor written any more. */
static void release_slot(State *state, int64_t row, int64_t step)
{
    Row *of = &state->rows[row];
    if (state->fixed || of->slot < 0 || of->last_read > step || of->last_write > step)
        return;
    state->free[state->nfree++] = of->slot;
    of->slot = -1;
}

static void find_places(State *state)
{
    Lines *lines = state->lines;
    const Program *program = &lines->program;
    for (int64_t row = 0; row < program->rows; row++)
        state->rows[row] = (Row){nowhere, nowhere, -1, -1, -1, 0};
    for (int i = 0; i < lines->nsegments; i++) {
        const Segment *segment = &lines->segments[i];
        for (ptrdiff_t j = 0; j < segment->count; j++) {
            Row *row = &state->rows[segment->begin + j];
            Place place = segment->in_place ? (Place){SEGMENTS + i, j * segment->step}
                                            : slot_place(segment->begin + j);
            *(i < lines->nsources ? &row->now : &row->target) = place;
        }
    }
    for (int64_t i = 0, term = 0; i < program->nsteps; i++) {
        state->rows[program->targets[i]].last_write = i;
        for (; term < program->ends[i]; term++)
            state->rows[program->rows_of[term]].last_read = i;
    }
}

static Place place_of(State *state, int64_t row)
{
    Row *of = &state->rows[row];
    if (of->now.base < 0) /* no source has it, and no step has set it */
        of->now = slot_place(take_slot(state, row));
    return of->now;
}

static const char *address_of(const Lines *lines, Place place)
{
    if (place.base < SEGMENTS)
        return NULL;
    return lines->segments[place.base - SEGMENTS].first + place.offset;
}

/* Whether a row is read where it has to be at the end. */
static int is_at_target(const Lines *lines, const Row *row)
{
    const char *target = address_of(lines, row->target);
    return target ? target == address_of(lines, row->now)
                  : row->target.base >= 0 && same(row->now, row->target);
}

/* ---- sums ---- */

static void fetch(State *state, Place place)
{
    state->lines->sums.fetches[state->lines->sums.nfetches++] = (Fetch){place, 0};
}

static Term term_at(State *state, int64_t i)
{
    const Program *program = &state->lines->program;
    const double *weight = &program->weights[i << program->complex_weights];
    int64_t factor = program->factors_of[i];
    Row *row = &state->rows[program->rows_of[i]];
    Term term = {place_of(state, program->rows_of[i]),
                 factor < 0 ? row_of_ones : (Place){FACTORS, factor * state->lines->factor_step},
                 {weight[0], program->complex_weights ? weight[1] : 0}};
    if (!row->fetched && term.row.base >= SEGMENTS)
        fetch(state, term.row);
    row->fetched = 1;
    if (factor >= 0 && !state->factors[factor]++)
        fetch(state, term.factor);
    return term;
}

static SumKind kind_of(const Lines *lines, int64_t step, int64_t begin, int64_t end)
{
    int factors = 0, imag = lines->program.as_complex[step] != 0;
    for (int64_t i = begin; i < end; i++) {
        factors |= lines->program.factors_of[i] >= 0;
        imag |= lines->program.complex_weights && lines->program.weights[2 * i + 1] != 0;
    }
    if (lines->element >= COMPLEX_FLOAT && (imag || factors))
        return factors ? COMPLEX_FACTORS : COMPLEX_SUM;
    return factors ? REAL_FACTORS : REAL_SUM;
}

static void add_sum(State *state, Place target, Place copy, SumKind kind, const Term *first)
{
    Sums *sums = &state->lines->sums;
    int past = state->lines->stream && kind == REAL_SUM && target.base >= SEGMENTS;
    int continues = first < state->term && same(first->row, part_row);
    sums->sums[sums->count++] = (Sum){target, copy, kind, (int)(state->term - first), past,
                                      continues, sums->nfetches};
}

/* Divide a step in sums that are short enough; all but the last one collect what was added so far,
   since the target may be one of the terms that come later. */
static void add_step(State *state, int64_t step)
{
    const Program *program = &state->lines->program;
    int64_t begin = step ? program->ends[step - 1] : 0, end = program->ends[step];
    int64_t target = program->targets[step];
    SumKind kind = kind_of(state->lines, step, begin, end);
    int longest = kind == REAL_SUM ? MOST_TERMS : MOST_FACTORS;
    Term *first = state->term;
    for (int64_t i = begin; i < end; i++) {
        if (state->term - first == longest) {
            add_sum(state, part_row, nowhere, kind, first);
            first = state->term;
            *state->term++ = (Term){part_row, row_of_ones, {1, 0}};
        }
        *state->term++ = term_at(state, i);
    }
    for (int64_t i = begin; i < end; i++)
        if (program->rows_of[i] != target)
            release_slot(state, program->rows_of[i], step);
    Row *row = &state->rows[target];
    Place copy = nowhere;
    int final = row->last_write == step && row->target.base >= SEGMENTS;
    int past = kind == REAL_SUM && row->last_read <= step; /* it is not read again */
    if (is_at_target(state->lines, row) || (final && (past || !state->lines->stream)))
        row->now = row->target;
    else {
        row->now = slot_place(take_slot(state, target));
        copy = final ? row->target : nowhere;
    }
    add_sum(state, row->now, copy, kind, first);
    release_slot(state, target, step);
    if (copy.base >= 0)
        row->target = nowhere;
}

/* Copy rows that no step has set to where they have to be. */
static void add_copies(State *state)
{
    for (int64_t i = 0; i < state->lines->program.rows; i++) {
        Row *row = &state->rows[i];
        if (row->target.base < 0)
            continue;
        Place place = place_of(state, i);
        if (is_at_target(state->lines, row))
            continue;
        Term *first = state->term;
        *state->term++ = (Term){place, row_of_ones, {1, 0}};
        add_sum(state, row->target, nowhere, REAL_SUM, first);
    }
}

static int allocate(State *state)
{
    Lines *lines = state->lines;
    size_t rows = (size_t)lines->program.rows, terms = (size_t)lines->program.nterms;
    /* Each sum but the last of a step has at least three new terms. */
    lines->sums.sums = malloc(((size_t)lines->program.nsteps + terms + rows + 1) * sizeof(Sum));
    lines->sums.terms = malloc((2 * terms + rows + 1) * sizeof(Term));
    lines->sums.fetches = malloc((2 * terms + 1) * sizeof(Fetch));
    state->rows = malloc((rows + 1) * sizeof(Row));
    state->free = malloc((rows + 1) * sizeof(int64_t));
    state->factors = calloc((size_t)lines->nfactors + 1, 1);
    return lines->sums.sums && lines->sums.terms && lines->sums.fetches && state->rows
           && state->free && state->factors;
}

int lines_translate(Lines *lines)
{
    State state = {.lines = lines};
    int allocated = allocate(&state);
    if (allocated) {
        state.term = lines->sums.terms;
        lines->sums.element = lines->element;
        for (int i = 0; i < lines->nsegments; i++)
            state.fixed |= !lines->segments[i].in_place;
        lines->slots = state.fixed ? lines->program.rows : 0;
        find_places(&state);
        for (int64_t i = 0; i < lines->program.nsteps; i++)
            add_step(&state, i);
        add_copies(&state);
        lines->sums.nterms = state.term - lines->sums.terms;
        lines->slots += 2;
    }
    free(state.rows);
    free(state.free);
    free(state.factors);
    return allocated;
}

/* ---- from slots to bytes ---- */

static void to_bytes(const Lines *lines, Place *place)
{
    if (place->base != BUFFER)
        return;
    if (place->offset < 0)
        place->offset += lines->slots;
    place->offset *= lines->pitch;
}

/* Fetch rows in place shortly before they are needed. */
static void fetch_rows(Lines *lines)
{
    Sums *sums = &lines->sums;
    ptrdiff_t row = lines->step * lines->inner * size_of(lines->element);
    ptrdiff_t ahead = row > 0 ? (AHEAD + row - 1) / row : 0;
    if (ahead >= sums->nfetches || sums->count == 1) /* too late for all of them */
        sums->nfetches = 0;
    for (ptrdiff_t i = 0; i < sums->nfetches; i++)
        sums->fetches[i].bytes = row;
    for (ptrdiff_t i = 0; i < sums->count; i++) {
        Sum *sum = &sums->sums[i];
        sum->fetched = sum->fetched + ahead < sums->nfetches ? sum->fetched + ahead
                                                             : sums->nfetches;
    }
}

/* Lines that lie one after the other in memory, and are copied: fetch those of the next strip, some
   before each sum. */
static int fetch_lines(Lines *lines, int number)
{
    const Segment *segment = &lines->segments[number];
    ptrdiff_t size = size_of(lines->element), bytes = segment->count * size;
    ptrdiff_t stride = segment->strides[lines->cut - 1];
    ptrdiff_t pieces = (bytes + PIECE - 1) / PIECE, count = lines->step * pieces, done = 0;
    Sums *sums = &lines->sums;
    if (segment->in_place || segment->step != size || lines->inner != 1 || sums->count == 0)
        return 1;
    Fetch *both = malloc((size_t)(sums->nfetches + count + 1) * sizeof(Fetch)), *next = both;
    if (!both)
        return 0;
    for (ptrdiff_t i = 0, before = 0; i < sums->count; i++) {
        for (; before < sums->sums[i].fetched; before++)
            *next++ = sums->fetches[before];
        for (; done < count * (i + 1) / sums->count; done++) {
            ptrdiff_t begin = done % pieces * PIECE;
            Place place = {SEGMENTS + number, (lines->step + done / pieces) * stride + begin};
            *next++ = (Fetch){place, bytes - begin < PIECE ? bytes - begin : PIECE};
        }
        sums->sums[i].fetched = next - both;
    }
    sums->nfetches = next - both;
    free(sums->fetches);
    sums->fetches = both;
    return 1;
}

int lines_place(Lines *lines)
{
    Sums *sums = &lines->sums;
    for (ptrdiff_t i = 0; i < sums->count; i++)
        to_bytes(lines, &sums->sums[i].target);
    for (ptrdiff_t i = 0; i < sums->nterms; i++) {
        to_bytes(lines, &sums->terms[i].row);
        to_bytes(lines, &sums->terms[i].factor);
    }
    fetch_rows(lines);
    sums->inside = lines->slots * lines->pitch <= NEAR_BYTES && !lines->copied;
    int done = 1;
    for (int i = 0; i < lines->nsources && done; i++)
        done = fetch_lines(lines, i);
    return done;
}
