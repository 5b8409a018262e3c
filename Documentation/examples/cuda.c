// SPDX-License-Identifier: LGPL-2.1-or-later
// A page between GPU memory and NVMe: directly where there is a path, else staged. nvcc cuda.c -lkvctx
#include <errno.h>
#include <stdio.h>
#include <cuda_runtime.h>
#include <kvctx.h>

#define PAGE	(256 * 1024)
#define SLOTS	4

static int fail(const char *what, int64_t res)
{
	fprintf(stderr, "%s: %s\n", what, kvctx_strerror((int)res));
	return 1;
}

/* Pieces are copied in the stream's order; the call without bytes waits for all of them */
static int copy(void *stream, void *dst, const void *src, size_t bytes, enum kvctx_copy_direction dir)
{
	cudaError_t err = bytes ? cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)stream) :
				  cudaStreamSynchronize((cudaStream_t)stream);

	(void)dir;	/* cudaMemcpyDefault sees it by the addresses */
	return err == cudaSuccess ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	struct kvctx_params params = { .size = sizeof(params), .arena_bytes = SLOTS * PAGE };
	struct kvctx_key key = kvctx_key_from_u64(0xc0da, 1);
	struct kvctx_sqe *sqe;
	struct kvctx_seg seg = { .length = PAGE };
	struct kvctx_cqe cqe;
	struct kvctx *ctx;
	cudaStream_t stream;
	char flags[96], *gpu, last = 0;
	uint32_t id;
	int64_t res;

	if (cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc((void **)&gpu, PAGE) != cudaSuccess ||
	    cudaMemset(gpu, 'g', PAGE) != cudaSuccess)
		return fprintf(stderr, "no GPU\n"), 1;
	kvctx_keyspace_from_string(params.keyspace, "model, bf16, tp=1");
	res = kvctx_open(argc > 1 ? argv[1] : "/dev/kvctx/kv0/default", O_RDWR, &params, &ctx);
	if (res)
		return fail("open", res);
	res = kvctx_stage_init(ctx, copy, stream, 0, SLOTS, PAGE);
	if (!res)	/* GPU memory that is not registered is staged */
		res = kvctx_store_staged(ctx, &key, gpu, PAGE, NULL, NULL);
	if (res < 0)
		return fail("store", res);
	if (cudaMemset(gpu, 0, PAGE) != cudaSuccess)
		return fail("clear", -EIO);
	res = kvctx_mem_register(ctx, gpu, PAGE, &id);
	if (res) {	/* the driver shows it to nobody: every load is staged */
		printf("register: %s\n", kvctx_strerror((int)res));
		cqe.res = (int)kvctx_load_staged(ctx, &key, gpu, PAGE, NULL, &cqe.flags);
	} else {	/* queued: staged only when the page lies on a member without a path */
		seg.mem = id;
		sqe = kvctx_get_sqe(ctx);
		kvctx_prep_load(sqe, &key, &seg, 1, 0, PAGE);
		kvctx_stage(ctx, sqe);
		if (kvctx_submit_and_wait(ctx, 1, KVCTX_TIMEOUT_NONE) != 1 || kvctx_take(ctx, &cqe, 1) != 1)
			return fail("submit", -EAGAIN);
	}
	if (cudaMemcpy(&last, gpu + PAGE - 1, 1, cudaMemcpyDefault) != cudaSuccess)
		return fail("look", -EIO);
	kvctx_cqe_flags_str(cqe.flags, flags, sizeof(flags));
	printf("load: %s, %s, '%c'\n", kvctx_strerror(cqe.res), flags, last);
	kvctx_close(ctx);
	cudaFree(gpu);
	return cqe.res != PAGE;
}
