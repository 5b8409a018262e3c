// SPDX-License-Identifier: GPL-2.0
/*
 * The matrix of paths: a row for each PCI device with memory for peers, a column for each member, in a cell the number
 * of PCI hops between them or why there is no path, in short; and a sentence for each of those below.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nl.h"
#include "out.h"

/* Adds "peers" to @pool, or "peers_unknown" with the reason */
int peers_get(const struct ctl *c, struct json_object *pool)
{
	char refusal[REFUSAL_MAX];
	struct nl_request rq = {
		.cmd = KVCTX_CMD_PEER_GET, .dump = true, .pool = c->args[0], .object = object_peer, .refusal = refusal,
	};
	struct json_object *peers = out_array();
	int status;

	if (!pool) {
		json_object_put(peers);
		return CTL_OK;
	}
	status = nl_request(c, &rq, peers);
	if (status == CTL_OK) {
		out_add(pool, "peers", peers);
		return CTL_OK;
	}
	json_object_put(peers);
	if (status != CTL_NOSUPP)
		return status;
	out_text(pool, "peers_unknown", refusal);
	return CTL_OK;
}

static const char *short_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The transport of one controller of a disk: of the disk's parent, or below that when it is a subsystem */
static bool read_transport(const char *disk, const char *controller, char *text, size_t size)
{
	char path[256];

	snprintf(path, sizeof(path), "/sys/class/block/%.64s/device/%.64s/transport", disk, controller);
	return ctl_read_line(path, text, size);
}

static void find_transport(const char *disk, char *text, size_t size)
{
	char path[128];
	struct dirent *e;
	DIR *dir;

	if (read_transport(disk, ".", text, size))
		return;
	snprintf(path, sizeof(path), "/sys/class/block/%.64s/device", disk);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (!strncmp(e->d_name, "nvme", 4) && read_transport(disk, e->d_name, text, size))
			break;
	if (dir)
		closedir(dir);
}

/* "NVMe/TCP " and the like for a namespace behind a fabric */
static const char *fabric(const char *disk)
{
	static const char *const names[][2] = {
		{ "tcp", "NVMe/TCP " }, { "rdma", "NVMe/RDMA " }, { "fc", "NVMe/FC " }, { "loop", "NVMe loop " },
	};
	char text[16] = "";

	find_transport(disk, text, sizeof(text));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i][0], text))
			return names[i][1];
	return "";
}

static void put_reason(const char *peer, const char *member, const char *reason, bool first)
{
	if (!strcmp(reason, "no_route"))
		printf("%s: no common switch with %s\n", peer, member);
	else if (!strcmp(reason, "gone"))
		printf("%s: its driver has let go of it\n", peer);
	else if (!strcmp(reason, "no_queue") && first)
		printf("%s: %stakes no peer memory\n", member, fabric(member));
	else if (!strcmp(reason, "no_pci") && first)
		printf("%s: not a PCI device\n", member);
}

static struct json_object *path_of(struct json_object *peers, size_t peer, size_t member)
{
	return json_object_array_get_idx(out_get(json_object_array_get_idx(peers, peer), "paths"), member);
}

/* What is wrong with a member is said once; what is between it and a peer for each peer */
static void put_reasons(struct json_object *peers, struct json_object *members)
{
	for (size_t p = 0; p < json_object_array_length(peers); p++) {
		const char *peer = out_get_text(json_object_array_get_idx(peers, p), "peer");

		for (size_t m = 0; m < json_object_array_length(members); m++) {
			struct json_object *path = path_of(peers, p, m);
			const char *device = out_get_text(json_object_array_get_idx(members, m), "device");

			if (path)
				put_reason(peer, short_name(device), out_get_text(path, "reason"), p == 0);
		}
	}
}

/* "no_queue" is "no queue" to people */
static void put_cell(struct json_object *row, const char *key, struct json_object *path)
{
	char text[32];

	if (path && out_get(path, "distance"))
		snprintf(text, sizeof(text), "%llu", (unsigned long long)out_get_number(path, "distance"));
	else
		snprintf(text, sizeof(text), "%s", path ? out_get_text(path, "reason") : "-");
	for (char *p = strchr(text, '_'); p; p = strchr(p, '_'))
		*p = ' ';
	out_text(row, key, text);
}

static void put_matrix(struct json_object *peers, struct json_object *members)
{
	struct out_column columns[OUT_COLUMNS_MAX] = { { "peer", "PEER", FORM_TEXT } };
	size_t n = json_object_array_length(members);
	struct json_object *rows = out_array();
	char keys[OUT_COLUMNS_MAX][8];

	if (n > OUT_COLUMNS_MAX - 2)
		n = OUT_COLUMNS_MAX - 2;
	for (size_t m = 0; m < n; m++) {
		snprintf(keys[m], sizeof(keys[m]), "%u", (unsigned int)m);
		columns[m + 1] = (struct out_column){
			keys[m], short_name(out_get_text(json_object_array_get_idx(members, m), "device")), FORM_TEXT,
		};
	}
	for (size_t p = 0; p < json_object_array_length(peers); p++) {
		struct json_object *row = out_object();

		out_text(row, "peer", out_get_text(json_object_array_get_idx(peers, p), "peer"));
		for (size_t m = 0; m < n; m++)
			put_cell(row, keys[m], path_of(peers, p, m));
		out_append(rows, row);
	}
	out_table(rows, columns);
	json_object_put(rows);
}

void peers_put(struct json_object *pool)
{
	struct json_object *peers = out_get(pool, "peers"), *members = out_get(pool, "members");

	if (out_get(pool, "peers_unknown"))
		printf("\npeer memory: %s\n", out_get_text(pool, "peers_unknown"));
	if (!peers)
		return;
	putchar('\n');
	if (!json_object_array_length(peers)) {
		puts("peer memory: no PCI device offers any");
		return;
	}
	put_matrix(peers, members);
	put_reasons(peers, members);
}
