// SPDX-License-Identifier: GPL-2.0
/*
 * new_pool DIR MIB [KEY]: make a pool of that many MiB, for pages of up to 128 MiB, to be served in a process. KEY: name of
 * a key in our keyrings; the pool has a tenant "secret" too, whose pages are encrypted with it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"
#include "kvctx.h"
#include "pools.h"
#include "share.h"

static void tell(void *arg, int priority, const char *text)
{
	(void)priority;
	fprintf(arg, "new_pool: %s\n", text);
}

static int add_secret(const char *dir, const char *name)
{
	struct kvc_super_key key;
	char why[KVE_WHY] = "";
	struct kve_pool *p;
	int err = kve_share_key(name, &key);

	if (!err)
		err = kve_pool_get(dir, &p, why);
	if (err)
		return err;
	pthread_mutex_lock(&p->super_lock);
	pthread_mutex_lock(&p->config_lock);
	err = kvc_tenant_add_keyed(p->core, "secret", 0, 0, 0600, 0, &key);
	pthread_mutex_unlock(&p->config_lock);
	if (err >= 0)
		err = kve_members_write_super(p);
	pthread_mutex_unlock(&p->super_lock);
	kve_pool_put(p);
	return err;
}

int main(int argc, char **argv)
{
	struct kvctx_pool_params p = { .size = sizeof(p), .segment_bytes = 128 << 20 };
	int err;

	if (argc < 3 || argc > 4)
		return 2;
	kvctx_set_log(tell, stderr);
	p.bytes = strtoull(argv[2], NULL, 0) << 20;
	err = kvctx_pool_create(argv[1], &p);
	if (!err && argc == 4)
		err = add_secret(argv[1], argv[3]);
	if (err)
		fprintf(stderr, "new_pool: %s: %s\n", argv[1], kvctx_strerror(err));
	return !!err;
}
