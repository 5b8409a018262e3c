// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Which calls are valid, and what part of a page a LOAD reads.
 *
 * The table gives each ioctl its structure's first published and its known size, its flags, and when it may be called.
 */
#include "session.h"

#define CALL_SIZE(type, last)	(offsetof(struct type, last) + sizeof(((struct type *)0)->last))

const struct kvctx_call kvctx_calls[KVCTX_CALLS] = {
	[_IOC_NR(KVCTX_IOC_INFO)] = {
		.min = CALL_SIZE(kvctx_info, tenant), .known = sizeof(struct kvctx_info), .out = true,
	},
	[_IOC_NR(KVCTX_IOC_SETUP)] = {
		.min = CALL_SIZE(kvctx_setup, reserved), .known = sizeof(struct kvctx_setup),
		.flags = KVCTX_SETUP_EVENTFD, .out = true,
	},
	[_IOC_NR(KVCTX_IOC_MEM_REGISTER)] = {
		.min = CALL_SIZE(kvctx_mem_register, reserved), .known = sizeof(struct kvctx_mem_register),
		.ready = true, .out = true,
	},
	[_IOC_NR(KVCTX_IOC_MEM_UNREGISTER)] = {
		.min = CALL_SIZE(kvctx_mem_unregister, reserved), .known = sizeof(struct kvctx_mem_unregister),
		.ready = true,
	},
	[_IOC_NR(KVCTX_IOC_SUBMIT)] = {
		.min = CALL_SIZE(kvctx_submit, reserved), .known = sizeof(struct kvctx_submit), .ready = true,
	},
	[_IOC_NR(KVCTX_IOC_WAIT)] = {
		.min = CALL_SIZE(kvctx_wait, timeout_ns), .known = sizeof(struct kvctx_wait), .ready = true,
	},
	[_IOC_NR(KVCTX_IOC_MATCH)] = {
		.min = CALL_SIZE(kvctx_match, lease), .known = sizeof(struct kvctx_match),
		.flags = KVCTX_MATCH_LEASE | KVCTX_MATCH_PREFETCH | KVCTX_MATCH_ALL, .ready = true, .out = true,
	},
	[_IOC_NR(KVCTX_IOC_PATHS)] = {
		.min = CALL_SIZE(kvctx_paths, paths), .known = sizeof(struct kvctx_paths), .ready = true, .out = true,
	},
	[_IOC_NR(KVCTX_IOC_EVENTS)] = {
		.min = CALL_SIZE(kvctx_events, lost), .known = sizeof(struct kvctx_events), .ready = true, .out = true,
	},
};

/* For INFO: what every server of the contract takes */
void kvctx_info_limits(struct kvctx_info *info)
{
	info->abi_version = KVCTX_ABI_VERSION;
	info->segs_max = KVCTX_SEGS_MAX;
	info->batch_max = KVCTX_BATCH_MAX;
	info->cq_max = KVCTX_CQ_MAX;
	info->match_max = KVCTX_MATCH_MAX;
	info->lease_ms_max = KVCTX_LEASE_MS_MAX;
	info->leases_max = KVCTX_LEASES_MAX;
	info->mem_max = KVCTX_MEM_MAX;
	info->slots_max = KVCTX_SLOTS_MAX;
	info->events_max = KVCTX_EVENTS_MAX;
	kvctx_rule_masks(&info->op_mask, &info->op_flags);
}

/* @memory_max: bytes of an arena, or of all slots, each of which is whole pages of memory, of @page bytes */
int kvctx_setup_check(const struct kvctx_setup *setup, u64 memory_max, u64 slot_bytes_max, u32 page)
{
	if (setup->reserved || (!(setup->flags & KVCTX_SETUP_EVENTFD) && setup->eventfd))
		return -EINVAL;
	if (!setup->cq_entries || setup->cq_entries > KVCTX_CQ_MAX || setup->arena_bytes > memory_max)
		return -EINVAL;
	if (!setup->nr_slots)
		return setup->slot_bytes ? -EINVAL : 0;
	if (setup->nr_slots > KVCTX_SLOTS_MAX || !setup->slot_bytes || setup->slot_bytes > slot_bytes_max)
		return -EINVAL;
	return (((u64)setup->slot_bytes + page - 1) & ~((u64)page - 1)) * setup->nr_slots > memory_max ? -EINVAL : 0;
}

int kvctx_match_check(const struct kvctx_match *match)
{
	if (match->reserved || (!(match->flags & KVCTX_MATCH_ALL) && match->present))
		return -EINVAL;
	return kvctx_match_keys_check(match->flags, match->nr_keys, match->lease_ms);
}

int kvctx_events_check(const struct kvctx_events *events)
{
	return events->reserved || events->nr > KVCTX_EVENTS_MAX ? -EINVAL : 0;
}
