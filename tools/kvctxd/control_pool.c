// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of kvctxctl about pools and their members, as kmod/control/genl.c has them for the kernel.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "control.h"
#include "engine.h"
#include "pools.h"

int kvd_control_attach(struct control_request *rq)
{
	const char *devices[KVC_MEMBERS_MAX];
	struct kvd_pool *p;
	struct nlattr *a;
	uint32_t nr = 0;
	int rem, err;

	nla_for_each_attr(a, genlmsg_attrdata(rq->genl, 0), genlmsg_attrlen(rq->genl, 0), rem) {
		if (nla_type(a) != KVCTX_A_DEVICE)
			continue;
		if (nr == KVC_MEMBERS_MAX)
			return kvd_answer_refuse(rq, -E2BIG, "too many devices");
		if (nla_len(a) < 2 || ((const char *)nla_data(a))[nla_len(a) - 1])
			return -EINVAL;
		devices[nr++] = nla_data(a);
	}
	if (!nr)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the devices of the pool");
	err = kvd_attach_devices(devices, nr, rq->attrs[KVCTX_A_DEGRADED], &p, rq->why);
	if (err)
		return err;
	/* without memory for it nobody is told of its pages */
	kvd_pages_begin(p);
	err = kvd_control_put_pool(rq, p);
	kvd_event_send(kvd_event_pool(KVCTX_CMD_POOL_ATTACH, p));
	kvd_pool_put(p, false);
	return err;
}

int kvd_control_detach(struct control_request *rq, struct kvd_pool *p)
{
	int err = kvd_pool_detach(p, rq->why);

	if (!err || err == -EINPROGRESS)
		kvd_attach_forget(p->dir);
	return err;
}

int kvd_control_set_pool(struct control_request *rq, struct kvd_pool *p)
{
	const struct nlattr *rate = rq->attrs[KVCTX_A_DISCARD_RATE], *budget = rq->attrs[KVCTX_A_WRITE_BUDGET];
	struct kvc_settings settings;
	struct kve_pool *engine = p->engine;
	int err;

	if (!rate && !budget)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the settings of the pool");
	pthread_mutex_lock(&engine->super_lock);
	settings = kvc_super_of(engine->core)->settings;
	if (rate)
		settings.discard_rate = nla_get_u64(rate);
	if (budget)
		settings.write_budget = nla_get_u64(budget);
	pthread_mutex_lock(&engine->config_lock);
	err = kvc_pool_set(engine->core, &settings);
	pthread_mutex_unlock(&engine->config_lock);
	if (err)
		kvd_answer_refuse(rq, err, err == -EINVAL ? "discard rate: 1M to 1T, write budget: from 1M" : "out of memory");
	else if (kve_members_write_super(engine))
		err = kvd_answer_refuse(rq, -EIO, "set until detach: no superblock could be written");
	pthread_mutex_unlock(&engine->super_lock);
	for (uint32_t i = 0; i < kve_nr_members(engine) && !err; i++)
		kve_member_kick(&engine->members[i]);
	return err;
}

/* The rules for paths are those of an attach by devices */
int kvd_control_add_member(struct control_request *rq, struct kvd_pool *p)
{
	const struct nlattr *bytes = rq->attrs[KVCTX_A_CAPACITY];
	const char *device = control_text(rq, KVCTX_A_DEVICE);

	if (!device)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the device");
	if (*device != '/')
		return kvd_refuse(rq->why, -EINVAL, "%s: not an absolute path", device);
	if (bytes && !nla_get_u64(bytes))
		return kvd_refuse(rq->why, -EINVAL, "%s: a file of no bytes", device);
	return kve_pool_add(p->engine, device, bytes ? nla_get_u64(bytes) : 0, rq->attrs[KVCTX_A_DRY_RUN], rq->why);
}

int kvd_control_rejoin(struct control_request *rq, struct kvd_pool *p)
{
	const char *device = control_text(rq, KVCTX_A_DEVICE);

	if (!device)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the device");
	if (*device != '/')
		return kvd_refuse(rq->why, -EINVAL, "%s: not an absolute path", device);
	return kve_pool_rejoin(p->engine, device, rq->why);
}

int kvd_control_remove_member(struct control_request *rq, struct kvd_pool *p)
{
	if (!rq->attrs[KVCTX_A_INDEX])
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the number of the member");
	return kve_pool_remove(p->engine, nla_get_u32(rq->attrs[KVCTX_A_INDEX]), rq->attrs[KVCTX_A_MOVE], rq->why);
}

int kvd_control_put_pool(struct control_request *rq, struct kvd_pool *p)
{
	struct nl_msg *msg = kvd_answer_object(rq);

	return msg ? kvd_answer_put(rq, msg, kvd_report_pool(msg, p)) : -ENOMEM;
}

int kvd_control_put_stats(struct control_request *rq, struct kvd_pool *p)
{
	struct nl_msg *msg = kvd_answer_object(rq);

	return msg ? kvd_answer_put(rq, msg, kvd_report_stats(msg, p)) : -ENOMEM;
}
