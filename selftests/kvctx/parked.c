// SPDX-License-Identifier: GPL-2.0
/*
 * STOREs that wait for space. For stuck.sh, which fills the pool and then suspends its member, so that reclaim cannot
 * go on: stores what still finds a place (and hangs), then shows how a STORE that finds none behaves.
 *
 *	parked SECONDS    prints "again: N late: N after MS parked: N canceled: N", then stays that long with an operation waiting
 */
#include "ktest.h"

#define LATE_MS 700

static int store(struct kt *k, uint64_t n, uint32_t flags, uint64_t timeout_ns)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, KT_MIB);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_STORE, kt_key(n), &seg, 1);

	sqe.flags = flags;
	sqe.timeout_ns = timeout_ns;
	sqe.user_data = n;
	return kt_submit(k, &sqe, 1, 0) == 1 ? 0 : -EPROTO;
}

/* The result of operation @n, or 1 when it does not complete in time */
static int result(struct kt *k, uint64_t n, uint64_t limit_ns)
{
	uint64_t end = kt_now() + limit_ns, now;
	struct kvctx_cqe cqe;

	while ((now = kt_now()) < end) {
		kt_wait(k, 1, end - now);
		while (kt_reap(k, &cqe))
			if (cqe.user_data == n)
				return cqe.res;
	}
	return 1;
}

int main(int argc, char **argv)
{
	uint64_t n, start;
	struct kvctx_sqe cancel;
	int res = 1, late;
	struct kt k;

	if (argc != 2 || kt_open(&k, O_RDWR, 0x44, KT_MIB, 256)) {
		fprintf(stderr, "usage: parked SECONDS\n");
		return 2;
	}
	for (n = 1; n < 200 && res != -EAGAIN; n++) {
		if (store(&k, n, KVCTX_OP_NOWAIT, 0))
			return 1;
		res = result(&k, n, KT_SEC / 20 * kt_patience());
	}
	printf("again: %d ", res == -EAGAIN);
	start = kt_now();
	if (store(&k, 1000, 0, LATE_MS * (KT_SEC / 1000)))
		return 1;
	late = result(&k, 1000, KT_LIMIT);
	printf("late: %d after %llu ms ", late == -ETIME, (unsigned long long)((kt_now() - start) / 1000000));
	if (store(&k, 1001, 0, 0))
		return 1;
	printf("parked: %d ", result(&k, 1001, KT_SEC) == 1);
	cancel = kt_sqe(KVCTX_OP_CANCEL, (struct kvctx_key){ 0 });
	cancel.offset = 1001;
	if (kt_submit(&k, &cancel, 1, 0) != 1)
		return 1;
	printf("canceled: %d\n", result(&k, 1001, KT_LIMIT) == -ECANCELED);
	if (store(&k, 1002, 0, 0))
		return 1;
	fflush(stdout);
	sleep(atoi(argv[1]));
	return 0;
}
