// SPDX-License-Identifier: GPL-2.0
/*
 * The table of options and commands. The parser, --help, the bash completion and the man page know nothing but
 * what stands here.
 *
 * An option means the same in every command that takes it.
 */
#include "ctl.h"

static const char *const transports[] = { "tcp", "rdma", "loop", "fc", NULL };
static const char *const formats[] = { "text", "json", NULL };

const char *const *ctl_choices(enum ctl_kind kind)
{
	switch (kind) {
	case KIND_TRANSPORT:
		return transports;
	case KIND_FORMAT:
		return formats;
	default:
		return NULL;
	}
}

const struct ctl_option ctl_options[OPT_NR] = {
	[OPT_OUTPUT] = { "output", 'o', KIND_FORMAT, false, "FORMAT",
		"text (default) or json" },
	[OPT_HELP] = { "help", 'h', KIND_FLAG, false, NULL,
		"explain the command and exit" },
	[OPT_VERSION] = { "version", 'V', KIND_FLAG, false, NULL,
		"the same as the command version" },
	[OPT_SEGMENT_SIZE] = { "segment-size", 0, KIND_SIZE, false, "SIZE",
		"unit of space, 256K to 1G (default 256M)" },
	[OPT_CHUNK_SIZE] = { "chunk-size", 0, KIND_SIZE, false, "SIZE",
		"bytes under one checksum, a power of two from 4K to 1M (default 64K)" },
	[OPT_SIZE] = { "size", 0, KIND_SIZE, false, "SIZE",
		"create the files, each of so many bytes" },
	[OPT_FORCE] = { "force", 'f', KIND_FLAG, false, NULL,
		NULL },		/* the command tells */
	[OPT_DRY_RUN] = { "dry-run", 0, KIND_FLAG, false, NULL,
		"check all, say what would be done, write nothing" },
	[OPT_DEGRADED] = { "degraded", 'D', KIND_FLAG, false, NULL,
		"attach although members are missing" },
	[OPT_DATA] = { "data", 0, KIND_FLAG, false, NULL,
		"read every page too and compare it with its checksums" },
	[OPT_DROP] = { "drop", 0, KIND_FLAG, false, NULL,
		"drop the pages of the member" },
	[OPT_MOVE] = { "move", 0, KIND_FLAG, false, NULL,
		"move them to the other members, as far as there is room (default)" },
	[OPT_NO_WAIT] = { "no-wait", 0, KIND_FLAG, false, NULL,
		"do not wait until it has left" },
	[OPT_UID] = { "uid", 0, KIND_USER, false, "USER",
		"owner of the device node, name or number (default 0)" },
	[OPT_GID] = { "gid", 0, KIND_GROUP, false, "GROUP",
		"group of the device node, name or number (default 0)" },
	[OPT_MODE] = { "mode", 0, KIND_MODE, false, "MODE",
		"permission bits of the device node, octal (default 0600)" },
	[OPT_REQUIRE_VERIFIED] = { "require-verified", 0, KIND_FLAG, false, NULL,
		"refuse operations whose bytes nobody would verify" },
	[OPT_ALLOW_UNVERIFIED] = { "allow-unverified", 0, KIND_FLAG, false, NULL,
		"do not refuse them any more" },
	[OPT_KEY] = { "key", 0, KIND_TEXT, false, "NAME",
		"encrypt its pages with this key, of your keyrings" },
	[OPT_UNLOCK] = { "unlock", 0, KIND_FLAG, false, NULL,
		"look for its key again" },
	[OPT_QUOTA] = { "quota", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes of pages that the tenant may have" },
	[OPT_RESERVE] = { "reserve", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes of its pages that other tenants do not evict" },
	[OPT_MAX_PINNED] = { "max-pinned", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes of memory that its sessions may pin together" },
	[OPT_MAX_LEASED] = { "max-leased", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes of the segments that its leases may keep" },
	[OPT_MAX_KEYSPACES] = { "max-keyspaces", 0, KIND_MOST, false, "N",
		"off, or how many keyspaces it may have" },
	[OPT_BANDWIDTH] = { "bandwidth", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes a second that it may store and load" },
	[OPT_MAX_INFLIGHT] = { "max-inflight", 0, KIND_MOST, false, "N",
		"off, or how many operations it may have in flight" },
	[OPT_WEIGHT] = { "weight", 0, KIND_WEIGHT, false, "N",
		"of its turns where tenants share a member, 1 to 10000 (default 100)" },
	[OPT_NO_URGENT] = { "no-urgent", 0, KIND_FLAG, false, NULL,
		"its operations are of normal priority when they ask for urgent" },
	[OPT_URGENT] = { "urgent", 0, KIND_FLAG, false, NULL,
		"they may be urgent" },
	[OPT_TRANSPORT] = { "transport", 't', KIND_TRANSPORT, false, "TRANSPORT",
		"tcp, rdma, loop or fc" },
	[OPT_TRADDR] = { "traddr", 'a', KIND_TEXT, false, "ADDRESS",
		"address of the target" },
	[OPT_TRSVCID] = { "trsvcid", 's', KIND_TEXT, false, "PORT",
		"port of the target (default of tcp and rdma: 4420)" },
	[OPT_NQN] = { "nqn", 'n', KIND_NQN, false, "NQN",
		"name of the subsystem" },
	[OPT_HOST_TRADDR] = { "host-traddr", 'w', KIND_TEXT, false, "ADDRESS",
		"address of this host to connect from" },
	[OPT_HOSTNQN] = { "hostnqn", 'q', KIND_NQN, false, "NQN",
		"name of this host (default: /etc/nvme/hostnqn, or a generated one)" },
	[OPT_HOSTID] = { "hostid", 'I', KIND_TEXT, false, "UUID",
		"identifier of this host (default: /etc/nvme/hostid)" },
	[OPT_NR_IO_QUEUES] = { "nr-io-queues", 'i', KIND_NUMBER, false, "N",
		"number of I/O queues (default: one for each processor)" },
	[OPT_CTRL_LOSS_TMO] = { "ctrl-loss-tmo", 'l', KIND_NUMBER, false, "SECONDS",
		"give a lost target up after this time (default 600)" },
	[OPT_FAST_IO_FAIL_TMO] = { "fast-io-fail-tmo", 'F', KIND_NUMBER, false, "SECONDS",
		"fail I/O to a lost target after this time (default: when it is given up)" },
	[OPT_TIMEOUT] = { "timeout", 0, KIND_SECONDS, false, "SECONDS",
		"wait so long for the block device (default 10)" },
	[OPT_WATCH] = { "watch", 0, KIND_SECONDS, true, "SECONDS",
		"print what changed every SECONDS (default 1) until interrupted" },
	[OPT_COUNT] = { "count", 'c', KIND_NUMBER, false, "N",
		"end after N reports" },
	[OPT_INTERVAL] = { "interval", 'i', KIND_SECONDS, false, "SECONDS",
		"look every SECONDS (default 1)" },
	[OPT_DISCARD] = { "discard", 0, KIND_RATE, false, "RATE",
		"on (1G), off, or bytes a second on each member, 1M to 1T" },
	[OPT_VERBOSE] = { "verbose", 'v', KIND_FLAG, false, NULL,
		"tell too which block devices were skipped, and why" },
	[OPT_SOCKET] = { "socket", 'S', KIND_DEVICE, false, "PATH",
		"ask the kvctxd that has this socket, not the module" },
	[OPT_LISTEN] = { "listen", 'l', KIND_TEXT, false, "WHERE",
		"a path for a Unix socket, or [HOST:]PORT (default 127.0.0.1:9585)" },
	[OPT_WAIT] = { "wait", 0, KIND_SECONDS, false, "SECONDS",
		"wait so long for members that are not there yet" },
	[OPT_PAGES] = { "pages", 0, KIND_FLAG, false, NULL,
		"tell of pages, too" },
	[OPT_UDEV] = { "udev", 0, KIND_FLAG, false, NULL,
		"print it as properties for udev's IMPORT" },
	[OPT_WRITE_BUDGET] = { "write-budget", 0, KIND_LIMIT, false, "SIZE",
		"off, or bytes a day that may be written, from 1M" },
};

const struct ctl_noun ctl_nouns[] = {
	{ "pool", "make pools and bring them into service" },
	{ "tenant", "decide who may use a pool" },
	{ NULL, NULL }
};

const struct ctl_command ctl_commands[] = {
	{
		.noun = "pool", .verb = "format", .run = cmd_pool_format,
		.args = {
			{ KIND_NAME, "NAME", .help = "name of the new pool" },
			{ KIND_DEVICE, "DEVICE", .many = true,
			  .help = "block device, or file that holds the image of one" },
		},
		.options = OPT(SEGMENT_SIZE) | OPT(CHUNK_SIZE) | OPT(SIZE) | OPT(FORCE) | OPT(DRY_RUN),
		.force = "format what holds something; tells what that was",
		.summary = "make an empty pool of 1 to 64 devices",
		.text =
"All devices are checked before the first is written: none may be mounted or\n"
"in use, and without --force none may hold a file system, a partition table,\n"
"a pool or anything else that has a known signature. What they hold is lost.\n"
"A command that fails leaves no device that looks like a member of the pool.\n"
"A device has 16777216 segments at most; when it is larger a warning on\n"
"standard error says how much of it is used, and larger segments use more.\n"
"The pool has one tenant, 'default'.\n"
"With --size the devices are files that are not there yet. Each is created\n"
"with all its space, so a file system that is too full is an error now; it\n"
"gets its name when it is a member. Files alone in a directory of theirs are a\n"
"pool that libkvctx serves in the process: its path is that of the directory.",
		.example = "kvctxctl pool format ctx0 /dev/nvme1n1 /dev/nvme2n1\n"
			   "  mkdir -p /var/lib/kvctx/kv0\n"
			   "  kvctxctl pool format --size 200G kv0 /var/lib/kvctx/kv0/member0",
	}, {
		.noun = "pool", .verb = "scan", .run = cmd_pool_scan,
		.args = {
			{ KIND_DEVICE, "DEVICE", .optional = true, .many = true,
			  .help = "look at these; else at all block devices" },
		},
		.options = OPT(SOCKET) | OPT(VERBOSE),
		.summary = "find pools on block devices",
		.text =
"Reads and changes nothing. A pool is attached, complete, degraded (members\n"
"are missing), unusable (all are), ambiguous (a member is there twice, on disks\n"
"that are not known to be one) or a mismatch (its members were attached without\n"
"each other, and are never taken together again). A device is there, in_use,\n"
"overwritten (it holds something else by now), stale (no member any more),\n"
"too_small, other_path (to the disk of a member) or a copy. Attached is what the\n"
"module has, or the kvctxd that --socket names; of one that is not asked the\n"
"devices are in_use.",
		.example = "kvctxctl pool scan",
	}, {
		.noun = "pool", .verb = "attach", .run = cmd_pool_attach,
		.args = {
			{ KIND_DEVICE, "POOL|DEVICE", .many = true,
			  .help = "name or UUID of a pool; or paths of all its members" },
		},
		.options = OPT(SOCKET) | OPT(DEGRADED) | OPT(WAIT),
		.summary = "bring a pool into service",
		.text =
"One word without a slash is a pool, which is looked for as by scan; where two\n"
"have the name, the UUID says which. With --socket a directory of this name in\n"
"kvctxd's --pools comes first; it is not waited for. Each tenant of the pool\n"
"gets its node /dev/kvctx/POOL/TENANT. All members have to be there, unless\n"
"--degraded is given: the pages of those that are missing are misses then, and\n"
"come back when they do, but for those that were deleted or stored again\n"
"meanwhile. Do not attach some members without the others and then the others\n"
"without them: they are never taken together again. With --wait a pool that is\n"
"named is looked for again and again until it is complete, or somebody else has\n"
"attached it; what is missing then, only --degraded goes without. A device that\n"
"holds anything else with a known signature by now, beside what is left of the\n"
"pool, is refused.",
		.example = "kvctxctl pool attach /dev/nvme1n1 /dev/nvme2n1",
	}, {
		.noun = "pool", .verb = "detach", .run = cmd_pool_detach,
		.args = { { KIND_POOL, "POOL", .help = "name of an attached pool" } },
		.options = OPT(SOCKET),
		.summary = "take a pool out of service",
		.text =
"Pages stay on the devices and are there again after the next attach. Refused\n"
"while a process has one of the pool's nodes open.",
		.example = "kvctxctl pool detach ctx0",
	}, {
		.noun = "pool", .verb = "destroy", .run = cmd_pool_destroy,
		.args = {
			{ KIND_DEVICE, "POOL|DEVICE", .many = true,
			  .help = "name or UUID of a pool; or paths of its members" },
		},
		.options = OPT(SOCKET) | OPT(FORCE),
		.force = "do not ask",
		.summary = "erase a pool that is not attached",
		.text =
"Erases the superblocks at both ends of the devices: the pool is not found any\n"
"more, and its pages are lost. Nothing else is written, so what was made over a\n"
"member since stays whole. Asks before it does; --force does not. A pool named\n"
"is looked for as by scan: of one in a directory of kvctxd's the members are\n"
"named. Refused while it is attached or a device is in use. When a device fails\n"
"the others are erased, and what may be left is told.",
		.example = "kvctxctl pool destroy ctx0",
	}, {
		.noun = "pool", .verb = "add", .run = cmd_pool_add,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_DEVICE, "DEVICE", .many = true,
			  .help = "block device that becomes a member; of a kvctxd also a file" },
		},
		.options = OPT(SOCKET) | OPT(SIZE) | OPT(FORCE),
		.force = "take what holds something",
		.summary = "add devices to a pool in service",
		.text =
"Each device is checked as by format, with the same warning, and what it holds\n"
"is lost. It takes new pages at once; sessions need not be closed. With --size\n"
"the files must not exist: a kvctxd makes them, with all their space, and they\n"
"get their names when they are members. What does not lie in the directory that\n"
"kvctxd has the pool from gets a link there, to the path as it was given: one\n"
"that lasts, as those in /dev/disk, is better than one that the next boot gives\n"
"to another disk.",
		.example = "kvctxctl pool add ctx0 /dev/nvme3n1",
	}, {
		.noun = "pool", .verb = "rejoin", .run = cmd_pool_rejoin,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_DEVICE, "DEVICE", .optional = true, .many = true,
			  .help = "device of a member that was lost; default: all that are there" },
		},
		.options = OPT(SOCKET),
		.summary = "take lost members back into a pool in service",
		.text =
"A member that the pool has lost, as its transport gave up, its namespace was\n"
"taken away or it could not be written, returns with all pages that were durable\n"
"on it and have not been stored anew or deleted since; sessions need not be\n"
"closed. Its device may have another name by now. What it holds has to be what it\n"
"was left with: the superblock, and all summaries, are read and compared. Where\n"
"that is not so, and for one that was missing already when the pool was attached,\n"
"the pool has to be attached again. Of members that were all lost the last one\n"
"returns first. udev has this run for each member that appears.",
		.example = "kvctxctl pool rejoin ctx0 /dev/nvme3n1",
	}, {
		.noun = "pool", .verb = "remove", .run = cmd_pool_remove,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_TEXT, "MEMBER", .help = "its device, or its number as shown" },
		},
		.options = OPT(SOCKET) | OPT(DROP) | OPT(MOVE) | OPT(NO_WAIT),
		.summary = "remove a member from a pool in service",
		.text =
"Its pages go to the other members, as far as these have room without\n"
"evicting, or are dropped; then it is taken out of the configuration, and its\n"
"superblocks are wiped. The command shows how much is left and waits; it may\n"
"be interrupted, the removal goes on. A detach or a reboot before the end\n"
"leaves the pool with the member. One that failed or is missing can be removed\n"
"too: its pages are lost. Leases on its pages are waited for. When another\n"
"member is lost meanwhile the removal stops, until the pool was attached again.\n"
"Of a directory that kvctxd has the pool from, a link to it is taken away, and\n"
"a file of it is deleted.",
		.example = "kvctxctl pool remove ctx0 /dev/nvme3n1 --drop",
	}, {
		.noun = "pool", .verb = "list", .run = cmd_pool_list,
		.options = OPT(SOCKET),
		.summary = "list the attached pools",
		.text = "One line for each pool.",
		.example = "kvctxctl pool list -o json",
	}, {
		.noun = "pool", .verb = "show", .run = cmd_pool_show,
		.args = { { KIND_POOL, "POOL", .help = "name of an attached pool" } },
		.options = OPT(SOCKET),
		.summary = "show a pool and its members",
		.text =
"A failed member's pages are misses; the pool's state is then 'degraded' and\n"
"the other members serve on. Below the members: which of them each PCI device\n"
"with memory for peers, as a GPU, reaches without host memory, and over how\n"
"many hops, or why not.",
		.example = "kvctxctl pool show ctx0",
	}, {
		.noun = "pool", .verb = "set", .run = cmd_pool_set,
		.args = { { KIND_POOL, "POOL", .help = "name of an attached pool" } },
		.options = OPT(SOCKET) | OPT(DISCARD) | OPT(WRITE_BUDGET),
		.summary = "change how a pool treats its devices",
		.text =
"In force at once and kept on the devices. --discard: the devices are told\n"
"which bytes are old, so fast at most; where space is wanted earlier it is\n"
"used as it is. --write-budget: past so many bytes a day, whoever writes them,\n"
"a page is stored only when it was turned away or evicted not long ago. The\n"
"budget of a day is there at once after attach, is filled evenly and does not\n"
"grow beyond one day's.",
		.example = "kvctxctl pool set ctx0 --discard 512M --write-budget 2T",
	}, {
		.noun = "tenant", .verb = "add", .run = cmd_tenant_add,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_NAME, "TENANT", .help = "name of the new tenant" },
		},
		.options = OPT(SOCKET) | OPT(UID) | OPT(GID) | OPT(MODE) | OPT(REQUIRE_VERIFIED) | OPT(KEY) |
			   OPTS_LIMITS,
		.summary = "add a tenant to a pool",
		.text =
"Creates the node /dev/kvctx/POOL/TENANT. Who may open it may use the tenant's\n"
"pages; who may open it for reading only may load pages, not store them. What\n"
"it may take is not limited but for what is given, see tenant set.\n"
"With --key all its pages are encrypted (AES-256-XTS), for as long as it is\n"
"there. The key, of 64 bytes and of type logon or user, stays in the keyring:\n"
"the pool knows its name only, and each attach needs it. Revoke it there, and\n"
"nobody loads those pages any more. With --socket it is kvctxd's keyrings that\n"
"need it, as one of type user.",
		.example = "kvctxctl tenant add ctx0 llama --uid vllm --mode 0660 --quota 2T",
	}, {
		.noun = "tenant", .verb = "set", .run = cmd_tenant_set,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_TENANT, "TENANT", .help = "name of one of its tenants" },
		},
		.options = OPT(SOCKET) | OPT(REQUIRE_VERIFIED) | OPT(ALLOW_UNVERIFIED) | OPT(UNLOCK) | OPTS_LIMITS,
		.summary = "change what a tenant requires, and what it may take",
		.text =
"Kept on the devices; what is not given stays. Limits are in force at once,\n"
"also for sessions that are open: who has more than a new one allows gets no\n"
"more. A reserve is at most the quota. A write budget is the tenant's own\n"
"beside the pool's, see pool set, and counts what its stores write. Beyond its\n"
"bandwidth, or with as many operations in flight as it may have, its next ones\n"
"wait; where several tenants have a device busy, each gets as much of it as its\n"
"weight is of all of theirs.\n"
"With --require-verified each page is checked against\n"
"its checksums, by the kernel or by the reader: loads that skip the check are\n"
"refused, and so are transfers between a member and a peer's memory in which\n"
"the checksums do not come along. That is not changed while a process has the\n"
"tenant's node open.\n"
"--unlock: the key of a tenant whose pages are encrypted was not there when the\n"
"pool was attached, or was revoked, and is in your keyrings now.",
		.example = "kvctxctl tenant set ctx0 llama --quota 2T --max-pinned 64G --no-urgent",
	}, {
		.noun = "tenant", .verb = "remove", .run = cmd_tenant_remove,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_TENANT, "TENANT", .help = "name of one of its tenants" },
		},
		.options = OPT(SOCKET),
		.summary = "remove a tenant and all its pages",
		.text = "Refused while a process has the tenant's node open.",
		.example = "kvctxctl tenant remove ctx0 llama",
	}, {
		.noun = "tenant", .verb = "list", .run = cmd_tenant_list,
		.args = {
			{ KIND_POOL, "POOL", .optional = true, .help = "only the tenants of this pool" },
		},
		.options = OPT(SOCKET),
		.summary = "list tenants and their device nodes",
		.text = "One line for each tenant.",
		.example = "kvctxctl tenant list ctx0",
	}, {
		.noun = "tenant", .verb = "show", .run = cmd_tenant_show,
		.args = {
			{ KIND_POOL, "POOL", .help = "name of an attached pool" },
			{ KIND_TENANT, "TENANT", .help = "name of one of its tenants" },
		},
		.options = OPT(SOCKET),
		.summary = "show a tenant, what it has and what it may take",
		.text = "Limits that are off are not restricted but by the pool.",
		.example = "kvctxctl tenant show ctx0 llama",
	}, {
		.noun = "tenant", .verb = "stat", .run = cmd_tenant_stat,
		.args = {
			{ KIND_POOL, "POOL", .optional = true, .help = "only the tenants of this pool" },
			{ KIND_TENANT, "TENANT", .optional = true, .help = "only this one" },
		},
		.options = OPT(SOCKET) | OPT(WATCH) | OPT(COUNT),
		.summary = "show what tenants' operations came to, and how long they took",
		.text =
"Counted since attach, or since the tenant was added: operations that ended,\n"
"by what came of them, and quantiles of the time from SUBMIT to the end, by\n"
"priority; they are at most a fifth too long. With --watch a line for each\n"
"tenant tells rates and quantiles since the line before; with -o json each\n"
"report is one object on one line and holds the counters themselves.",
		.example = "kvctxctl tenant stat --watch 5 ctx0",
	}, {
		.noun = "connect", .run = cmd_connect,
		.options = OPT(TRANSPORT) | OPT(TRADDR) | OPT(TRSVCID) | OPT(NQN) | OPT(HOST_TRADDR) |
			   OPT(HOSTNQN) | OPT(HOSTID) | OPT(NR_IO_QUEUES) | OPT(CTRL_LOSS_TMO) |
			   OPT(FAST_IO_FAIL_TMO) | OPT(TIMEOUT),
		.required = OPT(TRANSPORT) | OPT(NQN),
		.summary = "connect to an NVMe-oF subsystem",
		.text =
"As nvme connect, but it waits for the block devices and prints them. If none\n"
"appears within the time limit, which begins when the target has answered, the\n"
"connection is taken down again and the command fails.",
		.example = "kvctxctl connect -t tcp -a 192.0.2.7 -s 4420 -n nqn.2026-01.org.example:kv0",
	}, {
		.noun = "disconnect", .run = cmd_disconnect,
		.options = OPT(TRANSPORT) | OPT(TRADDR) | OPT(TRSVCID) | OPT(NQN),
		.required = OPT(NQN),
		.summary = "disconnect from an NVMe-oF subsystem",
		.text =
"As nvme disconnect, but it takes down only connections that match transport,\n"
"address and port where they are given. Detach the pool first.",
		.example = "kvctxctl disconnect -n nqn.2026-01.org.example:kv0",
	}, {
		.noun = "status", .run = cmd_status,
		.options = OPT(SOCKET),
		.summary = "show on one screen how kvctx is here, and what there is to do",
		.text =
"Whether the module is loaded and kvctxd runs; the pools that they serve; those\n"
"that are on block devices and not attached, as far as these may be opened; and\n"
"a line for each thing that somebody should do, with the command for it. Exit\n"
"status 0 whatever there is to do. --socket names that of a kvctxd which is not\n"
"at /run/kvctx/control.",
		.example = "kvctxctl status",
	}, {
		.noun = "doctor", .run = cmd_doctor,
		.summary = "look at what kernel and devices allow, and what is in the way",
		.text =
"Goes through the kernel, its options and limits, and the devices of all pools\n"
"that are found: what is in the way of a pool or makes it slower or less safe\n"
"than it could be, and what to do about it. Changes nothing. A note is nothing\n"
"to mend, a warning may be, a problem is; exit status 1 if there is a problem.",
		.example = "kvctxctl doctor",
	}, {
		.noun = "stat", .run = cmd_stat,
		.args = {
			{ KIND_POOL, "POOL", .optional = true, .help = "only this pool" },
		},
		.options = OPT(SOCKET) | OPT(WATCH) | OPT(COUNT),
		.summary = "show counters",
		.text =
"Counted since attach, except pages, bytes, sessions, inflight, index_bytes\n"
"and index_limit, which are as of now. Write amplification is all bytes\n"
"written over those of stored pages. With --watch a line for each pool tells\n"
"rates since the line before; with -o json each report is one object on one\n"
"line and holds the counters themselves.",
		.example = "kvctxctl stat --watch 5 ctx0",
	}, {
		.noun = "top", .run = cmd_top,
		.args = {
			{ KIND_POOL, "POOL", .optional = true, .help = "only this pool" },
		},
		.options = OPT(SOCKET) | OPT(INTERVAL) | OPT(COUNT),
		.summary = "show tenants and members as they are busy, on a terminal",
		.text =
"Rates and quantiles since the last look, as tenant stat --watch tells them.\n"
"Keys: q ends it, m changes between tenants and members, < and > choose the\n"
"column that it is sorted by, r reverses that, + and - make the interval\n"
"longer and shorter.",
		.example = "kvctxctl top ctx0",
	}, {
		.noun = "events", .run = cmd_events,
		.args = {
			{ KIND_POOL, "POOL", .optional = true, .help = "only those of this pool" },
		},
		.options = OPT(SOCKET) | OPT(COUNT) | OPT(PAGES),
		.summary = "tell what happens to pools, members and tenants",
		.text =
"A line for each: when, what, and to whom; with -o json an object on one line\n"
"that holds the pool or tenant as it was then. It goes on until interrupted.\n"
"Who reads too slowly is told that some are missing.\n"
"With --pages each page that is stored, evicted, deleted or dropped for its\n"
"checksum has a line with its keyspace, key and length, within a tenth of a\n"
"second; of a pool no more than 10240 a second, and how many others there were.",
		.example = "kvctxctl events ctx0",
	}, {
		.noun = "exporter", .run = cmd_exporter,
		.options = OPT(SOCKET) | OPT(LISTEN),
		.summary = "serve metrics to Prometheus",
		.text =
"Answers HTTP requests for /metrics with what stat, pool list and tenant list\n"
"tell: of pools, members and tenants, in the text format. Each request asks\n"
"the module, or kvctxd, anew; without one it is answered with 503. Ends with\n"
"SIGTERM or SIGINT. Needs no permission but that to ask. PORT alone is one of\n"
"127.0.0.1; nothing is encrypted and nobody is asked who he is.",
		.example = "kvctxctl exporter --socket /run/kvctx/control --listen 9585",
	}, {
		.noun = "check", .run = cmd_check,
		.args = {
			{ KIND_DEVICE, "DEVICE", .many = true,
			  .help = "block device or image file, all members of one pool" },
		},
		.options = OPT(DATA) | OPT(FORCE),
		.force = "look at what is in use",
		.summary = "see whether a pool that is not attached is sound",
		.text =
"Reads superblocks and the logs of all segments as an attach would, and writes\n"
"nothing. Exit status 1 if anything is damaged: a superblock slot, a log, with\n"
"--data a page, or a member is missing. What a power cut tears is damage too;\n"
"an attach copes with all of it, and loses what the damaged part named. A pool\n"
"in use changes under the reader: --force looks at it anyway, and may call\n"
"damage what is on its way.",
		.example = "kvctxctl check --data /dev/nvme1n1 /dev/nvme2n1",
	}, {
		.noun = "dump", .run = cmd_dump,
		.args = {
			{ KIND_DEVICE, "DEVICE", .help = "block device or image file" },
			{ KIND_TEXT, "WHAT", .optional = true, .many = true,
			  .help = "super (default), segment N, or page KEY..." },
		},
		.options = OPT(FORCE),
		.force = "look at what is in use",
		.summary = "show what lies on a member of a pool",
		.text =
"super: the superblocks, also damaged ones. segment N: header, extents and\n"
"records of a segment. page KEY...: every record of a key on this member, also\n"
"of pages that are gone; the key, or how it begins, in hexadecimal. Exit\n"
"status 1 if what is shown is damaged.",
		.example = "kvctxctl dump /dev/nvme1n1 segment 3",
	}, {
		.noun = "probe", .run = cmd_probe,
		.args = { { KIND_DEVICE, "DEVICE", .help = "block device or image file" } },
		.options = OPT(UDEV),
		.summary = "tell whether a device is a member of a pool, and of which",
		.text =
"Exit status 3 if it is none, 1 if it holds something else by now. With --udev\n"
"it prints ID_FS_TYPE=kvctx_member, ID_FS_UUID (of the pool), ID_FS_UUID_SUB (of\n"
"the member), KVCTX_POOL (its name) and KVCTX_MEMBER (its number).",
		.example = "kvctxctl probe /dev/nvme1n1",
	}, {
		.noun = "load", .run = cmd_load,
		.summary = "load the kernel module",
		.text =
"As modprobe, but it says in words what is in the way: no module for this\n"
"kernel, no signature that the kernel trusts, no permission. Does nothing when\n"
"it is loaded.",
		.example = "kvctxctl load",
	}, {
		.noun = "unload", .run = cmd_unload,
		.summary = "unload the kernel module",
		.text =
"As modprobe -r, but it leaves the modules alone that it needed. Does nothing\n"
"when it is not loaded. Pools are detached; refused while a session is open.",
		.example = "kvctxctl unload",
	}, {
		.noun = "version", .run = cmd_version,
		.summary = "show versions of tool and module",
		.text = "Tells too whether the module is loaded.",
		.example = "kvctxctl version",
	}, {
		.noun = "help", .run = cmd_help,
		.args = {
			{ KIND_COMMAND, "COMMAND", .optional = true, .help = "a command, or the first word of several" },
			{ KIND_TEXT, "VERB", .optional = true, .help = "its second word, where it has one" },
		},
		.summary = "explain a command",
		.text = "The same as COMMAND --help; alone it lists the commands.",
		.example = "kvctxctl help pool attach",
	},
	{ .noun = NULL }
};
