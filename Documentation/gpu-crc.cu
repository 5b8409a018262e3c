// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A CUDA kernel that computes the CRC32C of each chunk of a page where the page lies, for a comparison with the CRCs
 * that a LOAD told; and a program that tries it on random chunks. gpu-crc.h has the arithmetic.
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

int main()
{
	const uint32_t chunk = 65536;
	const size_t len = 100 * chunk + 777;
	std::vector<uint8_t> page(len);
	std::vector<uint32_t> crcs;
	uint32_t table[GPU_CRC_TABLE], *gpu_crcs;
	unsigned int *bad, good, broken;
	uint8_t *gpu_page;

	for (uint32_t i = 0; i < GPU_CRC_TABLE; i++)
		table[i] = gpu_crc_table(i);
	for (uint8_t &b : page)
		b = (uint8_t)rand();
	for (size_t at = 0; at < len; at += chunk)
		crcs.push_back(gpu_crc_slice(table, &page[at], len - at < chunk ? len - at : chunk, 0, 1).crc);
	need(cudaMalloc(&gpu_page, len), "memory");
	need(cudaMalloc(&gpu_crcs, crcs.size() * sizeof(crcs[0])), "memory");
	need(cudaMalloc(&bad, sizeof(*bad)), "memory");
	need(cudaMemcpy(gpu_page, page.data(), len, cudaMemcpyDefault), "copy");
	need(cudaMemcpy(gpu_crcs, crcs.data(), crcs.size() * sizeof(crcs[0]), cudaMemcpyDefault), "copy");
	good = run(gpu_page, len, chunk, gpu_crcs, bad);
	page[42 * chunk + 4242] ^= 1;
	need(cudaMemcpy(gpu_page, page.data(), len, cudaMemcpyDefault), "copy");
	broken = run(gpu_page, len, chunk, gpu_crcs, bad);
	printf("whole page: %s; bit inverted in chunk 42: found in chunk %d\n", good ? "BAD" : "good", (int)broken - 1);
	return good != 0 || broken != 43;
}
