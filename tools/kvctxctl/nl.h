/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests over the generic-netlink family of the control plane, to the kernel or to kvctxd.
 */
#ifndef CTL_NL_H
#define CTL_NL_H

#include <linux/kvctx_genl.h>
#include <netlink/attr.h>

#include "ctl.h"

struct nl_sock;

/* A message from the kernel: its attributes by type, and as they stand for those that repeat */
struct nl_object {
	struct nlattr *attrs[KVCTX_A_MAX + 1];
	struct nlattr *head;
	int len;
};

#define REFUSAL_MAX	512

struct nl_request {
	uint8_t cmd;			/* KVCTX_CMD_* */
	bool dump;
	const char *pool;		/* attributes; NULL or unset: left out */
	const char *tenant;
	char *const *devices;
	int nr_devices;
	const struct ctl_value *uid, *gid, *mode, *flags;
	const char *key;
	bool degraded, move, dry_run, unlock;
	const struct ctl_value *limits;	/* those of the options that are limits of a tenant, by OPT_* */
	const struct ctl_value *index, *discard_rate, *write_budget, *capacity;
	struct json_object *(*object)(const struct nl_object *o);	/* an answer in JSON; NULL: no answers */
	char *refusal;			/* NULL, or room for REFUSAL_MAX: why, instead of telling, it failed with @refused */
	int refused;			/* 0: EOPNOTSUPP */
};

/*
 * Send @rq and wait for its end. The answers are added to the array @objects in their order. Returns an exit status
 * and has told the user what went wrong, in the kernel's words where it gave any.
 */
int nl_request(const struct ctl *c, const struct nl_request *rq, struct json_object *objects);

/*
 * Hear of what happens, until one of the functions returns false: @event is called with the number of the command that
 * it is an answer to in form, @lost when some were not heard. With @pages also of pages. An exit status; the user was told
 * what went wrong.
 */
int nl_events(const struct ctl *c, bool pages, bool (*event)(void *arg, uint8_t cmd, const struct nl_object *o),
	      bool (*lost)(void *arg), void *arg);

/* nl_socket.c: to kvctxd, where --socket or KVCTX_SOCKET says so */
const char *nl_socket_path(const struct ctl *c);	/* NULL: to the module */
struct ctl nl_to_module(const struct ctl *c);		/* the same command, but to the module */
#define NL_DAEMON_SOCKET	"/run/kvctx/control"	/* of kvctxd, unless it is told otherwise */

int nl_socket_try(const char *path);	/* does anybody answer there? 0 or an errno */
int nl_socket_open(const struct ctl *c, struct nl_sock *sk, int *family);	/* an exit status */
int nl_socket_listen(struct nl_sock *sk, bool pages);	/* what comes from then on are events; 0 or a libnl error */
void nl_socket_close(void);
/* What a program opens to use a tenant, of whom nl_socket_path() has last told */
void nl_node(const char *pool, const char *tenant, char *node, size_t size);

/* objects.c */
struct json_object *object_pool(const struct nl_object *o);
struct json_object *object_tenant(const struct nl_object *o);
struct json_object *object_peer(const struct nl_object *o);
struct json_object *object_stats(const struct nl_object *o);

/* tenant_stats.c: what a tenant's operations came to */
struct json_object *object_tenant_stats(const struct nl_object *o);
/* Nanoseconds below which those of a bucket but the last are, see struct kvctx_genl_latency */
uint64_t latency_end(size_t bucket);
uint64_t latency_p99(struct json_object *was, struct json_object *is, const char *op, const char *prio);

/* peers.c: what PCI peers' memory reaches, as a field of the JSON object of a pool, and as text from there */
int peers_get(const struct ctl *c, struct json_object *pool);
void peers_put(struct json_object *pool);

/* cmd_pool.c: print the first of @pools, in text below the line @headline if there is one; frees @pools */
int pool_put(const struct ctl *c, struct json_object *pools, const char *headline);

struct stat_name {
	const char *key;
	const char *help;		/* a sentence */
	bool now;			/* a level, not a count */
};

/* Indexed by KVCTX_S_*; key is NULL where there is no counter */
extern const struct stat_name stat_names[];
extern const int nr_stat_names;

#endif
