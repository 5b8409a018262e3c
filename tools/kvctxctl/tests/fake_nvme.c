// SPDX-License-Identifier: GPL-2.0
/*
 * In place of libnvme: three connections are there, one more can be made.
 *
 *	nvme4	nqn.test:a	tcp 192.0.2.1 4420
 *	nvme5	nqn.test:a	tcp 192.0.2.2 4420
 *	nvme6	nqn.test:b	loop
 *
 *	FAKE_NVME_ERRNO		making or ending a connection fails so
 *	FAKE_DISCONNECT_ERRNO	ending one fails so, and making one does not
 *	FAKE_NAMESPACES		entries that show up in /sys/class/nvme/nvme1, with their nodes (default: nvme1c1n1)
 *	FAKE_APPEAR		from the n-th look on (default 3); 0: never
 */
#include <errno.h>
#include <libnvme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct nvme_ctrl {
	const char *name, *transport, *traddr, *trsvcid;
	struct nvme_subsystem *subsys;
};

struct nvme_subsystem {
	const char *nqn;
};

struct nvme_host {
	int unused;
};

struct nvme_root {
	int unused;
};

static struct nvme_subsystem subsystems[] = { { "nqn.test:a" }, { "nqn.test:b" } };

static struct nvme_ctrl ctrls[] = {
	{ "nvme4", "tcp", "192.0.2.1", "4420", &subsystems[0] },
	{ "nvme5", "tcp", "192.0.2.2", "4420", &subsystems[0] },
	{ "nvme6", "loop", NULL, NULL, &subsystems[1] },
};

static struct nvme_host host;
static bool connected;

nvme_root_t nvme_create_root(FILE *to, int level)
{
	return calloc(1, sizeof(struct nvme_root));
}

void nvme_free_tree(nvme_root_t r)
{
	free(r);
}

int nvme_scan_topology(nvme_root_t r, nvme_scan_filter_t f, void *args)
{
	fake_log("scan");
	return 0;
}

nvme_host_t nvme_default_host(nvme_root_t r)
{
	return &host;
}

nvme_host_t nvme_lookup_host(nvme_root_t r, const char *hostnqn, const char *hostid)
{
	fake_log("host %s %s", hostnqn, hostid ? hostid : "-");
	return &host;
}

nvme_ctrl_t nvme_create_ctrl(nvme_root_t r, const char *nqn, const char *transport, const char *traddr,
			     const char *host_traddr, const char *host_iface, const char *trsvcid)
{
	nvme_ctrl_t c = calloc(1, sizeof(*c));

	fake_log("ctrl %s %s %s %s from %s", nqn, transport, traddr ? traddr : "-", trsvcid ? trsvcid : "-",
		 host_traddr ? host_traddr : "-");
	return c;
}

static nvme_ctrl_t the_new_one;

void nvme_free_ctrl(nvme_ctrl_t c)
{
	free(c);
}

void nvmf_default_config(struct nvme_fabrics_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->ctrl_loss_tmo = NVMF_DEF_CTRL_LOSS_TMO;
}

static void free_the_new_one(void)
{
	free(the_new_one);
}

int nvmf_add_ctrl(nvme_host_t h, nvme_ctrl_t c, const struct nvme_fabrics_config *cfg)
{
	fake_log("connect queues=%d loss=%d fail=%d", cfg->nr_io_queues, cfg->ctrl_loss_tmo, cfg->fast_io_fail_tmo);
	errno = (int)fake_number("FAKE_NVME_ERRNO", 0);
	if (errno)
		return -1;
	c->name = "nvme1";
	the_new_one = c;	/* the tree's, as in libnvme */
	atexit(free_the_new_one);
	connected = true;
	return 0;
}

int nvme_disconnect_ctrl(nvme_ctrl_t c)
{
	fake_log("disconnect %s", c->name);
	errno = (int)fake_number("FAKE_DISCONNECT_ERRNO", fake_number("FAKE_NVME_ERRNO", 0));
	if (errno)
		return -1;
	c->name = NULL;
	return 0;
}

const char *nvme_errno_to_string(int err)
{
	return err == ENVME_CONNECT_ALREADY ? "already connected" : "fabrics error";
}

const char *nvme_ctrl_get_name(nvme_ctrl_t c)
{
	return c->name;
}

const char *nvme_ctrl_get_transport(nvme_ctrl_t c)
{
	return c->transport;
}

const char *nvme_ctrl_get_traddr(nvme_ctrl_t c)
{
	return c->traddr;
}

const char *nvme_ctrl_get_trsvcid(nvme_ctrl_t c)
{
	return c->trsvcid;
}

const char *nvme_subsystem_get_nqn(nvme_subsystem_t s)
{
	return s->nqn;
}

nvme_host_t nvme_first_host(nvme_root_t r)
{
	return &host;
}

nvme_host_t nvme_next_host(nvme_root_t r, nvme_host_t h)
{
	return NULL;
}

nvme_subsystem_t nvme_first_subsystem(nvme_host_t h)
{
	return &subsystems[0];
}

nvme_subsystem_t nvme_next_subsystem(nvme_host_t h, nvme_subsystem_t s)
{
	return s == &subsystems[0] ? &subsystems[1] : NULL;
}

nvme_ctrl_t nvme_subsystem_next_ctrl(nvme_subsystem_t s, nvme_ctrl_t c)
{
	for (c = c ? c + 1 : ctrls; c < ctrls + 3; c++)
		if (c->subsys == s)
			return c;
	return NULL;
}

nvme_ctrl_t nvme_subsystem_first_ctrl(nvme_subsystem_t s)
{
	return nvme_subsystem_next_ctrl(s, NULL);
}

static void appear(const char *entry)
{
	char path[128], name[64];
	const char *c = strchr(entry + 4, 'c'), *n = strchr(entry + 4, 'n');

	snprintf(path, sizeof(path), "/sys/class/nvme/nvme1/%s/size", entry);
	fake_make(path);
	snprintf(name, sizeof(name), "%.*s%s", (int)((c ? c : n) - entry), entry, n);
	snprintf(path, sizeof(path), "/dev/%s", name);
	fake_make(path);
}

void fake_namespaces_appear(void)
{
	const char *all = getenv("FAKE_NAMESPACES");
	char list[128], *entry;
	static int looks;

	if (!connected)
		return;
	fake_make("/sys/class/nvme/nvme1/hwmon1/x");
	fake_make("/sys/class/nvme/nvme1/ng1n1/x");
	fake_make("/sys/class/nvme/nvme1/nvme1-x/x");
	if (++looks != fake_number("FAKE_APPEAR", 3))
		return;
	snprintf(list, sizeof(list), "%s", all ? all : "nvme1c1n1");
	for (entry = strtok(list, " "); entry; entry = strtok(NULL, " "))
		appear(entry);
}
