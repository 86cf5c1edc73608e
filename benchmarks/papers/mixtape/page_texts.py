"""The text of docs/mixtape.md around its tables."""

INTRODUCTION = """# Mixtape against its paper

Written by `make reproduce DATA=folder`; do not edit. Yang, Luong, Salakhutdinov and Le, "Mixtape: Breaking the Softmax
Bottleneck Efficiently", NeurIPS 2019. `ptb` is the 2 x 200 LSTM of the data set (V = 10,000, d = 200). MoS is the
mixture of softmaxes (Yang et al., ICLR 2018). Unless a line says otherwise, a Mixtape has K = 4 components, a tenth of
the classes with gates of their own, gates of width 32 and a tree of sigmoids. Times are of one thread of this machine.
"""

FROZEN_REMARKS = """The LSTM stays as it is. Heads are trained from random weights on 62,000 contexts and their next words,
by Adam with a learning rate that falls from .003 to a tenth, in batches of 256, for two epochs. Figures are of 20,000 words of test, drawn at random;
one seed, so that differences of a percent or two say nothing.

The training is short, and leaves the softmax far from where it would end ([adaptive.md](adaptive.md) has 157 after five times the contexts). So the
control is a single component, K = 1, which is a layer of tanh before a softmax: it is as good as four. What the heads gain over the
softmax is that layer, not rank. MoS is ahead of Mixtape. Only gates for every class stand out, as worse.
"""  # noqa: E501

JOINT_REMARKS = """A small language model from random weights: an embedding of 64 dimensions, an LSTM of one layer, a head. The
2,000 most frequent words of Penn Treebank, all others as one; 300,000 words of train, six epochs, dropout .2, Adam from .003 down to
a tenth, 20 streams of 35 words. The epoch that is best on valid is tested. The softmax has the wider LSTM, for as many parameters:
76 dimensions to the mixtures' 64, and 29 to 24 in the narrow configuration. In the wider one, noise of .1 is added to the gates'
logits in training, as in the paper.

**Mixtape did not beat softmax** at equal parameters with any seed. In the mean it is 1.8 % behind, and 2.8 % in the narrow
configuration, which was tried, without noise, because its softmax has a lower rank. A reason may be that parameters are worth more in the LSTM of so
small a model than in components and gates. MoS has 5 % fewer parameters than the softmax. Not tried:
the paper's sizes (d = 280 and a body of 24 million parameters), its weight normalisation of the gates, longer training.
"""  # noqa: E501

STEP_REMARKS = """A step is forward, loss and backward of a batch of 256 with d = 200 on random targets, without the
optimiser; the least of five, of MoS of one. MoS mixes the targets' probabilities alone, so it is as fast as it can be written here. Mixtape's
loss writes probabilities and gradients into the logits' own memory. Goals: 1.6 times softmax at most, a third of MoS at most.
The paper has 1.2 to 1.6 times softmax, and 3.5 to 10.5 times faster than MoS with K = 15.
"""  # noqa: E501

SERVED_REMARKS = """`Head.topk` with k = 5, batch 1 and one thread, 1,500 contexts of test, in blocks of calls in turn: medians say what a call takes,
means hold its waits too. Dense is the service's own dense head over the base model's layer. P@k is
against the answers by all components, of 20,000 words of test. "Over dense" is total time over that of dense: goals are 2 at
most for `exact` and under 1 for `searched` at P@1 .99. The last head has random weights, so that its P@k says nothing of trained ones.

- `exact` scores all classes by all components.
- `exact, proved` is what exact requests get where V x d is 4,194,304 or more, unless the export had `--no-certificate`. The frequent
  classes are previewed in int8 by each component. The rare ones are one layer over the components' mean, and bounds by 4 bits and int8
  prove the best of them, as those of a dense layer are proved. All components answer what the bounds do not decide.
- `searched` previews the frequent classes likewise, and searches the rare ones by groups, as method `grouped` does.

**Both goals are reached.** The front, which is components, gates and frequent classes, is a compiled loop, and so is the whole searched answer
of a single row. A frequent class is scored by all components only where its preview and a bound on its error leave it among the best; its
logit has the same bits then. Loops for AVX2, and the portable ones, score all frequent classes so, since previews spare them no time.
"""  # noqa: E501

AGREEMENT_REMARKS = """Exact answers are compared with the trained module's, by torch in float64. An id counts as wrong if its log-probability is
further than 1e-5 from that of the id that belongs in its place; otherwise the two are a tie.
"""  # noqa: E501

RANK_REMARKS = """Singular values of the log-probabilities of 1,000 contexts of test and every fifth class, each row less its mean, of the heads over
the frozen body. Softmax cannot exceed d + 1 = 201, the bias being a dimension more; values under 1e-5 of the largest do not count.
Mixtape's frequent classes alone have a higher rank: its rare ones are a softmax layer.
"""  # noqa: E501

LEFT_OUT_SECTION = """## What is left out

| of the paper | here |
|---|---|
| One Billion Word, WMT translation | not run: the texts are not available here |
| AWD-LSTM of 24 million parameters, 1,000 epochs | small bodies, some minutes of training |
| weight normalisation of the gates, dropout inside the head | not in the module; noise on the gates' logits is |
| times and memory on a GPU | not run: there was no GPU |
"""
