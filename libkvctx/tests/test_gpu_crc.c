// SPDX-License-Identifier: LGPL-2.1-or-later
/* The arithmetic of the CUDA kernel that computes CRCs, with the kernel's steps one after the other. */
#include "gpu-crc.h"
#include "test.h"

static uint32_t table[GPU_CRC_TABLE];

/* As check_crcs() of gpu-crc.cu for one chunk */
static uint32_t by_threads(const uint8_t *chunk, uint32_t bytes, uint32_t threads)
{
	struct gpu_crc part[1024];
	uint32_t t, step;

	for (t = 0; t < GPU_CRC_TABLE; t++)
		table[t] = gpu_crc_table(t);
	for (t = 0; t < threads; t++)
		part[t] = gpu_crc_slice(table, chunk, bytes, t, threads);
	for (step = 1; step < threads; step *= 2)
		for (t = 0; t < threads; t += 2 * step)
			part[t] = gpu_crc_join(part[t], part[t + step]);
	assert_int_equal(part[0].bytes, bytes);
	return part[0].crc;
}

static void same_as_the_library(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 15, 16, 17, 255, 4095, 4096, 4097, 65535, 65536, 70000 };
	static uint8_t buf[70000];
	uint32_t threads;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * i >> 3 ^ i * 11);
	for (threads = 1; threads <= 1024; threads *= 2)
		for (i = 0; i < ARRAY_SIZE(sizes); i++)
			assert_int_equal(by_threads(buf, sizes[i], threads), kvctx_crc32c(0, buf, sizes[i]));
	assert_int_equal(by_threads((const uint8_t *)"123456789", 9, 256), 0xe3069283);
}

static void powers_of_x(void **state)
{
	uint32_t i;

	(void)state;
	assert_int_equal(gpu_crc_power(0), 0x80000000);
	assert_int_equal(gpu_crc_power(1), 0x00800000);
	for (i = 0; i < 300; i++)
		assert_int_equal(gpu_crc_multiply(gpu_crc_power(i), gpu_crc_power(7 * i)), gpu_crc_power(8 * i));
	assert_int_equal(gpu_crc_multiply(0x12345678, 0x80000000), 0x12345678);
	assert_int_equal(gpu_crc_multiply(0, 0x12345678), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(same_as_the_library),
		TEST(powers_of_x),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
