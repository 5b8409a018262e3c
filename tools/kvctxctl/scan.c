// SPDX-License-Identifier: GPL-2.0
/*
 * See scan.h.
 *
 *   list     the block devices that /proc/partitions has: those with a size, partitions too, without the hidden paths
 *            below an NVMe multipath disk
 *   look     a device with a superblock is a find: is it in use, does it hold something else, how does its driver call it
 *   sort     the finds of each pool become its members, or are something else
 *
 * Devices are opened one after the other, for reading, and closed at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "nl.h"
#include "out.h"
#include "scan.h"

/* Looking */

static void scan_note(struct json_object *list, const char *path, const char *why)
{
	struct json_object *o = out_object();

	out_text(o, "device", path);
	out_text(o, "reason", why);
	out_append(list, o);
}

/* The disk, and which part of it */
static void find_disk(struct find *f)
{
	static const char *const places[] = { "wwid", "device/wwid", "../wwid", "../device/wwid" };
	char *real = realpath(f->path, NULL), path[384], part[16];
	const char *name = strrchr(real ? real : f->path, '/');

	for (u32 i = 0; name && i < 4 && !*f->disk; i++) {
		snprintf(path, sizeof(path), "/sys/class/block%.255s/%s", name, places[i]);
		ctl_read_line(path, f->disk, sizeof(f->disk) - sizeof(part));
	}
	snprintf(path, sizeof(path), "/sys/class/block%.255s/partition", name ? name : "");
	if (*f->disk && ctl_read_line(path, part, sizeof(part)))
		sprintf(f->disk + strlen(f->disk), " %s", part);
	free(real);
}

bool scan_is_called(const struct kvc_super *s, const char *name)
{
	char uuid[37];

	ctl_uuid_text(s->pool_uuid, uuid);
	return !strcasecmp(uuid, name) || !strcmp(s->pool_name, name);
}

static bool find_is_busy(const char *path)
{
	struct media d;
	int err = media_try_open(&d, path, 0);

	media_close(&d);
	return err == EBUSY;
}

/* The device is open, and has a superblock that counts. 0 or an errno */
static int scan_take(struct scan *s, const char *path, struct media *d)
{
	struct find *f = &s->find[s->nr];
	int err = signature_foreign(d, f->what);

	if (err)
		return err;
	close(d->fd);
	d->fd = -1;
	f->path = strdup(path);
	if (!f->path)
		return ENOMEM;
	f->dev = *d;
	f->dev.path = f->path;
	f->super = &d->super[d->chosen];
	d->super = NULL;
	f->busy = (!s->only || scan_is_called(f->super, s->only)) && find_is_busy(path);
	find_disk(f);
	s->nr++;
	return 0;
}

static bool scan_has(const struct scan *s, const struct media *d)
{
	for (u32 i = 0; i < s->nr; i++)
		if (media_same(&s->find[i].dev, d))
			return true;
	return false;
}

static int scan_grow(struct scan *s)
{
	struct find *more;

	if (s->nr < s->room)
		return 0;
	s->room = 2 * s->room + 16;
	more = realloc(s->find, s->room * sizeof(*more));
	if (!more)
		return ENOMEM;
	memset(more + s->nr, 0, (s->room - s->nr) * sizeof(*more));
	s->find = more;
	return 0;
}

/* The device is open. 0 or an errno */
static int scan_read(struct scan *s, const char *path, struct media *d)
{
	char why[MEDIA_WHY];
	int err;

	if (scan_has(s, d)) {
		scan_note(s->skipped, path, "the same device as another one");
		return 0;
	}
	err = media_try_supers(d);
	if (!err && d->chosen != KVC_SUPER_SLOTS)
		return scan_take(s, path, d);
	if (!err) {
		media_super_status(d, why);
		scan_note(media_has_super(d) ? s->damaged : s->skipped, path, why);
	}
	return err;
}

/* One device: it becomes a find, or is skipped. 0 or ENOMEM */
static int scan_look(struct scan *s, const char *path, bool named)
{
	struct media d;
	int err = scan_grow(s) ?: media_try_open(&d, path, MEDIA_SHARED);
	char why[MEDIA_WHY];

	if (err == ENOMEM)
		return err;
	media_why(err, why);
	if (!err) {
		err = scan_read(s, path, &d);
		snprintf(why, sizeof(why), "cannot be read: %s", strerror(err));
	} else if (err == EACCES || err == EPERM) {
		s->denied++;
	}
	if (err)
		scan_note(named ? s->failed : s->skipped, path, why);
	media_close(&d);
	return err == ENOMEM ? err : 0;
}

/* Listing */

static int scan_all(struct scan *s)
{
	FILE *list = fopen("/proc/partitions", "re");
	char line[256], name[128], path[144];
	unsigned long long kib;
	int err = list ? 0 : errno;

	if (err)
		return err;
	while (!err && fgets(line, sizeof(line), list)) {
		if (sscanf(line, "%*u %*u %llu %127s", &kib, name) != 2)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", name);
		if (kib < KVC_DEVICE_MIN >> 10)
			scan_note(s->skipped, path, "too small for a superblock");
		else
			err = scan_look(s, path, false);
	}
	fclose(list);
	return err;
}

/* Sorting */

bool scan_of_pool(const struct find *f, const struct found *p)
{
	return !memcmp(f->super->pool_uuid, p->super->pool_uuid, KVC_UUID_LEN);
}

static struct found *scan_pool_of(struct scan *s, const struct find *f)
{
	for (u32 i = 0; i < s->nr_pools; i++)
		if (scan_of_pool(f, &s->pool[i]))
			return &s->pool[i];
	return NULL;
}

/* The newest superblock describes the pool; one on a device that holds something else by now only if there is no other. */
static void scan_describe(struct scan *s, bool foreign)
{
	for (u32 i = 0; i < s->nr; i++) {
		const struct find *f = &s->find[i];
		struct found *p = scan_pool_of(s, f);

		if (!!*f->what != foreign)
			continue;
		if (!p)
			s->pool[s->nr_pools++].super = f->super;
		else if (!foreign && kvc_super_newer(f->super, p->super))
			p->super = f->super;
	}
}

/* Devices that the pool holds itself come first, or, when it is not attached, those that nobody holds. */
static void scan_place(struct found *p, struct find *f)
{
	const struct kvc_super *s = p->super;
	u32 i = f->super->member_index;
	struct find *twin;

	if (i >= s->nr_members || memcmp(f->super->members[i].uuid, s->members[i].uuid, KVC_UUID_LEN)) {
		f->state = FIND_STALE;
		return;
	}
	twin = p->member[i];
	if (*f->what)
		f->state = FIND_FOREIGN;
	else if (f->dev.size < kvc_device_bytes(s->members[i].nr_segments, s->segment_size))
		f->state = FIND_SMALL;
	else if (f->busy && p->state != FOUND_ATTACHED)
		f->state = FIND_BUSY;
	else if (!twin)
		p->member[i] = f;
	else
		f->state = *f->disk && !strcmp(f->disk, twin->disk) ? FIND_PATH : FIND_COPY;
	if (f->state == FIND_COPY && p->state != FOUND_ATTACHED)
		p->state = FOUND_AMBIGUOUS;
}

static bool found_one_history(const struct found *p)
{
	struct kvc_witness w[KVC_MEMBERS_MAX];
	u32 nr = 0;

	for (u32 i = 0; i < p->super->nr_members; i++) {
		const struct kvc_super *s = p->member[i] ? p->member[i]->super : NULL;

		if (s)
			w[nr++] = (struct kvc_witness){ i, s->seq, s->members };
	}
	return kvc_one_history(w, nr);
}

static void found_judge(struct found *p)
{
	u32 there = 0;

	for (u32 i = 0; i < p->super->nr_members; i++) {
		there += p->member[i] != NULL;
		p->missing += !p->member[i] && !kvc_super_hole(p->super, i);
	}
	if (p->state != FOUND_COMPLETE)
		return;
	if (!there)
		p->state = FOUND_UNUSABLE;
	else if (!found_one_history(p))
		p->state = FOUND_MISMATCH;
	else if (p->missing)
		p->state = FOUND_DEGRADED;
}

static void scan_sort(struct scan *s)
{
	scan_describe(s, false);
	scan_describe(s, true);
	for (u32 i = 0; i < s->nr_pools; i++) {
		struct found *p = &s->pool[i];
		bool attached = scan_attached_of(s->attached, p->super);

		p->state = attached ? FOUND_ATTACHED : FOUND_COMPLETE;
		for (u32 pass = 0; pass < 2; pass++)
			for (u32 j = 0; j < s->nr; j++)
				if (scan_of_pool(&s->find[j], p) && (s->find[j].busy == attached) == !pass)
					scan_place(p, &s->find[j]);
		found_judge(p);
	}
}

static int scan_look_all(struct scan *s, char *const *paths, int nr)
{
	int err = 0;

	if (!nr)
		return scan_all(s);
	for (int i = 0; i < nr && !err; i++)
		err = scan_look(s, paths[i], true);
	return err;
}

static int scan_do(struct scan *s, const struct ctl *c, char *const *paths, int nr, const char *only)
{
	int status, err;

	*s = (struct scan){ .c = c, .only = only, .skipped = out_array(), .damaged = out_array(), .failed = out_array() };
	s->attached = scan_attached(c, &status);
	if (!s->attached)
		return status;
	err = scan_look_all(s, paths, nr);
	if (!err) {
		s->nr_pools = 0;
		s->pool = calloc(s->nr + 1, sizeof(*s->pool));
		err = s->pool ? 0 : ENOMEM;
	}
	if (err) {
		ctl_command_error(c, "%s%s", nr || err == ENOMEM ? "" : "/proc/partitions: ", strerror(err));
		return ctl_status_of(err);
	}
	scan_sort(s);
	return CTL_OK;
}

int scan_start(struct scan *s, const struct ctl *c, char *const *paths, int nr)
{
	return scan_do(s, c, paths, nr, NULL);
}

int scan_start_for(struct scan *s, const struct ctl *c, const char *name)
{
	return scan_do(s, c, NULL, 0, name);
}

bool scan_is_used(const struct scan *s, const struct found *p)
{
	u32 busy = 0;

	for (u32 i = 0; i < s->nr; i++)
		busy += scan_of_pool(&s->find[i], p) && s->find[i].state == FIND_BUSY;
	return p->state != FOUND_ATTACHED && busy && busy >= p->missing;
}

void scan_end(struct scan *s)
{
	for (u32 i = 0; i < s->nr; i++) {
		media_close(&s->find[i].dev);
		free(s->find[i].path);
	}
	free(s->find);
	free(s->pool);
	json_object_put(s->attached);
	json_object_put(s->skipped);
	json_object_put(s->damaged);
	json_object_put(s->failed);
}

const char *scan_find_text(enum find_state state)
{
	static const char *const names[] = {
		[FIND_THERE] = "there", [FIND_BUSY] = "in_use", [FIND_FOREIGN] = "overwritten", [FIND_STALE] = "stale",
		[FIND_SMALL] = "too_small", [FIND_PATH] = "other_path", [FIND_COPY] = "copy",
	};

	return names[state];
}

const char *scan_pool_text(enum found_state state)
{
	static const char *const names[] = {
		[FOUND_ATTACHED] = "attached", [FOUND_COMPLETE] = "complete", [FOUND_DEGRADED] = "degraded",
		[FOUND_UNUSABLE] = "unusable", [FOUND_AMBIGUOUS] = "ambiguous", [FOUND_MISMATCH] = "mismatch",
	};

	return names[state];
}

/* Who is attached */

/* A module that is not loaded has no pools; it shall not be loaded for that answer. */
struct json_object *scan_attached(const struct ctl *c, int *status)
{
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_GET, .dump = true, .object = object_pool };
	const struct ctl module = nl_to_module(c);
	struct json_object *pools = out_array();

	*status = access("/sys/module/kvctx", F_OK) ? CTL_OK : nl_request(&module, &rq, pools);
	if (!*status && nl_socket_path(c))
		*status = nl_request(c, &rq, pools);
	if (!*status)
		return pools;
	json_object_put(pools);
	return NULL;
}

struct json_object *scan_attached_as(struct json_object *attached, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(attached); i++) {
		struct json_object *o = json_object_array_get_idx(attached, i);

		if (!strcmp(out_get_text(o, "name"), name) || !strcasecmp(out_get_text(o, "uuid"), name))
			return o;
	}
	return NULL;
}

struct json_object *scan_attached_of(struct json_object *attached, const struct kvc_super *s)
{
	char uuid[37];

	ctl_uuid_text(s->pool_uuid, uuid);
	return scan_attached_as(attached, uuid);
}

/* By name */

int scan_by_name(const struct ctl *c, bool *by_name)
{
	char command[64];

	*by_name = c->nr_args == 1 && !strchr(c->args[0], '/');
	for (int i = 0; i < c->nr_args && !*by_name; i++) {
		if (strchr(c->args[i], '/'))
			continue;
		ctl_command_name(c->cmd, command, sizeof(command));
		ctl_error(c->args[i], "a device is a path, with a slash; the name of a pool stands alone");
		fprintf(stderr, "Try 'kvctxctl %s --help'.\n", command);
		return CTL_USAGE;
	}
	return CTL_OK;
}

static int scan_many(const struct scan *s, const char *name)
{
	char uuids[512] = "", uuid[37];

	for (u32 i = 0; i < s->nr_pools; i++) {
		size_t used = strlen(uuids);

		if (strcmp(s->pool[i].super->pool_name, name))
			continue;
		ctl_uuid_text(s->pool[i].super->pool_uuid, uuid);
		snprintf(uuids + used, sizeof(uuids) - used, "%s%s", used ? ", " : "", uuid);
	}
	ctl_error(name, "several pools have this name: %s; give the UUID of one", uuids);
	return CTL_FAILED;
}

int scan_choose(const struct scan *s, const char *name, const char *hint, struct found **pool)
{
	u32 nr = 0;

	for (u32 i = 0; i < s->nr_pools; i++) {
		if (!scan_is_called(s->pool[i].super, name))
			continue;
		*pool = &s->pool[i];
		nr++;
	}
	if (nr == 1)
		return CTL_OK;
	if (nr)
		return scan_many(s, name);
	if (scan_attached_as(s->attached, name)) {
		ctl_error(name, "is attached");
		return CTL_FAILED;
	}
	if (s->denied)
		ctl_error(name, "no such pool found, and %u block devices may not be opened; %s", s->denied, hint);
	else
		ctl_error(name, "no such pool on any block device; %s", hint);
	return CTL_NODEV;
}

int scan_check(const struct scan *s, const struct found *p)
{
	const char *name = p->super->pool_name;

	if (p->state == FOUND_ATTACHED) {
		ctl_error(name, "is attached");
		return CTL_FAILED;
	}
	for (u32 i = 0; i < s->nr; i++) {
		const struct find *f = &s->find[i];

		if (!scan_of_pool(f, p) || f->state != FIND_COPY)
			continue;
		ctl_error(name, "member %u is there twice, %s and %s; give the devices", f->super->member_index,
			  p->member[f->super->member_index]->path, f->path);
		return CTL_FAILED;
	}
	return CTL_OK;
}
