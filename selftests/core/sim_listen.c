// SPDX-License-Identifier: GPL-2.0
/*
 * A listener for each life, of the first tenant's first keyspace, and the pool's watcher: what each of them is told of
 * that keyspace, from an attach on, has to lead to what is there at the end. They say nothing of a life in which a member
 * was lost, the tenant removed, or events overwritten.
 */
#include "sim.h"

static void wake(struct kvc_watcher *w)
{
	(void)w;		/* it looks when all is over */
}

static struct kvc_listener ear;
static struct kvc_domain *heard;	/* NULL: nobody listens */
static u32 *here;			/* bytes by number of the key, in the order of s->keys */
static struct kvc_watcher watcher = { .wake = wake };
static u32 *watched;			/* the same, as the watcher knows it */
static u32 slot, epoch;		/* the tenant that it is; another one may get its name */
static bool unsure;

static bool of_domain(const struct mkey *k)
{
	return k->tenant == 0 && k->keyspace == 0;
}

static u32 length_now(struct sim *s, const struct mkey *k)
{
	u8 key[KVC_KEY_LEN];
	int r;

	key_make(key, k->id);
	r = kvc_query(s->pool, heard, key);
	return r > 0 ? (u32)r : 0;
}

void sim_listen(struct sim *s)
{
	u32 i;

	if (s->tenants[0].state != T_LIVE)
		return;
	here = calloc(s->nr_keys, sizeof(*here));
	watched = calloc(s->nr_keys, sizeof(*watched));
	if (!here || !watched)
		sim_fail("the test itself is out of memory");
	for (i = 0; i < s->nr_keys && !heard; i++)
		if (of_domain(&s->keys[i]))
			heard = sim_domain(s, &s->keys[i]);
	slot = s->tenants[0].slot;
	epoch = s->tenants[0].epoch;
	unsure = false;
	kvc_watch(s->pool, &watcher);
	sim_alloc_fails(s, false);
	sim_check(heard && !kvc_listen(s->pool, heard, &ear), "%s", "nobody can listen");
	sim_alloc_fails(s, true);
	for (i = 0; i < s->nr_keys; i++)
		if (of_domain(&s->keys[i]))
			watched[i] = here[i] = length_now(s, &s->keys[i]);
}

static void hear(struct sim *s, u32 *told, const struct kvc_event *e)
{
	u8 key[KVC_KEY_LEN];
	u32 i;

	if (e->kind == KVC_EVENT_MEMBER_LOST) {
		unsure = true;
		return;
	}
	for (i = 0; i < s->nr_keys; i++) {
		if (!of_domain(&s->keys[i]))
			continue;
		key_make(key, s->keys[i].id);
		if (!memcmp(key, e->key, KVC_KEY_LEN))
			break;
	}
	sim_check(i < s->nr_keys, "event %u of a key that is not the listener's", e->kind);
	told[i] = e->kind == KVC_EVENT_STORED ? e->length : 0;
}

static bool hear_some(void *arg, const struct kvc_event *events, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		hear(arg, here, &events[i]);
	return true;
}

/* Returns how many were overwritten */
static u64 watch_all(struct sim *s)
{
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_watched w;
	u64 lost = 0;

	sim_keyspace(s, keyspace, 0);
	while (kvc_watched_take(s->pool, &watcher, &w, 1, &lost))
		if (w.slot == slot && w.epoch == epoch && !memcmp(w.keyspace, keyspace, KVC_KEYSPACE_LEN))
			hear(s, watched, &w.event);
	kvc_unwatch(s->pool);
	return lost;
}

static void check_told(struct sim *s, const u32 *told, const char *by)
{
	u32 i;

	for (i = 0; i < s->nr_keys && !unsure; i++)
		if (of_domain(&s->keys[i]))
			sim_check(told[i] == length_now(s, &s->keys[i]), "%s is not what %s says",
				  model_name(&s->keys[i]), by);
}

/* Who is told of a tenant's pages is told its name, and not of who had the slot before or has it afterwards. */
static void check_name(struct sim *s)
{
	char name[KVC_NAME_MAX];

	sim_check(kvc_tenant_name(s->pool, slot, epoch, name) && !strcmp(name, s->tenants[0].name), "%s has another name",
		  s->tenants[0].name);
	sim_check(!kvc_tenant_name(s->pool, slot, epoch + 1, name) && !kvc_tenant_name(s->pool, slot, epoch - 1, name),
		  "somebody else has the name of %s", s->tenants[0].name);
}

/* Before the pool goes */
void sim_unlisten(struct sim *s)
{
	bool there = s->tenants[0].state == T_LIVE && s->tenants[0].slot == slot && s->tenants[0].epoch == epoch;
	u64 lost;

	if (!heard)
		return;
	kvc_events_take(&ear, KVC_EVENTS_MAX, &lost, hear_some, s);
	unsure |= lost || !there;
	if (there)
		check_name(s);
	check_told(s, here, "its listener");
	if (!watch_all(s))
		check_told(s, watched, "the watcher");
	kvc_unlisten(s->pool, &ear);
	kvc_domain_put(s->pool, heard);
	heard = NULL;
	free(here);
	free(watched);
}
