/* AVX-VNNI's instruction in software, for programs that test loops with it on processors without. */
#ifndef SHORTLIST_EMULATE_VPDPBUSD_H
#define SHORTLIST_EMULATE_VPDPBUSD_H

/* From now on, each VPDPBUSD that this processor lacks is done by a signal handler. */
void emulate_vpdpbusd(void);

#endif
