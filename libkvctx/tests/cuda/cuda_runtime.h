/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* As much of the CUDA runtime as the example calls, with host memory for the GPU's: copies happen at once. */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H

#include <stdlib.h>
#include <string.h>

typedef enum { cudaSuccess, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef struct fake_stream *cudaStream_t;
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };

static inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	*stream = NULL;
	return cudaSuccess;
}

static inline cudaError_t cudaMalloc(void **p, size_t bytes)
{
	*p = malloc(bytes);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t cudaFree(void *p)
{
	free(p);
	return cudaSuccess;
}

static inline cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	memset(p, value, bytes);
	return cudaSuccess;
}

static inline cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	(void)kind;
	memcpy(dst, src, bytes);
	return cudaSuccess;
}

static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
					  cudaStream_t stream)
{
	(void)stream;
	return cudaMemcpy(dst, src, bytes, kind);
}

static inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

#endif
