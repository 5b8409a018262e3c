// SPDX-License-Identifier: GPL-2.0
/* Page content: any part can be made and checked alone, and every wrong byte is found and named. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "unit.h"

#define SIZE	4099		/* odd, more than a page of memory */

struct page {
	uint64_t base;
	uint8_t bytes[SIZE];
};

static int setup(void **state)
{
	struct page *page = malloc(sizeof(*page));

	page->base = content_base(7, 1234);
	content_fill(page->bytes, SIZE, page->base, 0);
	*state = page;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void known_values(void **state)
{
	/* SplitMix64 from 0, as its authors publish it: the byte order on media must not change either */
	static const uint8_t first[16] = {
		0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2, 0xf4, 0x65, 0xb9, 0xa1, 0x6a, 0x9e, 0x78, 0x6e,
	};
	uint8_t bytes[16];

	(void)state;
	content_fill(bytes, sizeof(bytes), 0, 0);
	assert_memory_equal(bytes, first, sizeof(first));
}

static void any_part(void **state)
{
	const struct page *page = *state;
	uint8_t part[64];
	size_t offset, len;

	for (offset = 0; offset < 24; offset++) {
		for (len = 0; len <= 40; len++) {
			memset(part, 0, sizeof(part));
			content_fill(part, len, page->base, offset);
			assert_memory_equal(part, page->bytes + offset, len);
			assert_int_equal(part[len], 0);
			assert_int_equal(content_check(part, len, page->base, offset), len);
		}
	}
	content_fill(part, 3, page->base, SIZE - 3);
	assert_memory_equal(part, page->bytes + SIZE - 3, 3);
}

static void every_flip_is_found(void **state)
{
	struct page *page = *state;
	size_t i;

	for (i = 0; i < SIZE; i++) {
		page->bytes[i] ^= 1 << i % 8;
		assert_int_equal(content_check(page->bytes, SIZE, page->base, 0), i);
		if (i >= 5)
			assert_int_equal(content_check(page->bytes + 5, SIZE - 5, page->base, 5), i - 5);
		page->bytes[i] ^= 1 << i % 8;
		assert_int_equal(content_byte(page->base, i), page->bytes[i]);
	}
	assert_int_equal(content_check(page->bytes, SIZE, page->base, 0), SIZE);
}

static void first_of_two(void **state)
{
	struct page *page = *state;

	page->bytes[4097] ^= 0xff;
	page->bytes[1001] ^= 0xff;
	assert_int_equal(content_check(page->bytes, SIZE, page->base, 0), 1001);
}

/* Bytes of another page, seed or place are wrong within a few bytes */
static void others_differ(void **state)
{
	const struct page *page = *state;

	assert_in_range(content_check(page->bytes, SIZE, content_base(7, 1235), 0), 0, 7);
	assert_in_range(content_check(page->bytes, SIZE, content_base(8, 1234), 0), 0, 7);
	assert_in_range(content_check(page->bytes, SIZE - 512, page->base, 512), 0, 7);
	assert_in_range(content_check(page->bytes + 8, SIZE - 8, page->base, 0), 0, 7);
}

static int compare_keys(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct kvctx_key));
}

static void keys_are_distinct(void **state)
{
	enum { NR = 20000 };
	struct kvctx_key *keys = malloc(NR * sizeof(*keys));
	size_t i;

	(void)state;
	for (i = 0; i < NR; i++)
		content_key(i < NR / 2 ? i : INT64_MAX - i, &keys[i]);
	qsort(keys, NR, sizeof(*keys), compare_keys);
	for (i = 1; i < NR; i++)
		assert_int_not_equal(compare_keys(&keys[i - 1], &keys[i]), 0);
	free(keys);
}

static void keyspaces_differ(void **state)
{
	uint8_t a[KVCTX_KEYSPACE_LEN], b[KVCTX_KEYSPACE_LEN];

	(void)state;
	content_keyspace(1, 4096, a);
	content_keyspace(1, 4096, b);
	assert_memory_equal(a, b, sizeof(a));
	content_keyspace(2, 4096, b);
	assert_memory_not_equal(a, b, sizeof(a));
	content_keyspace(1, 4097, b);
	assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values),
		cmocka_unit_test_setup_teardown(any_part, setup, teardown),
		cmocka_unit_test_setup_teardown(every_flip_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(first_of_two, setup, teardown),
		cmocka_unit_test_setup_teardown(others_differ, setup, teardown),
		cmocka_unit_test(keys_are_distinct),
		cmocka_unit_test(keyspaces_differ),
	};

	return cmocka_run_group_tests_name("content", tests, NULL, NULL);
}
