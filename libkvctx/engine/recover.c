// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Recovery at attach: reads the summaries of every segment.
 *
 * A few threads share each member; each takes the next segment of its member, reads what the engine asks for, and feeds
 * it. All of them run at the same time, so the devices have work and so have the processors.
 */
#include <syslog.h>

#include "pools.h"

#define RECOVER_READERS		16U	/* in total, if that gives each member at least one */
#define RECOVER_READERS_MEMBER	4U	/* of one member at most */

struct recovery;

struct reader {
	struct recovery *recovery;
	struct kve_member *member;
	pthread_t thread;
	bool runs;			/* there is a thread */
	void *buf;
	u64 bytes;			/* read so far */
};

struct recovery {
	struct kve_pool *pool;
	int err;			/* ends it early; atomically */
	u32 nr_readers;
	struct os_atomic begun[KVC_MEMBERS_MAX];	/* segments of each member */
	struct reader readers[];
};

static int reader_segment(struct reader *r, u32 segment)
{
	struct kve_pool *p = r->recovery->pool;
	struct kvc_recover at;
	int ret;

	kvc_recover_start(p->core, r->member->index, segment, &at);
	at.keep = r->buf;
	do {
		int err = kve_device_read(r->member->dev, (char *)r->buf + at.at, at.len, at.offset);

		r->bytes += at.len;
		if (err) {
			os_atomic64_add(&p->counters.io_errors, 1);
			kve_log(LOG_WARNING, "pool %s: %s: not read at %llu", p->name, r->member->dev->path,
				(unsigned long long)at.offset);
		}
		ret = kvc_recover_feed(p->core, &at, r->buf, err);
	} while (ret == 1 && !READ_ONCE(r->recovery->err));
	return ret < 0 ? ret : 0;
}

static void *reader(void *arg)
{
	struct reader *r = arg;
	struct recovery *rec = r->recovery;
	u32 m = r->member->index;

	while (!READ_ONCE(rec->err)) {
		u32 segment = os_atomic_inc_return(&rec->begun[m]) - 1;
		int err;

		if (segment >= kvc_nr_segments(rec->pool->core, m))
			break;
		err = reader_segment(r, segment);
		if (err)
			WRITE_ONCE(rec->err, err);
	}
	return NULL;
}

/* As many threads as can be had; the first reader of each member has the caller's, at worst. */
static void recovery_run(struct recovery *rec)
{
	u32 i;

	for (i = 0; i < rec->nr_readers; i++)
		rec->readers[i].runs = !kve_thread_start(&rec->readers[i].thread, reader, &rec->readers[i],
							 "kvctx-recover");
	for (i = 0; i < rec->nr_readers; i++) {
		if (rec->readers[i].runs)
			pthread_join(rec->readers[i].thread, NULL);
		else
			reader(&rec->readers[i]);
		rec->pool->attach_bytes += rec->readers[i].bytes;
	}
}

static void recovery_free(struct recovery *rec)
{
	u32 i;

	for (i = 0; i < rec->nr_readers; i++)
		os_free(rec->readers[i].buf);
	free(rec);
}

static struct recovery *recovery_alloc(struct kve_pool *p)
{
	u32 each = max(1U, min(RECOVER_READERS_MEMBER, RECOVER_READERS / p->nr_members));
	struct recovery *rec = calloc(1, sizeof(*rec) + each * p->nr_members * sizeof(rec->readers[0]));
	u32 i;

	if (!rec)
		return NULL;
	rec->pool = p;
	for (i = 0; i < each * p->nr_members; i++) {
		struct kve_member *m = &p->members[i % p->nr_members];
		struct reader *r = &rec->readers[rec->nr_readers];

		if (!m->dev)
			continue;
		*r = (struct reader){ .recovery = rec, .member = m, .buf = os_alloc(KVC_RECOVER_IO) };
		rec->nr_readers++;
		if (!r->buf) {
			recovery_free(rec);
			return NULL;
		}
	}
	return rec;
}

int kve_recover(struct kve_pool *p, char *why)
{
	struct recovery *rec = recovery_alloc(p);
	u64 start = kve_now();
	int err = -ENOMEM;

	if (rec) {
		recovery_run(rec);
		err = rec->err;
		recovery_free(rec);
	}
	if (err)
		return kve_refuse(why, err, "no memory for the index");
	kvc_recover_finish(p->core);
	p->attach_ns = kve_now() - start;
	return 0;
}
