// SPDX-License-Identifier: LGPL-2.1-or-later
/* Copies of pages: like memcpy(), whatever their length and where they lie. */
#include "copy.h"
#include "test.h"

#define MOST	(80U << 10)
#define EDGE	128U

static void any_length_and_alignment(void **state)
{
	static uint8_t from[MOST + EDGE], to[MOST + 2 * EDGE], want[MOST + 2 * EDGE];
	static const size_t lengths[] = { 0, 1, 63, 64, 65, 4096, 65535, 65536, 65537, 65536 + 63, 65536 + 64, 70000, MOST };
	size_t n, out, in, i;

	(void)state;
	for (i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 + i / 251);
	for (n = 0; n < sizeof(lengths) / sizeof(*lengths); n++) {
		for (out = 0; out < EDGE; out += 1 + out / 3) {
			for (in = 0; in < 65; in += 1 + in / 3) {
				memset(to, 0xa5, sizeof(to));
				memset(want, 0xa5, sizeof(want));
				memcpy(want + out, from + in, lengths[n]);
				kvctx_copy_page(to + out, from + in, lengths[n]);
				assert_memory_equal(to, want, sizeof(to));
			}
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_length_and_alignment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
