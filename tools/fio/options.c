// SPDX-License-Identifier: GPL-2.0
/*
 * Options of the engine, as fio shows them with --enghelp.
 */
#include "engine.h"

#define OFF(field)	.off1 = offsetof(struct options, field)
#define GROUP		.category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

struct fio_option kvctx_fio_options[] = {
	{
		.name = "path", .lname = "kvctx path", .type = FIO_OPT_STR_STORE, OFF(path), GROUP,
		.help = "The tenant's node, its socket of kvctxd, or DIRECTORY/TENANT of a pool that fio serves itself",
	}, {
		.name = "pool", .lname = "kvctx pool", .type = FIO_OPT_STR_STORE, OFF(pool), GROUP,
		.help = "Name of the kernel's pool, instead of path",
	}, {
		.name = "tenant", .lname = "kvctx tenant", .type = FIO_OPT_STR_STORE, OFF(tenant), GROUP,
		.def = "default", .help = "Name of the tenant of pool",
	}, {
		.name = "keyspace", .lname = "kvctx keyspace", .type = FIO_OPT_STR_STORE, OFF(keyspace), GROUP,
		.def = "fio", .help = "Keyspace of the pages: these bytes, at most 16",
	}, {
		.name = "page", .lname = "kvctx page size", .type = FIO_OPT_STR_VAL, OFF(page), GROUP, .def = "0",
		.help = "Bytes of a page; writes have this size, reads any that stays inside a page (default: bs)",
	}, {
		.name = "segments", .lname = "kvctx segments", .type = FIO_OPT_INT, OFF(segments), GROUP,
		.def = "1", .minval = 1, .maxval = 4096, .help = "Scattered pieces of the buffer that make up a page",
	}, {
		.name = "entry", .lname = "kvctx entry point", .type = FIO_OPT_STR, OFF(entry), GROUP, .def = "ioctl",
		.help = "How operations reach the module",
		.posval = {
			{ .ival = "ioctl", .oval = ENTRY_IOCTL, .help = "KVCTX_IOC_SUBMIT" },
			{ .ival = "uring", .oval = ENTRY_URING, .help = "io_uring commands" },
		},
	}, {
		.name = "memory", .lname = "kvctx memory", .type = FIO_OPT_STR, OFF(memory), GROUP, .def = "arena",
		.help = "Where the buffers lie",
		.posval = {
			{ .ival = "arena", .oval = MEMORY_ARENA, .help = "memory of the session" },
			{ .ival = "registered", .oval = MEMORY_REGISTERED, .help = "memory of fio, registered" },
			{ .ival = "peer", .oval = MEMORY_PEER, .help = "memory of a PCI device, see peer_file" },
		},
	}, {
		.name = "peer_file", .lname = "kvctx peer memory", .type = FIO_OPT_STR_STORE, OFF(peer_file), GROUP,
		.help = "File that maps peer memory, as /sys/bus/pci/devices/BDF/p2pmem/allocate",
	}, {
		.name = "overwrite_page", .lname = "kvctx overwrite", .type = FIO_OPT_STR, OFF(overwrite), GROUP,
		.def = "replace", .help = "What a write does to a page that is there",
		.posval = {
			{ .ival = "replace", .oval = OVERWRITE_REPLACE, .help = "DELETE, then STORE" },
			{ .ival = "dedup", .oval = OVERWRITE_DEDUP, .help = "STORE, which leaves it as it is" },
			{ .ival = "new", .oval = OVERWRITE_NEW, .help = "STORE under a key never used before" },
		},
	}, {
		.name = "miss", .lname = "kvctx miss", .type = FIO_OPT_STR, OFF(miss), GROUP, .def = "error",
		.help = "What a read of an absent page is",
		.posval = {
			{ .ival = "error", .oval = MISS_ERROR, .help = "an error" },
			{ .ival = "ignore", .oval = MISS_IGNORE, .help = "a read of zero bytes" },
		},
	}, {
		.name = "verify_load", .lname = "kvctx verification", .type = FIO_OPT_BOOL, OFF(verify_load), GROUP,
		.def = "1", .help = "Checksums: computed by STORE and checked by LOAD, or neither",
	}, {
		.name = "op_prio", .lname = "kvctx priority", .type = FIO_OPT_STR, OFF(prio), GROUP, .def = "default",
		.help = "Priority of the operations",
		.posval = {
			{ .ival = "default", .oval = KVCTX_PRIO_DEFAULT, .help = "as the module chooses" },
			{ .ival = "urgent", .oval = KVCTX_PRIO_URGENT, .help = "decode waits for it" },
			{ .ival = "normal", .oval = KVCTX_PRIO_NORMAL, .help = "in between" },
			{ .ival = "background", .oval = KVCTX_PRIO_BACKGROUND, .help = "behind all others" },
		},
	}, {
		.name = "timeout_ms", .lname = "kvctx deadline", .type = FIO_OPT_INT, OFF(timeout_ms), GROUP,
		.def = "0", .help = "Milliseconds after which an operation not yet started fails (0: none)",
	}, {
		.name = NULL,
	},
};
