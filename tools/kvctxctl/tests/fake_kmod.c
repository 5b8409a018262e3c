// SPDX-License-Identifier: GPL-2.0
/*
 * In place of libkmod.
 *
 *	FAKE_MODULE		none (not installed), out (default), live, builtin
 *	FAKE_MODULE_ERRNO	insertion and removal fail so
 *	FAKE_REFCNT		users of the module
 *	FAKE_FABRICS		"no": loading nvme-fabrics fails and brings no node
 */
#include <errno.h>
#include <libkmod.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct kmod_ctx {
	int refs;
};

struct kmod_module {
	char name[64];
};

struct kmod_list {
	struct kmod_module *mod;
};

struct kmod_ctx *kmod_new(const char *dirname, const char *const *config)
{
	return calloc(1, sizeof(struct kmod_ctx));
}

struct kmod_ctx *kmod_unref(struct kmod_ctx *ctx)
{
	free(ctx);
	return NULL;
}

void kmod_set_log_priority(struct kmod_ctx *ctx, int priority)
{
}

int kmod_module_new_from_name(struct kmod_ctx *ctx, const char *name, struct kmod_module **mod)
{
	*mod = calloc(1, sizeof(**mod));
	snprintf((*mod)->name, sizeof((*mod)->name), "%s", name);
	return 0;
}

int kmod_module_new_from_lookup(struct kmod_ctx *ctx, const char *name, struct kmod_list **list)
{
	*list = NULL;
	if (fake_is("FAKE_MODULE", "none"))
		return 0;
	*list = calloc(1, sizeof(**list));
	return kmod_module_new_from_name(ctx, name, &(*list)->mod);
}

struct kmod_list *kmod_list_next(const struct kmod_list *list, const struct kmod_list *curr)
{
	return NULL;
}

struct kmod_module *kmod_module_get_module(const struct kmod_list *entry)
{
	struct kmod_module *mod = malloc(sizeof(*mod));

	*mod = *entry->mod;
	return mod;
}

struct kmod_module *kmod_module_unref(struct kmod_module *mod)
{
	free(mod);
	return NULL;
}

int kmod_module_unref_list(struct kmod_list *list)
{
	if (list)
		free(list->mod);
	free(list);
	return 0;
}

int kmod_module_get_initstate(const struct kmod_module *mod)
{
	if (strcmp(mod->name, "kvctx"))
		return -ENOENT;
	if (fake_is("FAKE_MODULE", "live"))
		return KMOD_MODULE_LIVE;
	if (fake_is("FAKE_MODULE", "builtin"))
		return KMOD_MODULE_BUILTIN;
	return -ENOENT;
}

const char *kmod_module_get_path(const struct kmod_module *mod)
{
	return fake_is("FAKE_MODULE", "none") ? NULL : "/lib/modules/any/kvctx.ko";
}

int kmod_module_get_refcnt(const struct kmod_module *mod)
{
	return (int)fake_number("FAKE_REFCNT", 0);
}

int kmod_module_probe_insert_module(struct kmod_module *mod, unsigned int flags, const char *options,
				    int (*install)(struct kmod_module *, const char *, void *), const void *data,
				    void (*print)(struct kmod_module *, bool, const char *))
{
	fake_log("insert %s", mod->name);
	if (!strcmp(mod->name, "nvme-fabrics")) {
		if (fake_is("FAKE_FABRICS", "no"))
			return -ENOENT;
		fake_make("/dev/nvme-fabrics");
		return 0;
	}
	return -(int)fake_number("FAKE_MODULE_ERRNO", 0);
}

int kmod_module_remove_module(struct kmod_module *mod, unsigned int flags)
{
	fake_log("remove %s%s", mod->name, flags & KMOD_REMOVE_NOWAIT ? " at once" : "");
	return -(int)fake_number("FAKE_MODULE_ERRNO", 0);
}
