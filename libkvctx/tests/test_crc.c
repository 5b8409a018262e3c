// SPDX-License-Identifier: LGPL-2.1-or-later
/* CRC32C; and paths in words. */
#include "test.h"

/* RFC 3720, appendix B.4; and the check value of the catalogue of parametrised CRC algorithms */
static void known_values(void **state)
{
	uint8_t buf[32];
	int i;

	(void)state;
	assert_int_equal(kvctx_crc32c(0, "123456789", 9), 0xe3069283);
	memset(buf, 0, sizeof(buf));
	assert_int_equal(kvctx_crc32c(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(kvctx_crc32c(0, buf, 32), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	assert_int_equal(kvctx_crc32c(0, buf, 32), 0x46dd794e);
	for (i = 0; i < 32; i++)
		buf[i] = (uint8_t)(31 - i);
	assert_int_equal(kvctx_crc32c(0, buf, 32), 0x113fdb5c);
	assert_int_equal(kvctx_crc32c(0, buf, 0), 0);
}

/* One bit at a time, as the polynomial says */
static uint32_t bitwise(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0U;
	int bit;

	for (; len; p++, len--) {
		crc ^= *p;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
	}
	return ~crc;
}

static void any_length_and_alignment(void **state)
{
	static uint8_t buf[70000];
	size_t at, len, i;
	uint32_t want;

	(void)state;
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * i * 7 + i / 251 + 3);
	for (at = 0; at < 9; at++) {
		for (len = 0; at + len <= sizeof(buf); len += 7 + len / 16) {
			want = bitwise(buf + at, len);
			assert_int_equal(kvctx_crc32c(0, buf + at, len), want);
			assert_int_equal(kvctx_crc32c(kvctx_crc32c(0, buf + at, len / 3),
						      buf + at + len / 3, len - len / 3), want);
		}
	}
}

static void chunks(void **state)
{
	uint32_t crcs[3], i;
	uint8_t buf[250];

	(void)state;
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i + 9);
	for (i = 0; i < 3; i++)
		crcs[i] = kvctx_crc32c(0, buf + 100 * i, i < 2 ? 100 : 50);
	assert_int_equal(kvctx_check_crcs(buf, 250, 100, crcs), 0);
	assert_int_equal(kvctx_check_crcs(buf, 200, 100, crcs), 0);
	assert_int_equal(kvctx_check_crcs(buf, 0, 100, NULL), 0);
	assert_int_equal(kvctx_check_crcs(buf, 249, 100, crcs), -EBADMSG);
	assert_int_equal(kvctx_check_crcs(buf, 250, 0, crcs), -EINVAL);
	for (i = 0; i < 250; i += 49) {
		buf[i] ^= 16;
		assert_int_equal(kvctx_check_crcs(buf, 250, 100, crcs), -EBADMSG);
		buf[i] ^= 16;
	}
	assert_int_equal(kvctx_check_crcs(buf, 250, 100, crcs), 0);
}

static void paths(void **state)
{
	struct kvctx_path rows[3];
	uint8_t buf[10];
	uint32_t id;

	(void)state;
	assert_int_equal(kvctx_mem_register(ctx, buf, sizeof(buf), &id), 0);
	assert_int_equal(kvctx_paths(ctx, id, NULL, 5), 2);
	memset(rows, 0xee, sizeof(rows));
	assert_int_equal(kvctx_paths(ctx, id, rows, 1), 2);
	assert_string_equal(rows[0].device, "nvme0n1");
	assert_int_equal(rows[1].reason, 0xeeeeeeee);
	assert_int_equal(kvctx_paths(ctx, id, rows, 3), 2);
	assert_int_equal(rows[1].reason, KVCTX_PATH_NO_QUEUE);
	assert_int_equal(kvctx_paths(ctx, 55, rows, 3), -EINVAL);
	fake.fail_paths = -ENOTTY;
	assert_int_equal(kvctx_paths(ctx, id, rows, 3), -ENOTTY);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

static void path_texts(void **state)
{
	static const struct {
		uint32_t reason;
		const char *peer, *text;
	} rows[] = {
		{ KVCTX_PATH_DIRECT, "", "nvme1n1: host memory" },
		{ KVCTX_PATH_DIRECT, "0000:03:00.0", "nvme1n1: direct from 0000:03:00.0, 4 hops" },
		{ KVCTX_PATH_NO_QUEUE, "0000:03:00.0", "nvme1n1: takes no peer memory, as NVMe/TCP" },
		{ KVCTX_PATH_NO_ROUTE, "0000:03:00.0", "0000:03:00.0: no common switch with nvme1n1" },
		{ KVCTX_PATH_NO_PCI, "0000:03:00.0", "nvme1n1: not a PCI device" },
		{ KVCTX_PATH_GONE, "0000:03:00.0", "0000:03:00.0: its driver has let go of it" },
		{ 77, "0000:03:00.0", "nvme1n1: no path from 0000:03:00.0, reason 77" },
	};
	struct kvctx_path path;
	char text[160];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		path = (struct kvctx_path){ .reason = rows[i].reason, .distance = 4, .device = "nvme1n1" };
		strcpy(path.peer, rows[i].peer);
		assert_int_equal(kvctx_path_text(&path, text, sizeof(text)), strlen(rows[i].text));
		assert_string_equal(text, rows[i].text);
		assert_int_equal(kvctx_path_text(&path, NULL, 0), strlen(rows[i].text));
	}
	/* names without an end: what the kernel would not write */
	memset(path.device, 'd', sizeof(path.device));
	memset(path.peer, 'p', sizeof(path.peer));
	assert_true(kvctx_path_text(&path, text, sizeof(text)) < 160);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(known_values),
		TEST(any_length_and_alignment),
		TEST(chunks),
		TEST(paths),
		TEST(path_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
