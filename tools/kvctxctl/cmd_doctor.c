// SPDX-License-Identifier: GPL-2.0
/*
 * doctor: what of this host is in the way of kvctx, or makes it slower or less safe than it could be.
 *
 * A finding is about a subject (the kernel, a limit, a device) and is fine, a note, a warning or a problem; but for the
 * first its sentence says what to do, where something can be done. What cannot be told here is a note.
 */
#include <dirent.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "nl.h"
#include "out.h"
#include "scan.h"

#define NEEDED_MAJOR	6		/* what kmod/compat.h knows of */
#define NEEDED_MINOR	12
#define MEMLOCK_WANTED	(1ULL << 30)

struct doctor {
	const struct ctl *c;
	struct json_object *findings;
	u32 problems;
};

enum finding { FINE, NOTE, WARNING, PROBLEM };

static const struct out_column columns[] = {
	{ "subject", "SUBJECT", FORM_TEXT },
	{ "result", "RESULT", FORM_TEXT },
	{ "text", "WHAT", FORM_TEXT },
	{ NULL }
};

static __printf(4, 5) void found(struct doctor *d, const char *subject, enum finding how, const char *fmt, ...)
{
	static const char *const names[] = { "fine", "note", "warning", "problem" };
	struct json_object *o = out_object();
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	out_text(o, "subject", subject);
	out_text(o, "result", names[how]);
	out_text(o, "text", text);
	out_append(d->findings, o);
	d->problems += how == PROBLEM;
}

/* The kernel */

static void look_at_kernel(struct doctor *d, const struct utsname *u)
{
	unsigned int major = 0, minor = 0;
	bool known = sscanf(u->release, "%u.%u", &major, &minor) == 2;

	if (known && (major > NEEDED_MAJOR || (major == NEEDED_MAJOR && minor >= NEEDED_MINOR)))
		found(d, "kernel", FINE, "%s", u->release);
	else
		found(d, "kernel", WARNING, "%s: the module needs %d.%d or later; pools can be served by kvctxd, or in the process",
		      u->release, NEEDED_MAJOR, NEEDED_MINOR);
}

static void look_at_module(struct doctor *d)
{
	switch (module_look()) {
	case MODULE_LOADED:
		found(d, "module", FINE, "loaded");
		break;
	case MODULE_INSTALLED:
		found(d, "module", FINE, "installed; the first command that needs it loads it");
		break;
	case MODULE_ABSENT:
		found(d, "module", NOTE, "not installed for this kernel: kvctx-dkms builds it, with the kernel's headers there");
		break;
	}
}

/* Lines of the kernel's configuration; -1: it is nowhere to be read, else whether @option is set */
static int kernel_has(const struct utsname *u, const char *option)
{
	char path[256], line[256];
	FILE *f;
	int yes = 0;

	snprintf(path, sizeof(path), "/boot/config-%s", u->release);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (!yes && fgets(line, sizeof(line), f))
		yes = !strncmp(line, option, strlen(option)) && line[strlen(option)] == '=';
	fclose(f);
	return yes;
}

static u32 count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	u32 nr = 0;

	while (dir && (e = readdir(dir)))
		nr += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return nr;
}

static void look_at_peers(struct doctor *d, const struct utsname *u)
{
	int p2p = kernel_has(u, "CONFIG_PCI_P2PDMA");

	if (p2p < 0)
		found(d, "peer-to-peer", NOTE, "/boot/config-%s cannot be read: whether the kernel has CONFIG_PCI_P2PDMA is not known",
		      u->release);
	else if (!p2p)
		found(d, "peer-to-peer", NOTE, "this kernel was built without CONFIG_PCI_P2PDMA: pages reach GPUs through host memory");
	else
		found(d, "peer-to-peer", FINE, "the kernel can; which paths there are, kvctxctl pool show tells of each pool");
	if (p2p > 0 && count_entries("/sys/kernel/iommu_groups"))
		found(d, "IOMMU", NOTE, "in use: below a PCI switch with ACS it sends what goes from peer to peer through the root complex, "
		      "unless the kernel's parameter pci=disable_acs_redir= names that switch");
}

static void look_at_io_uring(struct doctor *d)
{
	char text[16];

	if (!ctl_read_line("/proc/sys/kernel/io_uring_disabled", text, sizeof(text)) || !strcmp(text, "0"))
		found(d, "io_uring", FINE, "allowed");
	else
		found(d, "io_uring", WARNING, "restricted (kernel.io_uring_disabled = %s): where pools are served in user space, threads do "
		      "the I/O, and it costs more", text);
}

static void look_at_memlock(struct doctor *d)
{
	struct rlimit rl;
	char size[32];

	if (getrlimit(RLIMIT_MEMLOCK, &rl))
		return;
	out_size_text(rl.rlim_cur, size, sizeof(size));
	if (rl.rlim_cur == RLIM_INFINITY || rl.rlim_cur >= MEMLOCK_WANTED)
		found(d, "locked memory", FINE, "%s in this shell", rl.rlim_cur == RLIM_INFINITY ? "not limited" : size);
	else
		found(d, "locked memory", WARNING, "%s in this shell: an engine cannot register more than it may lock. Of a service, "
		      "LimitMEMLOCK=infinity is the setting; of a container, --ulimit memlock=-1", size);
}

/* Devices */

/* What the queue of the disk that @name is, or is a part of, has under @key */
static bool queue_says(const char *name, const char *key, char *text, size_t size)
{
	char path[384];

	snprintf(path, sizeof(path), "/sys/class/block/%.255s/queue/%s", name, key);
	if (ctl_read_line(path, text, size))
		return true;
	snprintf(path, sizeof(path), "/sys/class/block/%.255s/../queue/%s", name, key);
	return ctl_read_line(path, text, size);
}

static void look_at_alignment(struct doctor *d, const char *path, const char *name)
{
	char file[384], text[32];

	snprintf(file, sizeof(file), "/sys/class/block/%.255s/start", name);
	if (ctl_read_line(file, text, sizeof(text)) && strtoull(text, NULL, 10) % (KVC_BLOCK / 512))
		found(d, path, WARNING, "a partition that does not begin at a multiple of 4 KiB: each block is two for the disk. Make it anew");
}

static void look_at_controller(struct doctor *d, const char *path, const char *dir)
{
	char file[640], transport[32], text[32];

	snprintf(file, sizeof(file), "%s/transport", dir);
	if (!ctl_read_line(file, transport, sizeof(transport)) || !strcmp(transport, "pcie"))
		return;
	snprintf(file, sizeof(file), "%s/fast_io_fail_tmo", dir);
	if (ctl_read_line(file, text, sizeof(text)) && !strcmp(text, "off"))
		found(d, path, WARNING, "comes over %s without a fast_io_fail_tmo: when its target is gone, operations wait until it is given "
		      "up (ctrl_loss_tmo). kvctxctl connect --fast-io-fail-tmo 5, or nvme connect", transport);
}

/* The controller of an NVMe disk; or, with multipath, those of its subsystem. Of a partition those of its disk */
static void look_at_fabrics(struct doctor *d, const char *path, const char *name)
{
	static const char *const places[] = { "device", "../device" };

	for (u32 i = 0; i < 2; i++) {
		char device[384], below[512];
		struct dirent *e;
		DIR *dir;

		snprintf(device, sizeof(device), "/sys/class/block/%.255s/%s", name, places[i]);
		look_at_controller(d, path, device);
		dir = opendir(device);
		while (dir && (e = readdir(dir))) {
			if (strncmp(e->d_name, "nvme", 4) || strspn(e->d_name + 4, "0123456789") != strlen(e->d_name + 4))
				continue;
			snprintf(below, sizeof(below), "%s/%.64s", device, e->d_name);
			look_at_controller(d, path, below);
		}
		if (dir)
			closedir(dir);
	}
}

static void look_at_device(struct doctor *d, const struct find *f)
{
	const char *name = strrchr(f->path, '/') + 1;
	size_t before = json_object_array_length(d->findings);
	char text[64];

	if (f->state == FIND_PATH)
		found(d, f->path, WARNING, "another path to a disk that has a path of its own here: with multipath there is one device for both");
	if (f->state == FIND_COPY)
		found(d, f->path, PROBLEM, "says that it is a member which is another disk: one of them is a copy. kvctxctl pool scan");
	if (f->state == FIND_FOREIGN)
		found(d, f->path, PROBLEM, "holds %s now, over a member of pool %s", f->what, f->super->pool_name);
	if (queue_says(name, "rotational", text, sizeof(text)) && !strcmp(text, "1"))
		found(d, f->path, WARNING, "says that it is a rotating disk: each page is a seek");
	if (queue_says(name, "write_cache", text, sizeof(text)) && !strcmp(text, "write back"))
		found(d, f->path, NOTE, "has a volatile cache: what was not flushed is lost with the power, and each FLUSH waits for the device");
	if (queue_says(name, "stable_writes", text, sizeof(text)) && !strcmp(text, "1"))
		found(d, f->path, NOTE, "wants memory that does not change while it is written (data digests, protection information or RAID): "
		      "stored pages are copied once");
	look_at_alignment(d, f->path, name);
	look_at_fabrics(d, f->path, name);
	if (json_object_array_length(d->findings) == before)
		found(d, f->path, FINE, "member %u of pool %s", f->super->member_index, f->super->pool_name);
}

static void look_at_nodes(struct doctor *d, const char *pool)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/kvctx/%s", pool);
	if (!count_entries(path))
		found(d, pool, PROBLEM, "is attached and has no node below /dev/kvctx: neither devtmpfs nor udev makes them here");
}

static void look_at_pools(struct doctor *d, const struct scan *s)
{
	for (u32 i = 0; i < s->nr_pools; i++) {
		const struct found *p = &s->pool[i];

		if (p->state == FOUND_ATTACHED)
			look_at_nodes(d, p->super->pool_name);
		else if (scan_is_used(s, p))
			found(d, p->super->pool_name, FINE, "in use: kvctxd, or a process, serves the pool");
		else if (p->state != FOUND_COMPLETE)
			found(d, p->super->pool_name, PROBLEM, "the pool is %s; kvctxctl pool scan tells of its members",
			      scan_pool_text(p->state));
	}
	for (u32 i = 0; i < s->nr; i++)
		look_at_device(d, &s->find[i]);
	if (s->denied)
		found(d, "devices", NOTE, "%u may not be opened%s", s->denied,
		      geteuid() ? "; ask again as root" : ", by root either: does a device cgroup or a container forbid it?");
	else if (!s->nr)
		found(d, "devices", NOTE, "no block device is a member of a pool");
}

/* The pools of a kvctxd are those in use: they have no nodes */
static int look_at_devices(struct doctor *d)
{
	const struct ctl module = nl_to_module(d->c);
	struct scan s;
	int status = scan_start(&s, &module, NULL, 0);

	if (!status)
		look_at_pools(d, &s);
	scan_end(&s);
	return status;
}

int cmd_doctor(struct ctl *c)
{
	struct doctor d = { .c = c, .findings = out_array() };
	struct json_object *root = out_root();
	struct utsname u;
	int status;

	out_add(root, "doctor", d.findings);
	if (uname(&u))
		memset(&u, 0, sizeof(u));
	look_at_kernel(&d, &u);
	look_at_module(&d);
	look_at_peers(&d, &u);
	look_at_io_uring(&d);
	look_at_memlock(&d);
	status = look_at_devices(&d);
	if (!status && c->json)
		out_json(root);
	else if (!status)
		out_table(d.findings, columns);
	json_object_put(root);
	return status ?: d.problems ? CTL_FAILED : CTL_OK;
}
