// SPDX-License-Identifier: GPL-2.0
/*
 * Makes superblocks that the formatter would never make, for tests of attach.
 *
 *	ctl_super DEVICE show            print what the slots say
 *	ctl_super DEVICE FIELD=NUMBER... change fields of all slots, keep checksums right
 *	ctl_super DEVICE damage SLOT     flip a bit in the middle of a slot
 *	ctl_super DEVICE wipe SLOT       zero a slot
 *
 * Slots 0 and 1 are at the front, 2 and 3 at the end.
 *
 * Fields: version incompat ro_compat nr_members member_index segment_size chunk_size tenant_flags uid seq_add; the last
 * adds to the sequence instead of setting it.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "media/format_media.h"

static unsigned char slot[KVC_SUPER_BYTES] __attribute__((aligned(8)));
static off_t size;
static int fd;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void transfer(int nr, int write)
{
	off_t offset = (off_t)kvc_super_offset((u32)nr, (u64)size);
	ssize_t n;

	n = write ? pwrite(fd, slot, sizeof(slot), offset) : pread(fd, slot, sizeof(slot), offset);
	if (n != (ssize_t)sizeof(slot))
		die(write ? "write" : "read");
}

static void show(int nr)
{
	static struct kvc_super s;
	enum kvc_reason why;

	transfer(nr, 0);
	why = kvc_super_read(slot, (u32)nr, &s);
	printf("slot %d: %s", nr, kvc_reason_str(why));
	if (why == KVC_OK)
		printf(" seq=%llu member=%u of %u pool=%s tenant=%s", (unsigned long long)s.seq, s.member_index,
		       s.nr_members, s.pool_name, s.tenants[1].flags ? s.tenants[1].name : "-");
	putchar('\n');
}

static void checksum(struct kvc_media_super *m)
{
	u32 crc;

	m->crc = 0;
	crc = kvc_crc_feed(KVC_CRC_INIT, slot, sizeof(slot));
	m->crc = cpu_to_le32(kvc_crc_finish(crc));
}

static void set_field(struct kvc_media_super *m, const char *name, size_t len, u64 value)
{
#define FIELD(field, store) \
	if (len == strlen(#field) && !strncmp(name, #field, len)) { \
		store; \
		return; \
	}
	FIELD(version, m->version = cpu_to_le32((u32)value))
	FIELD(incompat, m->incompat = cpu_to_le64(value))
	FIELD(ro_compat, m->ro_compat = cpu_to_le64(value))
	FIELD(nr_members, m->nr_members = cpu_to_le32((u32)value))
	FIELD(member_index, m->member_index = cpu_to_le32((u32)value))
	FIELD(segment_size, m->segment_size = cpu_to_le64(value))
	FIELD(chunk_size, m->chunk_size = cpu_to_le32((u32)value))
	FIELD(tenant_flags, m->tenants[9].flags = cpu_to_le32((u32)value))
	FIELD(uid, m->tenants[0].uid = cpu_to_le32((u32)value))
	FIELD(seq_add, m->seq = cpu_to_le64(le64_to_cpu(m->seq) + value))
#undef FIELD
	fprintf(stderr, "%s: unknown field\n", name);
	exit(2);
}

static void change(int nr, char **args)
{
	transfer(nr, 0);
	for (; *args; args++) {
		char *eq = strchr(*args, '=');

		if (!eq) {
			fprintf(stderr, "%s: want FIELD=NUMBER\n", *args);
			exit(2);
		}
		set_field((void *)slot, *args, (size_t)(eq - *args), strtoull(eq + 1, NULL, 0));
	}
	checksum((void *)slot);
	transfer(nr, 1);
}

static void spoil(int nr, int wipe)
{
	transfer(nr, 0);
	if (wipe)
		memset(slot, 0, sizeof(slot));
	else
		slot[sizeof(slot) / 2] ^= 0x10;
	transfer(nr, 1);
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 3) {
		fprintf(stderr, "usage: ctl_super DEVICE show | damage SLOT | wipe SLOT | FIELD=NUMBER...\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR);
	if (fd < 0)
		die(argv[1]);
	size = lseek(fd, 0, SEEK_END);
	if (size < (off_t)KVC_DEVICE_MIN) {
		fprintf(stderr, "%s: too small\n", argv[1]);
		return 1;
	}
	if (argc == 4 && (!strcmp(argv[2], "damage") || !strcmp(argv[2], "wipe"))) {
		spoil(atoi(argv[3]), argv[2][0] == 'w');
	} else {
		for (i = 0; i < KVC_SUPER_SLOTS; i++) {
			if (!strcmp(argv[2], "show"))
				show(i);
			else
				change(i, argv + 2);
		}
	}
	if (fsync(fd))
		die("fsync");
	return 0;
}
