// SPDX-License-Identifier: GPL-2.0
/*
 * What libblkid finds on a device. See media.h.
 *
 * All that it knows is looked for, file systems, members of other things and partition tables, as wipefs does; more than
 * one answer is no contradiction, each counts.
 */
#include <blkid/blkid.h>
#include <errno.h>
#include <string.h>

#include "media.h"

static blkid_probe signature_probe(const struct media *d)
{
	blkid_probe pr = blkid_new_probe();

	if (!pr || blkid_probe_set_device(pr, d->fd, 0, 0)) {
		blkid_free_probe(pr);
		return NULL;
	}
	blkid_probe_enable_superblocks(pr, 1);
	blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE | BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(pr, 1);
	blkid_probe_set_partitions_flags(pr, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	return pr;
}

/* What the probe has found last, and where it begins; false: it does not tell where */
static bool signature_read(blkid_probe pr, const char **type, u64 *offset)
{
	const char *at = NULL;

	*type = "unknown";
	if (blkid_probe_lookup_value(pr, "TYPE", type, NULL))
		blkid_probe_lookup_value(pr, "PTTYPE", type, NULL);
	if (blkid_probe_lookup_value(pr, "SBMAGIC_OFFSET", &at, NULL))
		blkid_probe_lookup_value(pr, "PTMAGIC_OFFSET", &at, NULL);
	*offset = at ? strtoull(at, NULL, 10) : 0;
	return at;
}

/* Pages lie behind the first header, whose place is never theirs, up to the superblocks at the end. */
static bool signature_is_ours(const struct media *d, u64 offset)
{
	if (offset >= KVC_DATA_OFFSET + KVC_BLOCK && offset < kvc_super_offset(KVC_SUPER_SLOTS / KVC_SUPER_COPIES, d->size))
		return true;
	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++)
		if (d->why[i] == KVC_OK && offset - kvc_super_offset(i, d->size) < KVC_SUPER_BYTES)
			return true;
	return false;
}

static void signature_note(char what[SIGNATURE_TEXT], const char *type)
{
	size_t used = strlen(what);

	if (!strstr(what, type))
		snprintf(what + used, SIGNATURE_TEXT - used, "%s%s", used ? ", " : "", type);
}

static int signature_look(const struct media *d, bool foreign, char what[SIGNATURE_TEXT])
{
	blkid_probe pr = signature_probe(d);
	int ret = pr ? 0 : -1, err;
	const char *type;
	u64 offset;

	*what = 0;
	errno = pr ? 0 : errno;
	while (!ret && !(ret = blkid_do_probe(pr)))
		if (!signature_read(pr, &type, &offset) || !foreign || !signature_is_ours(d, offset))
			signature_note(what, type);
	err = ret < 0 ? errno ?: EIO : 0;
	blkid_free_probe(pr);
	return err;
}

int signature_find(const struct media *d, char what[SIGNATURE_TEXT])
{
	return signature_look(d, false, what);
}

/*
 * A part of the device that cannot be read does not keep what is ours from its users, as long as the front of it is as we
 * wrote it: whoever puts a device to another use writes there.
 */
int signature_foreign(const struct media *d, char what[SIGNATURE_TEXT])
{
	int err = signature_look(d, true, what);

	return err == EIO && d->why[0] == KVC_OK && d->why[1] == KVC_OK ? 0 : err;
}

int signature_wipe(const struct media *d)
{
	blkid_probe pr = signature_probe(d);
	int ret = pr ? 0 : -1, err;

	while (!ret && !blkid_do_probe(pr))
		ret = blkid_do_wipe(pr, 0);
	err = ret ? errno ?: EIO : 0;
	blkid_free_probe(pr);
	return err;
}
