// SPDX-License-Identifier: GPL-2.0
/*
 * A disk with a volatile write cache (volatile_cache.h), as a plugin of nbdkit: QEMU may be killed at any moment.
 *
 *	nbdkit -f -U SOCKET volatile.so image=FILE seed=N unit=512|4096 report=FILE [delay=MS]
 *
 * The end of the connection is the power cut. Then nbdkit ends, having written to the report what was lost.
 *
 * QEMU's SSD forgets the FUA of a write. A connection to the export "fua" is to the same medium, and every write through
 * it is one with FUA: see selftests/kvctx/twin.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <string.h>

#include "volatile_cache.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static char plain, through;	/* handles of connections; all writes of the second kind are with FUA */

static int plugin_sleep(unsigned int us)
{
	return nbdkit_nanosleep(us / 1000000, us % 1000000 * 1000);
}

static int plugin_config(const char *key, const char *value)
{
	struct volatile_config *c = &volatile_config;

	if (!strcmp(key, "image")) {
		c->image = value;
		return 0;
	}
	if (!strcmp(key, "report")) {
		c->report = value;
		return 0;
	}
	if (!strcmp(key, "seed"))
		return nbdkit_parse_uint64_t(key, value, &c->seed);
	if (!strcmp(key, "delay"))
		return nbdkit_parse_unsigned(key, value, &c->delay);
	if (!strcmp(key, "unit") && !nbdkit_parse_unsigned(key, value, &c->unit))
		return c->unit == 512 || c->unit == 4096 ? 0 : -1;
	nbdkit_error("unknown parameter %s=%s", key, value);
	return -1;
}

static int plugin_config_complete(void)
{
	if (volatile_config.image && volatile_config.report)
		return 0;
	nbdkit_error("image and report are needed");
	return -1;
}

static int plugin_get_ready(void)
{
	int err;

	volatile_config.sleep = plugin_sleep;
	err = volatile_open();
	if (err)
		nbdkit_error("%s: %s", volatile_config.image, strerror(-err));
	return err ? -1 : 0;
}

static int plugin_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle, (void)flags;
	volatile_read(buf, count, offset);
	return 0;
}

static bool plugin_fua(const void *handle, uint32_t flags)
{
	return handle == &through || flags & NBDKIT_FLAG_FUA;
}

static int plugin_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	return volatile_write(buf, count, offset, plugin_fua(handle, flags));
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	return volatile_write(NULL, count, offset, plugin_fua(handle, flags));
}

static int plugin_flush(void *handle, uint32_t flags)
{
	(void)handle, (void)flags;
	return volatile_flush();
}

static int64_t plugin_get_size(void *handle)
{
	(void)handle;
	return (int64_t)volatile_bytes();
}

static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	(void)handle;
	*minimum = volatile_config.unit;
	*preferred = 4096;
	*maximum = 0xffffffff;
	return 0;
}

static int plugin_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static void *plugin_open(int readonly)
{
	const char *name = nbdkit_export_name();

	(void)readonly;
	return name && !strcmp(name, "fua") ? &through : &plain;
}

/* Both connections end at once: the client is dead */
static void plugin_close(void *handle)
{
	(void)handle;
	volatile_cut();
	nbdkit_shutdown();
}

static struct nbdkit_plugin plugin = {
	.name			= "volatile",
	.longname		= "disk with a volatile write cache",
	.config			= plugin_config,
	.config_complete	= plugin_config_complete,
	.config_help		= "image=FILE seed=N unit=512|4096 report=FILE [delay=MS]",
	.get_ready		= plugin_get_ready,
	.open			= plugin_open,
	.close			= plugin_close,
	.get_size		= plugin_get_size,
	.block_size		= plugin_block_size,
	.can_fua		= plugin_can_fua,
	.pread			= plugin_pread,
	.pwrite			= plugin_pwrite,
	.zero			= plugin_zero,
	.trim			= plugin_zero,
	.flush			= plugin_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
