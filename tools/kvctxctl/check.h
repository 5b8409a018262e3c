/* SPDX-License-Identifier: GPL-2.0 */
/*
 * check: what cmd_check.c finds and check_report.c prints.
 */
#ifndef CTL_CHECK_H
#define CTL_CHECK_H

#include "../../kmod/core/core.h"
#include "media.h"

/* What one member's logs hold */
struct tally {
	u64 blank, empty, logs, damaged;	/* segments */
	u64 pages, tombstones, refused;		/* records */
};

struct check {
	const struct ctl *c;
	int nr;
	struct media *dev;			/* as given */
	const struct media *member[KVC_MEMBERS_MAX];
	struct tally tally[KVC_MEMBERS_MAX];
	struct kvc_super *super;		/* the newest configuration */
	struct kvc_pool *pool;
	u8 *buf;				/* KVC_RECOVER_IO */
	u8 *data;				/* DATA_PIECE */
	struct {
		u64 pages, bytes;
	} tenant[KVC_TENANTS_MAX];
	u64 data_pages, data_bytes, unverifiable, bad_pages;
	u64 nr_damage;
	struct json_object *damage;
	int percent;				/* last shown */
};

void check_report(const struct check *k);

#endif
