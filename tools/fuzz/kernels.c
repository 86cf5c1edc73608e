/* Runs every target of the native library on random arrays of odd shapes, and compares their results bit by bit.
 *
 * Built with -fsanitize=address,undefined: every array has an allocation of its own and of its exact size, so that a
 * step beyond it is seen. Arguments: the first seed, and how many. Prints the seed and what differs, and exits with 1.
 */
#include "emulate_vpdpbusd.h"
#include "random_arrays.h"

#include <math.h>

static int fuzz_exact_rows(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(1, 50), dim = pick(1, 200), batch = pick(1, 3), count = pick(1, 40);
    struct exact_rows rows = {make_floats(classes * dim), pick(0, 1) ? make_floats(classes) : NULL,
                              pick(0, 1) ? make_floats(classes) : NULL, classes, dim, pick_float(), pick(0, 1) * 30.0f};
    float *contexts = make_floats(batch * dim);
    float *left = make_filled(batch * count * 4), *right = make_filled(batch * count * 4);
    int64_t *ids = make_ids(batch * count, classes), first = pick(0, batch * count), last = pick(first, batch * count);
    fast->score_exactly(&rows, contexts, ids, left, count, first, last);
    plain->score_exactly(&rows, contexts, ids, right, count, first, last);
    if (differ("exact rows", fast, left, right, batch * count * 4)) return 1;
    ids[pick(0, batch * count - 1)] = pick(0, 1) ? -1 : classes;
    return fast->score_exactly(&rows, contexts, ids, left, count, 0, batch * count) != 0;
}

static void fill_groups(struct grouped *head, int64_t *classes) {
    int64_t *starts = make_offsets(head->groups, 0, 4, &head->blocks); /* some groups are empty */
    if (!head->blocks) starts[head->groups] = head->blocks = 1;
    int32_t *filled = allocate_exactly(head->blocks * 4), *firsts = allocate_exactly(head->blocks * 4);
    int32_t *sizes = allocate_exactly(head->groups * 4);
    *classes = 0;
    for (int64_t i = 0; i < head->blocks; i++) firsts[i] = *classes, filled[i] = pick(1, LANES), *classes += filled[i];
    for (int64_t group = 0; group < head->groups; group++) {
        sizes[group] = 0;
        for (int64_t i = starts[group]; i < starts[group + 1]; i++) sizes[group] += filled[i];
    }
    head->group_blocks = starts, head->filled = filled, head->firsts = firsts, head->sizes = sizes;
}

static uint8_t *make_previews(const struct grouped *head) {
    int64_t lines = HEADER_LINES + head->preview_lines + head->coarse_lines;
    uint8_t *records = make_lines(head->blocks * lines);
    for (int64_t block = 0; block < head->blocks; block++)
        for (int64_t i = 0; i < HEADER_LINES * LANES; i++) {
            float number = pick_float();
            memcpy(records + block * lines * LINE_BYTES + 4 * i, &number, 4);
        }
    return records;
}

/* A head over contexts [dim]; *classes gets how many it has. */
static struct grouped make_groups(int64_t dim, int64_t *count) {
    int64_t classes, width = pick(1, 90);
    struct grouped head = {.dim = dim, .projection_blocks = divide_up(width, LANES),
                           .projection_lines = 2 * divide_up(dim, 8), .groups = pick(1, 40),
                           .centre_lines = pick(1, 9), .preview_lines = pick(0, 9), .terms = pick(0, 1) * pick(1, 130),
                           .coarse_lines = pick(0, 20), .fine_lines = pick(0, 20),
                           .code_lines = divide_up(dim, LINE_BYTES),
                           .logit_scale = 0.7f, .soft_cap = pick(0, 1) * 30.0f, .tail_offset = 1, .tail_limit = 2};
    fill_groups(&head, &classes);
    head.centre_blocks = divide_up(head.groups, LANES);
    head.projection = make_lines(head.projection_blocks * head.projection_lines);
    head.projection_scale = make_floats(head.projection_blocks * LANES), head.tail = make_floats(dim);
    head.row_mean = make_floats(dim);
    head.centres = make_lines(head.centre_blocks * head.centre_lines);
    head.centre_scale = make_floats(head.centre_blocks * LANES);
    head.raises = make_floats(head.groups), head.reach = make_floats(head.groups);
    head.centre_fine_scale = make_floats(head.centre_blocks * LANES);
    head.previews = make_previews(&head);
    head.tail_terms = make_floats(head.terms * dim), head.tail_term_offsets = make_floats(head.terms);
    head.fine_previews = make_lines(head.blocks * head.fine_lines);
    head.bias = pick(0, 1) ? make_floats(head.blocks * LANES) : NULL;
    head.code_bias = head.bias ? make_floats(classes) : NULL;
    int64_t *order = allocate_exactly(classes * 8), *places = allocate_exactly(classes * 8);
    for (int64_t block = 0; block < head.blocks; block++)
        for (int64_t lane = 0; lane < head.filled[block]; lane++) {
            int64_t position = head.firsts[block] + lane;
            order[position] = position, places[position] = LANES * block + lane;
        }
    head.order = order, head.places = places, head.ids = classes;
    head.codes = make_lines(classes * head.code_lines), head.code_scale = make_floats(classes);
    head.rows = make_floats(classes * dim);
    *count = classes;
    return head;
}

/* A search of up to three looks, whose limits are `limits`. */
static struct grouped_search make_search(struct grouped_limits *limits, int64_t classes) {
    for (int64_t i = 0; i < 3; i++)
        limits[i] = (struct grouped_limits){pick(1, 300), pick(1, 300), pick(1, 200), pick(1, 40), pick(0, 4) / 4.0f};
    const float *weights = pick(0, 1) ? make_floats(4 * (EFFORT_FEATURES + 1)) : NULL;
    const float *ban_weights = weights && pick(0, 1) ? make_floats(3 * (EFFORT_FEATURES + 1)) : NULL;
    return (struct grouped_search){.limits = limits, .weights = weights,
                                   .list_weights = weights ? weights + 3 * (EFFORT_FEATURES + 1) : NULL,
                                   .ban_weights = ban_weights,
                                   .free_looks = pick(1, 3), .list_looks = pick(1, 3),
                                   .k = pick(1, classes < 9 ? classes : 9), .fitted = pick(1, 200),
                                   .most_listed = pick(0, 300),
                                   .deep_bans = pick(0, 1) ? 150 : pick(0, 20), .most_bans = pick(-4, 20),
                                   .opened_per_depth = pick(0, 1000), .bar = pick_float(),
                                   .doubt_bar = pick(0, 3) ? pick_float() : INFINITY,
                                   .list_doubt_bar = pick(0, 3) ? pick_float() : INFINITY};
}

static int fuzz_grouped(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes, rows = pick(1, 3), dim = pick(1, 200);
    struct grouped head = make_groups(dim, &classes);
    struct grouped_limits limits[3];
    struct grouped_search search = make_search(limits, classes);
    const struct lists *lists = make_marked_lists(rows, classes);
    float *contexts = make_floats(rows * dim), *odds = make_filled(rows * 4), *features = NULL;
    if (pick(0, 1)) features = make_filled(rows * EFFORT_FEATURES * 4);
    if (!pick(0, 9)) memset(contexts, 0, rows * dim * 4);
    struct results left = make_results(rows, search.k), right = make_results(rows, search.k);
    fast->search_rows(&head, &search, lists, contexts, left.ids, left.logits, left.normalizers, left.scored, odds,
                      features, 0, rows);
    plain->search_rows(&head, &search, lists, contexts, right.ids, right.logits, right.normalizers, right.scored, odds,
                       features, 0, rows);
    int64_t size = rows * (search.k * 12 + 8), *one = make_filled(size), *other = make_filled(size);
    struct request request = {&head, &search, lists, search.k, rows, pick(1, 2)}, alone = request;
    alone.threads = 1;
    int64_t answers = fast->answer_rows_of_groups(&request, contexts, one);
    if (answers != plain->answer_rows_of_groups(&alone, contexts, other)) return 1;
    if (answers && differ("answers of groups", fast, one, other, size)) return 1;
    return compare("grouped searches", fast, left, right, rows, search.k);
}

static struct mixture make_front(int64_t dim) {
    int64_t is_tree = pick(0, 1), components = is_tree ? 1 << pick(1, 4) : pick(1, 9), width = pick(1, 40);
    int64_t gates = components - is_tree, layers = components * dim + gates * (width + 1);
    struct mixture front = {.dim = dim, .components = components, .gate_count = gates, .gate_width = width,
                            .layer_blocks = divide_up(layers, LANES), .frequent = pick(1, 400), .is_tree = is_tree};
    front.blocks = divide_up(front.frequent, LANES);
    front.layers = make_floats(front.layer_blocks * LANES * dim);
    front.layer_bias = make_floats(front.layer_blocks * LANES);
    front.gates = make_floats(front.blocks * LANES * width);
    front.gate_bias = make_floats(front.blocks * LANES * gates);
    front.classes = make_floats(front.blocks * LANES * dim), front.class_bias = make_floats(front.blocks * LANES);
    return front;
}

/* Previews of a front's classes; its weights are others, so that bounds need not hold. */
static struct mixture_previews make_mixture_previews(const struct mixture *front) {
    int64_t classes = front->blocks * LANES, lines = divide_up(front->dim, 4), ids = 2 * front->frequent;
    return (struct mixture_previews){make_lines(front->blocks * lines), make_positive(classes, 1e-2f),
                                     make_positive(classes, 1e-2f), make_positive(classes, 1),
                                     make_floats(ids * front->dim), make_ids(front->frequent, ids), lines};
}

static int fuzz_previews(const struct kernels *fast, const struct kernels *plain, const struct mixture *front,
                         const struct mixture_previews *previews, const float *contexts, int64_t rows) {
    int64_t k = pick(0, front->frequent / 32 + 1), size = rows * front->frequent * 4;
    float *numbers[6];
    int32_t *scored[2];
    double *errors[2];
    for (int i = 0; i < 2; i++) {
        const struct kernels *kernels = i ? plain : fast;
        float **some = numbers + 3 * i;
        some[0] = make_filled(rows * front->dim * 4), some[1] = make_filled(size), some[2] = make_filled(size);
        scored[i] = make_filled(rows * 4), errors[i] = make_filled(rows * 8);
        kernels->mix_rows_by_previews(front, previews, k, contexts, some[0], some[1], scored[i], some[2], errors[i], 0,
                                      rows);
    }
    return differ("means of previewed mixtures", fast, numbers[0], numbers[3], rows * front->dim * 4) ||
           differ("previews of mixtures", fast, numbers[1], numbers[4], size) ||
           differ("bounds of mixtures", fast, numbers[2], numbers[5], size) ||
           differ("counts of mixtures", fast, scored[0], scored[1], rows * 4) ||
           differ("errors of mixtures", fast, errors[0], errors[1], rows * 8);
}

static int fuzz_mixture(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes, rows = pick(1, 3), dim = pick(1, 200), first = pick(0, rows), last = pick(first, rows);
    struct mixture front = make_front(dim);
    struct grouped rare = make_groups(dim, &classes);
    struct mixture_previews previews = make_mixture_previews(&front);
    struct mixture_head head = {&front, pick(0, 1) ? &previews : NULL, &rare, make_ids(front.frequent, 1000)};
    struct grouped_limits limits[3];
    struct grouped_search search = make_search(limits, classes);
    float *contexts = make_floats(rows * dim), *numbers[4];
    for (int i = 0; i < 4; i++) numbers[i] = make_filled(rows * (i % 2 ? front.frequent : dim) * 4);
    if (!pick(0, 9)) memset(contexts, 0, rows * dim * 4);
    fast->mix_rows(&front, contexts, numbers[0], numbers[1], first, last);
    plain->mix_rows(&front, contexts, numbers[2], numbers[3], first, last);
    if (differ("means of mixtures", fast, numbers[0], numbers[2], rows * dim * 4) ||
        differ("logits of mixtures", fast, numbers[1], numbers[3], rows * front.frequent * 4))
        return 1;
    if (fuzz_previews(fast, plain, &front, head.previews, contexts, rows)) return 1;
    int64_t size = search.k * 12 + 4, *one = make_filled(size), *other = make_filled(size);
    struct request request = {&head, &search, NULL, search.k, 1, 1};
    int64_t answers = fast->answer_row_of_mixture(&request, contexts, one);
    if (answers != plain->answer_row_of_mixture(&request, contexts, other)) return 1;
    return answers && differ("answers of mixtures", fast, one, other, size);
}

/* Columns of a matrix [dim, count]. */
static struct int8_columns make_columns(int64_t dim, int64_t count) {
    int64_t blocks = divide_up(count, LANES), lines = divide_up(dim, 4);
    return (struct int8_columns){make_lines(blocks * lines), make_positive(blocks * LANES, 0.01f), blocks, lines};
}

/* Previews of the scores of these sets, and bounds that hold or do not. */
static const struct choice_previews *make_choice_previews(const struct sets *sets) {
    struct choice_previews *previews = allocate_exactly(sizeof *previews);
    int64_t columns = divide_up(sets->sets, LANES) * LANES;
    *previews = (struct choice_previews){make_columns(sets->dim, sets->sets), make_floats(sets->sets * sets->dim),
                                         make_positive(columns, 0.1f), make_positive(columns, 1)};
    return previews;
}

/* A second stage of these sets, whose ids are under `ids`. */
static const struct second_stage *make_stage(const struct sets *sets, int64_t ids) {
    struct exact_rows *rows = allocate_exactly(sizeof *rows);
    struct second_stage *stage = allocate_exactly(sizeof *stage);
    int64_t *blocks = allocate_exactly((sets->sets + 1) * sizeof *blocks), width = pick(1, 50);
    int64_t lines = divide_up(width, 4);
    blocks[0] = 0;
    for (int64_t i = 0; i < sets->sets; i++)
        blocks[i + 1] = blocks[i] + divide_up(sets->offsets[i + 1] - sets->offsets[i], LANES);
    int64_t classes = blocks[sets->sets] * LANES;
    *rows = (struct exact_rows){make_floats(ids * sets->dim), pick(0, 1) ? make_floats(ids) : NULL, NULL, ids,
                                sets->dim, sets->logit_scale, sets->soft_cap};
    *stage = (struct second_stage){rows, make_columns(sets->dim, width), blocks, make_lines(blocks[sets->sets] * lines),
                                   make_floats(classes), pick(0, 1) ? make_floats(classes) : NULL, lines};
    return stage;
}

static int fuzz_sets(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes, count = pick(1, 9), dim = pick(1, 150), are_experts = pick(0, 1);
    struct sets sets = {.dim = dim, .sets = pick(1, 9), .lines = dim + (are_experts || pick(0, 1)), .largest = 60,
                        .are_experts = are_experts, .logit_scale = pick_float(), .soft_cap = pick(0, 1) * 30.0f};
    sets.offsets = make_offsets(sets.sets, 1, 60, &classes);
    sets.chooser = make_floats(dim * sets.sets), sets.weights = make_floats(classes * sets.lines);
    sets.ids = make_ids(classes, 2 * classes), sets.classes = 2 * classes;
    if (!are_experts && pick(0, 1)) sets.previews = make_choice_previews(&sets);
    sets.tail = make_floats(sets.sets);
    if (!are_experts && pick(0, 1)) sets.stage = make_stage(&sets, 2 * classes);
    struct screen_limits limits = {pick(1, 5), pick(1, 3), pick(0, 1) * 0.4, pick(0, 1) * 0.1, pick(5, 40)};
    float *contexts = make_floats(count * dim);
    struct results left = make_results(count, limits.k), right = make_results(count, limits.k);
    fast->score_all_sets(&sets, &limits, contexts, left.ids, left.logits, left.normalizers, left.scored, count);
    plain->score_all_sets(&sets, &limits, contexts, right.ids, right.logits, right.normalizers, right.scored, count);
    if (compare("rows of sets", fast, left, right, count, limits.k)) return 1;
    int64_t size = count * (limits.k * 12 + 4), *one = make_filled(size), *other = make_filled(size);
    struct request request = {&sets, &limits, NULL, limits.k, count, pick(1, 2)}, alone = request;
    alone.threads = 1;
    int64_t answers = fast->answer_rows_of_sets(&request, contexts, one);
    if (answers != plain->answer_rows_of_sets(&alone, contexts, other)) return 1;
    return answers && differ("whole answers", fast, one, other, size);
}

static int32_t *make_moments(int64_t count) {
    int32_t *moments = allocate_exactly(count * sizeof *moments);
    for (int64_t i = 0; i < count; i++) moments[i] = (int32_t)pick(0, 9);
    return moments;
}

/* Rows of a layer of `classes`, by previews or without, of which some count no more. */
static struct row_set make_row_set(int64_t classes, int64_t dim, int64_t moment) {
    struct exact_rows *rows = allocate_exactly(sizeof *rows);
    struct row_set set = {.rows = rows, .count = pick(0, 2) ? pick(0, 40) : pick(0, 700), .moment = moment,
                          .largest_norm = 1, .largest_rounding = 0.01f};
    *rows = (struct exact_rows){make_floats(classes * dim), pick(0, 1) ? make_floats(classes) : NULL, NULL, classes,
                                dim, pick_float(), pick(0, 1) * 30.0f};
    set.places = make_ids(set.count, classes);
    if (pick(0, 1)) set.ends = make_moments(set.count);
    if (!pick(0, 1)) return set;
    int64_t blocks = set.count ? divide_up(set.count, LANES) : 1;
    set.previews = make_lines(blocks * divide_up(dim, 4));
    set.scale = make_positive(blocks * LANES, 0.01f), set.shift = make_floats(blocks * LANES);
    return set;
}

static int fuzz_changes(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(1, 60), dim = pick(1, 90), count = pick(1, 4), k = pick(1, 12), asked = k + pick(0, 9);
    int64_t moment = pick(0, 9), found = count * asked;
    struct row_set hidden = make_row_set(classes, dim, moment), items = make_row_set(classes, dim, moment);
    struct changes changes = {&hidden, &items, make_ids(items.count, 3 * classes), make_moments(classes), classes,
                              moment};
    float *contexts = make_floats(count * dim), *logits = make_floats(found), *normalizers = make_floats(count);
    int32_t *scored = allocate_exactly(count * sizeof *scored);
    int64_t *ids = make_ids(found, classes);
    for (int64_t i = 0; i < count; i++) scored[i] = (int32_t)pick(1, classes), normalizers[i] += 50;
    const struct lists *lists = make_lists(count, classes);
    struct results left = make_results(count, k), right = make_results(count, k);
    fast->sum_row_set(&hidden, contexts, count, left.normalizers);
    plain->sum_row_set(&hidden, contexts, count, right.normalizers);
    if (differ("sums of rows", fast, left.normalizers, right.normalizers, count * 4)) return 1;
    fast->merge_changes(&changes, lists, contexts, count, asked, k, ids, logits, normalizers, scored, left.ids,
                        left.logits, left.normalizers, left.scored);
    plain->merge_changes(&changes, lists, contexts, count, asked, k, ids, logits, normalizers, scored, right.ids,
                         right.logits, right.normalizers, right.scored);
    return compare("merged rows", fast, left, right, count, k);
}

static struct certificate make_certificate(const struct exact_rows *exact) {
    int64_t dim = exact->dim, classes = exact->classes, blocks = divide_up(classes, LANES), block_rows = 1;
    while (block_rows * block_rows < dim) block_rows++;
    struct certificate certificate = {.exact = exact, .dim = dim, .block_rows = block_rows, .classes = classes,
                                      .blocks = blocks, .four_bit_lines = divide_up(dim, 8),
                                      .row_lines = divide_up(dim, LINE_BYTES), .error_count = pick(1, 4),
                                      .level_count = pick(1, 4), .soft_cap = exact->soft_cap, .largest_scale = 1,
                                      .floor = 1e-5, .summed = 1e-5};
    float size = pick(0, 2) ? 1e-3f : 1e-1f, *constant = make_floats(blocks * LANES);
    uint16_t *change = allocate_exactly(dim * dim * 2);
    for (int64_t i = 0; i < dim * dim; i++) change[i] = (uint16_t)(pick(0, 1) << 15 | pick(0x3a00, 0x3f80));
    for (int64_t i = 0; i < blocks * LANES; i++)
        if (i >= classes || !pick(0, 20)) constant[i] = -INFINITY;
    certificate.mean = make_floats(dim), certificate.common = make_floats(dim), certificate.change = change;
    certificate.four_bits = make_lines(blocks * certificate.four_bit_lines);
    certificate.four_bit_scale = make_positive(blocks * LANES, size), certificate.constant = constant;
    certificate.four_bit_factors = make_positive(7, 1), certificate.scale = make_positive(classes, size / 16);
    certificate.error_directions = make_floats(certificate.error_count * dim);
    certificate.level_directions = make_floats(certificate.level_count * dim);
    certificate.rows = make_bytes(classes * dim), certificate.factors = make_positive(3, 1);
    certificate.rounding = make_positive(classes, 1e-6f);
    return certificate;
}

static int compare_proofs(const struct kernels *kernels, struct results a, struct results b, double *const *numbers,
                          int64_t rows, int64_t k) {
    if (differ("errors of proofs", kernels, numbers[1], numbers[3], rows * 8)) return 1;
    for (int64_t row = 0; row < rows; row++) {
        if (!(numbers[1][row] < INFINITY)) continue; /* nothing is decided */
        if (differ("proofs' ids", kernels, a.ids + row * k, b.ids + row * k, k * 8) ||
            differ("proofs' logits", kernels, a.logits + row * k, b.logits + row * k, k * 4) ||
            differ("proofs' normalizers", kernels, numbers[0] + row, numbers[2] + row, 8))
            return 1;
    }
    return 0;
}

static int fuzz_proofs(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(1, 700), dim = pick(1, 150), rows = pick(0, 3) ? pick(1, 6) : pick(7, 35);
    int64_t k = pick(0, classes < 9 ? classes : 9);
    struct exact_rows exact = {make_floats(classes * dim), pick(0, 1) ? make_floats(classes) : NULL, NULL, classes, dim,
                               pick_float(), pick(0, 1) * 30.0f};
    struct certificate certificate = make_certificate(&exact);
    struct proof_limits limits = {k, pick(1, 70), pick(1, 400), pick(1, classes), pick(0, 1) ? 0.2 : 1e9};
    const struct lists *lists = make_lists(rows, classes);
    float *contexts = make_floats(rows * dim), *estimates[2];
    double *numbers[4], *bounds[2];
    struct results left = make_results(rows, k), right = make_results(rows, k);
    for (int i = 0; i < 4; i++) numbers[i] = make_filled(rows * 8);
    for (int i = 0; i < 2; i++) {
        const struct kernels *kernels = i ? plain : fast;
        struct results results = i ? right : left;
        estimates[i] = make_filled(rows * 2 * classes * 4), bounds[i] = make_filled(rows * 3 * 8);
        kernels->bound_rows(&certificate, contexts, rows, estimates[i], bounds[i]);
        kernels->prove_rows(&certificate, &limits, lists, contexts, rows, results.ids, results.logits, numbers[2 * i],
                            numbers[2 * i + 1], results.scored, pick(1, 3));
    }
    return differ("estimates", fast, estimates[0], estimates[1], rows * 2 * classes * 4) ||
           differ("bounds", fast, bounds[0], bounds[1], rows * 3 * 8) ||
           compare_proofs(fast, left, right, numbers, rows, k);
}

static int fuzz_ranks(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(0, 9) ? pick(1, 200) : pick(1000, 3000), rows = pick(1, 4), k = pick(1, classes);
    float *logits = make_floats(rows * classes), *copy = allocate_exactly(rows * classes * 4);
    const struct lists *lists = make_lists(rows, classes);
    for (int64_t i = 0; i < rows * classes; i++) {
        if (pick(0, 1)) logits[i] = rintf(logits[i]);
        if (!pick(0, 30)) logits[i] = pick(0, 3) ? -INFINITY : pick(0, 1) ? NAN : INFINITY;
    }
    memcpy(copy, logits, rows * classes * 4);
    struct results left = make_results(rows, k), right = make_results(rows, k);
    fast->rank_logits(logits, rows, classes, lists, k, left.ids, left.logits, left.normalizers, pick(1, 3));
    plain->rank_logits(copy, rows, classes, lists, k, right.ids, right.logits, right.normalizers, 1);
    for (int64_t row = 0; row < rows; row++) /* no number has many spellings */
        if (isnan(left.normalizers[row]) && isnan(right.normalizers[row]))
            left.normalizers[row] = right.normalizers[row];
    if (compare("ranks", fast, left, right, rows, k)) return 1;
    int64_t size = rows * (k * 12 + 4), dim = pick(1, 40), *one = make_filled(size), *other = make_filled(size);
    float *contexts = make_floats(rows * dim);
    struct request request = {NULL, NULL, NULL, k, rows, pick(1, 3)};
    int64_t answers = fast->answer_rows_of_logits(&request, contexts, dim, logits, classes, one);
    if (answers != plain->answer_rows_of_logits(&request, contexts, dim, logits, classes, other)) return 1;
    return answers && differ("dense answers", fast, one, other, size);
}

static int fuzz_layers(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(0, 3) ? pick(1, 200) : pick(1000, 2200), dim = pick(1, 70), k = pick(1, classes);
    struct exact_rows layer = {make_floats(classes * dim), pick(0, 1) ? make_floats(classes) : NULL,
                               pick(0, 1) ? make_floats(classes) : NULL, classes, dim, pick_float(), 0};
    float *context = make_floats(dim);
    int64_t size = k * 12 + 4, *one = make_filled(size), *other = make_filled(size);
    struct request request = {&layer, NULL, make_lists(1, classes), k, 1, pick(1, 3)}, alone = request;
    alone.threads = 1;
    int64_t answers = fast->answer_row_of_layer(&request, context, one);
    if (answers != plain->answer_row_of_layer(&alone, context, other)) return 1;
    return answers && differ("answers of the layer", fast, one, other, size);
}

/* The target of this name, NULL where it is not there; AVX-VNNI in software where the build asks for that. */
static const struct kernels *find_kernels(const char *name) {
#ifdef EMULATE
    extern const struct kernels kernels_avxvnni;
    if (!strcmp(name, kernels_avxvnni.target)) return &kernels_avxvnni;
#endif
    return shortlist_find_kernels(name);
}

int main(int count, char **arguments) {
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    uint64_t runs = count > 2 ? strtoull(arguments[2], NULL, 10) : 1000;
    static int (*const parts[])(const struct kernels *, const struct kernels *) = {
        fuzz_exact_rows, fuzz_grouped, fuzz_mixture, fuzz_sets, fuzz_changes, fuzz_proofs, fuzz_ranks, fuzz_layers};
    static const char *const names[] = {"avx512vnni", "avxvnni", "avx2", "neon", "portable"};
    const struct kernels *plain = find_kernels("portable");
#ifdef EMULATE
    emulate_vpdpbusd();
#endif
    for (uint64_t seed = first; seed < first + runs; seed++)
        for (int name = 0; name < (int)(sizeof names / sizeof *names); name++)
            for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
                const struct kernels *kernels = find_kernels(names[name]);
                state = seed * 0x9e3779b97f4a7c15u + 1;
                if (kernels && parts[part](kernels, plain)) {
                    printf("seed %llu\n", (unsigned long long)seed);
                    return 1;
                }
                free_all();
            }
    printf("%llu seeds: no difference\n", (unsigned long long)runs);
    return 0;
}
