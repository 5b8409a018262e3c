/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looking at pools that are not attached: devices opened, their superblocks, the logs of their segments, and what else
 * has left a signature on them.
 * Everything is decoded by the core. What is read is not trusted.
 */
#ifndef CTL_MEDIA_H
#define CTL_MEDIA_H

#include <sys/stat.h>

#include "../../kmod/core/media/format.h"
#include "ctl.h"

struct media {
	const char *path;
	int fd;
	struct stat st;
	u64 size;
	/* what media_read_supers() found */
	struct kvc_super *super;		/* KVC_SUPER_SLOTS */
	enum kvc_reason why[KVC_SUPER_SLOTS];
	int err[KVC_SUPER_SLOTS];		/* errno, where a slot could not be read */
	u32 chosen;				/* the slot that counts; KVC_SUPER_SLOTS: none */
};

#define MEDIA_WRITE	1U		/* for writing too */
#define MEDIA_SHARED	2U		/* also what is mounted or held by another one, as by an attached pool */

#define MEDIA_WHY	128		/* room for a sentence */

/* 0 or an errno, and nothing printed. EBUSY: in use. ENOTBLK: neither a block device nor a file. */
int media_try_open(struct media *d, const char *path, u32 how);
void media_why(int err, char text[MEDIA_WHY]);
/* 0 or ENOMEM. A device too small for superblocks has none. */
int media_try_supers(struct media *d);
bool media_has_super(const struct media *d);	/* or something of one, or what cannot be read */
/* No slot counts: why, and the exit status that fits */
int media_super_status(const struct media *d, char text[MEDIA_WHY]);

/* These return an exit status and have printed why. @force: also what is in use */
int media_open(struct media *d, const char *path, bool force);
int media_read_supers(struct media *d);
/* No slot counts: prints what is wrong with them */
int media_no_super(const struct media *d);
void media_close(struct media *d);

u32 media_members(const struct kvc_super *s);	/* without those that were removed */

/* 0 or an errno; what ends before @len is EIO */
int media_read(const struct media *d, void *buf, size_t len, u64 offset);
int media_write(const struct media *d, const void *buf, size_t len, u64 offset);
bool media_same(const struct media *a, const struct media *b);

/*
 * What libblkid names on a device, each name once: "ext4, dos"; empty when nothing. 0 or an errno.
 *
 * signature_find() tells all of it. signature_foreign() is for a member of a pool whose superblocks were read, and
 * leaves out what only looks so: in a superblock slot whose checksum is right nobody else has written, and what pages
 * hold is the affair of those who stored them.
 */
#define SIGNATURE_TEXT	128
int signature_find(const struct media *d, char what[SIGNATURE_TEXT]);
int signature_foreign(const struct media *d, char what[SIGNATURE_TEXT]);
int signature_wipe(const struct media *d);

/* How a log goes on behind its last extent */
enum media_end {
	END_FREE,		/* with nothing of this log */
	END_FULL,		/* the segment's end */
	END_DAMAGED,		/* with an extent of this log that cannot be read; @why or @err tells */
	END_LOST,		/* with something else, but an extent of this log follows behind it, at @lost */
};

/*
 * Walk along a segment's log. next: true with the next extent, whose records @xr reads; false at the end. No extent at
 * all: the segment is blank. A log that has only extent 0 is a header: nothing is stored yet.
 */
struct media_log {
	const struct media *d;
	u64 offset;		/* of the segment */
	u32 seg_blocks, chunk;
	struct kvc_seg_id id;	/* generation and salt once extent 0 was read */
	u32 block, bytes;	/* the extent; at the end the place where it would be */
	u32 nr_extents;
	struct kvc_extent_reader xr;
	enum media_end end;
	enum kvc_reason why;
	int err;
	u32 lost;
	u8 *buf;		/* KVC_EXTENT_MAX */
};

void media_log_start(struct media_log *l, const struct media *d, const struct kvc_super *s, u32 member, u32 segment,
		     void *buf);
bool media_log_next(struct media_log *l);

#endif
