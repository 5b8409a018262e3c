/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pools on block devices, attached or not.
 *
 * Vocabulary: a find is a block device with a superblock that counts. Finds whose superblocks have one pool UUID make a
 * pool, described by the newest of them. Two finds that say they are the same member are one disk by two paths where
 * their drivers give both the same name (wwid); else one may be a copy of the other, and nobody can tell which counts.
 */
#ifndef CTL_SCAN_H
#define CTL_SCAN_H

#include "media.h"

enum find_state {
	FIND_THERE,		/* the member; when the pool is not attached it can be */
	FIND_BUSY,		/* in use, and not by the pool */
	FIND_FOREIGN,		/* holds something else by now */
	FIND_STALE,		/* no member of the pool any more */
	FIND_SMALL,		/* has shrunk */
	FIND_PATH,		/* another path to the disk of the member */
	FIND_COPY,		/* the member, and so is another disk */
};

struct find {
	char *path;
	struct media dev;			/* closed */
	const struct kvc_super *super;		/* the one that counts */
	bool busy;
	char what[SIGNATURE_TEXT];		/* it holds; empty: nothing else */
	char disk[192];				/* its name by its driver; empty: it gives none */
	enum find_state state;
};

enum found_state {
	FOUND_ATTACHED,
	FOUND_COMPLETE,
	FOUND_DEGRADED,		/* members are missing */
	FOUND_UNUSABLE,		/* no member can be attached */
	FOUND_AMBIGUOUS,	/* a member is there twice */
	FOUND_MISMATCH,		/* members were attached without each other */
};

struct found {
	const struct kvc_super *super;		/* the newest */
	enum found_state state;
	u32 missing;				/* members */
	struct find *member[KVC_MEMBERS_MAX];	/* FIND_THERE */
};

struct scan {
	const struct ctl *c;
	const char *only;			/* who has a device is asked for members of this pool alone; NULL: for all */
	struct find *find;
	u32 nr, room;
	struct found *pool;
	u32 nr_pools;
	struct json_object *attached;		/* what the module and kvctxd say */
	/* Devices that are no finds: device, reason */
	struct json_object *skipped;
	struct json_object *damaged;		/* whose superblocks cannot be used */
	struct json_object *failed;		/* which were asked for, and could not be looked at */
	u32 denied;				/* devices that we may not open */
};

/*
 * Look at @paths, or with @nr 0 at all block devices of the system. An exit status; what failed was told. scan_end() in
 * any case.
 */
int scan_start(struct scan *s, const struct ctl *c, char *const *paths, int nr);
/*
 * The same for who wants a pool of this name, or UUID, alone, and looks again and again. Who has a device is found out by
 * opening it exclusively, which would keep others from attaching theirs at that moment.
 */
int scan_start_for(struct scan *s, const struct ctl *c, const char *name);
void scan_end(struct scan *s);
/* All members that cannot be had are in use, as those of a pool are that a kvctxd or a process serves */
bool scan_is_used(const struct scan *s, const struct found *p);

bool scan_of_pool(const struct find *f, const struct found *p);
const char *scan_find_text(enum find_state state);
const char *scan_pool_text(enum found_state state);

/*
 * The pools that are attached to the module, or to the kvctxd that is to be asked, as objects; NULL: one does not tell,
 * and @status says how that went.
 */
struct json_object *scan_attached(const struct ctl *c, int *status);
/* The one of this name, or UUID; or of this superblock; NULL: there is none */
struct json_object *scan_attached_as(struct json_object *attached, const char *name);
struct json_object *scan_attached_of(struct json_object *attached, const struct kvc_super *s);

/*
 * Do the words of the command name a pool (one word without a slash, its name or UUID), or are they paths? A mixture is
 * wrong usage.
 */
int scan_by_name(const struct ctl *c, bool *by_name);
bool scan_is_called(const struct kvc_super *s, const char *name);	/* by its name or UUID */
#define SCAN_HINT	"a device is a path, with a slash"
/* The pool that @name names: its name, if there is only one of it, or its UUID. @hint: what else to say of none */
int scan_choose(const struct scan *s, const char *name, const char *hint, struct found **pool);
/* Refuse a pool that is attached, or has a member twice */
int scan_check(const struct scan *s, const struct found *p);

#endif
