// SPDX-License-Identifier: GPL-2.0
/*
 * superdump FILE: what the core's decoder says of the superblock slots, as JSON lines.
 */
#include <fcntl.h>
#include <unistd.h>

#include "../../../kmod/core/media/format.h"

static void put_hex(const char *name, const u8 *p, int n)
{
	printf("\"%s\": \"", name);
	for (int i = 0; i < n; i++)
		printf("%02x", p[i]);
	printf("\", ");
}

static void put_tenants(const struct kvc_super *s)
{
	const char *comma = "";

	printf("\"tenants\": [");
	for (int i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_super_tenant *t = &s->tenants[i];

		if (!(t->flags & KVC_TENANT_USED))
			continue;
		printf("%s[\"%s\", %u, %u, %u]", comma, t->name, t->uid, t->gid, t->mode);
		comma = ", ";
	}
	printf("]");
}

static void put_slot(int slot, enum kvc_reason why, const struct kvc_super *s)
{
	printf("{\"slot\": %d, \"reason\": %d", slot, why);
	if (why == KVC_OK) {
		printf(", \"seq\": %llu, \"name\": \"%s\", \"member\": %u, \"nr_members\": %u, ",
		       (unsigned long long)s->seq, s->pool_name, s->member_index, s->nr_members);
		printf("\"segment_size\": %llu, \"chunk_size\": %u, \"segments\": %u, ",
		       (unsigned long long)s->segment_size, s->chunk_size, s->members[s->member_index].nr_segments);
		printf("\"discard_rate\": %llu, \"write_budget\": %llu, ",
		       (unsigned long long)s->settings.discard_rate, (unsigned long long)s->settings.write_budget);
		put_hex("uuid", s->pool_uuid, KVC_UUID_LEN);
		put_hex("member_uuid", s->members[s->member_index].uuid, KVC_UUID_LEN);
		put_tenants(s);
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
	struct kvc_super *s = calloc(1, sizeof(*s));
	off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
	u8 *buf = malloc(KVC_SUPER_BYTES);
	int status = 1;

	if (fd >= 0 && s && buf && size >= (off_t)KVC_DEVICE_MIN) {
		status = 0;
		for (int slot = 0; slot < KVC_SUPER_SLOTS; slot++) {
			off_t offset = (off_t)kvc_super_offset((u32)slot, (u64)size);

			if (pread(fd, buf, KVC_SUPER_BYTES, offset) != KVC_SUPER_BYTES)
				memset(buf, 0, KVC_SUPER_BYTES);
			put_slot(slot, kvc_super_read(buf, (u32)slot, s), s);
		}
		close(fd);
	}
	free(buf);
	free(s);
	return status;
}
