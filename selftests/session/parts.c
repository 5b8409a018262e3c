// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of kmod/session that several operations share, each alone: see parts.h. Ends with "session parts: N passed,
 * N failed, 0 skipped".
 */
#include "parts.h"

struct page pages[PAGES];
static struct os_atomic passed, failed;

void expect_that(bool ok, const char *what, const char *file, int line)
{
	if (ok) {
		os_atomic_inc(&passed);
		return;
	}
	os_atomic_inc(&failed);
	printf("not ok %s:%d: %s\n", file, line, what);
}

void pages_reset(void)
{
	u32 i;

	for (i = 0; i < PAGES; i++)
		pages[i] = (struct page){ .seq = 1000 + i, .length = 100 + i };
}

bool pages_free(void)
{
	u32 i;

	for (i = 0; i < PAGES; i++)
		if (os_atomic64_read(&pages[i].holds) || os_atomic64_read(&pages[i].leases))
			return false;
	return true;
}

u32 draw(u32 *seed, u32 below)
{
	*seed = *seed * 1664525 + 1013904223;
	return (u32)(((u64)*seed * below) >> 32);
}

struct thread {
	pthread_t id;
	u32 i;
	void (*fn)(u32 i);
};

static void *thread_run(void *arg)
{
	struct thread *t = arg;

	t->fn(t->i);
	return NULL;
}

void in_threads(u32 nr, void (*fn)(u32 i))
{
	struct thread t[8];
	u32 i;

	for (i = 0; i < nr; i++) {
		t[i] = (struct thread){ .i = i, .fn = fn };
		if (pthread_create(&t[i].id, NULL, thread_run, &t[i]))
			abort();
	}
	for (i = 0; i < nr; i++)
		pthread_join(t[i].id, NULL);
}

/* The engine */

int kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_load *ld)
{
	struct page *page = &pages[page_of(key)];
	u64 seq = READ_ONCE(page->seq);

	(void)p;
	(void)d;
	if (!seq)
		return -ENOENT;
	os_atomic64_add(&page->holds, 1);
	*ld = (struct kvc_load){ .seq = seq, .length = page->length, .no_crcs = page->no_crcs, .entry = page_of(key) };
	return 0;
}

void kvc_load_end(struct kvc_pool *p, struct kvc_load *ld, int status)
{
	(void)p;
	(void)status;
	os_atomic64_sub(&pages[ld->entry].holds, 1);
}

static int lease(u32 page, struct kvc_lease *l)
{
	if (!READ_ONCE(pages[page].seq))
		return -ENOENT;
	os_atomic64_add(&pages[page].leases, 1);
	l->keep = (struct kvc_keep *)&pages[page];
	return 0;
}

int kvc_lease_get(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_lease *l)
{
	(void)p;
	(void)d;
	return lease(page_of(key), l);
}

void kvc_lease_put(struct kvc_pool *p, struct kvc_lease *l)
{
	(void)p;
	os_atomic64_sub(&((struct page *)l->keep)->leases, 1);
}

u32 kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present, u32 *lens,
	      struct kvc_lease *leases)
{
	u32 i, n = 0;

	(void)p;
	(void)d;
	for (i = 0; i < nr; i++) {
		struct page *page = &pages[page_of(keys[i])];

		if (!page->seq && !present)
			break;
		if (!page->seq)
			continue;
		if (leases)
			lease(page_of(keys[i]), &leases[n]);
		if (present)
			present[i / 64] |= BIT_ULL(i % 64);
		if (lens)
			lens[i] = page->length;
		n++;
	}
	return n;
}

/* The server */

void kvctx_req_complete(struct kvctx_req *req, s32 res, u32 flags)
{
	struct op *op = op_of(req);

	op->res = res;
	op->flags = flags;
	if (os_atomic_inc_return(&op->completions) != 1)
		abort();
}

int kvctx_req_attempt(struct kvctx_req *req)
{
	return op_of(req)->attempt(op_of(req));
}

void kvctx_req_go(struct kvctx_req *req, int err)
{
	op_of(req)->go(op_of(req), err);
}

int kvctx_req_unwanted(struct kvctx_req *req)
{
	return READ_ONCE(op_of(req)->unwanted);
}

u32 kvctx_req_weight(const struct kvctx_req *req)
{
	return container_of(req, struct op, req)->weight ?: KVC_WEIGHT;
}

struct kvc_pace kvctx_req_pace(const struct kvctx_req *req)
{
	return container_of(req, struct op, req)->pace;
}

const void *kvctx_req_owner(const struct kvctx_req *req)
{
	return container_of(req, struct op, req)->session;
}

int main(void)
{
	test_trees();
	test_slots();
	test_leases();
	test_waits();
	test_shares();
	test_pace();
	test_tally();
	test_watch();
	printf("session parts: %u passed, %u failed, 0 skipped\n", os_atomic_read(&passed), os_atomic_read(&failed));
	return os_atomic_read(&failed) != 0;
}
