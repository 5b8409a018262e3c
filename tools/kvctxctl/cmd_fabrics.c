// SPDX-License-Identifier: GPL-2.0
/*
 * connect and disconnect: NVMe-oF through libnvme.
 *
 * The kernel finds namespaces some time after the controller is there. They show up as directories below
 * /sys/class/nvme/CTRL: "nvme<c>n<n>" without native multipath; with it "nvme<s>c<c>n<n>", a path, whose block
 * device is "nvme<s>n<n>".
 */
#include <dirent.h>
#include <errno.h>
#include <libnvme.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "out.h"

#define FABRICS_NODE	"/dev/nvme-fabrics"
#define TIMEOUT_MS	10000
#define POLL_MS		50
#define STABLE_POLLS	4	/* no further device for so long: that was all */

static const char *text_of(const struct ctl *c, enum ctl_opt opt)
{
	return c->opt[opt].set ? c->opt[opt].text : NULL;
}

static bool number_follows(const char **p, char letter)
{
	size_t n;

	if (**p != letter)
		return false;
	n = strspn(*p + 1, "0123456789");
	*p += n ? n + 1 : 0;
	return n > 0;
}

/* The block device that the sysfs entry @entry of a controller stands for; false: none */
static bool device_of(const char *entry, char *name, size_t size)
{
	const char *p = entry + 3;	/* at the "e" of "nvme" */
	int subsys;

	if (strncmp(entry, "nvme", 4) || !number_follows(&p, 'e'))
		return false;
	subsys = (int)(p - entry);
	number_follows(&p, 'c');
	snprintf(name, size, "%.*s%s", subsys, entry, p);
	return number_follows(&p, 'n') && !*p;
}

static int by_name(const void *a, const void *b)
{
	struct json_object *const *x = a, *const *y = b;

	return strverscmp(json_object_get_string(*x), json_object_get_string(*y));
}

/* Nodes in /dev of the namespaces of @ctrl, as far as they are there */
static struct json_object *devices_of(const char *ctrl)
{
	struct json_object *devices = out_array();
	char path[320], name[280];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/nvme/%s", ctrl);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (!device_of(entry->d_name, name, sizeof(name)))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", name);
		if (!access(path, F_OK))
			out_append(devices, json_object_new_string(path));
	}
	if (dir)
		closedir(dir);
	json_object_array_sort(devices, by_name);
	return devices;
}

/* Waits until there is a device and no more come, or the time is over; the array may be empty then */
static struct json_object *wait_devices(const char *ctrl, uint64_t timeout_ms)
{
	uint64_t end = ctl_now_ms() + timeout_ms;
	struct json_object *devices = devices_of(ctrl);
	int stable = 0;

	while (stable < STABLE_POLLS && ctl_now_ms() < end) {
		struct json_object *now;

		ctl_sleep_ms(POLL_MS);
		now = devices_of(ctrl);
		stable = json_object_array_length(now) && json_object_equal(now, devices) ? stable + 1 : 0;
		json_object_put(devices);
		devices = now;
	}
	return devices;
}

/* libnvme has numbers of its own, above those of the system */
static const char *fabrics_why(int err)
{
	if (err == ENVME_CONNECT_WRITE)
		return "failed: no such subsystem for this host, or its address cannot be reached; the kernel log says which";
	return err >= ENVME_CONNECT_RESOLVE ? nvme_errno_to_string(err) : strerror(err);
}

static int fabrics_failed(const struct ctl *c, int err)
{
	bool ours = err >= ENVME_CONNECT_RESOLVE;

	ctl_command_error(c, "%s: %s", c->opt[OPT_NQN].text, fabrics_why(err));
	switch (err) {
	case ENVME_CONNECT_OPEN:
	case ENVME_CONNECT_NODEV:
		return CTL_NODEV;
	case ENVME_CONNECT_INVAL_TR:
	case ENVME_CONNECT_OPNOTSUPP:
		return CTL_NOSUPP;
	default:
		return ours ? CTL_FAILED : ctl_status_of(err);
	}
}

static int usage(const struct ctl *c, const char *why)
{
	ctl_command_error(c, "%s", why);
	fprintf(stderr, "Try 'kvctxctl %s --help'.\n", c->cmd->noun);
	return CTL_USAGE;
}

static int check(const struct ctl *c)
{
	bool loop = !strcmp(c->opt[OPT_TRANSPORT].text, "loop");

	if (!loop && !c->opt[OPT_TRADDR].set)
		return usage(c, "--traddr: missing; only the transport loop goes without");
	if (c->opt[OPT_HOSTID].set && !c->opt[OPT_HOSTNQN].set)
		return usage(c, "--hostid: needs --hostnqn too");
	return CTL_OK;
}

/* The module brings the node; opening it says what is wrong if that fails */
static int check_node(const struct ctl *c)
{
	if (access(FABRICS_NODE, F_OK))
		module_load("nvme-fabrics");
	if (!access(FABRICS_NODE, R_OK | W_OK))
		return CTL_OK;
	if (errno == ENOENT)
		ctl_command_error(c, "%s: not there; the kernel module nvme-fabrics is not loaded", FABRICS_NODE);
	else
		ctl_command_error(c, "%s: %s", FABRICS_NODE, strerror(errno));
	return ctl_status_of(errno);
}

static int put_devices(const struct ctl *c, const char *ctrl, struct json_object *devices)
{
	struct json_object *root;

	if (c->json) {
		root = out_root();
		out_text(root, "nqn", c->opt[OPT_NQN].text);
		out_text(root, "controller", ctrl);
		out_add(root, "devices", json_object_get(devices));
		out_json(root);
		json_object_put(root);
		return CTL_OK;
	}
	for (size_t i = 0; i < json_object_array_length(devices); i++)
		puts(json_object_get_string(json_object_array_get_idx(devices, i)));
	return CTL_OK;
}

/* @ctrl is connected: find its devices, or take it down */
static int settle(const struct ctl *c, nvme_ctrl_t ctrl)
{
	uint64_t limit = c->opt[OPT_TIMEOUT].set ? c->opt[OPT_TIMEOUT].num : TIMEOUT_MS;
	const char *name = nvme_ctrl_get_name(ctrl);
	struct json_object *devices = wait_devices(name, limit);
	int status = CTL_FAILED;

	if (json_object_array_length(devices)) {
		status = put_devices(c, name, devices);
	} else if (nvme_disconnect_ctrl(ctrl)) {
		ctl_command_error(c, "%s: connected, but no block device appeared within %.1f s, and %s cannot be "
				  "disconnected: %s", c->opt[OPT_NQN].text, (double)limit / 1000, name, strerror(errno));
	} else {
		ctl_command_error(c, "%s: connected, but no block device appeared within %.1f s; disconnected again",
				  c->opt[OPT_NQN].text, (double)limit / 1000);
	}
	json_object_put(devices);
	return status;
}

static void configure(const struct ctl *c, struct nvme_fabrics_config *cfg)
{
	nvmf_default_config(cfg);
	if (c->opt[OPT_NR_IO_QUEUES].set)
		cfg->nr_io_queues = (int)c->opt[OPT_NR_IO_QUEUES].num;
	if (c->opt[OPT_CTRL_LOSS_TMO].set)
		cfg->ctrl_loss_tmo = (int)c->opt[OPT_CTRL_LOSS_TMO].num;
	if (c->opt[OPT_FAST_IO_FAIL_TMO].set)
		cfg->fast_io_fail_tmo = (int)c->opt[OPT_FAST_IO_FAIL_TMO].num;
}

static const char *port(const struct ctl *c)
{
	const char *transport = c->opt[OPT_TRANSPORT].text;
	bool ip = !strcmp(transport, "tcp") || !strcmp(transport, "rdma");

	return text_of(c, OPT_TRSVCID) ?: ip ? "4420" : NULL;
}

static int connect_below(const struct ctl *c, nvme_root_t root)
{
	const char *hostnqn = text_of(c, OPT_HOSTNQN);
	struct nvme_fabrics_config cfg;
	nvme_host_t host;
	nvme_ctrl_t ctrl;

	/* Fails where there was no NVMe device so far; that is no reason not to connect one */
	nvme_scan_topology(root, NULL, NULL);
	host = hostnqn ? nvme_lookup_host(root, hostnqn, text_of(c, OPT_HOSTID)) : nvme_default_host(root);
	if (!host)
		return fabrics_failed(c, errno ?: ENOMEM);
	ctrl = nvme_create_ctrl(root, text_of(c, OPT_NQN), text_of(c, OPT_TRANSPORT), text_of(c, OPT_TRADDR),
				text_of(c, OPT_HOST_TRADDR), NULL, port(c));
	if (!ctrl)
		return fabrics_failed(c, errno ?: ENOMEM);
	configure(c, &cfg);
	if (nvmf_add_ctrl(host, ctrl, &cfg)) {
		int err = errno;

		nvme_free_ctrl(ctrl);
		return fabrics_failed(c, err);
	}
	return settle(c, ctrl);
}

int cmd_connect(struct ctl *c)
{
	int status = check(c) ?: check_node(c);
	nvme_root_t root;

	if (status)
		return status;
	root = nvme_create_root(stderr, -1);
	if (!root)
		return fabrics_failed(c, ENOMEM);
	status = connect_below(c, root);
	nvme_free_tree(root);
	return status;
}

static bool option_matches(const struct ctl *c, enum ctl_opt opt, const char *text)
{
	return !c->opt[opt].set || (text && !strcmp(c->opt[opt].text, text));
}

static bool ctrl_matches(const struct ctl *c, nvme_ctrl_t ctrl)
{
	return nvme_ctrl_get_name(ctrl) &&
	       option_matches(c, OPT_TRANSPORT, nvme_ctrl_get_transport(ctrl)) &&
	       option_matches(c, OPT_TRADDR, nvme_ctrl_get_traddr(ctrl)) &&
	       option_matches(c, OPT_TRSVCID, nvme_ctrl_get_trsvcid(ctrl));
}

/* Take down what matches in @subsys; 0 or the first errno */
static int disconnect_subsystem(const struct ctl *c, nvme_subsystem_t subsys, struct json_object *names)
{
	nvme_ctrl_t ctrl, next;
	int err = 0;

	if (!option_matches(c, OPT_NQN, nvme_subsystem_get_nqn(subsys)))
		return 0;
	nvme_subsystem_for_each_ctrl_safe(subsys, ctrl, next) {
		struct json_object *name;

		if (!ctrl_matches(c, ctrl))
			continue;
		name = json_object_new_string(nvme_ctrl_get_name(ctrl));
		if (nvme_disconnect_ctrl(ctrl)) {
			err = err ?: errno;
			json_object_put(name);
		} else {
			out_append(names, name);
		}
	}
	return err;
}

static int disconnect_all(const struct ctl *c, nvme_root_t root, struct json_object *names)
{
	nvme_subsystem_t subsys;
	nvme_host_t host;
	int err = 0;

	nvme_scan_topology(root, NULL, NULL);
	nvme_for_each_host(root, host)
		nvme_for_each_subsystem(host, subsys)
			err = disconnect_subsystem(c, subsys, names) ?: err;
	return err;
}

static int put_disconnected(const struct ctl *c, struct json_object *names)
{
	struct json_object *root;

	if (!json_object_array_length(names)) {
		ctl_command_error(c, "%s: not connected", c->opt[OPT_NQN].text);
		return CTL_NODEV;
	}
	if (c->json) {
		root = out_root();
		out_text(root, "nqn", c->opt[OPT_NQN].text);
		out_add(root, "disconnected", json_object_get(names));
		out_json(root);
		json_object_put(root);
		return CTL_OK;
	}
	for (size_t i = 0; i < json_object_array_length(names); i++)
		printf("disconnected: %s\n", json_object_get_string(json_object_array_get_idx(names, i)));
	return CTL_OK;
}

int cmd_disconnect(struct ctl *c)
{
	nvme_root_t root = nvme_create_root(stderr, -1);
	struct json_object *names;
	int err, status;

	if (!root)
		return fabrics_failed(c, ENOMEM);
	names = out_array();
	err = disconnect_all(c, root, names);
	status = err ? fabrics_failed(c, err) : put_disconnected(c, names);
	json_object_put(names);
	nvme_free_tree(root);
	return status;
}
