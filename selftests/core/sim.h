/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The simulation: random operations of many users against one pool over simulated devices, in one thread, repeatable
 * from a seed. Whatever the engine says is compared with a model, at once; after each power cut or detach a new pool
 * is recovered from the devices and compared again.
 *
 * Vocabulary
 *   life      from an attach to the next power cut or detach
 *   version   number of one store of a key; it determines length and bytes
 *   event     a change of a key's state, numbered through; strong (store, delete) or weak (evicted, member gone,
 *             found damaged: the index forgot the page, media need not have)
 *   durable   the number of the last event that a completed flush promised
 *
 *   ghost     a version that a weak event took away: media may still hold it
 *
 *   away      a durable version whose member is out: it has to be there when that is back
 *
 * After a recovery a key may be in the state of its last strong event that is durable, or in that of any later event.
 * Once a newer version was weakly lost as well, a ghost may be back, unless a durable delete or replacement came in
 * between.
 * Where corruption was injected, what lies in a hit segment may be missing, and deleted pages may come back: with the
 * right bytes of some version of their own key, never with others.
 * Members vanish, with what their caches held, stay away for some lives, and come back with what they had. A delete
 * holds wherever the member that has its tombstone takes part; so the model remembers which one that was.
 *
 *   sim_main.c   options, seeds, scheduling     sim_model.c  the model
 *   sim_shape.c  what a seed means              sim_settle.c  until nothing is left to do
 *   sim_ops.c    users: store, delete           sim_read.c   users: load, match, lease
 *   sim_admin.c  flush, tenants                 sim_work.c   members' workers
 *   sim_recover.c  recovery                     sim_format.c  format
 *   sim_grow.c   members that come and go
 *   sim_life.c   attach, power cut, detach, comparison
 *   sim_super.c  superblocks        sim_budget.c  the write budget
 *   sim_window.c  what others do meanwhile  sim_image.c  what is on media
 *   sim_listen.c  events          sim_lease.c  which leases may yield
 *   sim_quota.c  quotas and reserves          sim_hot.c  what is loaded again and again
 *   sim_return.c  members that return
 */
#ifndef SIM_H
#define SIM_H

#include "core.h"
#include "dev.h"
#include "page.h"
#include "rng.h"

#define SIM_MEMBERS_MAX		6
#define SIM_TENANTS		3
#define SIM_KEYSPACES		2
#define SIM_WAITERS_MAX		24

struct sim_cfg {
	u32	lives, steps;
	u32	nr_members, nr_segs[SIM_MEMBERS_MAX];
	u64	segment_size;
	u32	chunk_size;
	u32	nr_keys;		/* of each keyspace */
	u32	typical_len;
	u32	first_keyspace;		/* numbers of keyspaces go on from here */
	bool	roomy;			/* the pool is larger than what is stored: nothing may be evicted */
	bool	leases, tenants, member_fails, alloc_fails, corrupts, io_errors, vanish, limits, grow;
	bool	misreads, lies, rolls_back, budget, leaves, hoards, quotas, scatters;
	bool	crowded;		/* attaches that lack room for all keyspaces */
	bool	memory;			/* the index has a limit, which changes */
	u32	discards;		/* 0: never, n: at one of n times when there is nothing else to do */
	u32	windows;		/* of 10,000 windows those in which something happens; 0: none */
	u32	images;			/* 0: never, n: media is looked at after one of n writes that change it */
	u32	hot;			/* so many keys are loaded again and again; 0: none */
};

/* What happened, for --verbose and to see that the rates are sane */
struct sim_counts {
	u64	stores, loads, deletes, matches, flushes, leases, evicted, moved, bad, cuts, detaches, fails, waits,
		recovered, missing_excused, steps, ioerrs, beside, nomem, removals, cuts_recovery, cuts_attached, discards,
		cuts_header, cuts_summary, unread, vanished, degraded, returned, came_back, deleted_out, limits,
		added, add_cuts, add_fails, left, left_failed, leave_cuts, stuck, went,
		super_cuts, histories, unadmitted, rolled_back, misread, windows, stalls,
		stall_cuts, images, buried, buried_away, replaced, taken, yielded, crowds,
		limits_set, limits_refused, quotas_seen, quotas_full, reserves_seen, dropped, hot_loads, hot_evicted,
		back, back_torn, back_pages;
	struct bus_counts bus;
};

struct mstate {
	u32	version;		/* 0: absent */
	u32	length;
};

struct event {
	u64	nr;
	struct mstate state;
	bool	weak;
	u32	tombs;			/* of a delete or replacement: members of which one has its tombstone; a mask */
	bool	unsure;			/* if there is one: others wrote, too */
	bool	replaced;		/* strong, and what was before never comes back once it is durable */
};

struct place {
	u32	member;
	u64	offset;			/* 0: not known */
};

/* Loads of a page in this life, none long after the one before */
struct mload {
	u32	version;		/* 0: none */
	u64	first, last;		/* s->placed then */
};

struct mkey {
	u32	tenant, keyspace, id;
	struct mload loaded;
	struct mstate cur;		/* as the engine has to see it now */
	struct place at, before;	/* before: ahead of the last move */
	bool	pending;		/* a store is under way */
	u32	takes;			/* times that a replacement took the key */
	u32	goes;			/* times that a page of it went while a call had the key in hand */
	bool	busy;			/* a call that has it in hand dropped its locks: the others leave it alone */
	u64	changed;		/* s->event then */
	bool	doubtful;		/* what brought a deleted page back may take it away again */
	bool	hidden;			/* this recovery did not read records of it that matter */
	bool	unseen;			/* nor did one before: any version may be back, until a delete is durable */
	bool	gone;			/* its member failed: -ENODEV is as good as -ENOENT */
	bool	touched;		/* in this life, by a store or by recovery */
	bool	noted;			/* refused or evicted, with a write budget; when: see sim_budget.c */
	u64	noted_at;
	u32	twice;			/* this version was moved: any of its copies may be found, at any attach */
	u32	away;			/* this version has to be back when its member is */
	struct mstate lost;		/* what it had when its member failed, and nobody stored or deleted it since */
	bool	lost_copy;		/* that was a copy, which need not have been durable */
	u32	on;			/* members on which it was ever stored; a mask */
	u32	tombs;			/* members that have, or had, tombstones of the key; a mask */
	struct event *events;		/* since the last durable strong one, which comes first */
	u32	nr_events, room;
	struct event *ghosts;
	u32	nr_ghosts, ghosts_room;
};

enum mtenant_state { T_NONE, T_ADDING, T_LIVE, T_REMOVING, T_GONE };	/* gone: and let go of */

struct mtenant {
	enum mtenant_state state;
	char	name[KVC_NAME_MAX];
	u32	slot, epoch;
	u32	flags, flags_before;	/* before: also possible after a power cut */
	struct kvc_limits limits, limits_before;
	u64	pinned;			/* bytes, since the attach */
	bool	over;			/* its quota, when that was set or found */
	bool	bounded;		/* had a quota, for whose sake a victim may have been chosen */
};

struct mlease {
	struct kvc_lease lease;
	u32	slot, epoch;		/* of the tenant */
	u32	member;
	u64	segment;		/* of the member */
	bool	yielded;		/* as was seen */
};

/* Every store ever begun, by version */
struct mversion {
	struct mkey *key;
	u32	length, member;
	u64	committed;		/* s->event then: of a key, in the order of their sequences */
};

enum super_why { SUPER_TENANT, SUPER_GROW, SUPER_LOSS, SUPER_SETTINGS };

enum op_type { OP_STORE, OP_LOAD, OP_FLUSH, OP_SUPER };

struct sim;

struct op {
	struct sim *sim;
	enum op_type type;
	struct op *next;
	struct mkey *key;
	u32	version, length, depth;
	u64	members;		/* of a store: where it may go */
	u8	*buf;
	u32	buf_len;
	u32	ios;			/* in flight */
	int	err;
	bool	killed;			/* its user died: abort */
	bool	replace;		/* a store that takes the key whatever is there */
	bool	taken;			/* a store whose key another one took */
	bool	again;			/* a load that is being read once more */
	struct kvc_store st;
	u32	epoch;			/* of the tenant when the store began */
	bool	encrypted;		/* and whether its pages are */
	struct kvc_load ld;
	u32	first_chunk, nr_chunks;	/* of a load */
	u64	start_event;		/* of a flush */
	u64	marks[SIM_MEMBERS_MAX];
	enum super_why why;		/* of a superblock */
	u64	super_seq;
	u32	member, copy;		/* where it is being written to */
	u32	took;			/* copies of this member that have it */
	u32	written;		/* of all */
	bool	alone;			/* to the member that is being added; then to all */
	bool	took_all;		/* and it did not fail meanwhile */
};

enum grow_state {
	G_NONE,
	G_ADDING,		/* its superblock is being written to the new member, then to all */
	G_CANCELLING,		/* the one without it is to be written */
	G_LEAVING,
	G_FLUSHING,		/* it has left; the others are flushed */
	G_REMOVING,		/* the superblock without it is being written */
};

/* One member at a time comes or goes. */
struct grow {
	enum grow_state state;
	u32	member;
	bool	move;
	u32	held;			/* steps that who leaves does not get on, but in windows */
	u64	marks[SIM_MEMBERS_MAX];
	bool	lost;			/* nobody took the superblock */
};

struct mbudget {
	s64	limit, left;		/* bytes a day; parts of a byte */
	s64	changes;		/* of the limit */
	u64	now;			/* as the engine was told */
	bool	started;
	bool	remembers;		/* had a limit in this life */
};

/* What a worker is at */
struct task {
	struct worker *worker;
	struct kvc_work w;
	u8	*buf;			/* of a move */
	bool	leased;			/* somebody leases what is moved, for as long as that takes */
	struct kvc_lease lease;
};

struct worker {
	struct sim *sim;
	u32	member;
	bool	kicked;
	bool	asking;			/* in a call of the engine */
	struct kvc_run run;		/* what it is at; all of that has to end before anything else begins */
	struct task *task;		/* the last of it */
	u32	moving;			/* moves under way beside that */
	u32	leased;			/* of the moves: they come from one segment */
};

/* What users do changes from time to time, and a device may be slow with what it is told to force. */
struct phase {
	u32	left;			/* steps */
	u32	kind;
	u64	members;		/* that stores go to; 0: to all */
	struct dev *stalled;
};

enum phase_kind { PHASE_MIXED, PHASE_DELETES, PHASE_STORES, NR_PHASES };

/* A call of the engine in which others get their turn wherever no lock is held */
struct misread {
	bool	on;
	u32	member;
	u64	offset;			/* of a byte */
	u8	flips;
};

struct window {
	struct mkey *key;
	u64	before;			/* s->n.windows */
};

struct sim {
	u64	seed;
	bool	verbose;
	struct rng rng;			/* what users and scheduler do */
	struct rng bus_rng;
	struct rng fault_rng;
	struct rng window_rng;
	struct rng quota_rng, memory_rng, hot_rng, return_rng;
	struct sim_cfg cfg;
	struct sim_counts n;
	struct bus *bus;
	struct dev *devs[SIM_MEMBERS_MAX];
	struct kvc_super *super;	/* as formatted, or last read */
	struct kvc_pool *pool;
	struct worker workers[SIM_MEMBERS_MAX];
	struct op *ops;
	u32	nr_ops;
	bool	early;			/* the power goes before there are users */
	bool	cut;			/* it goes now */
	bool	ending;			/* power is off: what completes tells nothing */
	bool	settling;		/* nobody asks for anything new */
	bool	admin;			/* in a call that changes the superblock: there is one at a time */
	u32	depth;			/* of windows */
	u32	step_windows;		/* in which something happened */
	bool	lost;			/* a member or tenant, in this step: what is counted is not all in the model */
	s64	unexplained;		/* evictions counted, and not seen in the index yet */
	u32	either;			/* keys of which some of these may be, or were deleted */
	struct phase phase;
	struct kvc_stats stats;		/* when last looked at */

	/* stores that got -EAGAIN */
	struct op *waiters[SIM_WAITERS_MAX];
	u32	nr_waiters;
	bool	space;			/* ops->space was called since the last -EAGAIN */

	/* model */
	struct mkey *keys;
	u32	nr_keys;
	struct mtenant tenants[SIM_TENANTS];
	u64	event, durable;
	struct image *image;
	u64	super_seq_durable;
	struct mlease *leases;
	u32	nr_leases, leases_room;
	struct mversion *versions;
	u32	nr_versions, versions_room;
	u64	placed;			/* blocks given to pages, ever */
	struct {
		u64	next;		/* s->placed, when the next of the hot keys is loaded */
		u32	turn;		/* whose turn that is */
		u64	begun;		/* s->placed at the attach */
		u64	placed[SIM_MEMBERS_MAX];	/* since then, on each member */
	} hot;
	bool	failed[SIM_MEMBERS_MAX];	/* also where none is */
	u64	super_on[SIM_MEMBERS_MAX];	/* sequence of the superblock that was written to it last */
	struct grow grow;
	struct op *super_op;		/* the superblock that is being written */
	u32	tenant_op;		/* the tenant that changes */
	bool	loss_unwritten;
	u32	worn;			/* slots that attach found to be old or damaged */
	struct kvc_settings settings, settings_before;
	u64	now;			/* seconds */
	struct mbudget budget, budgets[SIM_TENANTS];
	bool	hole[SIM_MEMBERS_MAX];	/* nobody is there */
	bool	scarred;		/* what was lost is not known any more: older versions may be back */
	u32	uuids;			/* of members that were added */
	u32	missing;		/* members that are not there since attach; a mask */
	bool	degraded;		/* members were missing once */
	struct place newest[SIM_MEMBERS_MAX];
	u32	read_errors;		/* reads that failed in recoveries */
	u64	index_bytes;		/* before the last detach */
	bool	dropped;		/* the last recovery had no memory for all pages */
	u32	crowd;			/* keyspaces that the last recovery had room for; 0: for all */
	struct misread misread;		/* as often as this recovery reads it */
	u64	unread[SIM_MEMBERS_MAX]; /* segments that the last recovery did not read as they are; a mask */
};

/* sim_main.c */
void sim_trace(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define sim_fail harness_failf
#define sim_check(cond, fmt, ...)						\
	do {									\
		if (!(cond))							\
			sim_fail("check failed: %s: " fmt, #cond, __VA_ARGS__);	\
	} while (0)
void sim_alloc_fails(struct sim *s, bool on);
void sim_fail_member(struct sim *s, u32 member);
void phase_end(struct sim *s);
void phase_stall(struct sim *s, u32 member);	/* what it is told to force takes until the phase ends */

/* sim_shape.c */
void sim_configure(struct sim *s);

/* sim_settle.c: everything in flight ends, nobody holds anything, workers have nothing left to do. */
void sim_settle(struct sim *s);

/* sim_model.c */
void model_init(struct sim *s);
void model_free(struct sim *s);
struct mkey *model_key(struct sim *s, u32 tenant, u32 keyspace, u32 id);
struct mkey *model_random_key(struct sim *s);	/* of a live tenant; NULL when there is none */
const char *model_name(const struct mkey *k);
void model_event(struct sim *s, struct mkey *k, struct mstate state, bool weak);
void model_deleted(struct sim *s, struct mkey *k, u32 tombs, bool unsure);
void model_replaced(struct sim *s, struct mkey *k, struct mstate state, u32 tombs);
void model_missing(struct sim *s);			/* s->missing are not there at attach */
void model_flushed(struct sim *s, u64 event);
void model_settle_key(struct sim *s, struct mkey *k);	/* before model_allows(): forget what cannot be any more */
bool model_allows(const struct mkey *k, struct mstate state);
bool model_ghost(const struct mkey *k, struct mstate state);	/* may it lie behind what the key has now? */
bool model_may_have(const struct mkey *k);	/* may some page of the key be on media? */
bool model_buried(struct sim *s, struct mkey *k);	/* deleted, durably, and nothing since */
void model_forget_key(struct mkey *k);
void model_recovered(struct sim *s, struct mkey *k, struct mstate state, struct place at);
void model_member_failed(struct sim *s, u32 member);
void model_returned(struct sim *s, struct mkey *k, struct mstate state, struct place at);
void model_tenant_removed(struct sim *s, u32 tenant);
u32 model_new_version(struct sim *s, struct mkey *k, u32 length, u32 member);
/* No page that should be there lies in the range. */
void model_check_free(struct sim *s, u32 member, u64 offset, u64 len, const char *what);
u64 segment_of(const struct sim *s, u64 offset);
bool segment_tainted(const struct sim *s, struct place at);
bool model_excused(const struct sim *s, const struct mkey *k);
bool model_damaged(const struct sim *s);
/* Whatever the engine evicted since the last look */
void model_look(struct sim *s);
void model_look_at(struct sim *s, struct mkey *k);	/* also if a call has the key in hand */
void model_look_deleted(struct sim *s, struct mkey *k);	/* it is gone, by the call that ends or before that */
bool model_unsure(const struct sim *s);		/* may some have been evicted that nobody has looked for? */

/* sim_ops.c */
struct op *op_new(struct sim *s, enum op_type type, struct mkey *k);
void op_free(struct op *op);
void ops_note_failures(struct sim *s);
struct kvc_domain *sim_domain(struct sim *s, const struct mkey *k);
void sim_keyspace(const struct sim *s, u8 keyspace[KVC_KEYSPACE_LEN], u32 n);
void ops_random(struct sim *s);
void ops_store_key(struct sim *s, struct mkey *k);
void ops_delete_key(struct sim *s, struct mkey *k);
void ops_retry(struct sim *s);
void ops_drop_waiters(struct sim *s);
u32 padded(u32 length);
bool sim_no_crcs(const struct sim *s, u32 version);	/* was this version stored without CRCs? */
bool sim_encrypted(const struct sim *s, u32 tenant);
const struct kvc_super_key *sim_key(struct sim *s, u32 tenant, u64 life);	/* NULL: its pages are not encrypted */
void sim_check_nonce(struct sim *s, const struct mkey *k, const struct kvc_load *ld, u32 version);

/* sim_read.c */
struct mkey *ops_stored_key(struct sim *s);	/* more often than not one that is there */
bool ops_in_index(struct sim *s, const struct mkey *k);	/* as the engine says */
bool ops_present(const struct sim *s, const struct mkey *k);
void ops_check_miss(const struct sim *s, const struct mkey *k, int r, const char *what);
void op_load(struct sim *s);
void ops_load_key(struct sim *s, struct mkey *k);
void op_query(struct sim *s);
void op_match(struct sim *s);
void op_lease(struct sim *s);
void ops_lease_key(struct sim *s, struct mkey *k);
/* All of them; or not those on a member that leaves, of users who renew them again and again */
void ops_drop_leases(struct sim *s, bool renew);
bool ops_renew_leases(struct sim *s);	/* false: there are none */

/* sim_lease.c */
void leases_look(struct sim *s);
void leases_check(struct sim *s);
u32 model_leases(const struct sim *s, u32 member, u64 segment);

/* sim_window.c. @key: what the call is about, or NULL. end: did anything happen meanwhile? */
void window_begin(struct sim *s, struct window *w, struct mkey *key);
bool window_end(struct sim *s, struct window *w);

/* sim_image.c: what a recovery would find if power went now */
void image_init(struct sim *s);
void image_free(struct sim *s);
void image_changed(struct sim *s);	/* a write that was forced has ended */
void image_hidden(struct sim *s);	/* which keys are, behind s->unread? */

/* sim_admin.c */
void ops_flush(struct sim *s);
void ops_flush_look(struct sim *s);	/* end flushes that are done */
bool ops_flush_wants(struct sim *s, u32 member);
void op_tenant(struct sim *s);
void op_pin(struct sim *s);
bool tenant_settled(const struct mtenant *t);
bool tenant_busy(const struct sim *s);
void tenant_super_end(struct sim *s, bool written);
void op_settings(struct sim *s);

/* sim_budget.c */
void budget_begin(struct sim *s);
void budget_changed(struct sim *s, u64 per_day);
void budget_tenant_changed(struct sim *s, u32 tenant, u64 per_day);
void budget_tick(struct sim *s);
void budget_spend(struct sim *s, u64 bytes);
bool budget_spent(const struct sim *s, const struct mkey *k);
void budget_evicted(struct sim *s, struct mkey *k);
void budget_judge(struct sim *s, struct mkey *k, u32 length, int r, bool spent, bool ran);

/* sim_quota.c */
void op_limit(struct sim *s);
void quota_evicted(struct sim *s, u32 tenant);
void quota_stored(struct sim *s, u32 tenant);
void quota_settled(struct sim *s);
bool quota_limits(const struct sim *s, u32 tenant);
bool quota_limited(const struct sim *s, u32 tenant);	/* or did so a moment ago */
bool quota_lost(const struct sim *s, u32 tenant);
bool quota_leased(const struct sim *s, u32 tenant);

/* sim_super.c */
void super_write(struct sim *s, enum super_why why);
void super_look(struct sim *s);
bool super_busy(const struct sim *s);
const struct kvc_super *super_read(struct sim *s, u32 member, u32 *worn);
/* The newest superblock of the members that are there, to s->super */
void super_gather(struct sim *s, u32 *worn);
bool super_one_history(struct sim *s);
/* Who has another one gets it. With @cut the power may go in between: false */
bool super_catch_up(struct sim *s, bool cut);

/* sim_grow.c */
void op_grow(struct sim *s);
void grow_look(struct sim *s);		/* has the next step come? */
bool grow_wants_flush(const struct sim *s, u32 member);
void grow_super_end(struct sim *s, bool written);	/* the superblock for it */
bool grow_super_busy(const struct sim *s);
void grow_adopt(struct sim *s);		/* the members are those of s->super */
bool grow_leaving(const struct sim *s, u32 member);
bool grow_held(const struct sim *s, u32 member);	/* it leaves, and does not get on for now */
void grow_settled(struct sim *s);
bool grow_forgets(const struct sim *s);
bool grow_may_drop(const struct sim *s);	/* pages, though there is room */
void grow_end_of_life(struct sim *s);

/* sim_work.c */
extern const struct kvc_ops sim_ops;
bool work_step(struct sim *s, u32 member);	/* false: nothing to do */
bool work_header(const struct sim *s, u32 member);	/* is one being written? */

/* sim_recover.c */
void sim_attach(struct sim *s);		/* s->pool, from the devices */
void sim_attached(struct sim *s);	/* it is going to be used: its superblock is written */
void sim_attach_cut(struct sim *s);	/* the same, and the power goes somewhere in it */

/* sim_format.c */
void sim_write_super(struct sim *s, const struct kvc_super *super, u32 member, u32 copies);
void sim_write_supers(struct sim *s);	/* s->super, to all members that are there */
void sim_litter(struct sim *s, struct dev *d);	/* old data of other owners */
void life_format(struct sim *s);

/* sim_life.c */
void life_attach(struct sim *s);
void life_vanish(struct sim *s);	/* one of the members, if there is another left */
void life_end(struct sim *s);

bool life_has_version(struct sim *s, const struct kvc_load *ld, u32 version);

/* sim_return.c */
void return_look(struct sim *s);	/* a member that was lost may return */

/* sim_hot.c */
void hot_begin(struct sim *s);		/* of a life */
void hot_step(struct sim *s);
void hot_loaded(struct sim *s, struct mkey *k);
void hot_evicted(struct sim *s, struct mkey *k);

/* sim_listen.c */
void sim_listen(struct sim *s);
void sim_unlisten(struct sim *s);

#endif
