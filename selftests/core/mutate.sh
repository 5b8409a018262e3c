#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Break the engine on purpose, in many ways, and see the tests fail.
#
#   selftests/core/mutate.sh [--sim] [NAME...]
#
# Each mutation is applied to a copy of the sources, which is built and tested,
# the cheapest test first: unit tests, the simulation, the fuzzers; for the
# mutations of locks the threads under ThreadSanitizer. A mutation that no test
# notices, or that does not apply any more, is a failure. MUTATE_SIM_SECONDS
# (60) bounds the simulation of each; JOBS mutations (as many as processors) are
# tried at a time. The first test that fails is enough. Behind the name stands
# what is known of the simulation alone: the seconds of one core that it took,
# by mutate.seen; "unseen", it is in mutate.unseen; or "-", in neither.
#
# With --sim the simulation has to notice alone, without the unit tests; how long
# that took is told. mutate.unseen lists what it cannot see, and why.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

# name @ file @ sed script @ what it breaks
mutations() {
	cat <<'LIST'
extent-crc@kmod/core/media/format.c@s/if (crc_without_field(m, len, .*/if (0)/@checksum of summaries is not checked
super-crc@kmod/core/media/format_super.c@s/if (super_crc(buf) != le32_to_cpu(m->crc))/if (0)/@checksum of superblocks is not checked
key-last@kmod/core/index/index.c@/^static bool key_equal/,/^}/s/i < KVC_KEY_LEN/i < KVC_KEY_LEN - 8/@the last word of keys is not compared
key-first@kmod/core/index/index.c@/^static bool key_equal/,/^}/s/for (i = 0;/for (i = 8;/@the first word of keys is not compared
key-hash@kmod/core/index/index.c@s/e->domain == d->id \&\& key_equal(e->key, key)/e->domain == d->id/@the hash is taken for the key
domain-mix@kmod/core/index/index.c@s/e->domain == d->id \&\& //@domains are not compared
first-buckets@kmod/core/index/bucket.c@s/WRITE_ONCE(t->mask, FIRST_MASK)/WRITE_ONCE(t->mask, FIRST_MASK \/ 2)/@the first chunk's upper buckets are not used
split-hash@kmod/core/index/index.c@/^static u32 hash_of_entry/,/^}/s/return kvc_entry_bucket/return ~kvc_entry_bucket/@pages that a split moves get another hash
hunger-late@kmod/core/index/bucket.c@s/(due(t) \&\& lacks_bucket(t)) || t->nr_spares < SPARES_LOW + t->promised/0/@a shard never asks for another chunk
split-forgets@kmod/core/index/bucket.c@/^static void put_all/,/^}/s/^\t\tKVC_WARN_ONCE(!put/\t\tif (i)\n\t\t\tKVC_WARN_ONCE(!put/@a split loses an entry of each line
split-mask@kmod/core/index/bucket.c@s/2 \* t->mask + 1 : t->mask/t->mask : t->mask/@a split does not widen the mask
split-from@kmod/core/index/bucket.c@s/t->nr & (mask >> 1)/t->nr \& (mask >> 2)/@a split divides the wrong bucket
split-chain@kmod/core/index/bucket.c@s/^\t\tnumber = old.next;/\t\tnumber = 0;/@a split divides the first line only
spare-lost@kmod/core/index/bucket.c@s/^\t\tgive_spare(t, before->next);/\t\t;/@lines that became empty are lost
spare-twice@kmod/core/index/bucket.c@s/^\tt->spare = line->next;/\t;/@a spare line is used again and again
room-always@kmod/core/index/bucket.h@s/return t->nr_spares > t->promised;/return true;/@there is always room
room-promised@kmod/core/index/index.h@s/kvc_buckets_\(promise\|kept\)(&kvc_shard(p, bucket)->table);/(void)p; (void)bucket;/@no room is kept for what replaces a page
directory-bare@kmod/core/index/bucket.c@s/^\t\tmemcpy(dir->chunk, .*/\t\t;/@a bigger directory lacks the chunks of the smaller
directory-first@kmod/core/index/bucket.c@s/t->dir->room \* sizeof/t->nr_chunks * sizeof/@the first directory is used before it has a chunk
sweep-short@kmod/core/index/index.c@s/there = number < sh->table.nr;/there = number + 1 < sh->table.nr;/@a sweep leaves out the last bucket
event-silent@kmod/core/policy/request.c@/KVC_EVENT_EVICTED/d@nobody hears of evictions
event-moves@kmod/core/index/index.c@s/READ_ONCE(p->heard)) \&\& !e->copy/READ_ONCE(p->heard))/@a page that moves is told as stored
event-lost@kmod/core/index/event.c@s/l->lost += ahead - KVC_EVENTS_MAX;/;/@nobody learns of events that were overwritten
event-skips@kmod/core/index/event.c@s/if (ahead > KVC_EVENTS_MAX)/if (0)/@who is too late gets newer events for older ones
event-refused@kmod/core/index/event.c@s/^\t\t\tif (!taken)/\t\t\tl->seen += n;\n\t\t\tif (!taken)/@events that could not be given are gone
event-wakes@kmod/core/index/event.c@s/^\t\tl->idle = false;/\t\t;/@a listener is woken by those that it will find anyway
event-asleep@kmod/core/index/event.c@s/^\t\tl->idle = true;/\t\t;/@a listener is woken once and never again
watch-lost@kmod/core/index/event.c@s/\*lost += ahead - KVC_WATCHED_MAX;/;/@nobody learns of events that a watcher missed
watch-asleep@kmod/core/index/event.c@s/^\tw->idle = !n;/\t;/@a watcher is woken once and never again
watch-alone@kmod/core/index/event.c@s/^\tif (READ_ONCE(p->domains.watcher))/\tif (READ_ONCE(p->domains.watcher) \&\& READ_ONCE(d->events))/@a watcher sees what has a listener, too
watch-deaf@kmod/core/index/event.c@s/p->domains.events || p->domains.watcher/p->domains.watcher/@who listens hears nothing unless somebody watches
tomb-victim@kmod/core/log/log.h@s/return (u32)e->depth << 18 |/return/@a tombstone forgets half of its victim
keyspace-mix@kmod/core/index/domain.c@s/memcmp(d->keyspace, keyspace, KVC_KEYSPACE_LEN)/memcmp(d->keyspace, keyspace, 8)/@half of the keyspace is not compared
epoch@kmod/core/index/domain.c@s/(epoch \&\& \*epoch != t->epoch)/0/@recovery believes records of removed tenants
record-block@kmod/core/media/format.c@s/rec->block == 0 || rec->block >= r->seg_blocks ||/rec->block == 0 ||/@a record may name blocks beyond its segment
record-crcs@kmod/core/media/format.c@s/return rec->nr_crcs == (rec->length - 1) .*/return true;/@a record may have any number of CRCs
no-header@kmod/core/log/summary.c@s/work_init(m, seg, w, KVC_WORK_WRITE, KVC_W_HEADER, 0);/& kvc_header_done(m, w, 0); return -EAGAIN;/@a segment is reused before its new header is durable
no-preflush@selftests/core/sim_work.c@s/DEV_PREFLUSH | DEV_FUA, plain_done/DEV_FUA, plain_done/@summaries do not flush the pages first
no-fua@selftests/core/sim_work.c@s/DEV_PREFLUSH | DEV_FUA, plain_done/DEV_PREFLUSH, plain_done/@summaries are not durable when they are done
nonce-move@kmod/core/log/reclaim.c@s/^\t\tkvc_store_nonce(p, &w->dst, .*/\t\t;/@a page that moves loses its nonce
nonce-record@kmod/core/log/summary.c@s/^\t\t\tmemcpy(r->nonce, .*/\t\t\t;/@a record lacks the nonce of its page
nonce-recovered@kmod/core/log/recover.c@s/^\t\tmemcpy(kvc_nonce(p, entry), .*/\t\t;/@recovery forgets nonces
nonce-strange@kmod/core/log/recover.c@s/return d->encrypted != .*/return false;/@what is not encrypted counts as a page of a tenant with a key
key-keeps@kmod/core/tenant.c@s/^\tset_key(p, slot, NULL);/\t;/@the key of a removed tenant stays in its slot
replace-tomb@kmod/core/log/store.c@s/if (kvc_tomb_wanted(p, o))/if (0)/@what was replaced comes back when its successor was evicted
replace-taken@kmod/core/log/store.c@s/commit = commit \&\& e->indexed;/;/@a store is published whose key a replacement took
no-tombstone@kmod/core/log/tomb.c@s/^\treturn (e \&\& (e->logged .*/\t(void)p; (void)e; return false;/@deletes leave no tombstone
tomb-in-memory@kmod/core/log/tomb.c@s/READ_ONCE(named->believed)/READ_ONCE(named->generation)/@a tombstone goes when the named segment has ended in memory only
tomb-of-dead@kmod/core/log/tomb.c@s/kvc_domain(p, e->domain)->gone/kvc_domain(p, e->domain)->dead/@tombstones of a removed tenant go before a superblock says so
log-hides@kmod/core/log/recover.c@s/if (!err \&\& !r->closed \&\& !r->unused)/if (0)/@a log that ends early is taken for complete
log-never-used@kmod/core/log/recover.c@s/if (!err \&\& !r->closed \&\& !r->unused)/if (!err \&\& !r->closed \&\& r->next_block)/@a segment without a header is taken for unused
log-trace@kmod/core/log/recover.c@s/r->cut |= kvc_extent_trace.*/;/@tombstones are written over a damaged extent
log-crc@kmod/core/log/recover.c@/whatever it seems to be/{n;s/r->cut = true;/;/}@tombstones are written over an extent with a wrong CRC
log-open-end@kmod/core/log/recover.c@s/r->cut || !r->closed/r->cut/@tombstones are written where a log has no end
read-again@kmod/core/log/recover.c@s/why == KVC_BAD_CRC \&\& !r->again/0/@a damaged extent is not read once more
read-again-end@kmod/core/log/recover.c@s/if (!r->again && !r->closed && !r->unused && !r->cut)/if (0)/@the end of a log that is not closed is not read once more
log-never-headed@kmod/core/log/recover.c@s/r->unused = i == KVC_BLOCK && .*/r->unused = i == KVC_BLOCK;/@a segment with extents, but without a header, is taken for unused
close-never@kmod/core/log/summary.c@s/xw.flags = KVC_EXTENT_CLOSED;/;/@no log says that it is closed
close-early@kmod/core/log/summary.c@s/return seg->state == KVC_S_SEALING \&\& !seg->pending/return !seg->pending/@a log is closed before its last page
rest-open@kmod/core/log/summary.c@s/READ_ONCE(p->resting) \&\& due_close(seg)/0/@a flush at rest leaves logs open
tombs-fill@kmod/core/log/reclaim.c@s/(begins \&\& kvc_tombs_fill(m))/0/@tombstones that fill segments are carried round for ever
move-head-tombs@kmod/core/log/segment.c@s/return seg \&\& seg->data_start < m->pool->seg_blocks \&\& /return seg \&\& /@a head of tombstones is given up for room
crowded@kmod/core/log/reclaim.c@s/WRITE_ONCE(rc->victim->crowded, .*/;/@a victim without room for its tombstones is tried again at once
hiding-order@kmod/core/log/reclaim.c@s/seg = oldest_sealed(m, true, NULL);/;/@a segment that may hide pages goes when its turn comes
tombstone-ghosts@kmod/core/log/tomb.c@s/^\treturn (e \&\& (e->logged .*/\t(void)p; return e \&\& (e->logged || e->copy);/@deletes forget old records elsewhere
tombstone-drop@kmod/core/log/reclaim.c@s/kvc_tombs_carry(m, false, carry_tomb)/((void)carry_tomb, 0)/@reclaim drops tombstones
generation@kmod/core/media/format.c@s/generation != id->generation || salt != id->salt/salt != id->salt/@the generation is not compared
salt@kmod/core/media/format.c@s/generation != id->generation || salt != id->salt/generation != id->generation/@the salt is not compared
identity@kmod/core/media/format.c@s/if (generation != id->generation || salt != id->salt)/if (0)/@neither is
segment-number@kmod/core/media/format.c@s/le32_to_cpu(m->segment) != id->segment ||//@an extent of another segment is believed
publish-early@kmod/core/log/load.c@s/->state != KVC_E_LIVE/->state == KVC_E_DEAD/@pages are seen before commit
no-wait-for-holds@kmod/core/log/reclaim.c@s/if (os_atomic_read(&seg->holds))/if (0)/@segments are freed under loads in flight
no-hold@kmod/core/log/load.c@s/os_atomic_inc(&kvc_entry_seg(p, entry)->holds);/os_atomic_inc(\&kvc_seg(p, 0)->holds);/@loads hold the wrong segment
leases-chosen@kmod/core/log/lease.c@s/yields = !seg->keeps || .*/yields = true;/@leased segments are reclaimed
lease-flood@kmod/core/log/room.c@s/^\thope = hope || .*/\t;/@where all is leased nobody has room
lease-refused@kmod/core/log/reclaim.c@s/if (!seg \&\& (m->refused || READ_ONCE(m->pool->memory.wanted)))/if (!seg)/@leases yield though nobody was refused
lease-half@kmod/core/log/lease.c@s,<= m->nr_segs / 2,<= m->nr_segs,@leases keep others from all but a few segments
lease-share@kmod/core/log/lease.c@s/return t->keeps > t->share ? .*/return t->keeps;/@leases yield that are within the share
lease-shared@kmod/core/log/lease.c@s/least = min(least, excess_of(l, k));/least = excess_of(l, k);/@a segment yields that somebody within his share keeps too
lease-most@kmod/core/log/lease.c@s/if (excess > most || .*/if (excess \&\& !next) {/@whose leases yield is not a matter of shares
lease-longest@kmod/core/log/lease.c@s/seg->keeps->since < next->keeps->since/seg->keeps->since > next->keeps->since/@the last lease yields first
lease-again@kmod/core/log/lease.c@s/return keeps_yield(m, seg, KVC_S_DRAINING, .*/return keeps_yield(m, seg, KVC_S_DRAINING, false);/@who leases victims again and again keeps them
lease-heir@kmod/core/log/lease.c@s/^\tif (k->epoch == t->whose)/\tif (1)/;s/^\t\tt->keeps = 0;/\t\t;/@leases of a removed tenant count for who gets its slot
lease-limit@kmod/core/log/lease.c@s/s->limits\[i\].leased ? share_of(m, s->limits\[i\].leased) : //@what the operator set as limit counts for nothing
lease-gone@kmod/core/log/lease.c@/^static u32 excess_of/,/^}/s/k->epoch != t->epoch/0/@leases of a removed tenant count as those of who has its slot
lease-yielding@kmod/core/log/segment.c@/YIELDING\]/s/false, true/true, true/@a segment that yields can be leased
lease-put@kmod/core/log/lease.c@s/if (last \&\& !k->yielded) {/if (last \&\& kvc_seg(p, k->gseg)->keeps) {/@the end of a lease that has yielded ends one of the segment's next life
lock-leases@kmod/core/log/lease.c@/^void kvc_lease_put/,/^}/s/os_\(un\)\?lock(&m->leases.lock);/;/@the last lease ends without the lock
unlogged-moves@kmod/core/log/reclaim.c@s/if (!copies_logged(m)) {/if (0) {/@moved pages need not be durable
moves-lost@kmod/core/log/reclaim.c@s/kvc_index_insert(p, bucket, w->dst.entry);/kvc_page_drop(p, bucket, w->dst.entry);/@moved pages leave the index
move-bad@kmod/core/log/reclaim.c@s/if (err == -EBADMSG)/if (0)/@a damaged page that was to be moved is not dropped
commit-order@kmod/core/log/store.c@s/e->seq = os_atomic64_inc_return(&p->seq);/e->seq = 1;/@stores have no order
recovered-seq@kmod/core/log/recover.c@s/os_atomic64_set(&p->seq, .*/(void)seq;/@the order starts anew with each attach
recovered-gen@kmod/core/log/recover.c@s/os_atomic64_set(&p->generation, .*/(void)gen;/@generations start anew with each attach
recovery-share@kmod/core/log/recover.c@s/rec->nr_crcs <= p->seg_blocks - r->nr_crcs/rec->nr_crcs <= p->seg_blocks - kvc_seg(p, r->gseg)->nr_crcs/@what lost is not counted as its segment's
log-cut@kmod/core/log/recover.c@s/^\t\tr->cut = true;/\t\t;/@tombstones are written over records that count
log-behind@kmod/core/log/summary.c@s/^\tif (old)$/\tif (0)/@what lies behind a damaged extent follows a new one
log-strays@kmod/core/log/recover.c@s/seg->nr_strays = .*/;/@a log takes more records than recovery believes
recovery-oldest@kmod/core/log/recover.c@s/->seq >= rec->seq/->seq <= rec->seq/@the oldest record of a key wins
recovery-tombs@kmod/core/log/recover.c@s/^\t\tsupersede(p, bucket, old, e);$/\t\t;/@tombstones do not kill in recovery
recovery-end@kmod/core/log/recover.c@s/!believed(p, rec->seq) || //@recovery believes numbers near the end of all
recovery-end-gen@kmod/core/log/recover.c@s/why != KVC_OK || !believed(p, r->id.generation)/why != KVC_OK/@recovery believes generations near the end of all
recovery-end-stays@kmod/core/log/recover.c@s/KVC_COUNTER_END \/ 2 + 2 \* gaps(p)/KVC_COUNTER_END \/ 2/@what is counted behind the last believed number is not believed
attach-count@kmod/core/log/recover.c@s/^\treturn min(p->super.seq, .*/\t(void)p; return 0;/@attaches without the newest members number as the one before did
stale-offline@kmod/core/log/tomb.c@s/(offline || os_atomic_read(&seg->undead))/(os_atomic_read(\&seg->undead))/@tombstones are dropped while a member is lost
tomb-offline@kmod/core/log/tomb.c@s/ || os_atomic_read(&p->nr_offline)//@deletes need no tombstone while a member is lost
stale-unknown@kmod/core/log/recover.c@/^static void set_unknown/,/^}/s/WRITE_ONCE(m->segs\[i\].min_seq, 0)/;/@tombstones are dropped while their victims are away
stale-unread@kmod/core/log/segment.c@/^void kvc_seg_doubt/,/^}/s/WRITE_ONCE(seg->min_seq, 0)/;/@tombstones are dropped while their victims cannot be read
recovery-again@kmod/core/log/recover.c@s/if (i < r->next_record)/if (0)/@recovery takes records twice after -ENOMEM
dedup@kmod/core/log/store.c@s/return -EEXIST;/return 0;/@a present page is replaced
abort-stays@kmod/core/log/store.c@s/if (commit) {/if (commit || true) {/@an abort publishes
crc-base@kmod/core/log/store.c@s/st->crc_base + chunk/chunk/@CRCs of pages overwrite each other
space-between@kmod/core/log/segment.c@s/kvc_log_blocks(p, seg->unlogged) + seg->pending_blocks + /kvc_log_blocks(p, seg->unlogged) + /@no room is kept for summaries
flush-open@kmod/core/log/summary.c@s/if (m->head\[i\] \&\& due(m->head\[i\]))/if (0)/@flush forgets open segments
flushed-early@kmod/core/log/summary.c@s/return !seg->writing || .*/return true;/@a summary on its way counts as durable
lost-kick@kmod/core/log/load.c@s/^\t\tkvc_kick(kvc_member_of(p, gseg));/\t\t;/@the last hold wakes nobody
lost-space@kmod/core/base.c@/^void kvc_space_made/,/^}/s/^\tkvc_space(m->pool);/\t;/@nobody is told of free segments
leak-entries@kmod/core/index/entry.c@s/kvc_domain_put(p, kvc_domain(p, eb->e\[i\].domain));/;/@entries never let go of their domain
member-gone@kmod/core/log/load.c@s/if (unlikely(os_atomic_read(&p->nr_offline)) \&\&/if (0 \&\&/@pages of a lost member are handed out
tenant-sweep@kmod/core/tenant.c@s/kvc_index_sweep(p, of_gone_domain);/(void)of_gone_domain;/@pages of a removed tenant stay in the index
tombstone-lost-member@kmod/core/log/tomb.c@s/ || os_atomic_read(&p->nr_offline)//@deletes forget records on lost members
tombstone-lost-carried@kmod/core/log/tomb.c@s/!os_atomic_read(&p->nr_offline) \&\& //@reclaim drops tombstones of records on lost members
super-behind@kmod/core/media/format_super.c@s/return !same_super(w, &newest);/return same_super(w, \&newest) \&\& !w;/@an attach raises the sequence before all members have what was the newest
super-unsaid@kmod/core/media/format_super.c@s/ & (\*fit | \*said))/ \& *fit)/@only who has a newer superblock took part in it
super-equal@kmod/core/media/format_super.c@s/return !same_super(a, b) \&\& says_there.*/return false;/@of two superblocks with one sequence any counts
super-later@kmod/core/media/format_super.c@s/return without ? mask : mask | later;/return mask | later;/@who was added without a member was there with it
super-added@kmod/core/media/format_super.c@s/return without ? mask : mask | later;/return mask;/@who was added when all were lost was not there with them
super-older@kmod/core/media/format_super.c@s/s\[b\].seq > s\[a\].seq/s[b].seq < s[a].seq/@the older superblock counts
settings@kmod/core/media/format_super.c@s/ || !kvc_settings_ok(&s->settings)//@settings on media are not checked
nomem-half@kmod/core/index/entry.c@/^static int grow_crcs/,/^}/s/return -ENOMEM;/return 0;/@a lack of memory for CRCs is ignored
read-error@kmod/core/log/recover.c@s/seg->broken = true;/;/@what lies in front of a read error is believed
discard-meets-pages@kmod/core/log/segment.c@s/if (seg == m->discarding)/if (0)/;s/ - (m->discarding ? 1 : 0)//@a segment is reused while it is being discarded
discard-header@kmod/core/log/segment.c@s/seg->discarded = 1;/seg->discarded = 0;/@new headers are discarded with old pages
discard-hope@kmod/core/log/segment.c@s/"headed",\t S(BLANK), false, false/"headed", S(BLANK), false, true/@stores wait for discards that nobody makes
discard-tells@kmod/core/log/discard.c@s/^\tif (m->wanted)/\tif (0)/@who waits for a segment under discard is not told
streams@kmod/core/log/reclaim.c@s/KVC_STREAM_NEW + KVC_HEAD_MOVE/KVC_STREAM_NEW/@moved pages go to the stream of new ones
budget-none@kmod/core/policy/budget.c@/^bool kvc_budget_admits/,/^}/s/if (!is_spent(.*/if (1)/@the write budget is not kept
budget-all@kmod/core/policy/budget.c@s/if (seen_before(p, d, key))/if (0)/@pages seen before are not admitted
budget-evicted@kmod/core/policy/request.c@s/^\t\t\tkvc_budget_note(.*/\t\t\t;/@evicted pages are not remembered
budget-fraction@kmod/core/policy/budget.c@s/k->part += seconds .*/;/@fractions of bytes are lost
budget-grows@kmod/core/policy/budget.c@s/(u64)min_t(s64, (s64)more, (s64)limit - n)/more/@the budget grows beyond a day's
budget-debt@kmod/core/policy/budget.c@s/if (n < -(s64)limit)/if (0)/@debts grow without bound
lock-split@kmod/core/index/bucket.c@s/^\t\t\tWRITE_ONCE(line->slot\[i\], 0);/\t\t\tline->slot[i] = 0;/@a split clears slots that are being read as if nobody did
lock-query@kmod/core/log/load.c@/^int kvc_query/,/^}/s/os_\(un\)\?lock(&sh->lock);/;/@query takes no lock
lock-commit@kmod/core/log/store.c@/^static void end_store/,/^}/s/os_\(un\)\?lock(&m->lock);/;/@commit takes no member lock
join-kick@kmod/core/log/room.c@/^int kvc_refusal/,/^}/s/if (!m->offline) {/if (1) {/@members are kicked before they have joined
join-room@kmod/core/log/store.c@/^static int begin_store/,/^}/{s/^\tdo {$/\tnr = kvc_nr_members(p);\n\tdo {/;s/^\t\tnr = kvc_nr_members(p);$//}@who is refused does not see a new member, and that there is room
super-number@kmod/core/media/format_super.c@/^static bool says_there/,/^}/s/^\t       !memcmp(w->members.*;/\t       true;/@a number that another member got counts as the same
log-doubt@kmod/core/log/recover.c@s/if (!err \&\& !r->closed \&\& !r->unused)/if (0)/;s/why == KVC_BAD_CRC \&\& !r->again/0/@an extent that was read wrong, once, hides nothing
super-mark@kmod/core/tenant.c@s/p->super.members\[i\].flags = there.*/(void)there;/@superblocks do not say who was there
header-stock@kmod/core/log/summary.c@s/>= m->low/>= min(m->low, 4U)/@too few headers for reclaim to end when everything is leased
leave-tombs@kmod/core/log/leave.c@s/kvc_tombs_carry(m, true, carry_tomb)/((void)carry_tomb, 0)/@tombstones go with a member that is removed
leave-loss@kmod/core/log/member.c@s/READ_ONCE(m->lost_before) == os_atomic_read(&p->nr_lost)/1/@a member is removed though the copies of its pages were lost
leave-renewed@kmod/core/log/lease.c@s/ || READ_ONCE(m->leaseless)//@who renews leases keeps a member from leaving
leave-renewed-moving@kmod/core/log/leave.c@/^static int end_round/,/^}/s/WRITE_ONCE(m->leaseless, true)/;/@who renews leases keeps a page from moving
leave-stopped@kmod/core/log/leave.c@/^static void stop/,/^}/s/WRITE_ONCE(m->leaseless, false)/;/@pages of a member that stays are leased no more
leave-leased@kmod/core/log/leave.c@s/if (!rc->stayed \&\& /if (/@pages that were leased while they moved are dropped
return-unlogged@kmod/core/log/return.c@s/e->state == KVC_E_LIVE \&\& e->counted/0/@pages return with a member that no summary has taken
return-tear@kmod/core/log/summary.c@/^static void tear/,/^}/s/e->counted = 1;/;/@pages of a summary that failed return with the member
return-torn@kmod/core/log/summary.c@s/^\tseg->torn = true;/\t;/@the log of a segment goes on behind a summary that failed
return-undead@kmod/core/log/return.c@/^static void give_up/,/^}/s/kvc_seg_undead(m->pool, seg);/;/@nobody knows that media may lead to the pages of a summary that failed
return-carry@kmod/core/log/return.c@s/count_tomb(m->pool, entry, false) ? /0 ? /@deletes of a summary that failed are in none afterwards
return-room@kmod/core/log/return.c@/^static int carry_tombs/,/^}/s/^\t\t\treturn r;/\t\t\tbreak;/@deletes for which there was no room are in no summary, and a flush is done
return-flush@kmod/core/work.c@s/max(mark, m->carried)/mark/@a flush does not wait for the deletes that a member returned with
return-unsettled@kmod/core/work.c@s/!READ_ONCE(m->torn) \&\& //@nor does one that comes before they were carried
store-told@kmod/core/log/store.c@s/st->lost = m->offline;/st->lost = false;/@a store succeeds on a member that was lost meanwhile
return-again@kmod/core/log/store.c@s/kvc_seg_undead(p, kvc_entry_seg(p, old));/;/@what was stored anew on another member needs no tombstone when the first one is back
return-reclaim@kmod/core/log/return.c@s/m->reclaim.phase != KVC_R_IDLE \&\&/0 \&\&/@a reclaim goes on with copies that were dropped
return-busy@kmod/core/log/return.c@s/quiet = !m->segs\[i\].pending \&\&/quiet = 1 ||/@a member returns while stores that began before are under way
return-salt@kmod/core/log/return.c@s/id.generation == c->id.generation \&\& id.salt == c->id.salt/true/@a segment with another header is as it was left
return-end@kmod/core/log/return.c@s/seg->torn || seg->endless ? 1 : seg->log_end/1/@a log that has lost its end is as it was left
return-missing@kmod/core/log/return.c@s/ || m->unknown)/)/@a member that nobody has read returns
return-heir@kmod/core/log/return.c@s/newest || kvc_member_heirs(p) ? 0 : -ESTALE/0/@a member returns to a history that goes on without it
return-heir-lost@kmod/core/log/return.c@s/newest || tells_of_heir(p, member)/true/@the same when the others are lost meanwhile
return-offline@kmod/core/log/member.c@/^void kvc_member_join/,/^}/s/os_atomic_dec_and_test(&p->nr_offline);/;/@a member that is back counts as one that is offline
return-headers@kmod/core/log/return.c@s/^\tretry_headers(m);/\t(void)retry_headers;/@segments whose headers failed while a member went away are lost when it is back
leave-forget@kmod/core/log/member.c@s/os_atomic_xchg(&m->segs\[i\].undead, 0)/0/;s/WRITE_ONCE(m->segs\[i\].min_seq, U64_MAX);//@tombstones are kept for records of removed members
turn-gap@kmod/core/base.c@s/ = os_atomic64_read(&p->takers) & members/ = (BIT_ULL(kvc_nr_members(p)) - 1) \& members/@the neighbour of who takes no pages gets its turns
turn-leaving@kmod/core/log/member.c@s/takes = !m->offline \&\& !m->leaving/takes = !m->offline/@so does that of one that is leaving
leave-alone@kmod/core/log/member.c@s/if (!another_online(p, member) || /if (/@the last member can be removed
add-early@kmod/core/log/member.c@s/^\tkvc_member_joining(m, true);/&\n\tWRITE_ONCE(m->offline, false);/@a member is used before the superblocks name it
hole-last@kmod/core/media/format_super.c@s/ || kvc_super_hole(s, s->nr_members - 1)//@the last member may be a hole
removed-tombs@kmod/core/log/recover.c@s/if (victim_exists(p, rec))$/if (1)/@tombstones may name segments of removed members
super-order@selftests/core/sim_super.c@s/op->alone = why == SUPER_GROW .*/op->alone = false;/@other members name a new one before it has a superblock
remove-unflushed@selftests/core/sim_grow.c@s/g->state != G_FLUSHING || !flushed(s)/g->state != G_FLUSHING || (0 \&\& !flushed(s))/@a member is removed before the copies of its pages are durable
tomb-gen@kmod/core/log/log.h@s/e->crc_base << 54 | (u64)e->mark << 28/e->crc_base << 54/@a tombstone forgets part of its victim's generation
prefix-await@kmod/core/policy/request.c@s/^\t\tput(rq->awaited, .*/\t\t;/@stored pages are nobody's
prefix-touch@kmod/core/log/load.c@s/mark = asker ? .*/mark = e->mark;/@pages stay those of who stored them
prefix-again@kmod/core/policy/request.c@s/if (!old || old \& KVC_STRAY)$/if (0)/@what is stored again is not newer for that
prefix-stray@kmod/core/log/load.c@s/kvc_request_loads(p, e, bucket);/;/@loads say nothing of a page
prefix-late@kmod/core/policy/request.c@s/READ_ONCE(r->when) >= READ_ONCE(rq->lately)/1/@who loads without MATCH what another one asked for does not count
prefix-loads@kmod/core/policy/request.c@s/min(loads + 1, KVC_SHARED_MAX)/1/@loads are not counted
prefix-fresh@kmod/core/policy/victim.c@s/part->fresh || (/(/@pages loaded lately are moved only when they are worth more than others
prefix-carried@kmod/core/policy/victim.c@/^void kvc_victim_plan/,/^}/s/^\tconsider(.*/\t(void)seg; (void)lost;/@of a segment that goes whatever it costs nothing is moved
prefix-overtaken@kmod/core/log/reclaim.c@/^static struct kvc_seg \*take_any/,/^}/s/^\tkvc_victim_plan(m, seg);/\t;/@nothing is moved of what goes in the place of a victim that was leased meanwhile
prefix-anchor@kmod/core/policy/request.c@s/if (a->anchored)/if (0)/@a document that comes back behind another question is not known
prefix-takes-over@kmod/core/policy/request.c@s/if (!by_tail || f->depth >= ANCHORED)/if (0)/@the first question about a document is taken for the last
prefix-gap@kmod/core/policy/value.c@s/return gap \&\& gap <= .* ? /return 0 ? /@what came back after long is not expected again
prefix-gap-ends@kmod/core/policy/value.c@s/age <= gap + gap \/ 4 ? /age <= KVC_AGE_MAX ? /@what came back once is expected for ever
prefix-gain@kmod/core/policy/victim.c@s/^\t\tif (part->pages \&\& !(part->id .*/\t\tif (0)/@what is behind a page is no reason to move it
newest-oldest@kmod/core/log/reclaim.c@s/oldest_sealed(m, false, m->newest)/oldest_sealed(m, false, NULL)/@after tombstones the oldest goes, also with what was stored just now
headers-fail@kmod/core/log/segment.c@s/ < KVC_HEADERS_FAIL;/ <= KVC_HEADERS_FAIL;/@pages go in vain, for segments that get no header
headers-again@kmod/core/log/summary.c@s/headers_failed + 1 : 0);/headers_failed + 1 : m->headers_failed);/@headers that failed now and then are counted as if none had been written
run-apart@kmod/core/work.c@s/ \&\& next->src_offset + padded == w->src_offset//@pages that do not lie side by side are one transfer
run-unchecked@kmod/core/work.c@s/^\t\terr = kvc_work_check(p, w, .*/\t\t(void)p, (void)buf;/@what is moved with others is not looked at
run-lost@kmod/core/work.c@s/^\t\trun->nr++;/\t\trun->nr += run->together == run->nr \&\& adjoins(w - 1, w);/@what was found behind a run is lost
moves-out@kmod/core/log/reclaim.c@s/	if (rc->moving)/	if (0)/@the victim goes while its moves are under way
leave-moves-out@kmod/core/log/leave.c@s/rc->moving ? 0 : end_round/0 ? 0 : end_round/@a leaving member's segment goes while its moves are under way
prefix-kinds@kmod/core/log/store.c@s/ \&\& !kvc_member_hope(m))/)/@pages of the other kind get what is left of a segment
prefix-kinds-stuck@kmod/core/log/store.c@s/both \&\& !kvc_member_hope(m))/both \&\& m->offline)/@pages of one kind do not get what is left of the other
prefix-most@kmod/core/policy/request.c@s/if (!by_tail \&\& f->depth < anchor_of(prev->pages))/if (0)/@who has half of a prompt in common continues it
prefix-turns@kmod/core/policy/request.c@s/if (prev->continued > 1)/if (0)/@a shared prefix counts as a conversation
prefix-shared@kmod/core/policy/request.c@s/if (a->branch \&\& shared < KVC_SHARED_MAX)/if (0)/@shared pages are not counted
prefix-same@kmod/core/policy/request.c@s/prev->pages == nr \&\& prev->tail == a->tail \&\& prev->last == a->last/0/@a repeated prompt is another request
prefix-forgotten@kmod/core/policy/request.c@s/return id \&\& READ_ONCE(r->id) == id ? r : NULL;/return r;/@forgotten requests are taken for others
prefix-ends@kmod/core/policy/value.c@s/^\treturn 2 \* READ_ONCE.*/\t(void)v; return true;/@ends of prompts live as long as the others
prefix-ages@kmod/core/policy/value.c@s/^\tv->now.ages\[class\]\[bin\]++;/\t;/;s/^\tv->now.all_ages\[bin\]++;/\t(void)bin;/@return times are not learned
prefix-chances@kmod/core/policy/value.c@s/^\tchance = (c->back\[class\] .*/\t;/@return probabilities are not learned
prefix-hole@kmod/core/policy/victim.c@s/\.end = min(r.cut - 1, .*/.end = r.reach,/@pages behind a hole are worth something
prefix-reach@kmod/core/policy/victim.c@s/min(r.reach, r.pages)/r.pages/@pages that were named and never stored count
prefix-chain@kmod/core/policy/victim.c@s/^\tif (first > part->end || .*/\tif (1)/@what is behind in other segments does not count
prefix-newest@kmod/core/policy/victim.c@s/ || seg == newest//@what was stored just now goes
prefix-credit@kmod/core/policy/victim.c@s,return READ_ONCE(m->credit) / KVC_CREDIT,return m->pool->seg_blocks,@rewriting has no limit
prefix-floor@kmod/core/policy/victim.c@s/^\t\*floor = rises .*/\tif (rises)\n\t\t*floor = U64_MAX;/@segments that became cheap are not found
prefix-floors@kmod/core/policy/victim.c@s/bool rises = .*/bool rises = false;/@groups are looked at for ever once one of theirs was cheap
keys-limit@kmod/core/index/domain.c@s/all->recovered ? of->nr >= limit_of(p, slot) : of->refused/!all->recovered \&\& of->refused \&\& limit_of(p, slot)/@a tenant has as many keyspaces as there is room for
keys-limit-attach@kmod/core/index/domain.c@s/all->recovered ? of->nr >=/1 ? of->nr >=/@an attach takes no more of a tenant than it may make
keys-sure@kmod/core/index/domain.c@s/all->shared < all->max - KVC_TENANTS_MAX \* all->sure/1/@keyspaces that are sure for a tenant are given to others
keys-dead@kmod/core/index/domain.c@s/all->shared += min(of->nr, all->sure);/;/@keyspaces of removed tenants are not counted
keys-given-back@kmod/core/index/domain.c@s/all->shared -= d->dead || --of->nr >= all->sure;/all->shared -= d->dead;/@who gives a keyspace up gets no other one
keys-refused@kmod/core/index/domain.c@s/^\tof->refused = true;/\t;/@an attach takes the second record of a keyspace whose first it left out
keys-cached@kmod/core/index/domain.c@s/if (\*d \&\& is(\*d, rec->tenant, rec->keyspace) .*/if (*d)/@an attach takes records of a segment for those of one keyspace
keys-kept@kmod/core/log/segment.c@s/ \&\& !READ_ONCE(seg->rooted)//@tombstones that an attach had no room for go with their segment
keys-left-out@kmod/core/log/recover.c@/^static void leave_out/,/^}/s/kvc_seg_undead(p, seg);/(void)p;/@pages that an attach had no room for are forgotten
keys-leave@kmod/core/log/member.c@s/ || keeps_tombs(m) ||/ || (0 \&\& keeps_tombs(m)) ||/@a member leaves with tombstones that nobody copied
lock-keys@kmod/core/index/domain.c@/^static struct kvc_domain \*find/,/^}/s/os_\(un\)\{0,1\}lock(&sh->lock);/;/@keyspaces are looked for without the lock of their shard
memory-full@kmod/core/engine.h@s/return unlikely(limit) \&\& os_atomic64_read(&p->memory.bytes) > limit;/return 0 \&\& limit;/@the index grows past its limit
memory-uncounted@kmod/core/index/entry.c@/^static void del_eblock/,/^}/s/os_atomic64_sub(.*/;/@memory that was given back is counted still
memory-fattest@kmod/core/log/memory.c@s/seg->nr_eblocks \* nr >= blocks/true/@large pages pay for the memory of small ones
memory-despair@kmod/core/log/memory.c@s/hope |= m->head\[i\] \&\& has_pages(m, m->head\[i\]);/;/@what heads have is not evicted for memory
memory-tombs-round@kmod/core/log/reclaim.c@s/if (!seg \&\& memory)$/if (!seg \&\& memory \&\& !m->reclaim.carried)/@tombstones are carried round and round for memory
memory-yields@kmod/core/log/reclaim.c@s/(m->refused || READ_ONCE(m->pool->memory.wanted))/m->refused/@leases do not yield for memory
memory-reserve@kmod/core/log/memory.c@s/kvc_seg_can_go(m, /kvc_seg_evictable(m, /@memory is evicted from reserves
memory-rises@kmod/core/pool.c@s/^\tkvc_memory_back(p);/\t;/@nobody is told of a higher limit
memory-attach@kmod/core/log/recover.c@s/^\tmake_memory(p, .*/\t(void)make_memory;/@an attach takes more memory than it may
memory-newest@kmod/core/log/recover.c@s/!seg->dropped \&\& seg->open_seq < floor/!seg->dropped \&\& floor/@an attach drops what it read, old or new
memory-undead@kmod/core/log/recover.c@/^static void drop_pages/,/^}/s/kvc_seg_undead(p, seg);/;/@pages that were dropped are forgotten
memory-hides@kmod/core/log/recover.c@s/bool hides = hides_tomb(e);/bool hides = false;/@a dropped page uncovers what was deleted before it
memory-tombs@kmod/core/index/entry.c@s/if (eb->e\[i\].state != KVC_E_DEAD)/if (0 \&\& eb->e[i].state)/@tombstones are dropped with the pages beside them
order-age@kmod/core/log/reclaim.c@s/seg->open_seq < oldest->open_seq/seg->open_seq > oldest->open_seq/@the youngest goes where the oldest should
order-leased@kmod/core/log/segment.c@/^bool kvc_seg_evictable/,/^}/s/ \&\& !os_atomic_read(&seg->leases)//@leased segments are chosen
prefix-moves@kmod/core/policy/victim.c@s/|| (part->gain > least /|| (0 \&\& part->gain > least /@nothing is rewritten but what was loaded lately
prefix-least@kmod/core/policy/victim.c@s/\(5 \* most), \)LEAST);/\10);/@what hardly ever returns is rewritten
quota-full@kmod/core/policy/quota.c@s/return h.bytes + os_atomic64_read(&s->pending) >= quota ||/return false \&\&/@no tenant is ever at its quota
quota-pending@kmod/core/policy/quota.c@s/ + os_atomic64_read(&s->pending) >= quota/ >= quota/@stores under way do not count for a quota
quota-lost@kmod/core/policy/quota.c@s/^\t\tif (READ_ONCE(p->members\[i\].offline))/\t\th.bytes += os_atomic64_read(\&stock->bytes);\n&/;s/^\t\th.bytes += .*stock->bytes);$/\t\t;/@pages on lost members count for reserves
quota-lost-segs@kmod/core/policy/quota.c@s/^\t\tif (READ_ONCE(p->members\[i\].offline))/\t\th.segs += os_atomic_read(\&stock->segs);\n&/;s/^\t\th.segs += .*stock->segs);$/\t\t;/@segments on lost members count for quotas
quota-wraps@kmod/core/policy/quota.c@s/return bytes > quota \&\& bytes - quota > open;/return bytes > quota + open;/@a quota near the largest number is one that nobody is below
quota-least@kmod/core/policy/quota.c@s/max(l->quota, segment)/l->quota/@a quota below a segment is not rounded
quota-bound@kmod/core/policy/quota.c@s/if (kvc_seg_owner(seg) \&\& h.segs > READ_ONCE(s->reserve_segs))/if (0)/@holes keep any number of segments for a reserve
quota-home@kmod/core/policy/quota.c@s/wanted = min_t(u64, wanted, max_t(u64, 1, .*/;/@a small quota has homes on all members
quota-homeless@kmod/core/policy/quota.c@s/return READ_ONCE(p->quota.on) \&\& !kvc_seg_owner(victim) \&\&$/& READ_ONCE(p->quota.share[slot].homes) \&\&/@a reserve without segments of its own keeps victims
quota-plan@kmod/core/policy/quota.c@s/return kept \&\& needed <= room.keep;/return kept;/@reserves that cannot be kept are taken
quota-open@kmod/core/policy/quota.c@s/^\t\tkept &= .*/\t\t;/@too many tenants with segments of their own are taken
quota-recovered@kmod/core/log/recover.c@s/^\tkvc_quota_plan(p);/\t;/@an attach does not enforce limits
quota-others@kmod/core/policy/victim.c@s/return whose ? .*/return whose ? kvc_seg_evictable(m, seg) : kvc_seg_can_go(m, seg);/@a tenant at its quota evicts others
quota-space@kmod/core/log/reclaim.c@/^static int evict(/,/^}/s/^\tkvc_space(p);/\t;/@who waits at a quota is not told of evictions
quota-hopeless@kmod/core/log/reclaim.c@/^static int serve(/,/^}/s/^\tkvc_space(p);/\t;/@who waits at a quota is not told that nothing can go
reserve-keeps@kmod/core/log/segment.c@s/kvc_seg_evictable(m, seg) \&\& !kvc_quota_keeps(m->pool, seg);/kvc_seg_evictable(m, seg);/@segments that a reserve needs are chosen
reserve-leave@kmod/core/log/reclaim.c@s/if (!kvc_quota_leave(p, rc->victim, m->survey, rc->whose)) {/if (0) {/;s/^\tkvc_quota_left(p, m->survey);/\t;/@nobody looks at reserves when pages leave
reserve-guards@kmod/core/log/reclaim.c@s/kvc_quota_guards(p, m->reclaim.victim, .*slot) ||/0 ||/@reserved pages beside others' are not moved
reserve-crowds@kmod/core/log/store.c@s/return r == -ENOSPC \&\& kvc_spill(p, members) ? -EAGAIN : r;/return r;/@a reserve may fill a member
LIST
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plain=(CFLAGS="-O1 -Wno-error" O=build)
tsan=(CFLAGS="-O1 -g -fsanitize=thread -Wno-tsan -Wno-error" LDFLAGS=-fsanitize=thread)
sim=
if [ "${1:-}" = --sim ]; then
	sim=1
	shift
fi
names=$*
noticed=selftests/core/mutate.noticed
unseen=selftests/core/mutate.unseen
seen=selftests/core/mutate.seen

# prepare DIR: a copy of what is built
prepare() {
	mkdir -p "$1/kmod" "$1/selftests"
	cp Makefile "$1"
	cp -r kmod/core "$1/kmod/core"
	cp -r kmod/session "$1/kmod/session"	# build.mk has its list of files
	cp -r selftests/core "$1/selftests/core"
}

# build DIR TARGET...
build() {
	make -s -C "$1" --no-print-directory -j2 "${@:2}" > "$1/log" 2>&1
}

# why DIR PATTERN: the first line of the log that says what failed
why() {
	local line

	line=$(grep -aom 1 -- "$2" "$1/log")
	echo "${line:-ended without a word, or never}"
}

# fails DIR SECONDS PROGRAM...: it fails, or does not end
fails() {
	! (cd "$1" && timeout "$2" "${@:3}") > "$1/log" 2>&1
}

# Each of them: does it fail? Prints how; 1: it passes, 2: it does not build
threads_fail() {
	build "$1" O=build/tsan "${tsan[@]}" build/tsan/test/core-threads || return 2
	fails "$1" 120 build/tsan/test/core-threads --seconds 5 || return 1
	echo "threads: $(why "$1" 'ThreadSanitizer: [a-z ]*\|threads: .*\|invariant broken.*')"
}

# units_fail DIR [GROUP]
units_fail() {
	build "$1" "${plain[@]}" build/test/core-unit || return 2
	fails "$1" 120 env CMOCKA_TEST_ABORT=1 build/test/core-unit "${@:2}" || return 1
	echo "unit: $(sed -n 's/^\[ RUN *\] //p' "$1/log" | tail -n 1)"
}

sim_fails() {
	build "$1" "${plain[@]}" build/test/sim || return 2
	fails "$1" $((seconds + 60)) build/test/sim --seconds "$seconds" || return 1
	echo "sim: $(why "$1" 'seed [0-9]*: .*\|invariant broken.*')"
}

fuzzers_fail() {
	build "$1" "${plain[@]}" build/test/core-fuzz || return 2
	fails "$1" 60 build/test/core-fuzz --seconds 10 || return 1
	echo "fuzz: $(head -n 1 "$1/log")"
}

# caught DIR NAME: by the test that noticed it before, else by any, in the order of their cost; prints how. 1, 2: as above
caught() {
	local tests=(units_fail sim_fails fuzzers_fail) first test group status=1

	first=$(awk -v name="$2" '$1 == name { print $2 }' $noticed)
	[[ $2 != lock-* ]] || tests=(threads_fail)
	case $first in
	'') ;;
	sim) tests=(sim_fails units_fail fuzzers_fail) ;;
	*) tests=("units_fail $first" "${tests[@]}") ;;
	esac
	for test in "${tests[@]}"; do
		read -r test group <<< "$test"
		"$test" "$1" ${group:+"$group"}
		status=$?
		[ $status = 1 ] || break
	done
	return $status
}

# simulated DIR: the simulation alone; prints how long it took to notice, of one core, and what
simulated() {
	local dir=$1 TIMEFORMAT=%U

	build "$dir" CFLAGS="-O1 -Wno-error" O=build build/test/sim || return 2
	{ time fails "$dir" $((seconds + 60)) build/test/sim --seconds "$seconds"; } 2> "$dir/time" || return 1
	printf '%s s, %s\n' "$(cat "$dir/time")" "$(why "$dir" 'seed [0-9]*: .*\|invariant broken.*')"
}

# expected NAME: is it said why nothing notices?
expected() {
	[ -n "$sim" ] && [ -z "$names" ] && grep -q "^$1[[:space:]]" "$unseen"
}

# alone NAME: what is known of the simulation alone; with --sim that is tried
alone() {
	[ -z "$sim" ] || return
	awk -v name="$1" '$1 == name { how = FILENAME ~ /unseen$/ ? "unseen" : $2 " s" }
		END { printf "sim %-7s ", how ? how : "-" }' "$seen" "$unseen"
}

# try DIR NAME FILE SCRIPT TEXT: one mutation, taken back afterwards
try() {
	local dir=$1 name=$2 file=$3 how

	sed -i "$4" "$dir/$file"
	if cmp -s "$tmp/none/$file" "$dir/$file"; then
		echo "FAILED  $name: does not apply to $file any more"
		return
	fi
	if [ -n "$sim" ]; then
		how=$(simulated "$dir")
	else
		how=$(caught "$dir" "$name")
	fi
	case $? in
	0)
		printf 'caught  %-22s %s%s (%s)\n' "$name" "$(alone "$name")" "$5" "$how" ;;
	1)
		echo "FAILED  $name: no test noticed that $5" ;;
	*)
		echo "FAILED  $name: does not build"
		tail -n 5 "$dir/log" ;;
	esac
	# newer than what was built from the broken one
	cp "$tmp/none/$file" "$dir/$file"
}

# worker N: every JOBSth mutation from the Nth on
worker() {
	local dir=$tmp/$1 nr=0 name file script text

	cp -a "$tmp/none" "$dir"
	while IFS=@ read -r name file script text; do
		[ -z "$names" ] || [[ " $names " == *" $name "* ]] || continue
		! expected "$name" || continue
		[ $((nr++ % jobs)) = "$1" ] || continue
		try "$dir" "$name" "$file" "$script" "$text"
	done < <(mutations)
}

jobs=${JOBS:-$(nproc)} seconds=${MUTATE_SIM_SECONDS:-60}
ulimit -c 0
prepare "$tmp/none"
echo "mutate: the tests pass without any mutation?"
if [ -n "$sim" ]; then
	how=$(seconds=10; simulated "$tmp/none")
else
	how=$(seconds=10; caught "$tmp/none" none)
fi
if [ $? != 1 ]; then
	echo "mutate: they do not: ${how:-does not build}"
	tail -n 20 "$tmp/none/log"
	exit 1
fi
{
	for ((i = 0; i < jobs; i++)); do
		worker $i &
	done
	wait
} | tee "$tmp/out"
passed=$(grep -c '^caught ' "$tmp/out")
failed=$(grep -c '^FAILED ' "$tmp/out")
echo "mutate: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
