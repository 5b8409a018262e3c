// SPDX-License-Identifier: LGPL-2.1-or-later
// Keep the pages of a prefix: store them, find them, load them back. cc prefix.c -lkvctx; ./a.out [PATH OF A TENANT]
#include <errno.h>
#include <stdio.h>
#include <kvctx.h>

#define PAGES	8
#define PAGE	(256 * 1024)

static int fail(const char *what, int64_t res)
{
	fprintf(stderr, "%s: %s\n", what, kvctx_strerror((int)res));
	return 1;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/dev/kvctx/kv0/default";
	struct kvctx_params params = { .size = sizeof(params), .arena_bytes = PAGES * PAGE };
	struct kvctx_key keys[PAGES];
	struct kvctx_seg segs[PAGES];
	struct kvctx_cqe cqe;
	struct kvctx *ctx;
	uint32_t lease, flags;
	int64_t res, found;
	char *arena;

	kvctx_keyspace_from_string(params.keyspace, "model, bf16, tp=1");
	res = kvctx_open(path, O_RDWR, &params, &ctx);
	if (res)
		return fail(path, res);
	arena = kvctx_arena(ctx, NULL);
	for (int i = 0; i < PAGES; i++) {	/* one call a page, from any memory */
		keys[i] = kvctx_key_from_u64(0xfeed, i);
		memset(arena, 'a' + i, PAGE);
		res = kvctx_store(ctx, &keys[i], arena, PAGE, NULL);
		if (res < 0)
			return fail("store", res);
	}
	found = kvctx_match(ctx, keys, PAGES, NULL, 5000, &lease);
	if (found < 1)
		return fail("match", found);
	res = kvctx_load(ctx, &keys[0], arena, PAGE, &flags);
	if (res < 0 || !(flags & KVCTX_CQE_VERIFIED))	/* a miss: compute the page again */
		return fail("load", res);
	for (int i = 0; i < found; i++) {	/* all pages with one call */
		struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);

		segs[i] = (struct kvctx_seg){ .offset = (uint64_t)i * PAGE, .length = PAGE };
		kvctx_prep_load(sqe, &keys[i], &segs[i], 1, 0, PAGE);
		kvctx_sqe_set_data(sqe, i);
	}
	if (kvctx_submit_and_wait(ctx, found, KVCTX_TIMEOUT_NONE) != found)
		return fail("submit", -EAGAIN);
	while (kvctx_take(ctx, &cqe, 1))
		printf("page %d: %s, %sverified, '%c'\n", (int)cqe.user_data, kvctx_strerror(cqe.res),
		       cqe.flags & KVCTX_CQE_VERIFIED ? "" : "not ", arena[cqe.user_data * PAGE]);
	kvctx_close(ctx);			/* ends the lease, too */
	return 0;
}
