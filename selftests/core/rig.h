/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pool on simulated devices for unit tests: every call does all its I/O before it returns.
 */
#ifndef RIG_H
#define RIG_H

#include "core.h"
#include "dev.h"
#include "page.h"
#include "rng.h"

#define RIG_MEMBERS_MAX	8

struct rig {
	struct rng rng;
	struct bus *bus;
	u32	nr_members;
	struct dev *devs[RIG_MEMBERS_MAX];
	struct kvc_super *super;	/* as formatted; a removed or added tenant changes the pool's copy only */
	struct kvc_pool *pool;		/* NULL while detached */
	struct kvc_domain *d;		/* tenant 0, keyspace 0 */
	bool	kicked[RIG_MEMBERS_MAX];
	int	added;			/* members since rig_new() */
	u64	missing;		/* members that the next attach is without */
	u32	domains_max;		/* that the next attach has room for, none of them sure; 0: as many as ever */
	u64	index_limit;		/* of the next attaches; 0: none */
	u32	unreadable;		/* gseg that recovery gets a read error for */
	void	(*misread)(u8 *block);	/* what recovery reads of that block of member 0; see rig_misread() */
	u64	misread_at;
	bool	forgetful;		/* recovery's buffer is not kept between reads */
	u64	read;			/* bytes that the last recovery read */
	bool	backwards;		/* recovery begins with the last segment of each member */
	u32	spaces;			/* calls of ops->space */
	u32	written[3];		/* work items executed, by type */
	u64	discard_max;		/* bytes discarded at a time when there is nothing else to do; 0: never */
};

/* Devices and a superblock in memory, nothing attached. Tenant "default" is in slot 0. */
struct rig *rig_format(u32 members, u32 segments, u64 segment_size, u32 chunk_size);
/* The same, and attaches. */
struct rig *rig_new(u32 members, u32 segments, u64 segment_size, u32 chunk_size);
/* A pool that most tests can use: @members of 16 segments of 256 KiB, chunks of 4 KiB */
struct rig *rig_small(u32 members);
/* One member of so many such segments */
struct rig *rig_segments(u32 segments);
void rig_free(struct rig *r);

void rig_recover(struct rig *r);	/* an attach without any work: what media holds, before reclaim looks at it */
void rig_attach(struct rig *r);
/* Until it is called with NULL, recovery does not get what member 0 has at @offset, but what @misread makes of it. */
void rig_misread(struct rig *r, u64 offset, void (*misread)(u8 *block));
void rig_detach(struct rig *r);		/* nothing is flushed */
void rig_cut(struct rig *r);		/* power cut and detach */
void rig_again(struct rig *r);		/* detach, attach */
int rig_add_member(struct rig *r, u32 segments);	/* a new device; the superblock is not written */
void rig_write_super(struct rig *r);	/* what the pool has now, to all members and into @super; removed tenants are gone */

/* Begin with any result; 0 stores the page with the bytes of @version. */
int rig_store(struct rig *r, struct kvc_domain *d, u32 id, u32 version, u32 length);
/* The same in tenant "default", on that member, after the work that makes room */
int rig_store_on(struct rig *r, u32 member, u32 id, u32 version, u32 length);
/* Between begin and commit or abort: write the page and set its CRCs */
void rig_write_page(struct rig *r, const struct kvc_store *st, u32 version);
/* 0 when the whole page was read and has the bytes of @version; else the error of begin, or -EBADMSG: damaged */
int rig_load(struct rig *r, struct kvc_domain *d, u32 id, u32 version);
int rig_delete(struct rig *r, struct kvc_domain *d, u32 id);
int rig_query(struct rig *r, struct kvc_domain *d, u32 id);
int rig_begin(struct rig *r, struct kvc_domain *d, u32 id, u32 length, struct kvc_store *st);
int rig_hold(struct rig *r, struct kvc_domain *d, u32 id, struct kvc_load *ld);
int rig_lease(struct rig *r, struct kvc_domain *d, u32 id, struct kvc_lease *l);
void rig_keep_leases(struct rig *r);	/* until it is detached the leases of tenant "default" may keep all there is */
struct kvc_domain *rig_domain(struct rig *r, u32 slot, u32 keyspace);

/* Execute one item of the member's work, or a discard; false when there is none. */
bool rig_step(struct rig *r, u32 member, struct kvc_work *w);
int rig_exec(struct rig *r, struct kvc_work *w);	/* do the I/O; the result is for kvc_work_done() */
void rig_work(struct rig *r);				/* all work of all members that were kicked */
void rig_flush(struct rig *r);
struct kvc_stats rig_stats(struct rig *r);
/* Store @count keys from @id on, the key number as version; works in between. The next number. */
u32 rig_fill(struct rig *r, u32 id, u32 length, u32 count);

#endif
