// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of a pool's watcher: of one tenant and keyspace each, in order, no longer than they may be; what was lost.
 */
#include "parts.h"
#include "session/watch.h"

#define MANY	3000U

static struct kvctx_watch watch;
static struct kvc_watched came[MANY];
static u32 nr_came, nr_taken, removed;	/* of slot @removed nothing is known any more */

/* The engine: at most 64 at a time, whatever is asked for, and one was overwritten before each */
u32 kvc_watched_take(struct kvc_pool *p, struct kvc_watcher *w, struct kvc_watched *out, u32 max, u64 *lost)
{
	u32 n = min(min(max, 64U), nr_came - nr_taken);

	(void)p;
	EXPECT(w == &watch.watcher);
	memcpy(out, &came[nr_taken], n * sizeof(*out));
	nr_taken += n;
	*lost += n > 0;
	return n;
}

bool kvc_tenant_name(struct kvc_pool *p, u32 slot, u32 epoch, char name[KVC_NAME_MAX])
{
	(void)p;
	snprintf(name, KVC_NAME_MAX, "t%u-%u", slot, epoch);
	return slot != removed;
}

static void happens(u32 slot, u8 keyspace, u32 page, u32 kind)
{
	struct kvc_watched *to = &came[nr_came++];
	struct kvctx_key key = key_of(page);

	*to = (struct kvc_watched){ .slot = slot, .epoch = 7, .keyspace = { keyspace }, .event = { .kind = kind, .length = 100 + page } };
	memcpy(to->event.key, &key, sizeof(to->event.key));
}

static void begin(void)
{
	memset(&watch, 0, sizeof(watch));
	nr_came = 0;
	nr_taken = 0;
	removed = U32_MAX;
}

static bool message(const char *tenant, u8 keyspace, u32 nr_pages)
{
	return kvctx_watch_next(NULL, &watch) && !strcmp(watch.tenant, tenant) && watch.keyspace[0] == keyspace &&
	       watch.nr_pages == nr_pages;
}

static bool tells(u32 i, u32 page, u32 kind)
{
	struct kvctx_key key = key_of(page);

	return !memcmp(&watch.pages[i].key, &key, sizeof(key)) && watch.pages[i].kind == kind && watch.pages[i].length == 100 + page;
}

static void test_grouped(void)
{
	begin();
	EXPECT(!kvctx_watch_take(NULL, &watch) && !kvctx_watch_next(NULL, &watch) && !watch.lost);
	happens(1, 0, 5, KVC_EVENT_STORED);
	happens(2, 0, 5, KVC_EVENT_STORED);
	happens(1, 9, 6, KVC_EVENT_STORED);
	happens(1, 0, 5, KVC_EVENT_DELETED);
	happens(2, 0, 7, KVC_EVENT_EVICTED);
	EXPECT(kvctx_watch_take(NULL, &watch));
	EXPECT(message("t1-7", 0, 2) && tells(0, 5, KVC_EVENT_STORED) && tells(1, 5, KVC_EVENT_DELETED));
	EXPECT(message("t2-7", 0, 2) && tells(0, 5, KVC_EVENT_STORED) && tells(1, 7, KVC_EVENT_EVICTED));
	EXPECT(message("t1-7", 9, 1) && tells(0, 6, KVC_EVENT_STORED));
	EXPECT(!kvctx_watch_next(NULL, &watch) && watch.lost == 1);
	EXPECT(!kvctx_watch_take(NULL, &watch));
}

/* No more are taken than there may be of them, and each message has no more than it may. */
static void test_many(void)
{
	u32 i, told = 0, looks, messages = 0, last = 0;
	bool ordered = true;

	begin();
	for (i = 0; i < MANY; i++)
		happens(1, 0, i, KVC_EVENT_STORED);
	for (looks = 0; kvctx_watch_take(NULL, &watch); looks++) {
		EXPECT(watch.nr <= KVC_WATCHED_MAX);
		for (; kvctx_watch_next(NULL, &watch); messages++) {
			EXPECT(watch.nr_pages <= KVCTX_WATCH_PAGES);
			for (i = 0; i < watch.nr_pages; i++, last++)
				ordered &= tells(i, last, KVC_EVENT_STORED);
			told += watch.nr_pages;
		}
	}
	EXPECT(ordered && told == MANY && looks == 3 && messages == 12);
}

static void test_removed(void)
{
	begin();
	happens(1, 0, 1, KVC_EVENT_STORED);
	happens(2, 0, 2, KVC_EVENT_STORED);
	happens(2, 0, 3, KVC_EVENT_STORED);
	happens(3, 0, 4, KVC_EVENT_STORED);
	removed = 2;
	EXPECT(kvctx_watch_take(NULL, &watch) && message("t1-7", 0, 1));
	watch.lost = 0;		/* it was told */
	EXPECT(message("t3-7", 0, 1) && watch.lost == 2 && !kvctx_watch_next(NULL, &watch));
}

void test_watch(void)
{
	test_grouped();
	test_many();
	test_removed();
}
