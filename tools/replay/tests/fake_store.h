/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A tenant in memory, for tests: pages in a table, evicted in the order of their arrival when there are more than
 * KVCTX_FAKE allows, and faults on demand.
 *
 * The environment variable KVCTX_FAKE is a list NAME=VALUE,... Without it there is room for everything and no fault.
 *   capacity   pages there is room for; leased ones stay, and a store that finds only such gets -ENOSPC
 *   state      file that the pages are read from at the start and that FLUSH writes them to
 *   enoent ebadmsg eio flip short unverified unread
 *              the n-th, 2n-th ... LOAD: that error (with -ENOENT and -EBADMSG the page
 *              goes, too), one byte changed, one byte missing, no VERIFIED flag, nothing read
 *   eagain store_eio unadmitted   the n-th, 2n-th ... STORE; the last one of a page that is not there
 *   nolease    MATCH finds pages and leases none
 *   hang       from the n-th operation on nothing completes
 *   gone       from the n-th operation on submitting fails with -ENODEV
 *   open       errno that opening fails with
 *   rdonly     STORE gives -EACCES
 *   flush      errno that FLUSH completes with
 *   slow       microseconds that each wait for completions takes
 *   match_max  most keys of one MATCH
 *   arena_max  bytes of the largest arena
 *   partial    each submit takes so many operations at most, and none while so many are in flight
 *   log        file that gets a line for each operation: what, key, depth hint, result
 */
#ifndef KVCTX_REPLAY_FAKE_STORE_H
#define KVCTX_REPLAY_FAKE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kvctx.h>

/* Value of a setting, 0 when it is not set */
uint64_t fake_setting(const char *name);

void fake_store_open(const uint8_t keyspace[KVCTX_KEYSPACE_LEN]);
void fake_store_close(void);

bool fake_store_present(const struct kvctx_key *key);

/* Keep @nr pages from eviction / let them go again */
void fake_store_lease(const struct kvctx_key *keys, size_t nr, int change);

/* The operations; each gives the completion's res and flags */
int fake_store_load(const struct kvctx_key *key, void *buf, uint64_t length, uint32_t *flags);
int fake_store_store(const struct kvctx_key *key, const void *buf, uint64_t length, uint32_t depth, uint32_t *flags);
int fake_store_flush(void);

#endif
