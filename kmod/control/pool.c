// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: attach and detach.
 *
 * Attach in steps, each undone if a later one fails:
 *   gather     open every device for ourselves, read its superblocks, find the newest configuration
 *   arrange    put the devices in the order of the pool and see that none is foreign, double or too small, nor missing
 *              unless the attach may be degraded
 *   build      memory, workqueue, engine, members
 *   catch up   members whose superblock is older get the newest one
 *   recover    read the summaries
 *   configure  write the next superblock to all; the tenant "default" if there is none
 *   publish    nodes, list, background work
 *
 * A pool is on the list exactly while its tenants can be opened. Detach takes it off, which makes new sessions
 * impossible, and only then begins to take it down.
 */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "ctrl.h"

static unsigned int index_percent = 25;
module_param(index_percent, uint, 0644);
MODULE_PARM_DESC(index_percent, "Percent of the host's memory that a pool's index may take, from its attach on; 0: no limit");

static LIST_HEAD(kvctx_between);		/* pools that are being attached or detached; kvctx_mutex */

/* Gathering and arranging */

struct kvctx_gathering {
	struct netlink_ext_ack *extack;
	u32 nr;					/* devices given */
	struct kvc_super *super;		/* the newest configuration */
	struct kvc_super *scratch;
	bool degraded;				/* members may be missing */
	bool worn;				/* a member has a copy that is none */
	struct kvc_witness history[KVC_MEMBERS_MAX];
	struct kvctx_device *given[KVC_MEMBERS_MAX];
	struct kvctx_device *ordered[KVC_MEMBERS_MAX];
};

static void kvctx_gathering_free(struct kvctx_gathering *g)
{
	u32 i;

	if (!g)
		return;
	for (i = 0; i < g->nr; i++) {
		if (!g->given[i])
			continue;
		kvctx_device_close(g->given[i]);
		kvctx_device_free(g->given[i]);
	}
	kvfree(g->super);
	kvfree(g->scratch);
	kvfree(g);
}

static struct kvctx_gathering *kvctx_gathering_alloc(u32 nr, struct netlink_ext_ack *extack)
{
	struct kvctx_gathering *g = kvzalloc(sizeof(*g), GFP_KERNEL);

	if (!g)
		return NULL;
	g->nr = nr;
	g->extack = extack;
	g->super = kvzalloc(sizeof(*g->super), GFP_KERNEL);
	g->scratch = kvzalloc(sizeof(*g->scratch), GFP_KERNEL);
	if (!g->super || !g->scratch) {
		kvctx_gathering_free(g);
		return NULL;
	}
	return g;
}

/* The claim would refuse it too, but could not say why. */
static int kvctx_check_twice(struct kvctx_gathering *g, u32 i)
{
	dev_t devt;
	u32 j;

	if (lookup_bdev(g->given[i]->path, &devt))
		return 0;			/* opening it will tell */
	for (j = 0; j < i; j++)
		if (g->given[j]->bdev->bd_dev == devt)
			return kvctx_refuse(g->extack, g->given[i]->path, -EINVAL, "given twice");
	return 0;
}

/* Is device @i of the same pool as the others? Keep the newest configuration. */
static int kvctx_compare_super(struct kvctx_gathering *g, u32 i)
{
	struct kvctx_device *dev = g->given[i];
	const struct kvc_super *s = g->scratch;

	if (i && memcmp(s->pool_uuid, g->super->pool_uuid, KVC_UUID_LEN))
		return kvctx_refuse(g->extack, dev->path, -EXDEV, "of another pool, %s", s->pool_name);
	if (!i || kvc_super_newer(s, g->super))
		swap(g->super, g->scratch);
	return 0;
}

static int kvctx_gather_device(struct kvctx_gathering *g, u32 i, const struct nlattr *attr)
{
	struct kvctx_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int err;

	if (!dev)
		return -ENOMEM;
	g->given[i] = dev;
	dev->path = nla_strdup(attr, GFP_KERNEL);
	if (!dev->path)
		return -ENOMEM;
	err = kvctx_check_twice(g, i);
	if (!err)
		err = kvctx_device_open(dev, g->extack);
	if (!err)
		err = kvctx_device_read_super(dev, g->scratch, g->extack);
	if (!err)
		err = kvctx_compare_super(g, i);
	return err;
}

static int kvctx_arrange_device(struct kvctx_gathering *g, struct kvctx_device *dev)
{
	const struct kvc_super *s = g->super;
	u64 need;

	if (dev->index >= s->nr_members || memcmp(dev->uuid, s->members[dev->index].uuid, KVC_UUID_LEN))
		return kvctx_refuse(g->extack, dev->path, -EXDEV, "no member of the pool any more");
	if (g->ordered[dev->index])
		return kvctx_refuse(g->extack, dev->path, -EEXIST, "member %u, and so is another device", dev->index);
	need = kvc_device_bytes(s->members[dev->index].nr_segments, s->segment_size);
	if (bdev_nr_bytes(dev->bdev) < need)
		return kvctx_refuse(g->extack, dev->path, -ENOSPC, "too small, the pool needs %llu bytes", need);
	g->worn |= dev->worn != 0;
	g->ordered[dev->index] = dev;
	return 0;
}

/*
 * A pool that was attached without some of its members, and then without the others, has two histories: what is newer
 * of one key, and what was deleted, cannot be told any more.
 */
static int kvctx_check_history(struct kvctx_gathering *g)
{
	u32 i;

	for (i = 0; i < g->nr; i++)
		g->history[i] = (struct kvc_witness){ g->given[i]->index, g->given[i]->seq, g->given[i]->was };
	if (!kvc_one_history(g->history, g->nr))
		return kvctx_refuse(g->extack, NULL, -ESTALE, "these members were attached without each other");
	return 0;
}

static bool kvctx_name_taken(const char *name)
{
	struct kvctx_pool *p;

	lockdep_assert_held(&kvctx_mutex);
	list_for_each_entry(p, &kvctx_between, node)
		if (!strcmp(p->name, name))
			return true;
	return kvctx_pool_find(name);
}

static int kvctx_refuse_name(const struct kvctx_gathering *g)
{
	return kvctx_refuse(g->extack, NULL, -EEXIST, "a pool named %s is attached already", g->super->pool_name);
}

static int kvctx_check_name(const struct kvctx_gathering *g)
{
	bool taken;

	mutex_lock(&kvctx_mutex);
	taken = kvctx_name_taken(g->super->pool_name);
	mutex_unlock(&kvctx_mutex);
	return taken ? kvctx_refuse_name(g) : 0;
}

/* From now on the name is this pool's, */
static int kvctx_arrive(struct kvctx_pool *p, const struct kvctx_gathering *g)
{
	bool taken;

	mutex_lock(&kvctx_mutex);
	taken = kvctx_name_taken(p->name);
	if (!taken)
		list_add_tail(&p->node, &kvctx_between);
	mutex_unlock(&kvctx_mutex);
	return taken ? kvctx_refuse_name(g) : 0;
}

/* until it is detached, or failed to be attached. */
static void kvctx_depart(struct kvctx_pool *p)
{
	mutex_lock(&kvctx_mutex);
	list_del_init(&p->node);
	mutex_unlock(&kvctx_mutex);
}

static int kvctx_arrange(struct kvctx_gathering *g)
{
	u32 i;
	int err;

	for (i = 0; i < g->nr; i++) {
		err = kvctx_arrange_device(g, g->given[i]);
		if (err)
			return err;
	}
	for (i = 0; i < g->super->nr_members && !g->degraded; i++)
		if (!g->ordered[i] && !kvc_super_hole(g->super, i))
			return kvctx_refuse(g->extack, NULL, -EINVAL, "member %u of %u is missing: uuid %pUb", i,
					    g->super->nr_members, g->super->members[i].uuid);
	err = kvctx_check_name(g);
	return err ?: kvctx_check_history(g);
}

/* Building */

static void kvctx_pool_put(struct kvctx_pool *p)
{
	if (refcount_dec_and_test(&p->admins))
		kvfree(p);
}

int kvctx_pool_lock(struct kvctx_pool *p)
{
	int err;

	refcount_inc(&p->admins);
	mutex_unlock(&kvctx_mutex);
	err = mutex_lock_killable(&p->admin_lock);
	if (err) {
		kvctx_pool_put(p);
		return err;
	}
	if (!p->stopping)
		return 0;
	kvctx_pool_unlock(p);
	return -ENODEV;
}

void kvctx_pool_unlock(struct kvctx_pool *p)
{
	mutex_unlock(&p->admin_lock);
	kvctx_pool_put(p);
}

/* All but the structure, which others may hold who found it before */
static void kvctx_pool_free(struct kvctx_pool *p)
{
	u32 i;

	if (p->bg_wq)
		destroy_workqueue(p->bg_wq);
	for (i = 0; p->members && i < KVC_MEMBERS_MAX; i++)
		kvctx_worker_free(&p->members[i]);
	kvfree(p->members);
	kvfree(p->super_buf);
	kfree(p->last_flush);
	kvctx_pool_put(p);
}

static struct kvctx_pool *kvctx_pool_alloc(const struct kvc_super *super)
{
	struct kvctx_pool *p = kvzalloc(sizeof(*p), GFP_KERNEL);
	u32 i;

	if (!p)
		return NULL;
	INIT_LIST_HEAD(&p->node);
	mutex_init(&p->admin_lock);
	refcount_set(&p->admins, 1);
	INIT_LIST_HEAD(&p->tenants);
	init_completion(&p->flushed);
	strscpy(p->name, super->pool_name);
	kvctx_grow_init(p);
	p->members = kvcalloc(KVC_MEMBERS_MAX, sizeof(*p->members), GFP_KERNEL);
	p->discard_rate = super->settings.discard_rate;
	p->write_budget = super->settings.write_budget;
	p->super_buf = kvmalloc(KVC_SUPER_BYTES, GFP_KERNEL);
	p->last_flush = kzalloc(struct_size(p->last_flush, on, KVC_MEMBERS_MAX), GFP_KERNEL);
	p->bg_wq = alloc_workqueue("kvctx_%.20s", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_FREEZABLE, 0, p->name);
	if (!p->members || !p->super_buf || !p->last_flush || !p->bg_wq)
		goto err_free;
	for (i = 0; i < super->nr_members; i++)
		if (kvctx_member_alloc(p, i))
			goto err_free;
	return p;

err_free:
	kvctx_pool_free(p);
	return NULL;
}

/* The devices become members. One that is gone already is a refusal: an attach begins with all that were given. */
static int kvctx_bind_members(struct kvctx_pool *p, struct kvctx_gathering *g)
{
	u32 i;

	for (i = 0; i < g->super->nr_members; i++)
		kvctx_member_enter(p, i, g->ordered[i]);
	memset(g->given, 0, sizeof(g->given));
	for (i = 0; i < p->nr_members; i++)
		if (p->members[i].dev && !kvctx_device_bind(p->members[i].dev, &p->members[i]))
			return kvctx_refuse(g->extack, p->members[i].dev->path, -ENODEV, "went away");
	return 0;
}

/* The members' devices are closed. Nothing runs for the pool any more, nor will it. */
static void kvctx_stop_members(struct kvctx_pool *p)
{
	u32 i;

	WRITE_ONCE(p->online, false);
	/* no I/O any more: from now on a worker finds nothing to do */
	for (i = 0; i < p->nr_members; i++)
		cancel_delayed_work_sync(&p->members[i].work);
	cancel_delayed_work_sync(&p->leave_work);
	for (i = 0; i < p->nr_members; i++)
		if (p->members[i].dev)
			kvctx_device_close(p->members[i].dev);
	/* no loss begins any more; one that is being completed may kick the worker and leave_work once more */
	for (i = 0; i < p->nr_members; i++) {
		cancel_work_sync(&p->members[i].lost_work);
		cancel_delayed_work_sync(&p->members[i].work);
	}
	cancel_delayed_work_sync(&p->leave_work);
	for (i = 0; i < p->nr_members; i++)
		if (p->members[i].dev)
			kvctx_device_free(p->members[i].dev);
}

static int kvctx_check_lost(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	u32 i;

	for (i = 0; i < p->nr_members; i++)
		if (p->members[i].dev && test_bit(KVCTX_MEMBER_FAILED, &p->members[i].state))
			return kvctx_refuse(extack, p->members[i].dev->path, -ENODEV, "failed during the attach");
	return 0;
}

/* Before the next superblock is made all members have the one before: see kvc_one_history(). */
static int kvctx_catch_up(struct kvctx_pool *p, const struct kvctx_gathering *g)
{
	u32 i;
	int err;

	for (i = 0; i < g->nr; i++) {
		struct kvctx_member *m = &p->members[g->history[i].member];

		if (!kvc_super_behind(g->super, &g->history[i]))
			continue;
		err = kvctx_member_write_super(m);
		if (err)
			return kvctx_refuse(g->extack, m->dev->path, err, "its superblock could not be written");
	}
	return 0;
}

/* Which copies of a member's superblock will be written again, for the log */
static void kvctx_log_worn(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < p->nr_members; i++) {
		const struct kvctx_device *dev = p->members[i].dev;

		if (dev && dev->worn)
			pr_warn("kvctx: pool %s: member %u (%s): superblock at the %s damaged or old, written again\n",
				p->name, i, dev->path,
				!(dev->worn & 3) ? "end" : !(dev->worn & 12) ? "front" : "front and the end");
	}
}

/*
 * Every attach writes the superblocks, as recovery left them. Where a slot is worn another write follows, so that all
 * are written. A member that lacks the first may not be said to be there in the second.
 */
static int kvctx_configure(struct kvctx_pool *p, const struct kvctx_gathering *g)
{
	int slot, err;

	kvctx_log_worn(p);
	err = kvctx_members_write_super(p);
	if (err)
		return kvctx_refuse(g->extack, NULL, err, "no superblock could be written");
	err = kvctx_check_lost(p, g->extack);
	if (err)
		return err;
	slot = kvc_tenant_add(p->core, KVCTX_TENANT_DEFAULT, 0, 0, KVCTX_TENANT_MODE, 0);
	if (slot < 0 && slot != -EEXIST)
		return kvctx_refuse(g->extack, NULL, slot, "tenant %s cannot be added", KVCTX_TENANT_DEFAULT);
	if (slot == -EEXIST && g->worn)
		kvc_super_touch(p->core);
	if (slot != -EEXIST || g->worn)
		err = kvctx_members_write_super(p);
	return err ? kvctx_refuse(g->extack, NULL, err, "no superblock could be written") : 0;
}

static int kvctx_publish(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	struct kvctx_cipher **keys = kvctx_tenants_keys(p);
	int err;

	if (!keys)
		return -ENOMEM;
	mutex_lock(&kvctx_mutex);
	err = kvctx_tenants_create(p, keys);
	if (!err) {
		list_move_tail(&p->node, &kvctx_pools);
		kvctx_generation++;
		kvctx_members_online(p);
		kvctx_pages_begin(p);
	}
	mutex_unlock(&kvctx_mutex);
	kvctx_tenants_keys_free(keys);
	if (err)
		return kvctx_refuse(extack, NULL, err, "device nodes cannot be created, error %d", -err);
	kvctx_debug_add(p);
	return 0;
}

/* From the arranged devices to a pool that serves */
static int kvctx_pool_build(struct kvctx_pool *p, struct kvctx_gathering *g)
{
	int err;

	err = kvctx_data_pool_init(p);
	if (err)
		return err;
	err = kvc_pool_create(g->super, get_random_u64(), &kvctx_core_ops, p, &p->core);
	if (err) {
		kvctx_refuse(g->extack, NULL, err, "the engine does not start, error %d", -err);
		goto err_data;
	}
	kvc_index_limit(p->core, div_u64((u64)totalram_pages() << PAGE_SHIFT, 100) *
				 min(READ_ONCE(index_percent), 100U));
	err = kvctx_bind_members(p, g);
	if (!err)
		err = kvctx_catch_up(p, g);
	if (!err)
		err = kvctx_recover(p, g->extack);
	if (!err)
		err = kvctx_configure(p, g);
	if (!err)
		err = kvctx_check_lost(p, g->extack);
	if (!err)
		err = kvctx_publish(p, g->extack);
	if (err)
		goto err_members;
	return 0;

err_members:
	kvctx_stop_members(p);
	kvc_pool_destroy(p->core);
err_data:
	kvctx_data_pool_exit(p);
	return err;
}

/* Locked when it succeeds */
static int kvctx_pool_start(struct kvctx_pool *p, struct kvctx_gathering *g)
{
	int err = kvctx_arrive(p, g);

	if (err)
		return err;
	refcount_inc(&p->admins);
	mutex_lock(&p->admin_lock);
	err = kvctx_pool_build(p, g);
	if (!err)
		return 0;
	kvctx_depart(p);
	kvctx_pool_unlock(p);
	return err;
}

static void kvctx_log_attach(struct kvctx_pool *p)
{
	struct kvc_stats st;
	u32 i, nr = 0;

	for (i = 0; i < p->nr_members; i++)
		nr += !kvc_super_hole(kvc_super_of(p->core), i);
	kvc_stats_get(p->core, &st);
	pr_info("kvctx: pool %s attached: %u members, %llu MiB, %llu pages found, %llu records or segments refused\n",
		p->name, nr, kvc_capacity(p->core) >> 20, st.recovered_pages, st.recover_skipped);
	if (st.recover_dropped)
		pr_warn("kvctx: pool %s: the index has no memory for %llu pages, see index_percent\n", p->name,
			st.recover_dropped);
	pr_info("kvctx: pool %s: attached by reading %llu KiB of summaries in %llu ms\n",
		p->name, p->attach_bytes >> 10, div_u64(p->attach_us, 1000));
}

/* Attach the pool whose members are named by these string attributes, in any order. @degraded: some may be missing. */
struct kvctx_pool *kvctx_pool_attach(struct nlattr **devices, u32 nr, bool degraded, struct netlink_ext_ack *extack)
{
	struct kvctx_gathering *g;
	struct kvctx_pool *p = NULL;
	int err = -ENOMEM;
	u32 i;

	g = kvctx_gathering_alloc(nr, extack);
	if (!g)
		return ERR_PTR(-ENOMEM);
	g->degraded = degraded;
	for (i = 0; i < nr; i++) {
		err = kvctx_gather_device(g, i, devices[i]);
		if (err) {
			NL_SET_BAD_ATTR(extack, devices[i]);
			goto out;
		}
	}
	err = kvctx_arrange(g);
	if (err)
		goto out;
	p = kvctx_pool_alloc(g->super);
	err = p ? kvctx_pool_start(p, g) : -ENOMEM;
	if (err && p)
		kvctx_pool_free(p);
	else if (!err)
		kvctx_log_attach(p);
out:
	kvctx_gathering_free(g);
	return err ? ERR_PTR(err) : p;
}

/* In force at once. A worker that stays away from discards by the old rate looks at the new one. */
int kvctx_pool_set(struct kvctx_pool *p, const struct kvc_settings *settings, struct netlink_ext_ack *extack)
{
	u32 i;
	int err;

	lockdep_assert_held(&p->admin_lock);
	if (!kvc_settings_ok(settings))
		return kvctx_refuse(extack, NULL, -EINVAL, "discard rate: 1M to 1T, write budget: from 1M");
	mutex_lock(&kvctx_mutex);
	err = kvc_pool_set(p->core, settings);
	if (!err) {
		WRITE_ONCE(p->discard_rate, settings->discard_rate);
		WRITE_ONCE(p->write_budget, settings->write_budget);
		kvctx_generation++;
	}
	mutex_unlock(&kvctx_mutex);
	if (err)
		return kvctx_refuse(extack, NULL, err, "settings cannot be changed, error %d", -err);
	for (i = 0; i < p->nr_members; i++)
		kvctx_worker_kick(&p->members[i]);
	if (kvctx_members_write_super(p))
		return kvctx_refuse(extack, NULL, -EIO, "set until detach: no superblock could be written");
	return 0;
}

static int kvctx_unpublish(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	int err = 0;

	mutex_lock(&kvctx_mutex);
	if (p->sessions) {
		err = kvctx_refuse(extack, NULL, -EBUSY, "%u sessions of pool %s are open", p->sessions, p->name);
	} else {
		kvctx_event_pool(KVCTX_CMD_POOL_DETACH, p);
		kvctx_tenants_destroy(p);
		list_move(&p->node, &kvctx_between);
		kvctx_generation++;
	}
	mutex_unlock(&kvctx_mutex);
	return err;
}

int kvctx_pool_detach(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	int err;

	lockdep_assert_held(&p->admin_lock);
	err = kvctx_unpublish(p, extack);
	if (err)
		return err;
	kvctx_pages_end(p);
	kvctx_debug_remove(p);
	WRITE_ONCE(p->stopping, true);
	kvc_pool_rest(p->core);
	/* what could not be written is lost, and only told to the log: nobody asked for it to be kept */
	err = kvctx_pool_flush(p);
	if (err)
		pr_err_ratelimited("kvctx: pool %s: last flush failed, error %d\n", p->name, -err);
	kvctx_write_losses(p);
	kvctx_stop_members(p);
	kvctx_data_pool_exit(p);
	kvc_pool_destroy(p->core);
	pr_info("kvctx: pool %s detached\n", p->name);
	kvctx_depart(p);
	kvctx_pool_free(p);
	return 0;
}

/* At unload: sessions whose file is closed may still wait for their last transfers. */
void kvctx_pools_exit(void)
{
	struct kvctx_pool *p;

	/* nobody else can change the list any more */
	while ((p = list_first_entry_or_null(&kvctx_pools, struct kvctx_pool, node))) {
		refcount_inc(&p->admins);
		mutex_lock(&p->admin_lock);
		kvctx_tenants_wait(p);
		kvctx_pool_detach(p, NULL);
		kvctx_pool_unlock(p);
	}
}
