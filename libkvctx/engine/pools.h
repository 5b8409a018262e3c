/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the floor of pools share with each other alone. See engine.h.
 */
#ifndef KVE_POOLS_H
#define KVE_POOLS_H

#include "engine.h"

/* attend.c */
int kve_attendant_start(struct kve_pool *p);
void kve_attendant_stop(struct kve_pool *p);

/* super.c: a device that says that it is a member, and what else it says */
struct kve_candidate {
	struct kve_device *dev;
	u64 seq;
	u32 worn;			/* slots that need to be written again, see kvc_super_worn() */
	struct kvc_super_member was[KVC_MEMBERS_MAX];	/* members, as its superblock has them */
	u32 index;
	u8 uuid[KVC_UUID_LEN];
};

int kve_candidate_read(struct kve_candidate *c, struct kvc_super *super, char *why);

/* member.c */
void kve_members_init(struct kve_pool *p);			/* all places, where nobody is */
void kve_members_exit(struct kve_pool *p);
void kve_member_enter(struct kve_member *m, struct kve_device *dev);	/* takes its place */
void kve_member_kick(struct kve_member *m);			/* its worker; any lock but pool->lock */
void kve_member_lose(struct kve_member *m);			/* completes a loss, by its worker */
int kve_member_write_super(struct kve_member *m);		/* super_lock, or nobody knows the pool yet */
int kve_members_write_super(struct kve_pool *p);		/* super_lock */
void kve_leave_look(struct kve_pool *p);			/* a member may have left: grow.c shall look */

void kve_holders_let_go(struct kve_pool *p, u32 member);	/* nothing moves to or from it */

/* worker.c */
extern const struct kvc_ops kve_core_ops;
int kve_worker_init(struct kve_member *m);
void kve_worker_free(struct kve_member *m);
int kve_worker_start(struct kve_member *m);
void kve_worker_join(struct kve_member *m);

/* grow.c */
void kve_leave_stop(struct kve_pool *p);			/* no removal ends any more */

/* recover.c */
int kve_recover(struct kve_pool *p, char *why);

/* attach.c */
int kve_attach(struct kve_pool *p, char *why);
void kve_detach(struct kve_pool *p);

#endif
