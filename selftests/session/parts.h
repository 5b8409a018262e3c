/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of kmod/session's parts share: an engine of a few pages, of which each has a name, and a server whose
 * operations count how often they completed.
 */
#ifndef PARTS_H
#define PARTS_H

#include "session/req.h"

#define PAGES		64U

/* Pages by their number: the key of page n is n in its first bytes */
struct page {
	u64 seq;			/* 0: absent */
	u32 length;
	bool no_crcs;
	struct os_atomic64 holds, leases;
};

extern struct page pages[PAGES];

static inline struct kvctx_key key_of(u32 page)
{
	struct kvctx_key key = {};

	memcpy(&key, &page, sizeof(page));
	return key;
}

static inline u32 page_of(const u8 *key)
{
	u32 page;

	memcpy(&page, key, sizeof(page));
	return page;
}

struct op {
	struct kvctx_req req;
	struct os_atomic completions;
	s32 res;
	u32 flags;
	const void *session;
	int unwanted;			/* why */
	u32 weight;			/* of its tenant; 0: as others */
	struct kvc_pace pace;		/* likewise */
	int (*attempt)(struct op *op);
	void (*go)(struct op *op, int err);
};

static inline struct op *op_of(struct kvctx_req *req)
{
	return container_of(req, struct op, req);
}

static inline bool ended(const struct op *op, s32 res)
{
	return os_atomic_read(&op->completions) == 1 && op->res == res;
}

/* Says what was not so, and counts */
void expect_that(bool ok, const char *what, const char *file, int line);
#define EXPECT(cond)	expect_that(cond, #cond, __FILE__, __LINE__)

void pages_reset(void);		/* all present, nobody holds or leases one */
bool pages_free(void);		/* nobody does */
u32 draw(u32 *seed, u32 below);

/* Runs @fn in @nr threads, with 0, 1, ... */
void in_threads(u32 nr, void (*fn)(u32 i));

void test_trees(void);
void test_slots(void);
void test_leases(void);
void test_waits(void);
void test_shares(void);
void test_pace(void);
void test_tally(void);
void test_watch(void);

#endif
