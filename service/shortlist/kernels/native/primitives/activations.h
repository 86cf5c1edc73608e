/* Hyperbolic tangents and sigmoids of vectors of float32, to two of its last bits. */
#ifndef SHORTLIST_ACTIVATIONS_H
#define SHORTLIST_ACTIVATIONS_H

#include "primitives/exponentials.h"

#define SMALL_TANGENT 0.625f /* below it the quotient of exponentials would lose digits */

INLINE floats take_sizes(floats numbers) { return (floats)((ints)numbers & 0x7fffffff); }

/* `sizes` with the signs of `numbers`. */
INLINE floats copy_signs(floats sizes, floats numbers) {
    return (floats)((ints)sizes | ((ints)numbers & (int32_t)0x80000000));
}

/* The polynomial for small numbers is that of the Cephes library's tanhf. */
INLINE floats compute_tanh(floats numbers) {
    floats sizes = take_sizes(numbers), power = compute_exp(-2.0f * sizes), square = numbers * numbers;
    floats series = repeat_float(-5.70498872745e-3f);
    series = series * square + 2.06390887954e-2f;
    series = series * square - 5.37397155531e-2f;
    series = series * square + 1.33314422036e-1f;
    series = series * square - 3.33332819422e-1f;
    floats large = copy_signs((1.0f - power) / (1.0f + power), numbers);
    return choose_floats(sizes < SMALL_TANGENT, series * square * numbers + numbers, large);
}

INLINE floats compute_sigmoid(floats numbers) {
    floats power = compute_exp(-take_sizes(numbers)), share = 1.0f / (1.0f + power);
    return choose_floats(numbers < 0.0f, power * share, share);
}

#endif
