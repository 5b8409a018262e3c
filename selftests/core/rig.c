// SPDX-License-Identifier: GPL-2.0
/*
 * A pool on simulated devices for unit tests. See rig.h.
 */
#include "rig.h"
#include "engine.h"

static void on_kick(void *owner, u32 member)
{
	((struct rig *)owner)->kicked[member] = true;
}

static void on_space(void *owner)
{
	((struct rig *)owner)->spaces++;
}

static const struct kvc_ops rig_ops = {
	.kick = on_kick,
	.space = on_space,
};

static void *must(void *p)
{
	if (!p)
		harness_failf("the test itself is out of memory");
	return p;
}

static void store_error(void *arg, int err)
{
	*(int *)arg = err;
}

static void finish_io(struct rig *r)
{
	while (bus_step(r->bus))
		;
}

struct rig *rig_format(u32 members, u32 segments, u64 segment_size, u32 chunk_size)
{
	struct rig *r = must(calloc(1, sizeof(*r)));
	struct kvc_super *s = must(calloc(1, sizeof(*s)));
	u32 i;

	r->rng.state = 1;
	r->unreadable = KVC_NONE;
	r->discard_max = segment_size;
	r->bus = bus_new(&r->rng);
	r->super = s;
	r->nr_members = members;
	s->seq = 1;
	memset(s->pool_uuid, 0x11, KVC_UUID_LEN);
	strcpy(s->pool_name, "rig");
	s->segment_size = segment_size;
	s->chunk_size = chunk_size;
	s->nr_members = members;
	for (i = 0; i < members; i++) {
		memset(s->members[i].uuid, (int)(0x20 + i), KVC_UUID_LEN);
		s->members[i].nr_segments = segments;
		r->devs[i] = bus_add(r->bus, kvc_device_bytes(segments, segment_size));
	}
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	s->tenants[0].mode = 0600;
	return r;
}

struct rig *rig_new(u32 members, u32 segments, u64 segment_size, u32 chunk_size)
{
	struct rig *r = rig_format(members, segments, segment_size, chunk_size);

	rig_attach(r);
	return r;
}

struct rig *rig_small(u32 members)
{
	return rig_new(members, 16, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
}

struct rig *rig_segments(u32 segments)
{
	return rig_new(1, segments, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
}

void rig_free(struct rig *r)
{
	if (r->pool)
		rig_detach(r);
	bus_free(r->bus);
	free(r->super);
	free(r);
}

void rig_misread(struct rig *r, u64 offset, void (*misread)(u8 *block))
{
	r->misread = misread;
	r->misread_at = offset;
}

static void read_media(struct rig *r, const struct kvc_recover *rec, u8 *buf)
{
	dev_pread(r->devs[rec->member], rec->offset, buf, rec->len);
	if (r->misread && rec->member == 0 && r->misread_at >= rec->offset && r->misread_at < rec->offset + rec->len)
		r->misread(buf + (r->misread_at - rec->offset));
}

static void recover_segment(struct rig *r, u32 member, u32 segment, u8 *buf)
{
	struct kvc_recover rec;
	int ret;

	kvc_recover_start(r->pool, member, segment, &rec);
	rec.keep = r->forgetful ? NULL : buf;
	do {
		if (!rec.len || rec.len > KVC_RECOVER_IO - rec.at)
			harness_failf("recovery reads %u bytes to %u", rec.len, rec.at);
		read_media(r, &rec, buf + rec.at);
		r->read += rec.len;
		ret = kvc_recover_feed(r->pool, &rec, buf, rec.gseg == r->unreadable ? -EIO : 0);
	} while (ret == 1);
	if (ret)
		harness_failf("recovery of segment %u of member %u: %d", segment, member, ret);
}

void rig_recover(struct rig *r)
{
	u8 *buf = must(malloc(KVC_RECOVER_IO));
	u32 i, j, nr;
	int ret;

	r->read = 0;
	ret = kvc_pool_create(r->super, 42, &rig_ops, r, &r->pool);
	if (ret)
		harness_failf("pool create: %d", ret);
	kvc_index_limit(r->pool, r->index_limit);
	if (r->domains_max) {
		r->pool->domains.max = r->domains_max;
		r->pool->domains.sure = 0;
	}
	for (i = 0; i < kvc_nr_members(r->pool); i++) {
		if (r->missing & BIT_ULL(i))
			kvc_member_fail(r->pool, i);
		nr = r->missing & BIT_ULL(i) ? 0 : kvc_nr_segments(r->pool, i);
		for (j = 0; j < nr; j++)
			recover_segment(r, i, r->backwards ? nr - 1 - j : j, buf);
	}
	free(buf);
	kvc_recover_finish(r->pool);
	r->d = r->super->tenants[0].flags ? rig_domain(r, 0, 0) : NULL;
}

void rig_attach(struct rig *r)
{
	rig_recover(r);
	rig_work(r);
}

void rig_detach(struct rig *r)
{
	finish_io(r);
	if (r->d)
		kvc_domain_put(r->pool, r->d);
	kvc_pool_destroy(r->pool);
	r->pool = NULL;
	r->d = NULL;
}

void rig_cut(struct rig *r)
{
	bus_power_cut(r->bus);
	rig_detach(r);
}

void rig_again(struct rig *r)
{
	rig_detach(r);
	rig_attach(r);
}

int rig_add_member(struct rig *r, u32 segments)
{
	u8 uuid[KVC_UUID_LEN];
	int n;

	memset(uuid, 0x70 + ++r->added, KVC_UUID_LEN);
	n = kvc_member_add(r->pool, uuid, segments);
	if (n < 0)
		return n;
	r->devs[n] = bus_add(r->bus, kvc_device_bytes(segments, r->super->segment_size));
	r->nr_members = max(r->nr_members, (u32)n + 1);
	return n;
}

void rig_write_super(struct rig *r)
{
	u8 *buf = must(malloc(KVC_SUPER_BYTES));
	u32 i, copy;

	*r->super = *kvc_super_of(r->pool);
	for (i = 0; i < r->super->nr_members; i++) {
		if (kvc_super_hole(r->super, i))
			continue;
		kvc_super_encode(r->super, i, buf);
		for (copy = 0; copy < KVC_SUPER_COPIES; copy++)
			dev_pwrite(r->devs[i], kvc_super_offset(kvc_super_slot(r->super->seq, copy),
								dev_bytes(r->devs[i])), buf, KVC_SUPER_BYTES);
	}
	free(buf);
	kvc_tenants_gone(r->pool);
}

struct kvc_domain *rig_domain(struct rig *r, u32 slot, u32 keyspace)
{
	u8 ks[KVC_KEYSPACE_LEN];

	keyspace_make(ks, keyspace);
	return kvc_domain_get(r->pool, slot, ks);
}

int rig_begin(struct rig *r, struct kvc_domain *d, u32 id, u32 length, struct kvc_store *st)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_store_begin(r->pool, d, key, length, id, KVC_ANY_MEMBER, st);
}

void rig_write_page(struct rig *r, const struct kvc_store *st, u32 version)
{
	u32 chunk = kvc_chunk_size(r->pool), padded = kvc_blocks(st->length) << KVC_BLOCK_SHIFT, i;
	u8 *buf = must(calloc(1, padded));
	int err = 1;

	page_bytes(buf, version, 0, st->length);
	for (i = 0; i < st->nr_chunks; i++)
		kvc_store_crc(r->pool, st, i, page_crc(buf + (size_t)i * chunk, min(chunk, st->summed - i * chunk)));
	dev_write(r->devs[st->member], st->offset, buf, padded, 0, store_error, &err);
	finish_io(r);
	if (err)
		harness_failf("write of a page: %d", err);
	free(buf);
}

/* The rest of a store whose begin gave @ret */
static int store_rest(struct rig *r, int ret, struct kvc_store *st, u32 version)
{
	if (ret)
		return ret;
	rig_write_page(r, st, version);
	kvc_store_commit(r->pool, st);
	return 0;
}

int rig_store(struct rig *r, struct kvc_domain *d, u32 id, u32 version, u32 length)
{
	struct kvc_store st;
	int ret = rig_begin(r, d, id, length, &st);

	return store_rest(r, ret, &st, version);
}

int rig_store_on(struct rig *r, u32 member, u32 id, u32 version, u32 length)
{
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	int ret;

	key_make(key, id);
	while ((ret = kvc_store_begin(r->pool, r->d, key, length, 0, BIT_ULL(member), &st)) == -EAGAIN)
		rig_work(r);
	return store_rest(r, ret, &st, version);
}

int rig_hold(struct rig *r, struct kvc_domain *d, u32 id, struct kvc_load *ld)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_load_begin(r->pool, d, key, ld);
}

int rig_load(struct rig *r, struct kvc_domain *d, u32 id, u32 version)
{
	u32 chunk = kvc_chunk_size(r->pool), i, len;
	struct kvc_load ld;
	int ret = rig_hold(r, d, id, &ld);
	u8 *buf;

	if (ret)
		return ret;
	buf = must(malloc(ld.summed));
	dev_pread(r->devs[ld.member], ld.offset, buf, ld.summed);
	for (i = 0; i < ld.nr_chunks && !ret && !ld.no_crcs; i++) {
		len = min(chunk, ld.summed - i * chunk);
		if (page_crc(buf + (size_t)i * chunk, len) != kvc_load_crc(r->pool, &ld, i))
			ret = -EBADMSG;
	}
	if (!ret && page_compare(buf, version, 0, ld.length) != ld.length)
		harness_failf("key %u: wrong bytes passed the CRC", id);
	free(buf);
	kvc_load_end(r->pool, &ld, ret);
	return ret;
}

int rig_delete(struct rig *r, struct kvc_domain *d, u32 id)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_delete(r->pool, d, key);
}

int rig_query(struct rig *r, struct kvc_domain *d, u32 id)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_query(r->pool, d, key);
}

void rig_keep_leases(struct rig *r)
{
	if (kvc_tenant_limit(r->pool, "default", &(struct kvc_limits){ .leased = U64_MAX }))
		harness_failf("no limit for tenant default");
}

int rig_lease(struct rig *r, struct kvc_domain *d, u32 id, struct kvc_lease *l)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_lease_get(r->pool, d, key, l);
}

static int exec_move(struct rig *r, const struct kvc_work *w)
{
	u32 chunk = kvc_chunk_size(r->pool), padded = kvc_blocks(w->len) << KVC_BLOCK_SHIFT, i;
	u8 *buf = must(malloc(padded));
	int err = 0;

	dev_pread(r->devs[w->src_member], w->src_offset, buf, padded);
	for (i = 0; i < w->nr_chunks && !err && !w->no_crcs; i++)
		if (page_crc(buf + (size_t)i * chunk, min(chunk, w->src.summed - i * chunk)) != kvc_work_crc(r->pool, w, i))
			err = -EBADMSG;
	if (!err) {
		dev_write(r->devs[w->member], w->offset, buf, padded, 0, store_error, &err);
		finish_io(r);
	}
	free(buf);
	return err;
}

int rig_exec(struct rig *r, struct kvc_work *w)
{
	struct dev *d = r->devs[w->member];
	int err = 1;

	r->written[w->type]++;
	switch (w->type) {
	case KVC_WORK_WRITE:
		dev_write(d, w->offset, w->buf, w->len, DEV_PREFLUSH | DEV_FUA, store_error, &err);
		break;
	case KVC_WORK_MOVE:
		return exec_move(r, w);
	case KVC_WORK_DISCARD:
		dev_discard(d, w->offset, w->discard_len, store_error, &err);
		break;
	}
	finish_io(r);
	return err;
}

bool rig_step(struct rig *r, u32 member, struct kvc_work *w)
{
	int ret = kvc_work_next(r->pool, member, w);

	if (ret == 0 && r->discard_max)
		ret = kvc_discard_next(r->pool, member, r->discard_max, w);
	if (ret < 0)
		harness_failf("next work of member %u: %d", member, ret);
	if (ret == 0)
		return false;
	kvc_work_done(r->pool, w, rig_exec(r, w));
	return true;
}

void rig_work(struct rig *r)
{
	struct kvc_work w;
	bool any = true;
	u32 i;

	while (any) {
		any = false;
		for (i = 0; i < r->nr_members; i++) {
			if (!r->kicked[i])
				continue;
			r->kicked[i] = false;
			while (rig_step(r, i, &w))
				any = true;
		}
	}
}

void rig_flush(struct rig *r)
{
	struct kvc_work w;
	u32 i;
	int ret;

	for (i = 0; i < r->nr_members; i++) {
		while ((ret = kvc_flush_next(r->pool, i, &w)) == 1)
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
		if (ret)
			harness_failf("flush of member %u: %d", i, ret);
	}
}

struct kvc_stats rig_stats(struct rig *r)
{
	struct kvc_stats st;

	kvc_stats_get(r->pool, &st);
	return st;
}

u32 rig_fill(struct rig *r, u32 id, u32 length, u32 count)
{
	u32 i;
	int ret;

	for (i = 0; i < count; i++) {
		while ((ret = rig_store(r, r->d, id + i, id + i, length)) == -EAGAIN)
			rig_work(r);
		if (ret)
			harness_failf("store of key %u: %d", id + i, ret);
		rig_work(r);
	}
	return id + count;
}
