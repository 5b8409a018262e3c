// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Registrations in a session of kvctxd.
 *
 * Memory that the daemon can map is a shared mapping of a memfd that is sealed against shrinking, and whose descriptor
 * this process still has: /proc/self/maps tells the file of a mapping, /proc/self/fd is searched for it. Pages move from
 * and to it without a copy.
 *
 * Other memory is local: its pages pass through the stage, of which an operation gets units in one piece, or through the
 * hall, which holds one operation that is too long for a room of it, and is as large as the longest so far.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "copy.h"
#include "huge.h"
#include "socket.h"

#define HALL		UINT32_MAX	/* instead of a unit of the stage */

/* What /proc/self/maps says of a mapping */
struct mapping {
	uint64_t start, end, offset;
	unsigned long inode;
	dev_t dev;
	bool shared, writable;
};

static bool mapping_read(FILE *maps, struct mapping *m)
{
	unsigned long long start, end, offset;
	unsigned int major, minor;
	char perms[5];
	int c;

	if (fscanf(maps, "%llx-%llx %4s %llx %x:%x %lu", &start, &end, perms, &offset, &major, &minor, &m->inode) != 7)
		return false;
	do {
		c = getc(maps);
	} while (c != '\n' && c != EOF);
	m->start = start;
	m->end = end;
	m->offset = offset;
	m->dev = makedev(major, minor);
	m->writable = perms[1] == 'w';
	m->shared = perms[3] == 's';
	return true;
}

/* The file that [@addr, @addr + @length) maps all in one piece, whatever number of mappings that takes */
static int mapping_find(uint64_t addr, uint64_t length, struct mapping *whole)
{
	uint64_t at = addr, end = addr + length;
	FILE *maps = fopen("/proc/self/maps", "re");
	struct mapping m;
	int err = -EFAULT;

	if (!maps)
		return -EREMOTEIO;
	*whole = (struct mapping){ .start = addr };
	while (at < end && mapping_read(maps, &m)) {
		if (m.end <= at)
			continue;
		if (m.start > at || !m.writable)
			break;
		if (at == addr) {
			*whole = m;
			whole->offset += addr - m.start;
		}
		if (!m.shared || !m.inode || m.inode != whole->inode || m.dev != whole->dev ||
		    m.offset + (at - m.start) != whole->offset + (at - addr)) {
			err = -EREMOTEIO;
			break;
		}
		at = m.end;
	}
	fclose(maps);
	return at < end ? err : 0;
}

static bool shared_is(int fd, const struct mapping *m)
{
	struct stat st;
	int seals;

	if (fstat(fd, &st) || st.st_ino != m->inode || st.st_dev != m->dev)
		return false;
	seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && seals & F_SEAL_SHRINK && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

/* By a mapping of our own, since the caller's need not lie as huge pages do; and here, as we are who pays for memory */
static void shared_collapse(int fd, uint64_t offset, uint64_t length)
{
	void *p = kve_huge_map(fd, length, PROT_READ | PROT_WRITE, offset);

	if (p == MAP_FAILED)
		return;
	kve_huge_collapse(p, length);
	munmap(p, length);
}

/* A descriptor, to be closed, of the memfd mapped there, and where in it; -EREMOTEIO: it is something else */
static int shared_find(uint64_t addr, uint64_t length, __u64 *offset)
{
	int fd, found = -EREMOTEIO, err;
	struct dirent *entry;
	struct mapping m;
	DIR *dir;

	err = mapping_find(addr, length, &m);
	if (err)
		return err;
	dir = opendir("/proc/self/fd");
	while (dir && found < 0 && (entry = readdir(dir))) {
		fd = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || fd == dirfd(dir) || !shared_is(fd, &m))
			continue;
		found = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (found < 0)
			found = -errno;
	}
	if (dir)
		closedir(dir);
	*offset = m.offset;
	if (found >= 0)
		shared_collapse(found, m.offset, length);
	/* by us, who pay for it, while there being no memory is an error and not a fault */
	if (found >= 0 && fallocate(found, 0, (off_t)m.offset, (off_t)length)) {
		close(found);
		return -ENOMEM;
	}
	return found;
}

/* Stage and hall */

static int room_make(struct socket_file *s, struct socket_room *room, uint64_t bytes)
{
	struct kvctx_mem_register arg = { .size = sizeof(arg), .length = bytes };
	int fd = memfd_create("kvctx-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING), err = -ENOMEM;
	void *p = MAP_FAILED;

	if (fd < 0)
		return -ENOMEM;
	if (!ftruncate(fd, (off_t)bytes) && !fallocate(fd, 0, 0, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		p = kve_huge_map(fd, bytes, PROT_READ | PROT_WRITE, 0);
	if (p != MAP_FAILED) {
		madvise(p, bytes, MADV_DONTFORK);
		kve_huge_collapse(p, bytes);
		err = kvs_packet_plain(s, KVCTX_IOC_MEM_REGISTER, &arg, sizeof(arg), fd);
	}
	close(fd);
	if (err) {
		if (p != MAP_FAILED)
			munmap(p, bytes);
		return err;
	}
	*room = (struct socket_room){ .map = p, .bytes = bytes, .id = arg.id };
	return 0;
}

/* Rooms of the stage until there are so many; others wait for it */
static int stage_make(struct socket_file *s, uint32_t rooms)
{
	struct socket_room room;
	int err = 0;

	pthread_mutex_lock(&s->stage_lock);
	while (!err && s->nr_rooms < rooms) {
		err = room_make(s, &room, STAGE_BYTES);
		pthread_mutex_lock(&s->lock);
		if (!err)
			s->stage[s->nr_rooms++] = room;
		else
			s->limits.stage_max = s->nr_rooms * STAGE_BYTES;	/* not tried again */
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->stage_lock);
	return err;
}

/* Registrations */

static struct socket_local **local_find(struct socket_file *s, uint32_t id)
{
	struct socket_local **link = &s->locals;

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}

/* How many rooms of the stage all local memory may fill when there are so many bytes more of it */
static uint32_t local_rooms(struct socket_file *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	for (const struct socket_local *l = s->locals; l; l = l->next)
		bytes += l->length;
	if (bytes > s->limits.stage_max)
		bytes = s->limits.stage_max;
	pthread_mutex_unlock(&s->lock);
	return bytes < STAGE_ROOMS * STAGE_BYTES ? (uint32_t)(bytes / STAGE_BYTES) : STAGE_ROOMS;
}

static int local_add(struct socket_file *s, struct kvctx_mem_register *arg)
{
	struct socket_local *l = calloc(1, sizeof(*l));
	int err = 0;

	if (!l)
		return -ENOMEM;
	*l = (struct socket_local){ .addr = (void *)(uintptr_t)arg->addr, .length = arg->length };
	pthread_mutex_lock(&s->lock);
	if (s->nr_locals < s->limits.mem_max) {
		/* after as many as there are ids some may be in use still */
		do {
			l->id = LOCAL_ID + s->next_local++ % LOCAL_ID;
		} while (*local_find(s, l->id));
		l->next = s->locals;
		s->locals = l;
		s->nr_locals++;
		arg->id = l->id;
	} else {
		err = -ENOMEM;
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		free(l);
	return err;
}

int kvs_register(struct socket_file *s, struct kvctx_mem_register *arg)
{
	const uint64_t addr = arg->addr;
	__u64 offset;
	int fd, ret;

	if (!arg->length || arg->reserved || addr + arg->length < addr)
		return -EINVAL;
	fd = shared_find(addr, arg->length, &offset);
	if (fd == -EREMOTEIO) {
		if (kvs_gone(s))
			return -ENODEV;
		/* not by the first operation, which would be late by that */
		ret = stage_make(s, 1);
		if (ret)
			return ret;
		/* as many as the daemon takes */
		stage_make(s, local_rooms(s, arg->length));
		return local_add(s, arg);
	}
	if (fd < 0)
		return fd;
	arg->addr = offset;
	ret = kvs_packet_plain(s, KVCTX_IOC_MEM_REGISTER, arg, sizeof(*arg), fd);
	arg->addr = addr;
	close(fd);
	return ret;
}

int kvs_unregister(struct socket_file *s, struct kvctx_mem_unregister *arg)
{
	struct socket_local **link, *l;
	int err;

	if (arg->id < LOCAL_ID)
		return kvs_packet_plain(s, KVCTX_IOC_MEM_UNREGISTER, arg, sizeof(*arg), -1);
	if (arg->reserved)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	link = local_find(s, arg->id);
	l = *link;
	err = !l ? -EINVAL : l->users ? -EBUSY : 0;
	if (!err) {
		*link = l->next;
		s->nr_locals--;
	}
	pthread_mutex_unlock(&s->lock);
	if (!err)
		free(l);
	return err;
}

static void room_free(struct socket_room *room)
{
	if (room->map)
		munmap(room->map, room->bytes);
	room->map = NULL;
}

/* So many units in one piece of one room; UINT32_MAX: there are none. Lock held */
static uint32_t stage_take(struct socket_file *s, uint32_t nr)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < s->nr_rooms * STAGE_UNITS; i++) {
		if (i % STAGE_UNITS == 0)
			run = 0;
		run = s->stage_used[i] ? 0 : run + 1;
		if (run < nr)
			continue;
		memset(&s->stage_used[i + 1 - nr], 1, nr);
		return i + 1 - nr;
	}
	return UINT32_MAX;
}

/* The hall, for so many bytes. Its owner alone changes it */
static int hall_enter(struct socket_file *s, struct record *r, uint64_t bytes)
{
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	int err = 0;

	pthread_mutex_lock(&s->lock);
	if (s->hall_used)
		err = -EAGAIN;
	s->hall_used = true;
	pthread_mutex_unlock(&s->lock);
	if (err)
		return err;
	if (s->hall.map && s->hall.bytes < bytes) {
		un.id = s->hall.id;
		kvs_packet_plain(s, KVCTX_IOC_MEM_UNREGISTER, &un, sizeof(un), -1);
		room_free(&s->hall);
	}
	if (!s->hall.map)
		err = room_make(s, &s->hall, bytes);
	if (err) {
		pthread_mutex_lock(&s->lock);
		s->hall_used = false;
		pthread_mutex_unlock(&s->lock);
		return err;
	}
	r->unit = HALL;
	return 0;
}

static int stage_enter(struct socket_file *s, struct record *r, uint64_t bytes)
{
	uint32_t nr = (uint32_t)((bytes + STAGE_UNIT - 1) / STAGE_UNIT), unit;

	if (bytes > STAGE_BYTES)
		return hall_enter(s, r, bytes);
	pthread_mutex_lock(&s->lock);
	unit = stage_take(s, nr);
	pthread_mutex_unlock(&s->lock);
	if (unit == UINT32_MAX)
		return -EAGAIN;
	r->unit = unit;
	r->nr_units = nr;
	return 0;
}

/* Operations on local memory */

static bool seg_local(const struct kvctx_seg *seg)
{
	return seg->mem >= LOCAL_ID;
}

static bool sqe_local(const struct kvctx_sqe *sqe, const struct kvctx_seg *segs)
{
	for (uint32_t i = 0; i < sqe->nr_segs; i++)
		if (seg_local(&segs[i]))
			return true;
	return !sqe->nr_segs && sqe->mem >= LOCAL_ID;
}

/* The caller's pieces, their local memory in use from now on. How many bytes those have */
static int stage_check(struct socket_file *s, struct record *r, uint64_t length, uint64_t *bytes)
{
	const struct kvctx_seg *segs = r->segs + r->nr_segs;
	uint64_t sum = 0;
	int err = 0;

	*bytes = 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < r->nr_segs && !err; i++) {
		const struct socket_local *l = seg_local(&segs[i]) ? *local_find(s, segs[i].mem) : NULL;

		sum += segs[i].length;
		if (!seg_local(&segs[i]))
			continue;
		*bytes += segs[i].length;
		if (!l || !segs[i].length)
			err = -EINVAL;
		else if (segs[i].offset > l->length || segs[i].length > l->length - segs[i].offset)
			err = -EFAULT;
	}
	if (!err && sum != length)
		err = -EMSGSIZE;
	for (uint32_t i = 0; i < r->nr_segs && !err; i++)
		if (seg_local(&segs[i]))
			(*local_find(s, segs[i].mem))->users++;
	r->counted = !err;
	pthread_mutex_unlock(&s->lock);
	return err;
}

static uint8_t *record_room(struct socket_file *s, const struct record *r, uint32_t *id, uint64_t *offset)
{
	const struct socket_room *room = r->unit == HALL ? &s->hall : &s->stage[r->unit / STAGE_UNITS];

	*id = room->id;
	*offset = r->unit == HALL ? 0 : (uint64_t)(r->unit % STAGE_UNITS) * STAGE_UNIT;
	return room->map + *offset;
}

/* Between the caller's local pieces and the stage, as far as @bytes of the operation reach */
static void stage_copy(struct socket_file *s, struct record *r, uint64_t bytes, bool in)
{
	const struct kvctx_seg *segs = r->segs + r->nr_segs;
	uint64_t offset;
	uint32_t id;
	uint8_t *at = record_room(s, r, &id, &offset);

	for (uint32_t i = 0; i < r->nr_segs && bytes; i++) {
		uint64_t n = segs[i].length < bytes ? segs[i].length : bytes;
		uint8_t *addr;

		bytes -= n;
		if (!seg_local(&segs[i]))
			continue;
		addr = r->addrs[i] + segs[i].offset;
		kvctx_copy_page(in ? at : addr, in ? addr : at, n);
		at += segs[i].length;
	}
}

/* What the daemon is told: pieces of the stage instead, in one if there are no others */
static void stage_rewrite(struct socket_file *s, struct record *r, struct kvctx_sqe *sqe, uint64_t bytes)
{
	const struct kvctx_seg *from = r->segs + r->nr_segs;
	uint64_t at;
	uint32_t id;

	record_room(s, r, &id, &at);
	if (bytes == sqe->length) {
		sqe->nr_segs = 0;
		sqe->mem = id;
		sqe->segs = at;
		return;
	}
	for (uint32_t i = 0; i < r->nr_segs; i++) {
		r->segs[i] = from[i];
		if (!seg_local(&from[i]))
			continue;
		r->segs[i].mem = id;
		r->segs[i].offset = at;
		at += from[i].length;
	}
	sqe->segs = (uintptr_t)r->segs;
}

static int stage_pieces(struct socket_file *s, struct record *r, const struct kvctx_sqe *sqe)
{
	const struct kvctx_seg *segs = (const void *)(uintptr_t)sqe->segs;
	const struct kvctx_seg own = { .offset = sqe->segs, .mem = sqe->mem, .length = (uint32_t)sqe->length };

	r->nr_segs = sqe->nr_segs ? sqe->nr_segs : 1;
	r->segs = calloc(r->nr_segs, 2 * sizeof(*r->segs));
	r->addrs = calloc(r->nr_segs, sizeof(*r->addrs));
	if (!r->segs || !r->addrs)
		return -ENOMEM;
	memcpy(r->segs + r->nr_segs, sqe->nr_segs ? segs : &own, r->nr_segs * sizeof(*segs));
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < r->nr_segs; i++) {
		const struct kvctx_seg *seg = &r->segs[r->nr_segs + i];
		const struct socket_local *l = seg_local(seg) ? *local_find(s, seg->mem) : NULL;

		r->addrs[i] = l ? l->addr : NULL;
	}
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int kvs_stage_begin(struct socket_file *s, struct record *r, struct kvctx_sqe *sqe)
{
	uint64_t bytes;
	int err;

	/* what is refused for another reason the daemon refuses, whatever the memory */
	if (!wire_moves(sqe, &s->limits) || !sqe_local(sqe, (const void *)(uintptr_t)sqe->segs))
		return 0;
	err = stage_pieces(s, r, sqe);
	if (!err)
		err = stage_check(s, r, sqe->length, &bytes);
	if (!err)
		err = stage_enter(s, r, bytes);
	if (err)
		return err;
	r->load = sqe->opcode == KVCTX_OP_LOAD;
	if (sqe->opcode == KVCTX_OP_STORE)
		stage_copy(s, r, sqe->length, true);
	if (sqe->opcode == KVCTX_OP_MATCH)
		r->answer = sizeof(struct kvctx_found) + wire_bitmap(sqe->nr_keys) + sqe->nr_keys * sizeof(uint32_t);
	if (r->answer > sqe->length)
		r->answer = sqe->length;
	stage_rewrite(s, r, sqe, bytes);
	return 0;
}

void kvs_stage_copy_out(struct socket_file *s, struct record *r, uint64_t bytes)
{
	stage_copy(s, r, bytes, false);
}

void kvs_stage_end(struct socket_file *s, struct record *r)
{
	const struct kvctx_seg *segs = r->segs + r->nr_segs;

	if (!r->segs) {
		/* one may have been had without the other */
		free(r->addrs);
		r->addrs = NULL;
		return;
	}
	for (uint32_t i = 0; i < r->nr_segs && r->counted; i++) {
		struct socket_local *l = seg_local(&segs[i]) ? *local_find(s, segs[i].mem) : NULL;

		if (l)
			l->users--;
	}
	if (r->unit == HALL)
		s->hall_used = false;
	else
		memset(&s->stage_used[r->unit], 0, r->nr_units);
	free(r->segs);
	free(r->addrs);
	r->segs = NULL;
	r->addrs = NULL;
}

void kvs_mem_free(struct socket_file *s)
{
	struct socket_local *l;

	while ((l = s->locals)) {
		s->locals = l->next;
		free(l);
	}
	for (uint32_t i = 0; i < s->nr_rooms; i++)
		room_free(&s->stage[i]);
	room_free(&s->hall);
}
