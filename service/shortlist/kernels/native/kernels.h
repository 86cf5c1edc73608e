/* What the library offers: one table of functions for each target, and the arrays that they read.
 *
 * All arrays are C-contiguous; Python checks types, shapes and indices before it hands over an address. Nothing here
 * calls Python, so that the interpreter's lock is released during each call. Every function may be called by many
 * threads at once.
 */
#ifndef SHORTLIST_KERNELS_H
#define SHORTLIST_KERNELS_H

#include <stdint.h>

/* The rows of a layer. weight: [classes, dim]. bias, padding: [classes] or NULL. soft_cap: 0 for none. */
struct exact_rows {
    const float *weight, *bias, *padding;
    int64_t classes, dim;
    float logit_scale, soft_cap;
};

/* The columns of a float matrix [dim, n] in int8, 128 larger, in blocks of 16 columns; a line holds four of their rows,
 * zeros after the last. scale: [blocks, 16], what a level of each column stands for, 0 where there is no column. */
struct int8_columns {
    const uint8_t *weights; /* [blocks, lines, 16, 4] */
    const float *scale;
    int64_t blocks, lines;
};

enum { HEADER_LINES = 3 }; /* of a block's previews: scales of int8 weights and of those of 2 bits, raises */

/* A head of plan `grouped`: groups hold blocks of at most 16 classes; positions count classes group by group.
 *
 * A block of weights is [lines, 16, 4] uint8: a line holds four columns of sixteen rows, each 128 larger than it is.
 * Rows of bytes are whole lines of 64. */
struct grouped {
    const uint8_t *projection;     /* [projection_blocks, projection_lines, 16, 4], an even number of lines */
    const float *projection_scale; /* [projection_blocks, 16] */
    const float *row_mean;         /* [dim], whose product with the context all but exact scores lack */
    const float *tail;             /* [dim] */
    const float *tail_terms;       /* [terms, dim] */
    const float *tail_term_offsets; /* [terms] */
    const uint8_t *centres;        /* [centre_blocks, centre_lines, 16, 4], of groups */
    const float *centre_scale;     /* [centre_blocks, 16], of the first preview_lines lines */
    const float *centre_fine_scale; /* the same of the others */
    const float *raises, *reach;   /* [groups], added before and after a product meets the row's scale */
    const int32_t *sizes;          /* [groups], how many classes */
    const int64_t *group_blocks;   /* [groups + 1], at which block each group begins */
    const int32_t *firsts;         /* [blocks], positions of their first classes */
    const int32_t *filled;         /* [blocks], how many classes */
    const uint8_t *previews;       /* [blocks, HEADER_LINES + preview_lines + coarse_lines, 64]: raises are added to
                                    * previews in units of the row's scale; weights in int8, then in 2 bits */
    const uint8_t *fine_previews;  /* [blocks, fine_lines, 64], weights in 2 bits of the other columns */
    const float *bias;             /* [blocks, 16] or NULL */
    const int64_t *order;          /* [classes], ids by position */
    const int64_t *places;         /* [V], 16 times the block of each class and its lane; -1 for one the head lacks */
    const uint8_t *codes;          /* [classes, code_lines, 64], int8 rows, 128 larger */
    const float *code_scale;       /* [classes] */
    const float *code_bias;        /* [classes] or NULL */
    const float *rows;             /* [V, dim] by id */
    int64_t dim, projection_blocks, projection_lines, centre_blocks, centre_lines, groups, blocks;
    int64_t preview_lines, coarse_lines, fine_lines, code_lines, terms, ids; /* ids: V */
    float logit_scale, soft_cap;     /* soft_cap: 0 for none */
    float tail_offset, tail_limit;   /* added to the tail's product; how far that may be over the candidates' log-sum */
};

/* How far one look of a search goes, in classes: the plan's settings of these names. full_view: k or more. */
struct grouped_limits {
    int64_t opened, previewed, candidates, full_view;
    float raise_share; /* of the raises of previews */
};

enum { EFFORT_FEATURES = 14 };

/* A search for k classes: looks that go further and further, until enough was found.
 *
 * weights: [looks, EFFORT_FEATURES + 1] of each look's features, and a constant: the log-odds that some of the k best
 * were missed; NULL where only the last look decides. free_looks: how many looks a row takes at most whose lists forbid
 * next to nothing, or that has none; list_looks: any other. list_weights: [EFFORT_FEATURES + 1], those of the last look
 * of these. ban_weights: [looks, EFFORT_FEATURES + 1], the same of rows of whose own best classes bans forbid some,
 * where it states more, or NULL; these take as many looks as rows without lists. fitted: the number of candidates
 * beside which the tail was fitted. most_listed: of so few permitted classes all are scored. deep_bans: of more banned
 * classes in front of a row's best, an exact answer takes less time than looks; most_bans: of more bans wherever they
 * are, 0: of any lists, -1: of no number of bans. bar: the log-odds over which the next look is taken. doubt_bar: those
 * over which a row should be answered exactly after the last, INFINITY where nothing can; list_doubt_bar: the same of
 * rows with lists. */
struct grouped_search {
    const struct grouped_limits *limits;
    const float *weights, *list_weights, *ban_weights;
    int64_t free_looks, list_looks, k, fitted, most_listed, opened_per_depth, deep_bans, most_bans;
    float bar, doubt_bar, list_doubt_bar;
};

/* Classes that alone may be returned, and those that may not: ids, -1 for padding, or NULL; a row whose allow list
 * begins with ALL_CLASSES has none. size: ids of a row; step: from row to row, 0 where one list holds for all. marks:
 * for searches of groups, [ids], 1 for each of the `allow_size` classes that all rows may get, 0 for the others, in
 * place of an allow list; or NULL. */
struct lists {
    const int64_t *allow, *ban;
    int64_t allow_size, allow_step, ban_size, ban_step;
    const uint8_t *marks;
};

enum { ALL_CLASSES = -2 };

/* What a call for whole answers asks. head: what the function answers by. search: how it looks for classes, which says
 * for how many; `k` says it where there is none. lists: of plan `grouped` alone. rows: of the call, which up to
 * `threads` threads share. */
struct request {
    const void *head, *search;
    const struct lists *lists;
    int64_t k, rows, threads;
};

/* Int8 previews of the classes of clusters, in blocks of 16 classes, of which the best are scored by their rows. */
struct second_stage {
    const struct exact_rows *rows;
    struct int8_columns projection;
    const int64_t *blocks;   /* [sets + 1], at which block each cluster begins */
    const uint8_t *previews; /* [blocks, lines, 16, 4], each byte 128 larger than it is */
    const float *scale;      /* [blocks, 16] */
    const float *bias;       /* [blocks, 16] or NULL */
    int64_t lines;           /* of a block of previews: at most those of the projection's columns */
};

/* Int8 previews of the scores of a screen's clusters. Each is off by at most its `error` times the context's norm, and
 * its `size` times the norm of what the context's digits leave. */
struct choice_previews {
    struct int8_columns columns;
    const float *rows;          /* [sets, dim], which exact scores are products with */
    const float *error, *size;  /* [blocks, 16] */
};

/* The clusters of a screen, or the experts of a gate, which the largest of its scores picks. */
struct sets {
    const float *chooser;   /* [dim, sets], by column */
    const float *weights;   /* set by set: of clusters [lines, classes], of experts [classes, lines] */
    const int64_t *ids;     /* of all sets end to end, ascending in each */
    const int64_t *offsets; /* [sets + 1], where each begins in `ids` */
    const float *tail;      /* [sets], added to the log-normalizers of clusters */
    const struct second_stage *stage; /* in the place of `weights`, or NULL */
    const struct choice_previews *previews; /* in the place of `chooser`, or NULL */
    int64_t dim, sets;
    int64_t classes;        /* ids are smaller */
    int64_t lines;          /* numbers in `weights` for each class: dim, or one more with biases, as experts have */
    int64_t largest;        /* classes of the largest set */
    int64_t are_experts;
    float logit_scale, soft_cap; /* of clusters; soft_cap: 0 for none */
};

/* Some rows of a layer: those at `places` [count]. ends: [count], the moment from which on each counts no more, or
 * NULL. previews: of the rows in this order, with `scale` and `shift`, as a second stage has them; NULL where all are
 * scored exactly. largest_norm, largest_rounding: lengths, of a row by its levels and of what rounding took. */
struct row_set {
    const struct exact_rows *rows;
    const int64_t *places;
    const int32_t *ends;
    const uint8_t *previews;
    const float *scale, *shift;
    int64_t count, moment;
    float largest_norm, largest_rounding;
};

/* What became of a layer's `classes`: those of `hidden` count no more, the items with ids `item_ids` do as well.
 * hidden_since: [classes], the moment from which on each is hidden; `moment`: that of the look at them. */
struct changes {
    const struct row_set *hidden, *items;
    const int64_t *item_ids;
    const int32_t *hidden_since;
    int64_t classes, moment;
};

/* k and the plan's settings of these names, which gates do not look at. */
struct screen_limits {
    int64_t k, probes;
    double probe_margin, dense_margin;
    int64_t full_view; /* classes that a second stage scores exactly, k or more */
};

enum { MAX_COMPONENTS = 64 };

/* The front of plan `mixture`: layers over a context, and the frequent classes. Blocks hold sixteen rows, by column.
 *
 * Rows of the layers are those of the components, then of the gates' vectors, then the logits that all gates share. */
struct mixture {
    const float *layers;     /* [layer_blocks, dim, 16], of components * dim + gate_count * (gate_width + 1) rows */
    const float *layer_bias; /* [layer_blocks, 16] */
    const float *gates;      /* [blocks, gate_width, 16] */
    const float *gate_bias;  /* [blocks, gate_count, 16] */
    const float *classes;    /* [blocks, dim, 16] */
    const float *class_bias; /* [blocks, 16] */
    int64_t dim, components, gate_count, gate_width, layer_blocks, blocks, frequent;
    int64_t is_tree; /* gate_count sigmoids, one less than components, in a tree; else a softmax over as many logits */
};

/* Int8 previews of the frequent classes of a mixture, 128 larger, and their rows. Each component's product with such a
 * row is off by `error` times the component's norm, and `size` times the norm of what rounding it leaves, at most. */
struct mixture_previews {
    const uint8_t *rows;                    /* [blocks, lines, 16, 4] */
    const float *scale, *error, *size;      /* [blocks, 16] */
    const float *weights;                   /* [V, dim] by id */
    const int64_t *ids;                     /* [frequent], ascending */
    int64_t lines;
};

/* A head of plan `mixture`. frequent_ids: [frequent], ascending. rare: over the means; its ids are the head's. Without
 * previews, NULL, all components score every frequent class. */
struct mixture_head {
    const struct mixture *front;
    const struct mixture_previews *previews;
    const struct grouped *rare;
    const int64_t *frequent_ids;
};

/* What proves exact answers of a layer: the exporter's `Bounds` and `FourBits`. Lines are those of `struct grouped`,
 * but those of 4 bits hold eight columns, the first four in the low halves of their bytes. */
struct certificate {
    const struct exact_rows *exact;
    const float *mean, *common;            /* [dim] */
    const uint16_t *change;                /* [dim, dim], the upper halves of float32 numbers whose lower ones are 0 */
    const uint8_t *four_bits;              /* [blocks, four_bit_lines, 16, 4] */
    const float *four_bit_scale, *constant; /* [blocks, 16]; the constant is -inf where there is no class */
    const float *four_bit_factors;         /* [7] */
    const float *error_directions, *level_directions; /* [error_count, dim], [level_count, dim] */
    const uint8_t *rows;                   /* [classes, dim], int8 rows, 128 larger */
    const float *scale, *factors;          /* [classes]; [3] */
    const float *rounding;                 /* [classes], times the size of a context */
    int64_t dim, block_rows, classes, blocks, four_bit_lines, row_lines, error_count, level_count;
    float soft_cap, largest_scale;         /* soft_cap: 0 for none; of four_bit_scale */
    double floor, summed;                  /* nats: what each logit may be off by besides, and sums of V exponentials */
};

/* k: 0 for normalisers alone. anchors, rescored, refined: how many classes are scored exactly at first and at most, and
 * by int8 at most. share: of the normaliser, that classes of 4 bits may add to it beyond their estimates, about. */
struct proof_limits {
    int64_t k, anchors, rescored, refined;
    double share;
};

struct kernels {
    const char *target;

    /* Writes the logits of the items `first` to `last` - 1 of ids [B, count] to `logits` [B, count], each for its row
     * of contexts [B, dim]. Returns 0, and writes none, where one of them is no class of the layer. */
    int64_t (*score_exactly)(const struct exact_rows *rows, const float *contexts, const int64_t *ids, float *logits,
                             int64_t count, int64_t first, int64_t last);

    /* Searches the rows `first` to `last` - 1 of contexts [B, dim]; writes ids and logits [B, k], log-normalizers [B],
     * and numbers of candidates `scored` [B], under V unless all are scored exactly. A row for which float32 leaves no
     * candidates gets NaN for its normalizer, ids -1 and logits -inf. risks: [B], probabilities of a miss; NAN where
     * nothing says, 1 where lists leave so little of a row's best classes that it should be answered exactly. `lists`
     * is NULL where there are none, here and below. features: [B, EFFORT_FEATURES] of the last looks, or NULL. Returns
     * 0 where there is no memory for it. */
    int64_t (*search_rows)(const struct grouped *head, const struct grouped_search *search,
                           const struct lists *lists, const float *contexts, int64_t *ids, float *logits,
                           float *normalizers, int32_t *scored, float *risks, float *features, int64_t first,
                           int64_t last);

    /* The whole answers of rows by a `struct grouped` and a `struct grouped_search`, as `answer_rows_of_sets` writes
     * them, and risks [rows] float32 behind it, as of `search_rows`; none, too, where a list holds an id that is
     * neither -1 nor of a class. A row that should be answered exactly has -1 for its number of scored classes, a risk
     * of 0, and nothing else that means something. */
    int64_t (*answer_rows_of_groups)(const struct request *request, const float *contexts, int64_t *ids);

    /* Writes scores [count, sets] of contexts [count, dim], and the rows [count] in the order of their best sets. By
     * previews the two largest of a row are exact, and the others less. Returns 0 where there is no memory for it. */
    int64_t (*order_rows)(const struct sets *sets, const float *contexts, int64_t count, float *scores, int32_t *order);

    /* Scores the rows order[first] to order[last - 1], each over its one or two best clusters, or its best expert. ids
     * and logits [B, k], normalizers, scored [B] are written; `scored` is -1 where the margin is under dense_margin, 0
     * where more than two clusters are opened. Returns 0 where there is no memory for it. */
    int64_t (*score_sets)(const struct sets *sets, const struct screen_limits *limits, const float *contexts,
                          const float *scores, const int32_t *order, int64_t *ids, float *logits, float *normalizers,
                          int32_t *scored, int64_t first, int64_t last);

    /* Both for all rows. */
    int64_t (*score_all_sets)(const struct sets *sets, const struct screen_limits *limits, const float *contexts,
                              int64_t *ids, float *logits, float *normalizers, int32_t *scored, int64_t count);

    /* The whole answers of contexts [rows, dim] by a `struct sets` and `struct screen_limits`, as Python hands them
     * out: `ids` [rows, k], then log-probabilities [rows, k] float32, then how many classes were scored [rows] int32.
     * Returns 0 where one row has none: numbers of its context or its normalizer are not finite, or `scored` is not
     * over 0; and where there is no memory. */
    int64_t (*answer_rows_of_sets)(const struct request *request, const float *contexts, int64_t *ids);

    /* Writes the logs of the sums of exp(logit) over the rows of a set, of contexts [count, dim], to `sums` [count];
     * near ones where there are previews. Returns 0 where there is no memory for it. */
    int64_t (*sum_row_set)(const struct row_set *set, const float *contexts, int64_t count, float *sums);

    /* Merges answers of a layer with what became of it: of the `depth` best classes of each of contexts [count, dim],
     * base_ids and base_logits [count, depth], with log-normalizers that are estimates and numbers of scored classes
     * [count], into the k best that are not hidden and of the items, but for banned ones. ids and logits [count, k],
     * normalizers and scored [count] are written; `scored` is -1 for a row that this cannot decide: too few are left,
     * others than the best previews may be among the k best, all classes were scored, or hardly any weight is left.
     * Returns 0 where there is no memory for it. */
    int64_t (*merge_changes)(const struct changes *changes, const struct lists *lists, const float *contexts,
                             int64_t count, int64_t depth, int64_t k, const int64_t *base_ids,
                             const float *base_logits, const float *base_normalizers, const int32_t *base_scored,
                             int64_t *ids, float *logits, float *normalizers, int32_t *scored);

    /* Proves the k best classes of contexts [count, dim]: writes ids and logits [count, k], log-normalizers [count],
     * by how many nats log-probabilities may be off [count], and how many classes were scored exactly [count]. An error
     * that is infinite or no number: the bounds do not decide that row. Returns 0 where there is no memory for it. */
    int64_t (*prove_rows)(const struct certificate *certificate, const struct proof_limits *limits,
                          const struct lists *lists, const float *contexts, int64_t count, int64_t *ids, float *logits,
                          double *normalizers, double *errors, int32_t *scored, int64_t threads);

    /* Draws classes of contexts [count, dim], by noise of the seeds and positions [count], at temperatures [count] over
     * 0: writes ids and logits [count, draws]. No log-normalizer is under a logit of its draws. largest_rounding: of
     * the certificate's. The rest is as of `prove_rows`, where one draw that is not decided leaves the row so. */
    int64_t (*sample_rows)(const struct certificate *certificate, const struct proof_limits *limits,
                           const struct lists *lists, const int64_t *seeds, const int64_t *positions,
                           const double *temperatures, int64_t draws, float largest_rounding, const float *contexts,
                           int64_t count, int64_t *ids, float *logits, double *normalizers, double *errors,
                           int32_t *scored, int64_t threads);

    /* Writes estimates [count, 2, classes], by 4 bits and by int8, and what bounds their errors [count, 3]: by how many
     * times a class's scale each may be off, and the root of the sum over classes of squared errors of 4 bits, each in
     * its class's scale. Returns 0 where there is no memory for it. */
    int64_t (*bound_rows)(const struct certificate *certificate, const float *contexts, int64_t count, float *estimates,
                          double *bounds);

    /* Writes the k best of logits [count, classes], ids -1 and -inf where fewer are permitted or over -inf, and the
     * log-normalizers [count]. Logits that lists exclude become -inf. Returns 0 where there is no memory for it. */
    int64_t (*rank_logits)(float *logits, int64_t count, int64_t classes, const struct lists *lists, int64_t k,
                           int64_t *ids, float *best, float *normalizers, int64_t threads);

    /* Whole answers, as `answer_rows_of_sets` writes them, from the logits [rows, classes] of contexts [rows, dim];
     * those of classes that lists exclude become -inf. Returns 0 where one row has none, or a list holds an id that is
     * neither -1 nor of a class. */
    int64_t (*answer_rows_of_logits)(const struct request *request, const float *contexts, int64_t dim, float *logits,
                                     int64_t classes, int64_t *ids);

    /* Writes the logits [classes] of one context by a layer without a soft-cap; up to so many threads share it. */
    void (*score_layer)(const struct exact_rows *layer, const float *context, float *logits, int64_t threads);

    /* Both, the answer to one row by `struct exact_rows` of such a layer; 0, too, where there is no memory for it. */
    int64_t (*answer_row_of_layer)(const struct request *request, const float *context, int64_t *ids);

    /* Writes, for the rows `first` to `last` - 1 of contexts [B, dim], the vectors `means` [B, dim] that rare classes
     * are scored by, and the logits [B, frequent] of frequent ones. Returns 0 where there is no memory for it. */
    int64_t (*mix_rows)(const struct mixture *mixture, const float *contexts, float *means, float *logits,
                        int64_t first, int64_t last);

    /* The same with previews in the place of logits, but for the classes that may be among the k best frequent ones,
     * whose logits are what `mix_rows` gives; of how many classes goes to `scored` [B]. reaches: [B, frequent], by how
     * much each logit may be off, or NULL. errors: [B], by how many nats the log of the sum of exp(logit) may be off,
     * or NULL. All logits are exact where `previews` is NULL, for k over a 32nd of the classes, and where that error
     * might be over a quarter; none with k = 0. */
    int64_t (*mix_rows_by_previews)(const struct mixture *mixture, const struct mixture_previews *previews, int64_t k,
                                    const float *contexts, float *means, float *logits, int32_t *scored,
                                    float *reaches, double *errors, int64_t first, int64_t last);

    /* The whole answer of one row, as `answer_rows_of_sets` writes it, by a `struct mixture_head` and a `struct
     * grouped_search` of its rare classes. */
    int64_t (*answer_row_of_mixture)(const struct request *request, const float *context, int64_t *ids);

    /* Writes 1 to `marks` [classes] for each of ids [count]. Returns 0 where one of them is of no class. */
    int64_t (*mark_list)(const int64_t *ids, int64_t count, int64_t classes, unsigned char *marks);
};

/* The functions of the target of this name, NULL where this build or this processor lacks it. No name, or an empty
 * one: the fastest that there is. */
const struct kernels *shortlist_find_kernels(const char *name);

/* A hash of the sources that the library was built from. */
const char *shortlist_source_hash(void);

#endif
