// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Attach and detach.
 *
 * Attach in steps, each undone if a later one fails:
 *   gather     open every entry of the directory for ourselves, read its superblocks, find the newest configuration
 *   arrange    put the devices in the order of the pool and see that none is foreign, double or too small, nor missing
 *              unless the attach may be degraded
 *   build      engine, members
 *   catch up   members whose superblock is older get the newest one
 *   recover    read the summaries
 *   configure  write the next superblock to all; the tenant "default" if there is none
 *   start      threads, and the engine may call
 */
#include <sys/random.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "format.h"
#include "pools.h"

#define ATTACH_TENANT		"default"
#define ATTACH_TENANT_MODE	0600

struct gathering {
	const char *dir;
	char *why;
	char **entries;				/* of the directory */
	u32 nr_entries;
	u32 nr;					/* members in the directory */
	bool foreign;				/* and there is something that is none */
	struct kvc_super *super;		/* the newest configuration */
	struct kvc_super *scratch;
	bool worn;				/* a member has a copy that is none */
	u32 nr_history;
	struct kvc_witness history[KVC_MEMBERS_MAX];	/* of those that are members still */
	struct kve_candidate given[KVC_MEMBERS_MAX];
	struct kve_candidate *ordered[KVC_MEMBERS_MAX];
};

static void device_drop(struct kve_device *d)
{
	if (d)
		kve_device_close(d);
	free(d);
}

static void gathering_free(struct gathering *g)
{
	u32 i;

	for (i = 0; i < g->nr; i++)
		device_drop(g->given[i].dev);
	for (i = 0; i < g->nr_entries; i++)
		free(g->entries[i]);
	free(g->entries);
	free(g->super);
	free(g->scratch);
	free(g);
}

static struct gathering *gathering_alloc(const char *dir, char *why)
{
	struct gathering *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->dir = dir;
	g->why = why;
	g->super = calloc(1, sizeof(*g->super));
	g->scratch = calloc(1, sizeof(*g->scratch));
	if (g->super && g->scratch)
		return g;
	gathering_free(g);
	return NULL;
}

/* Is this one of the same pool as the others? Keep the newest configuration. */
static int gather_compare(struct gathering *g, const struct kve_candidate *c, bool first)
{
	struct kvc_super *s = g->scratch;

	if (!first && memcmp(s->pool_uuid, g->super->pool_uuid, KVC_UUID_LEN))
		return kve_refuse(g->why, -EMEDIUMTYPE, "%s: of another pool, %s", c->dev->path, s->pool_name);
	if (first || kvc_super_newer(s, g->super)) {
		g->scratch = g->super;
		g->super = s;
	}
	return 0;
}

static int gather_candidate(struct gathering *g, struct kve_candidate *c, const char *path)
{
	struct stat st;
	int err;

	if (!stat(path, &st) && S_ISREG(st.st_mode) && (u64)st.st_size < KVC_DEVICE_MIN)
		return kve_refuse(g->why, -EMEDIUMTYPE, "%s: no member of a pool, too small for one", path);
	c->dev = calloc(1, sizeof(*c->dev));
	if (!c->dev)
		return kve_refuse(g->why, -ENOMEM, "out of memory");
	err = kve_device_open(c->dev, path, g->why);
	if (!err)
		err = kve_candidate_read(c, g->scratch, g->why);
	if (!err)
		err = gather_compare(g, c, !g->nr);
	if (err) {
		device_drop(c->dev);
		c->dev = NULL;
	}
	return err;
}

/* All entries are looked at; of those that are no members the first one is what is told, unless there is worse. */
static int gather_entry(struct gathering *g, const char *path)
{
	char *why = g->why, other[KVE_WHY];
	int err;

	if (g->foreign)
		g->why = other;
	if (g->nr == KVC_MEMBERS_MAX)
		err = kve_refuse(g->why, -EMEDIUMTYPE, "%s: more than %u members", g->dir, KVC_MEMBERS_MAX);
	else
		err = gather_candidate(g, &g->given[g->nr], path);
	g->nr += !err;
	if (err && err != -EMEDIUMTYPE && g->foreign)
		memcpy(why, other, sizeof(other));
	g->foreign |= err == -EMEDIUMTYPE;
	g->why = why;
	return err == -EMEDIUMTYPE ? 0 : err;
}

static int gather_path(void *arg, const char *path)
{
	struct gathering *g = arg;
	char **entries = realloc(g->entries, (g->nr_entries + 1) * sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	g->entries = entries;
	entries[g->nr_entries] = strdup(path);
	if (!entries[g->nr_entries])
		return -ENOMEM;
	g->nr_entries++;
	return 0;
}

static int gather(struct gathering *g)
{
	int err;
	u32 i;

	*g->why = 0;
	/* the directory's own descriptor is nothing for a child either; no device is read meanwhile, which may take long */
	kve_fork_lock();
	err = kve_dir_each(g->dir, gather_path, g);
	kve_fork_unlock();
	for (i = 0; i < g->nr_entries && !err; i++)
		err = gather_entry(g, g->entries[i]);
	if (err && !*g->why)
		return kve_refuse(g->why, err, "%s: %s", g->dir, strerror(-err));
	/* with a member among them one that is none is a mistake, without one there is no pool */
	if (!err && g->foreign)
		return g->nr ? -EMEDIUMTYPE : -ENOTTY;
	if (!err && !g->nr)
		return kve_refuse(g->why, -ENOENT, "%s: no pool, the directory is empty", g->dir);
	return err;
}

/*
 * The others have a configuration without it: it was removed, and the process died before the directory lacked it too,
 * or it was away then. Its pages are elsewhere, or were to be dropped. hide_former() does the rest.
 */
static int arrange_former(struct gathering *g, const struct kve_candidate *c)
{
	if (c->seq >= g->super->seq)
		return kve_refuse(g->why, -EMEDIUMTYPE, "%s: no member of the pool any more", c->dev->path);
	kve_log(LOG_WARNING, "pool %s: %s: was removed from the pool, and is left alone", g->super->pool_name,
		c->dev->path);
	return 0;
}

/* Of a pool that is attached: the directory has no former member any more. A link goes, a file is not seen any more. */
static void hide_former(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char *hidden = NULL;
	struct stat st;
	int err = -1;

	if (!lstat(path, &st) && S_ISLNK(st.st_mode))
		err = unlink(path);
	else if (asprintf(&hidden, "%.*s.%s.removed", (int)(name - path), path, name) >= 0)
		err = rename(path, hidden);
	if (err || kve_sync_directory_of(path))
		kve_log(LOG_WARNING, "%s: cannot be taken out of the directory: %s", path, strerror(errno));
	else if (hidden)
		kve_log(LOG_WARNING, "%s: is called %s now, and can be deleted", path, hidden);
	free(hidden);
}

static void hide_formers(struct gathering *g)
{
	u32 i;

	/* those that are members have given their devices away */
	for (i = 0; i < g->nr; i++)
		if (g->given[i].dev)
			hide_former(g->given[i].dev->path);
}

static int arrange_one(struct gathering *g, struct kve_candidate *c)
{
	const struct kvc_super *s = g->super;

	if (c->index >= s->nr_members || memcmp(c->uuid, s->members[c->index].uuid, KVC_UUID_LEN))
		return arrange_former(g, c);
	if (g->ordered[c->index])
		return kve_refuse(g->why, -EUCLEAN, "%s: member %u, and so is %s", c->dev->path, c->index,
				  g->ordered[c->index]->dev->path);
	if (c->dev->bytes < kvc_device_bytes(s->members[c->index].nr_segments, s->segment_size))
		return kve_refuse(g->why, -EUCLEAN, "%s: smaller than the pool knows it", c->dev->path);
	g->worn |= c->worn != 0;
	g->ordered[c->index] = c;
	g->history[g->nr_history++] = (struct kvc_witness){ c->index, c->seq, c->was };
	return 0;
}

/*
 * A pool that was attached without some of its members, and then without the others, has two histories: what is newer
 * of one key, and what was deleted, cannot be told any more.
 */
static int arrange_history(struct gathering *g)
{
	return kvc_one_history(g->history, g->nr_history) ? 0 :
	       kve_refuse(g->why, -EUCLEAN, "%s: these members were attached without each other", g->dir);
}

static bool attach_may_be_degraded(const char *dir)
{
	char *path;
	bool may;

	if (asprintf(&path, "%s/.degraded", dir) < 0)
		return false;
	may = !access(path, F_OK);
	free(path);
	return may;
}

static int arrange(struct gathering *g)
{
	bool degraded = attach_may_be_degraded(g->dir);
	int err = 0;
	u32 i;

	for (i = 0; i < g->nr && !err; i++)
		err = arrange_one(g, &g->given[i]);
	for (i = 0; i < g->super->nr_members && !err && !degraded; i++)
		if (!g->ordered[i] && !kvc_super_hole(g->super, i))
			err = kve_refuse(g->why, -EUCLEAN,
					 "%s: member %u of %u is missing; make %s/.degraded to go on without", g->dir, i,
					 g->super->nr_members, g->dir);
	return err ?: arrange_history(g);
}

/* Building */

/* Memory of a member; its device comes from the gathering. */
static int build_member(struct kve_pool *p, u32 i, struct kve_candidate *c)
{
	struct kve_member *m = &p->members[i];

	p->nr_members = i + 1;
	if (!c && kvc_super_hole(kvc_super_of(p->core), i))
		return 0;
	if (!c) {
		m->state = KVE_MEMBER_FAILED | KVE_MEMBER_LOST | KVE_MEMBER_MISSING;
		kve_log(LOG_WARNING, "pool %s: member %u is missing", p->name, i);
		kvc_member_fail(p->core, i);
		return kve_worker_init(m);
	}
	kve_member_enter(m, c->dev);
	c->dev = NULL;
	if (c->worn)
		kve_log(LOG_WARNING, "pool %s: %s: superblock at the %s damaged or old, written again", p->name,
			m->dev->path, !(c->worn & 3) ? "end" : !(c->worn & 12) ? "front" : "front and the end");
	return kve_worker_init(m);
}

u64 kve_index_max;

static u64 a_quarter_of_memory(void)
{
	return (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE) / 4;
}

static int build(struct kve_pool *p, struct gathering *g)
{
	u64 seed;
	int err;
	u32 i;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return kve_refuse(g->why, -errno, "no random numbers");
	memcpy(p->name, g->super->pool_name, sizeof(p->name));
	p->super_buf = os_alloc(KVC_SUPER_BYTES);
	err = p->super_buf ? kvc_pool_create(g->super, seed, &kve_core_ops, p, &p->core) : -ENOMEM;
	if (!err)
		kvc_index_limit(p->core, kve_index_max ? kve_index_max : a_quarter_of_memory());
	for (i = 0; i < g->super->nr_members && !err; i++)
		err = build_member(p, i, g->ordered[i]);
	return err ? kve_refuse(g->why, err, "%s: the engine does not start: %s", g->dir, strerror(-err)) : 0;
}

/* Before the next superblock is made all members have the one before: see kvc_one_history(). */
static int catch_up(struct kve_pool *p, struct gathering *g)
{
	u32 i;

	for (i = 0; i < g->nr_history; i++) {
		struct kve_member *m = &p->members[g->history[i].member];

		if (kvc_super_behind(g->super, &g->history[i]) && kve_member_write_super(m))
			return kve_refuse(g->why, -EIO, "%s: its superblock could not be written", m->dev->path);
	}
	return 0;
}

/* A member that cannot be written is no member to begin with. */
static int check_lost(const struct kve_pool *p, const struct gathering *g)
{
	u32 i;

	for (i = 0; i < p->nr_members; i++)
		if (p->members[i].dev && kve_member_state(&p->members[i]))
			return kve_refuse(g->why, -EIO, "%s: failed during the attach", p->members[i].dev->path);
	return 0;
}

/*
 * Every attach writes the superblocks, as recovery left them. Where a slot is worn another write follows, so that all
 * are written. A member that lacks the first may not be said to be there in the second.
 */
static int configure(struct kve_pool *p, struct gathering *g)
{
	int slot, err;

	err = kve_members_write_super(p);
	if (err)
		return kve_refuse(g->why, err, "%s: no superblock could be written", g->dir);
	err = check_lost(p, g);
	if (err)
		return err;
	slot = kvc_tenant_add(p->core, ATTACH_TENANT, 0, 0, ATTACH_TENANT_MODE, 0);
	if (slot < 0 && slot != -EEXIST)
		return kve_refuse(g->why, -EUCLEAN, "%s: tenant %s cannot be added", g->dir, ATTACH_TENANT);
	if (slot == -EEXIST && g->worn)
		kvc_super_touch(p->core);
	if (slot != -EEXIST || g->worn)
		err = kve_members_write_super(p);
	return err ? kve_refuse(g->why, err, "%s: no superblock could be written", g->dir) : 0;
}

static int start(struct kve_pool *p, struct gathering *g)
{
	int err = check_lost(p, g);
	u32 i;

	if (err)
		return err;
	err = kve_attendant_start(p);
	for (i = 0; i < p->nr_members && !err; i++)
		err = kve_worker_start(&p->members[i]);
	if (err)
		return kve_refuse(g->why, err, "%s: no thread can be had: %s", g->dir, strerror(-err));
	os_store_release(&p->online, true);
	for (i = 0; i < p->nr_members; i++)
		kve_member_kick(&p->members[i]);
	return 0;
}

/* No thread of the pool's runs any more, and nobody calls the engine. */
static void unbuild(struct kve_pool *p)
{
	u32 i;

	/* nobody knows what a broken engine would free */
	if (p->core && !kve_broken())
		kvc_pool_destroy(p->core);
	for (i = 0; i < p->nr_members; i++) {
		device_drop(p->members[i].dev);
		kve_worker_free(&p->members[i]);
	}
	os_free(p->super_buf);
}

static void stop(struct kve_pool *p)
{
	u32 i;

	os_store_release(&p->online, false);
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < p->nr_members; i++)
		kve_worker_join(&p->members[i]);
	kve_attendant_stop(p);
}

static void attach_log(const struct kve_pool *p)
{
	struct kvc_stats st;
	u32 i, nr = 0;

	for (i = 0; i < p->nr_members; i++)
		nr += !kvc_super_hole(kvc_super_of(p->core), i);
	kvc_stats_get(p->core, &st);
	kve_log(LOG_INFO, "pool %s attached in %s: %u members, %llu MiB, %llu pages found in %llu ms, %llu refused",
		p->name, p->dir, nr, (unsigned long long)(kvc_capacity(p->core) >> 20),
		(unsigned long long)st.recovered_pages, (unsigned long long)(p->attach_ns / 1000000),
		(unsigned long long)st.recover_skipped);
	if (st.recover_dropped)
		kve_log(LOG_WARNING, "pool %s: the index has no memory for %llu pages", p->name,
			(unsigned long long)st.recover_dropped);
}

int kve_attach(struct kve_pool *p, char *why)
{
	struct gathering *g = gathering_alloc(p->dir, why);
	int err;

	if (!g)
		return kve_refuse(why, -ENOMEM, "out of memory");
	err = gather(g) ?: arrange(g);
	if (!err) {
		err = build(p, g) ?: catch_up(p, g) ?: kve_recover(p, why) ?: configure(p, g) ?: start(p, g);
		if (err) {
			stop(p);
			unbuild(p);
		}
	}
	if (!err)
		hide_formers(g);
	gathering_free(g);
	if (!err)
		attach_log(p);
	return err;
}

/* Nobody uses the pool any more. What could not be written is lost, and only told to the log. */
void kve_detach(struct kve_pool *p)
{
	int err;

	__atomic_store_n(&p->stopping, true, __ATOMIC_SEQ_CST);
	kve_leave_stop(p);
	if (!kve_broken())
		kvc_pool_rest(p->core);
	err = kve_pool_flush(p);
	if (err)
		kve_log(LOG_ERR, "pool %s: last flush failed: %s", p->name, strerror(-err));
	kve_job_cancel(p, &p->space);
	stop(p);
	kve_log(LOG_INFO, "pool %s detached", p->name);
	unbuild(p);
}
