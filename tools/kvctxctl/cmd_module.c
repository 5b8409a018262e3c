// SPDX-License-Identifier: GPL-2.0
/*
 * load, unload, version: the kernel module through libkmod.
 */
#include <errno.h>
#include <libkmod.h>
#include <linux/kvctx_genl.h>
#include <string.h>
#include <syslog.h>

#include "out.h"

#define MODULE	"kvctx"

static struct kmod_ctx *open_kmod(void)
{
	struct kmod_ctx *ctx = kmod_new(NULL, NULL);

	/* libkmod's own messages say less than ours */
	if (ctx)
		kmod_set_log_priority(ctx, LOG_EMERG);
	return ctx;
}

static bool running(int initstate)
{
	return initstate == KMOD_MODULE_LIVE || initstate == KMOD_MODULE_BUILTIN;
}

/* Insert all modules that @name stands for, with those they need. @was_loaded: there was nothing to do */
static int probe(struct kmod_ctx *ctx, const char *name, bool *was_loaded)
{
	struct kmod_list *list = NULL, *l;
	int err = kmod_module_new_from_lookup(ctx, name, &list);

	if (!err && !list)
		err = -ENOENT;
	*was_loaded = !err;
	kmod_list_foreach(l, list) {
		struct kmod_module *mod = kmod_module_get_module(l);

		if (!running(kmod_module_get_initstate(mod))) {
			*was_loaded = false;
			err = kmod_module_probe_insert_module(mod, 0, NULL, NULL, NULL, NULL);
		}
		kmod_module_unref(mod);
		if (err)
			break;
	}
	kmod_module_unref_list(list);
	return err;
}

int module_load(const char *name)
{
	struct kmod_ctx *ctx = open_kmod();
	bool was_loaded;
	int err;

	if (!ctx)
		return -ENOMEM;
	err = probe(ctx, name, &was_loaded);
	kmod_unref(ctx);
	return err;
}

static const char *load_why(int err)
{
	switch (err) {
	case ENOENT:
		return "no module " MODULE " is installed for the running kernel";
	case ENOEXEC:
		return "the module was built for another kernel";
	case ENOKEY:
	case EKEYREJECTED:
		return "the kernel takes signed modules only, and this one is not signed with a key it trusts";
	case EPERM:
		return "not permitted; this needs CAP_SYS_MODULE (root)";
	default:
		return strerror(err);
	}
}

/* @key: true if something was done */
static void put_state(const struct ctl *c, const char *key, bool yes, const char *sentence)
{
	struct json_object *root = out_root();

	out_text(root, "module", MODULE);
	out_bool(root, key, yes);
	if (c->json)
		out_json(root);
	else
		puts(sentence);
	json_object_put(root);
}

int cmd_load(struct ctl *c)
{
	struct kmod_ctx *ctx = open_kmod();
	bool was_loaded = false;
	int err = ctx ? -probe(ctx, MODULE, &was_loaded) : ENOMEM;

	kmod_unref(ctx);
	if (err) {
		ctl_command_error(c, "%s", load_why(err));
		return ctl_status_of(err);
	}
	put_state(c, "loaded", !was_loaded, was_loaded ? MODULE " was loaded already" : MODULE " loaded");
	return CTL_OK;
}

static int unload_failed(const struct ctl *c, int err, int users)
{
	if (err == EAGAIN || err == EBUSY)
		ctl_command_error(c, "the module is in use by %d; close the sessions first", users);
	else if (err == EPERM)
		ctl_command_error(c, "%s", load_why(err));
	else
		ctl_command_error(c, "%s", strerror(err));
	return ctl_status_of(err);
}

static int unload(struct ctl *c, struct kmod_module *mod)
{
	int err = 0, users;

	if (kmod_module_get_initstate(mod) == KMOD_MODULE_BUILTIN) {
		ctl_command_error(c, "the module is built into the kernel");
		return CTL_NOSUPP;
	}
	if (kmod_module_get_initstate(mod) < 0) {
		put_state(c, "unloaded", false, MODULE " was not loaded");
		return CTL_OK;
	}
	users = kmod_module_get_refcnt(mod);
	err = users > 0 ? EBUSY : -kmod_module_remove_module(mod, KMOD_REMOVE_NOWAIT);
	if (err)
		return unload_failed(c, err, users);
	put_state(c, "unloaded", true, MODULE " unloaded");
	return CTL_OK;
}

int cmd_unload(struct ctl *c)
{
	struct kmod_ctx *ctx = open_kmod();
	struct kmod_module *mod = NULL;
	int err = ctx ? -kmod_module_new_from_name(ctx, MODULE, &mod) : ENOMEM;
	int status;

	if (err) {
		ctl_command_error(c, "%s", strerror(err));
		status = CTL_FAILED;
	} else {
		status = unload(c, mod);
		kmod_module_unref(mod);
	}
	kmod_unref(ctx);
	return status;
}

enum module_state module_look(void)
{
	enum module_state state = MODULE_ABSENT;
	struct kmod_ctx *ctx = open_kmod();
	struct kmod_module *mod = NULL;

	if (ctx && !kmod_module_new_from_name(ctx, MODULE, &mod)) {
		if (running(kmod_module_get_initstate(mod)))
			state = MODULE_LOADED;
		else if (kmod_module_get_path(mod))
			state = MODULE_INSTALLED;
		kmod_module_unref(mod);
	}
	kmod_unref(ctx);
	return state;
}

int cmd_version(struct ctl *c)
{
	struct json_object *root = out_root();
	bool loaded = module_look() == MODULE_LOADED;

	out_text(root, "version", KVCTX_VERSION);
	out_number(root, "control_abi", KVCTX_GENL_VERSION);
	out_bool(root, "module_loaded", loaded);
	if (c->json)
		out_json(root);
	else
		printf("kvctxctl %s\ncontrol ABI %d\nmodule %s\n", KVCTX_VERSION, KVCTX_GENL_VERSION,
		       loaded ? "loaded" : "not loaded");
	json_object_put(root);
	return CTL_OK;
}
