/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvctxctl: what its parts share.
 *
 *	main.c		parses the command line against the table, dispatches
 *	table.c		the table of commands and options: help, completion, man page come from it too
 *	help.c		--help and the generator of the man page
 *	completion.c	the generators of completion
 *	util.c		values of arguments, messages
 *	out.c		tables and JSON
 *	nl.c		generic netlink
 *	nl_socket.c	the same messages to kvctxd
 *	objects.c	netlink objects to JSON
 *	media.c		devices of pools that are not attached
 *	signature.c	what else libblkid finds on them
 *	scan.c		the pools on block devices
 *	grow.c		members added to and removed from an attached pool
 *	peers.c		paths between the memory of PCI peers and members
 *	metrics.c	what Prometheus is told
 *	cmd_*.c		the commands
 *
 * What makes a pool (libkvctx/engine/format.c, file.c) is shared with the library.
 *
 * Vocabulary: a command is a noun and a verb ("pool list") or a noun alone ("connect"). Its words are arguments,
 * by position, and options, by name. Both have a kind, which says how the text is checked, what the value is and
 * what completion offers.
 *
 * A command returns an exit status and has printed its own error. It collects what it has to say in a JSON object;
 * out.c prints that, or a table made from it, so both forms always say the same.
 */
#ifndef CTL_H
#define CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define __printf(fmt, args)	__attribute__((format(printf, fmt, args)))

struct json_object;

/* Exit status; documented in the man page */
enum ctl_status {
	CTL_OK		= 0,
	CTL_FAILED	= 1,
	CTL_USAGE	= 2,
	CTL_NODEV	= 3,	/* no such device, pool, module; or no permission */
	CTL_NOSUPP	= 4,	/* not supported here */
};

enum ctl_kind {
	KIND_NONE,
	KIND_FLAG,		/* option without a value */
	KIND_TEXT,
	KIND_NAME,		/* a name to give */
	KIND_POOL,		/* name of a pool */
	KIND_TENANT,		/* name of a tenant of the pool before it */
	KIND_DEVICE,		/* path */
	KIND_COMMAND,		/* the first word of a command */
	KIND_NQN,
	KIND_SIZE,		/* bytes, with K M G T */
	KIND_NUMBER,
	KIND_SECONDS,		/* num is in milliseconds */
	KIND_MODE,		/* permission bits, octal */
	KIND_USER,
	KIND_GROUP,
	KIND_TRANSPORT,
	KIND_FORMAT,
	KIND_RATE,		/* bytes a second, or on (num is CTL_DEFAULT), or off (0) */
	KIND_LIMIT,		/* bytes, or off (0) */
	KIND_MOST,		/* a number, or off (0) */
	KIND_WEIGHT,		/* 1 to KVC_WEIGHT_MAX */
};

enum ctl_opt {
	OPT_OUTPUT,
	OPT_HELP,
	OPT_VERSION,
	OPT_SEGMENT_SIZE,
	OPT_CHUNK_SIZE,
	OPT_SIZE,
	OPT_FORCE,
	OPT_DRY_RUN,
	OPT_DEGRADED,
	OPT_DATA,
	OPT_DROP,
	OPT_MOVE,
	OPT_NO_WAIT,
	OPT_UID,
	OPT_GID,
	OPT_MODE,
	OPT_REQUIRE_VERIFIED,
	OPT_ALLOW_UNVERIFIED,
	OPT_KEY,
	OPT_UNLOCK,
	OPT_QUOTA,
	OPT_RESERVE,
	OPT_MAX_PINNED,
	OPT_MAX_LEASED,
	OPT_MAX_KEYSPACES,
	OPT_BANDWIDTH,
	OPT_MAX_INFLIGHT,
	OPT_WEIGHT,
	OPT_NO_URGENT,
	OPT_URGENT,
	OPT_TRANSPORT,
	OPT_TRADDR,
	OPT_TRSVCID,
	OPT_NQN,
	OPT_HOST_TRADDR,
	OPT_HOSTNQN,
	OPT_HOSTID,
	OPT_NR_IO_QUEUES,
	OPT_CTRL_LOSS_TMO,
	OPT_FAST_IO_FAIL_TMO,
	OPT_TIMEOUT,
	OPT_WATCH,
	OPT_COUNT,
	OPT_INTERVAL,
	OPT_DISCARD,
	OPT_WRITE_BUDGET,
	OPT_VERBOSE,
	OPT_SOCKET,
	OPT_LISTEN,
	OPT_WAIT,
	OPT_UDEV,
	OPT_PAGES,
	OPT_NR,
};

#define CTL_DEFAULT	UINT64_MAX

#define OPT(name)	(1ULL << OPT_##name)
#define OPTS_COMMON	(OPT(OUTPUT) | OPT(HELP))
#define OPTS_LIMITS	(OPT(QUOTA) | OPT(RESERVE) | OPT(WRITE_BUDGET) | OPT(MAX_PINNED) | OPT(MAX_LEASED) | \
			 OPT(MAX_KEYSPACES) | OPT(BANDWIDTH) | OPT(MAX_INFLIGHT) | OPT(WEIGHT) | OPT(NO_URGENT) | \
			 OPT(URGENT))	/* of a tenant */

struct ctl_option {
	const char *name;
	char letter;			/* 0: none */
	enum ctl_kind kind;
	bool value_optional;
	const char *meta;		/* what help calls its value */
	const char *help;
};

struct ctl_arg {
	enum ctl_kind kind;		/* KIND_NONE ends the list */
	const char *meta;
	bool optional;
	bool many;			/* one or more; only the last */
	const char *help;
};

#define CTL_ARGS_MAX	2

struct ctl;

struct ctl_command {
	const char *noun;
	const char *verb;		/* NULL: the noun is the command */
	int (*run)(struct ctl *c);
	struct ctl_arg args[CTL_ARGS_MAX + 1];
	uint64_t options;		/* OPT() bits, besides OPTS_COMMON */
	uint64_t required;
	const char *force;		/* what --force is for here */
	const char *summary;		/* one line, no full stop */
	const char *text;		/* sentences; lines of at most 78 columns */
	const char *example;
};

struct ctl_noun {
	const char *name;
	const char *summary;
};

struct ctl_value {
	bool set;
	const char *text;		/* NULL: the optional value was left out */
	uint64_t num;
};

/* One invocation */
struct ctl {
	const struct ctl_command *cmd;
	bool json;
	struct ctl_value opt[OPT_NR];
	int nr_args;
	char **args;
};

/* table.c */
extern const struct ctl_option ctl_options[OPT_NR];
extern const struct ctl_command ctl_commands[];		/* ends with noun NULL */
extern const struct ctl_noun ctl_nouns[];		/* those with verbs; ends with name NULL */
const char *const *ctl_choices(enum ctl_kind kind);	/* words of a closed kind, NULL-ended; or NULL */

/* help.c */
void ctl_help(FILE *to);
void ctl_help_noun(FILE *to, const struct ctl_noun *noun);
void ctl_help_command(FILE *to, const struct ctl_command *cmd);
const char *ctl_option_help(const struct ctl_command *cmd, int id);
void ctl_generate_man(FILE *to);

/* completion.c */
bool ctl_generate_completion(FILE *to, const char *file);	/* by the name that the shell knows it by; false: none */

/* util.c */
__printf(2, 3) void ctl_error(const char *what, const char *fmt, ...);
__printf(2, 3) void ctl_command_error(const struct ctl *c, const char *fmt, ...);
int ctl_status_of(int err);				/* exit status for a positive errno */
const char *ctl_value_parse(enum ctl_kind kind, const char *text, struct ctl_value *v);	/* NULL or why not */
void ctl_command_name(const struct ctl_command *cmd, char *buf, size_t size);
void ctl_uuid_text(const uint8_t uuid[16], char text[37]);
bool ctl_read_line(const char *path, char *text, size_t size);
char *path_absolute(const char *path);			/* from the root; NULL: see errno. Free it */
uint64_t ctl_now_ms(void);				/* monotonic */
void ctl_sleep_ms(uint64_t ms);

/* Commands */
int cmd_pool_format(struct ctl *c);
int cmd_pool_scan(struct ctl *c);
int cmd_pool_attach(struct ctl *c);
int cmd_pool_detach(struct ctl *c);
int cmd_pool_add(struct ctl *c);
int cmd_pool_rejoin(struct ctl *c);
int cmd_pool_remove(struct ctl *c);
int cmd_pool_list(struct ctl *c);
int cmd_pool_show(struct ctl *c);
int cmd_pool_set(struct ctl *c);
int cmd_pool_destroy(struct ctl *c);
int cmd_tenant_add(struct ctl *c);
int cmd_tenant_set(struct ctl *c);
int cmd_tenant_remove(struct ctl *c);
int cmd_tenant_list(struct ctl *c);
int cmd_tenant_stat(struct ctl *c);
int cmd_tenant_show(struct ctl *c);
int cmd_connect(struct ctl *c);
int cmd_disconnect(struct ctl *c);
int cmd_status(struct ctl *c);
int cmd_doctor(struct ctl *c);
int cmd_probe(struct ctl *c);
int cmd_stat(struct ctl *c);
int cmd_top(struct ctl *c);
int cmd_events(struct ctl *c);
int cmd_exporter(struct ctl *c);
int cmd_check(struct ctl *c);
int cmd_dump(struct ctl *c);
int cmd_load(struct ctl *c);
int cmd_unload(struct ctl *c);
int cmd_version(struct ctl *c);
int cmd_help(struct ctl *c);		/* main.c, as it knows commands by their words */

/* cmd_format.c, for others: check a device that a pool with such segments shall get, clear what it holds; an exit status */
int format_clear_device(struct ctl *c, const char *path, uint64_t segment_size);

/* cmd_module.c, for others: load a module without a word; 0 or -errno */
int module_load(const char *name);
enum module_state {
	MODULE_ABSENT,		/* none is installed for the running kernel */
	MODULE_INSTALLED,
	MODULE_LOADED,		/* or built in */
};
enum module_state module_look(void);

#endif
