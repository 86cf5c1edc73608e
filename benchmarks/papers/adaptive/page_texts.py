"""The text of docs/adaptive.md around its tables."""

ADAPTIVE_INTRODUCTION = """# Adaptive softmax against its paper

Written by `make reproduce DATA=folder`; do not edit. `ptb` is the 2 x 200 LSTM of the data set, V = 10,000, d = 200. Every head here is trained
in the same way: from nothing, on the contexts of a third of train and their next words, the LSTM left as it is; Adam, rate .003 falling to a tenth,
batches of 512, two epochs. Figures are of all of test. Times are of one thread of this machine, contenders in turn; it did other work meanwhile
where it says so in the last section.
"""  # noqa: E501

LEFT_OUT_SECTION = """## What is left out

| of the paper | here |
|---|---|
| text8, One Billion Word, Europarl | not run: the texts are not here |
| training of the whole network | the output layer alone, over contexts of an LSTM that was trained with a full softmax |
| Adagrad, batches of 128 x 20 | Adam, batches of 512: one recipe for every head |
| times on a GPU | not run: none was lent; k0 and lambda are of this processor |
| D-softmax, one of its baselines | trained and served: the table above |
| importance sampling, noise-contrastive estimation | not run: they are no heads that can be served |

Step times of training were taken beside other work on the same two cores: the least of some rounds in turn is given, and predictions are of a
cost model that was fitted under the same load.
"""  # noqa: E501

HEADS_REMARKS = """Multiply-adds are means over contexts of train, a closed tail costing nothing. Wall times are of `Head.topk`, k = 5, batch 1, one thread, in blocks of 50
calls in turn; dense is the fastest of eight ONNX Runtime spellings and computes no normaliser. "Times dense" is total over total.
"""  # noqa: E501

CUTOFFS_REMARKS = """The dynamic programme over 100 cut points, for serving single rows with k = 5: how often a tail must be opened is measured on 2,000 contexts of train
under the given dense layer. Two rules keep quality: the head holds 80 % of the targets, and what lies behind a tail's start falls with its width,
to a fifth, a twentieth, an eightieth. Fewest tails within 5 % of the least are taken.

"""  # noqa: E501

OPENINGS_REMARKS = """On 20,000 contexts of test. Tails are asked in their own order, so that a batch reads each one's weights once; by falling cluster probability, which
needs a sort and reads a tail several times a batch, the least possible is opened.

"""  # noqa: E501

BRUTE_FORCE_REMARKS = """The lazy answers for every k from 1 to 100 beside the sorted log-probabilities of all classes: of the same graphs with every tail opened, and of
the trained module by `torch` in float64, which shows what float32 costs. An id is wrong if its value is further than 1e-5 from the one that belongs in
its place; others are ties.

"""  # noqa: E501

PICTURE_REMARKS = """A hierarchical step scores sqrt(V) bins and the words of the bins that its targets are in. It is the faster one on this processor, for which
many small products are no burden. It is a baseline of training: served, every bin that may hold an answer would have to be opened.

![Training step against head size and number of tails](pictures/adaptive-training.png)
"""  # noqa: E501
