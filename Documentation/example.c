// SPDX-License-Identifier: GPL-2.0
/* Store a prefix of eight pages, then find and load it in one batch. */
#include <stdio.h>
#include <string.h>
#include <kvctx.h>

#define PAGES 8
#define PAGE (256 * 1024)

static int fail(const char *what, int res)
{
	fprintf(stderr, "%s: %s\n", what, kvctx_strerror(res));
	return 1;
}

int main(int argc, char **argv)
{
	struct kvctx_params params = { .size = sizeof(params), .keyspace = "example model", .arena_bytes = PAGES * PAGE };
	struct kvctx_key keys[PAGES];
	struct kvctx_seg segs[PAGES];
	struct kvctx_cqe cqe;
	uint32_t lease;
	struct kvctx *ctx;
	char *arena;
	int res, found;

	if (argc != 2) {
		fprintf(stderr, "usage: example /dev/kvctx/POOL/TENANT\n");
		return 2;
	}
	res = kvctx_open(argv[1], O_RDWR, &params, &ctx);
	if (res)
		return fail(argv[1], res);
	arena = kvctx_arena(ctx, NULL);
	for (int i = 0; i < PAGES; i++) {		/* one at a time */
		keys[i] = kvctx_key_from_u64(0x1234, i);
		memset(arena, 'a' + i, PAGE);
		res = kvctx_store(ctx, &keys[i], arena, PAGE, NULL);
		if (res < 0)
			return fail("store", res);
	}
	found = kvctx_match(ctx, keys, PAGES, NULL, 5000, &lease);
	printf("%d pages of the prefix are here\n", found);
	for (int i = 0; i < found; i++) {		/* all at once */
		struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);

		segs[i] = (struct kvctx_seg){ .mem = KVCTX_MEM_ARENA, .offset = i * PAGE, .length = PAGE };
		kvctx_prep_load(sqe, &keys[i], &segs[i], 1, 0, PAGE);
		kvctx_sqe_set_data(sqe, i);
	}
	kvctx_submit_and_wait(ctx, found, KVCTX_TIMEOUT_NONE);
	while (kvctx_peek(ctx, &cqe, 1))
		printf("page %d: %s, %sverified, begins with '%c'\n", (int)cqe.user_data, kvctx_strerror(cqe.res),
		       cqe.flags & KVCTX_CQE_VERIFIED ? "" : "not ", arena[cqe.user_data * PAGE]);
	kvctx_release(ctx, lease);
	kvctx_close(ctx);
	return 0;
}
