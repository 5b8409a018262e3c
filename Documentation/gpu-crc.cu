// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A CUDA kernel that computes the CRC32C of each chunk of a page where the page lies, for a comparison with the CRCs
 * that a LOAD told; and a program that tries it on random pages, and with any argument tells how fast it was.
 * gpu-crc.h has the arithmetic.
 *
 *	nvcc -O3 -o gpu-crc gpu-crc.cu && ./gpu-crc
 *
 * One block a chunk, one slice a thread. Simple rather than fast: threads read neighbouring slices, not neighbouring
 * words.
 */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gpu-crc.h"

#define THREADS	256	/* a power of two */

/* @bad, zero before: set to 1 + the number of a chunk that does not have its CRC; @crcs: one a chunk */
__global__ void check_crcs(const uint8_t *page, size_t len, uint32_t chunk, const uint32_t *crcs, unsigned int *bad)
{
	__shared__ uint32_t table[GPU_CRC_TABLE];
	__shared__ struct gpu_crc part[THREADS];
	size_t at = (size_t)blockIdx.x * chunk;
	uint32_t bytes = len - at < chunk ? (uint32_t)(len - at) : chunk, t = threadIdx.x;

	for (uint32_t i = t; i < GPU_CRC_TABLE; i += THREADS)
		table[i] = gpu_crc_table(i);
	__syncthreads();
	part[t] = gpu_crc_slice(table, page + at, bytes, t, THREADS);
	for (uint32_t step = 1; step < THREADS; step *= 2) {
		__syncthreads();
		if (t % (2 * step) == 0)
			part[t] = gpu_crc_join(part[t], part[t + step]);
	}
	if (!t && part[0].crc != crcs[blockIdx.x])
		atomicCAS(bad, 0U, blockIdx.x + 1);
}

static void need(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return;
	fprintf(stderr, "gpu-crc: %s: %s\n", what, cudaGetErrorString(err));
	exit(1);
}

static unsigned int run(const uint8_t *page, size_t len, uint32_t chunk, const uint32_t *crcs, unsigned int *bad)
{
	unsigned int result;

	need(cudaMemset(bad, 0, sizeof(*bad)), "memset");
	check_crcs<<<(unsigned int)((len + chunk - 1) / chunk), THREADS>>>(page, len, chunk, crcs, bad);
	need(cudaGetLastError(), "launch");
	need(cudaMemcpy(&result, bad, sizeof(result), cudaMemcpyDefault), "result");
	return result;
}

/* What main() works with: a page here and on the GPU, and the CRCs of its chunks */
struct trial {
	std::vector<uint8_t> page;
	uint8_t *gpu_page;
	uint32_t *gpu_crcs;
	unsigned int *bad;
};

/* A page of @len bytes in chunks of @chunk has its CRCs, and one bit of it inverted is found in its chunk */
static bool found(struct trial *t, size_t len, uint32_t chunk)
{
	size_t at, wrong = (size_t)rand() % len;
	uint32_t table[GPU_CRC_TABLE];
	std::vector<uint32_t> crcs;
	unsigned int good, broken;
	uint8_t inverted = t->page[wrong] ^ 0x10;

	for (uint32_t i = 0; i < GPU_CRC_TABLE; i++)
		table[i] = gpu_crc_table(i);
	for (at = 0; at < len; at += chunk)
		crcs.push_back(gpu_crc_slice(table, &t->page[at], len - at < chunk ? len - at : chunk, 0, 1).crc);
	need(cudaMemcpy(t->gpu_page, t->page.data(), len, cudaMemcpyDefault), "copy");
	need(cudaMemcpy(t->gpu_crcs, crcs.data(), crcs.size() * sizeof(crcs[0]), cudaMemcpyDefault), "copy");
	good = run(t->gpu_page, len, chunk, t->gpu_crcs, t->bad);
	need(cudaMemcpy(t->gpu_page + wrong, &inverted, 1, cudaMemcpyDefault), "copy");
	broken = run(t->gpu_page, len, chunk, t->gpu_crcs, t->bad);
	printf("%8zu bytes, chunks of %5u: %s; bit inverted in chunk %zu: found in chunk %d\n", len, chunk,
	       good ? "BAD" : "good", wrong / chunk, (int)broken - 1);
	return !good && broken == wrong / chunk + 1;
}

/* Bytes a nanosecond, over as many chunks as a GPU has room for at a time, and more; what is compared is wrong */
static double speed(uint32_t chunk)
{
	const size_t len = (size_t)1 << 30;
	cudaEvent_t from, to;
	unsigned int *bad;
	uint32_t *crcs;
	uint8_t *page;
	float ms;

	need(cudaMalloc(&page, len), "memory");
	need(cudaMalloc(&crcs, len / chunk * sizeof(*crcs)), "memory");
	need(cudaMalloc(&bad, sizeof(*bad)), "memory");
	need(cudaMemset(page, 0xa5, len), "memset");
	need(cudaMemset(crcs, 0, len / chunk * sizeof(*crcs)), "memset");
	need(cudaEventCreate(&from), "event");
	need(cudaEventCreate(&to), "event");
	run(page, len, chunk, crcs, bad);
	need(cudaEventRecord(from), "event");
	check_crcs<<<(unsigned int)(len / chunk), THREADS>>>(page, len, chunk, crcs, bad);
	need(cudaEventRecord(to), "event");
	need(cudaEventSynchronize(to), "kernel");
	need(cudaEventElapsedTime(&ms, from, to), "event");
	need(cudaFree(page), "memory");
	need(cudaFree(crcs), "memory");
	need(cudaFree(bad), "memory");
	return (double)len / ms / 1e6;
}

int main(int argc, char **argv)
{
	static const size_t lens[] = { 1, 15, 16, 17, 4095, 4096, 4097, 65535, 65536, 65537, 100 * 65536 + 777 };
	const size_t most = lens[sizeof(lens) / sizeof(lens[0]) - 1];
	struct trial t;
	bool all = true;

	t.page.resize(most);
	for (uint8_t &b : t.page)
		b = (uint8_t)rand();
	need(cudaMalloc(&t.gpu_page, most), "memory");
	need(cudaMalloc(&t.gpu_crcs, (most / 4096 + 1) * sizeof(*t.gpu_crcs)), "memory");
	need(cudaMalloc(&t.bad, sizeof(*t.bad)), "memory");
	for (size_t len : lens)
		for (uint32_t chunk : { 4096U, 65536U })
			all = found(&t, len, chunk) && all;
	if (argc > 1)	/* any argument: how fast, too */
		for (uint32_t chunk : { 4096U, 65536U })
			printf("chunks of %5u: %.1f GB/s\n", chunk, speed(chunk));
	return !all;
}
