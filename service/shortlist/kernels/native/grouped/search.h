/* The search of plan `grouped`: a row's whole search, from the context to its k best classes.
 *
 * A look chooses candidates, scores them by int8 rows, and the best of them exactly. Looks that go further follow where
 * the odds that one of the k best was missed are over a bar. A first look equals the operators of the plan's graphs but
 * for rounding, and for up to a 32nd more groups and blocks.
 */
#ifndef SHORTLIST_GROUPED_H
#define SHORTLIST_GROUPED_H

#include "grouped/bans.h"
#include "grouped/scores.h"
#include "primitives/exponentials.h"
#include "primitives/ranking.h"

enum {
    TERMS_TOGETHER = 64, /* of a tail, whose log-sum is taken at once */
    MOST_FOR_DEPTH = 2048, /* candidates: more of millions of classes let a look pass no more bans */
    FURTHER_ROOM = 3,    /* times as many candidates for each ban in front, of looks beyond those that all lists get */
    FREE_DIVISOR = 16,   /* of the first look's candidates, so few may be forbidden of a row that is nearly free */
};

/* Of a miss, for each e-fold of classes that chance forbids: what is left of a look's candidates lies further apart, so
 * that it seems surer than it is. With .6 and .4 of all classes permitted 1.3 and 1.4 times what was stated had been
 * missed, beside what rows without lists miss (twelve kinds of text, docs/log/lists.md). */
#define CHANCE_LOG_ODDS 0.35f

/* Writes the k best of those with the first `count` indices in `exact`; equal ones by id. Beyond them, id -1. */
static void write_best(const struct grouped *head, const struct scratch *scratch, int64_t count, int64_t k,
                       int64_t *ids, float *logits) {
    for (int64_t i = 0; i < count; i++) {
        int32_t index = scratch->exact[i];
        scratch->places[i] = make_place(scratch->values[index], head->order[scratch->positions[index]]);
    }
    sort_places(scratch->places, count);
    for (int64_t rank = 0; rank < k; rank++) {
        ids[rank] = rank < count ? get_position(scratch->places[rank]) : -1;
        logits[rank] = rank < count ? get_score(scratch->places[rank]) : -INFINITY;
    }
}

/* The log of the sum of the tail's terms for a context; 0 where it has none. */
static float add_tail_terms(const struct grouped *head, const float *context) {
    float total = -INFINITY, values[TERMS_TOGETHER];
    for (int64_t first = 0; first < head->terms; first += TERMS_TOGETHER) {
        int64_t left = head->terms - first, count = left < TERMS_TOGETHER ? left : TERMS_TOGETHER;
        for (int64_t i = 0; i < count; i++)
            values[i] = dot(head->tail_terms + (first + i) * head->dim, context, head->dim) +
                        head->tail_term_offsets[first + i];
        float sum = log_sum_exp(values, count);
        total = first ? log_add_exp(total, sum) : sum;
    }
    return head->terms ? total : 0;
}

/* A guess of the log-sum of the rest, or what that can be at most: where the better half of `counted` candidates are
 * the best classes, none of the rest has more than the least of that half. The worse half may have been previewed too
 * well. Contexts of other sizes than those fitted get such guesses. */
static float limit_guess(const struct grouped *head, const struct scratch *scratch, int64_t count, int64_t counted,
                         float guess) {
    int64_t half = counted / 2 > 1 ? counted / 2 : 1;
    float others = logf((float)(count_classes(head) - half));
    if (count_reaching(scratch->values, NULL, count, guess - others) >= half) return guess;
    return others + find_threshold(scratch->values, NULL, count, half, 0);
}

/* The most that the log-sum of all classes can be, where `all` is that of `count` candidates, of which the better half
 * are the best classes: none of the others has more than the least of these. */
static float limit_normalizer(const struct grouped *head, const struct scratch *scratch, int64_t count, float all) {
    float level = find_threshold(scratch->values, NULL, count, count / 2, 0);
    return log_add_exp(all, logf((float)(count_classes(head) - count)) + level);
}

/* The log-sum of the best candidates' logits and of an estimate of the rest, which a product with the context gives.
 *
 * The estimate is of what is left beside `fitted` candidates, so that no more of them count. Where all classes are
 * candidates, nothing is left to estimate. */
static float estimate_normalizer(const struct grouped *head, const float *context, const struct scratch *scratch,
                                 int64_t count, int64_t fitted) {
    float all = log_sum_exp(scratch->values, count), inside = all, most = INFINITY;
    int64_t counted = count < fitted ? count : fitted;
    if (count == count_classes(head)) return all;
    if (count > fitted + fitted / SURPLUS_DIVISOR) {
        float threshold = find_threshold(scratch->values, NULL, count, fitted, 0);
        for (int64_t i = 0; i < count; i++)
            scratch->spare[i] = scratch->values[i] >= threshold ? scratch->values[i] : -INFINITY;
        inside = log_sum_exp(scratch->spare, count);
        most = limit_normalizer(head, scratch, count, all);
    }
    float guess = dot(head->tail, context, head->dim) + head->tail_offset + add_tail_terms(head, context);
    float tail = limit_guess(head, scratch, count, counted, guess), limit = inside + head->tail_limit;
    float estimate = log_add_exp(inside, limit < tail ? limit : tail);
    if (estimate > most) estimate = most;
    return estimate > all ? estimate : all;
}

/* The context in digits, its projection in levels, and the groups' scores. */
static void prepare_row(struct row_search *row) {
    const struct grouped *head = row->head;
    const struct scratch *scratch = row->scratch;
    int64_t columns = head->projection_blocks * LANES;
    row->steps = split_digits(row->context, head->dim, scratch->coarse, scratch->fine, scratch->rest);
    row->look.common = dot(head->row_mean, row->context, head->dim);
    project_context(head, row->steps, scratch);
    row->look.size = measure_columns(scratch->projected, 0, columns);
    row->look.beyond = measure_columns(scratch->projected, head->centre_lines * LANE_BYTES, columns);
    row->row_scale = row->look.unit = quantize(scratch->projected, columns, scratch->levels);
    score_groups(head, row->row_scale, scratch);
    describe_groups(head, scratch, &row->look);
}

/* Whether a third and more of the classes that bans forbid were found in front of the row's best: then the first look
 * tells how far down these are. Of long lists whose best are banned it does not. */
static int are_bans_counted(const struct row_search *row) {
    return row->banned && row->banned <= 2 * (row->depth - row->search->k);
}

/* Whether the lists forbid next to nothing of what the first look found: the row is like one without lists. */
static int is_nearly_free(const struct row_search *row) {
    int64_t most = row->search->limits[0].candidates / FREE_DIVISOR;
    return !row->scratch->marks && row->banned && row->banned_candidates <= most;
}

/* Whether the row's odds are those of rows whose own best classes are banned. */
static int has_ban_weights(const struct row_search *row) {
    return row->search->ban_weights && are_bans_counted(row);
}

/* What the log-odds of a miss by a look are computed with, whatever is banned. */
static const float *find_weights(const struct row_search *row, int64_t number) {
    const struct grouped_search *search = row->search;
    int is_restricted = row->lists && !is_chance(row) && !are_bans_counted(row) && !is_nearly_free(row);
    if (is_restricted && number == search->list_looks - 1) return search->list_weights;
    return search->weights + number * (EFFORT_FEATURES + 1);
}

/* What bans in front of a row's best add to the log-odds of a miss by the first look: it opens the groups of the best
 * classes of all, and finds of those that come after more and more only few. It misses 8 d^2 / c^(4/3) times as many as
 * it states, for depth d and c candidates, MOST_FOR_DEPTH at most, as measured on five layers (docs/log/lists.md). Odds
 * that were fitted to such rows have it. */
static float add_depth(const struct row_search *row) {
    float depth = row->depth / find_share(row), size = row->limits.candidates;
    size = size < MOST_FOR_DEPTH ? size : MOST_FOR_DEPTH;
    if (row->depth <= row->search->k || has_ban_weights(row)) return 0;
    float more = 2 * logf(depth) - 4.0f / 3 * logf(size) + logf(8);
    return more > 0 ? more : 0;
}

/* The log-odds of a miss by a look, as its features tell. Bans of a row's own best classes make it no surer: where a
 * row is unlike those that both estimates were fitted to, the more doubtful one counts. */
static float compute_odds(const struct row_search *row, int64_t number, const float *features) {
    float odds = add_features(find_weights(row, number), features) + (number ? 0 : add_depth(row)) -
                 CHANCE_LOG_ODDS * logf(find_share(row));
    if (!has_ban_weights(row)) return odds;
    float banned = add_features(row->search->ban_weights + number * (EFFORT_FEATURES + 1), features);
    return banned > odds ? banned : odds;
}

/* Whether a look has found enough among `count` candidates. Its log-odds of a miss go to the answer. */
static int is_enough(const struct row_search *row, int64_t number, int64_t count) {
    const struct grouped_search *search = row->search;
    float features[EFFORT_FEATURES], best[MAX_EFFORT_K + RANKS_BEYOND];
    float *described = row->answer.features ? row->answer.features : features;
    if (!search->weights || search->k > MAX_EFFORT_K || count < search->k) return 0;
    if (!number && row->are_many) return 0;
    describe_look(row->head, &row->look, row->scratch, count, row->forbidden, search->k, best, described);
    *row->answer.odds = compute_odds(row, number, described);
    return *row->answer.odds <= search->bar;
}

/* Whether lists narrow what a look finds. What goes further than others with lists is all but free of them, where none
 * of a row's best classes is banned. */
static int is_narrowed(const struct row_search *row, int64_t number) {
    return number && row->lists && (number < row->search->list_looks || row->depth > row->search->k);
}

/* Scores `count` candidates: all by int8 rows, the best exactly, and where lists matter those that int8 rows leave in
 * doubt; returns how many are left of a later look that lists narrow. The first look, and each calibrated one of a row
 * without lists, estimates the normaliser. */
static int64_t score_look(struct row_search *row, int64_t number, int64_t count) {
    const struct answer *answer = &row->answer;
    int is_free = is_nearly_free(row) && row->depth <= row->search->k;
    int narrowed = is_narrowed(row, number) && !is_free;
    score_candidates(row->head, row->steps, row->look.common, row->scratch, count);
    if (number && row->lists && !row->is_marked)
        count = drop_candidates(row, count);
    if (narrowed) memcpy(row->scratch->spare, row->scratch->values, count * sizeof(float));
    row->exact_count = rescore_best(row->head, row->context, row->scratch, count, row->limits.full_view);
    if (narrowed)
        row->exact_count = rescore_doubtful(row->head, row->context, row->scratch, count, row->exact_count,
                                            row->search->k);
    if (!number || (row->search->weights && !row->lists))
        *answer->normalizer = estimate_normalizer(row->head, row->context, row->scratch, count, row->search->fitted);
    *answer->scored = !number || count > *answer->scored ? (int32_t)count : *answer->scored;
    return count;
}

/* Whether the first look, of which `count` candidates are scored, may have missed the best class of all. */
static int is_best_unsure(const struct row_search *row, int64_t count) {
    const struct grouped_search *search = row->search;
    float features[EFFORT_FEATURES], best[1 + RANKS_BEYOND];
    if (!search->weights || !count) return 0;
    describe_look(row->head, &row->look, row->scratch, count, 0, 1, best, features);
    return add_features(search->weights, features) > search->bar;
}

/* Looks further among all classes, for the normaliser alone; what the first look scored exactly is in its place. */
static void look_for_normalizer(struct row_search *row) {
    row->limits = row->search->limits[row->search->list_looks - 1];
    int64_t count = choose_candidates(row->head, &row->limits, row->row_scale, NULL, row->classes, row->scratch,
                                      &row->look);
    score_candidates(row->head, row->steps, row->look.common, row->scratch, count);
    rescore_best(row->head, row->context, row->scratch, count, row->limits.full_view);
    *row->answer.normalizer =
        estimate_normalizer(row->head, row->context, row->scratch, count, row->search->fitted);
    if (count > *row->answer.scored) *row->answer.scored = (int32_t)count;
}

/* Keeps what the first look scored exactly, of `count` candidates, and drops those that the lists forbid; returns how
 * many are left. */
static int64_t finish_first_look(struct row_search *row, int64_t count) {
    row->first_count = keep_exact(row->scratch, row->exact_count);
    if (!row->lists) return count;
    row->is_unsure = is_best_unsure(row, count);
    int64_t kept = row->lists->marks ? keep_best(row, count) : count;
    count = drop_candidates(row, kept);
    if (!row->forbidden && !row->lists->marks) return count; /* what was scored exactly stands as it was */
    row->exact_count = rescore_best(row->head, row->context, row->scratch, count, row->limits.full_view);
    int64_t over = count_over(row->scratch, row->exact_count, row->banned_candidates);
    if (row->banned) row->depth += guess_bans_ahead(row->banned, over, count);
    return count;
}

/* The limits of a look. Lists widen those that they narrow: bans that were hardly among the candidates of the first are
 * dropped from those of the next; all other lists are marked, so that they narrow its previews. */
static void limit_look(struct row_search *row, int64_t number) {
    const struct grouped_search *search = row->search;
    row->limits = search->limits[number];
    if (!is_narrowed(row, number)) return;
    int are_few = row->banned && FEW_BANS_DIVISOR * row->banned_candidates <= search->limits[0].candidates;
    if (!are_few && !is_chance(row)) mark_row(row);
    int64_t taken = row->is_marked ? row->banned : row->banned_candidates;
    int64_t ahead = (int64_t)((row->depth - search->k) / find_share(row));
    int64_t room = number < search->list_looks ? ahead : FURTHER_ROOM * ahead;
    int64_t opened = ahead > MOST_PARTLY_PASSED ? row->classes : search->opened_per_depth * ahead;
    widen_limits(row->classes, row->head->code_lines, row->are_many, taken, room, opened, &row->limits);
    if (!row->is_marked) row->limits.candidates += ROOM_PER_BAN * row->banned_candidates;
}

/* How many looks the row takes at most. */
INLINE int64_t count_looks(const struct row_search *row) {
    const struct grouped_search *search = row->search;
    if (!row->lists) return search->free_looks;
    int is_free = is_nearly_free(row) || has_ban_weights(row);
    return is_free ? max_of(search->list_looks, search->free_looks) : search->list_looks;
}

/* Whether no look would go further than this one. */
static int is_last(const struct row_search *row, int64_t number) {
    const struct grouped_search *search = row->search;
    if (number >= count_looks(row) - 1) return 1;
    if (!is_chance(row) || row->depth > search->k) return 0;
    return search->limits[number + 1].opened <= row->limits.opened;
}

/* Whether something answers rows exactly that a search leaves. */
INLINE int has_exact(const struct grouped_search *search) { return search->doubt_bar < INFINITY; }

/* Whether others should answer a row: its best classes are nearly all banned, or by the last look, with `count`
 * permitted candidates, it stays doubtful which of the permitted ones they are. */
static int is_left(const struct row_search *row, int64_t number, int64_t count) {
    const struct grouped_search *search = row->search;
    int is_short = row->scratch->marks && count < search->k;
    if (is_deep(row)) return 1;
    float bar = row->lists && !is_nearly_free(row) ? search->list_doubt_bar : search->doubt_bar;
    return is_last(row, number) && (is_short || *row->answer.odds > bar);
}

/* Takes one look; returns whether it has found enough. A row that should be left to others gets the odds of INFINITY;
 * where nothing answers exactly, it is searched on. */
static int take_look(struct row_search *row, int64_t number) {
    const struct grouped_search *search = row->search;
    limit_look(row, number);
    const uint8_t *permitted = row->lists && number && row->is_marked ? row->scratch->permitted : NULL;
    int64_t count = choose_candidates(row->head, &row->limits, row->row_scale, permitted, row->classes, row->scratch,
                                      &row->look);
    count = score_look(row, number, count);
    if (!number) count = finish_first_look(row, count);
    if (!number && row->scratch->marks && are_best_forbidden(row, count)) mark_row(row), row->are_many = 1;
    int enough = is_enough(row, number, count), left = is_left(row, number, count);
    if (left) *row->answer.odds = INFINITY;
    return enough || is_last(row, number) || (left && search->weights && has_exact(search));
}

/* Scores all permitted classes, after a first look among all, which gives the normaliser. */
static void score_list(struct row_search *row) {
    const struct grouped_search *search = row->search;
    const struct lists *lists = row->lists;
    row->limits = search->limits[0];
    int64_t count = choose_candidates(row->head, &row->limits, row->row_scale, NULL, row->classes, row->scratch,
                                      &row->look);
    score_look(row, 0, count);
    row->first_count = keep_exact(row->scratch, row->exact_count);
    row->is_unsure = is_best_unsure(row, count);
    row->permitted = row->is_marked ? list_permitted(row->head, row->scratch)
                                    : list_positions(row->head, find_allow_list(lists, row->number),
                                                     lists->allow_size, row->scratch->positions);
    row->limits = search->limits[search->list_looks - 1], row->is_marked = 1;
    score_look(row, 1, row->permitted);
    *row->answer.odds = -INFINITY;
}

/* Leaves a row to exact answers before any look. */
static void leave_row(struct row_search *row) {
    *row->answer.odds = INFINITY, *row->answer.normalizer = NAN, *row->answer.scored = 0;
}

/* Looks further and further, or at a whole list. A row whose bans are its own best classes is left to others. */
static void take_looks(struct row_search *row) {
    const struct grouped_search *search = row->search;
    *row->answer.odds = NAN;
    if (row->lists && row->is_listed) {
        score_list(row);
        return;
    }
    if (row->lists && search->weights && has_exact(search) && are_bans_ahead(row)) {
        leave_row(row);
        return;
    }
    for (int64_t look = 0; !take_look(row, look); look++) continue;
}

/* Whether an exact answer takes less time than most searches of rows with so many bans; kernels/grouped/answers.py
 * knows which these are, too. */
static int is_left_unsearched(const struct row_search *row) {
    const struct grouped_search *search = row->search;
    const struct lists *lists = row->lists;
    if (!lists || search->most_bans < 0 || !search->weights || !has_exact(search)) return 0;
    int64_t bans = lists->ban ? count_bans(row) : 0;
    if (search->most_bans) return bans > search->most_bans;
    return bans || lists->marks || find_allow_list(lists, row->number);
}

/* Searches a row. One of which too few classes were scored exactly gets none. */
static void search_row(struct row_search *row) {
    const struct grouped_search *search = row->search;
    float *normalizer = row->answer.normalizer;
    if (is_left_unsearched(row)) {
        leave_row(row);
        write_best(row->head, row->scratch, 0, search->k, row->answer.ids, row->answer.logits);
        return;
    }
    prepare_row(row);
    row->classes = row->permitted = count_classes(row->head), row->depth = search->k;
    if (row->lists) read_lists(row);
    take_looks(row);
    if (row->exact_count < (search->k < row->permitted ? search->k : row->permitted))
        row->exact_count = 0, *normalizer = NAN;
    float exact = -INFINITY; /* of a single look without lists the estimate has them all */
    if (row->lists || count_looks(row) > 1) exact = add_exact(row->scratch, row->first_count, row->exact_count);
    write_best(row->head, row->scratch, row->exact_count, search->k, row->answer.ids, row->answer.logits);
    int is_replaced = has_exact(search) && *row->answer.odds == INFINITY;
    if (row->is_unsure && row->exact_count && !is_replaced) look_for_normalizer(row);
    if (exact > *normalizer) *normalizer = exact;
}

/* A probability of log-odds; no number where these are none. */
static float to_probability(float odds) { return 1 / (1 + expf(-odds)); }

/* What the number of classes that a search scored is at most: V says that all were scored exactly, so by each look. */
static int32_t limit_scored(const struct grouped *head, const struct grouped_search *search) {
    return (int32_t)(head->ids - (search->limits[0].full_view < head->ids));
}

static int64_t search_rows(const struct grouped *head, const struct grouped_search *search,
                           const struct lists *lists, const float *contexts, int64_t *ids, float *logits,
                           float *normalizers, int32_t *scored, float *risks, float *features, int64_t first,
                           int64_t last) {
    struct scratch scratch;
    int32_t most_scored = limit_scored(head, search);
    if (!allocate_scratch(head, lists, &scratch)) return 0;
    for (int64_t row = first; row < last; row++) {
        struct answer answer = {ids + row * search->k, logits + row * search->k, normalizers + row, risks + row,
                                features ? features + row * EFFORT_FEATURES : NULL, scored + row};
        struct row_search row_search = {.head = head, .search = search, .lists = lists,
                                        .context = contexts + row * head->dim, .scratch = &scratch, .answer = answer,
                                        .look = {.bar = -INFINITY, .group_bar = -INFINITY}, .number = row};
        if (scratch.banned_slots) scratch.banned_slots = count_slots(count_bans(&row_search)); /* as if it were alone */
        search_row(&row_search);
        risks[row] = to_probability(risks[row]);
        if (scored[row] > most_scored) scored[row] = most_scored;
    }
    give_memory(scratch.memory);
    return 1;
}

#endif
