// SPDX-License-Identifier: GPL-2.0
/*
 * Sessions: open files of a tenant's node. File operations, the ioctl table, life and death.
 *
 * What is valid says session/call.c. The dispatcher copies the structure in and out; handlers work on the copy. Before
 * a handler that hands something out runs, its structure is written back unchanged: a pointer that cannot be written is
 * found while nothing has been done.
 *
 * Death. close() (kill -9 is the same) drops the leases, cancels what waits for space or at a device and waits a few
 * seconds for what is in flight: operations, and reads into slots. If a device holds on to them longer, or did so just
 * now, the session is orphaned: it keeps a reference on the module, and the last completion queues its teardown. Either
 * way pins, arena, slots, and the reference on the tenant go only when no DMA is left, and the closing thread never
 * waits for a dead device.
 */
#include <linux/fs.h>
#include <linux/io_uring/cmd.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "op.h"

#define CLOSE_WAIT	(5 * HZ)

typedef long (*session_call)(struct kvctx_session *s, union kvctx_arg *arg);

/* SETUP was done, and what it made can be seen. */
static bool session_ready(const struct kvctx_session *s)
{
	/* pairs with session_setup_all() */
	return smp_load_acquire(&s->ready);
}

static u64 session_arena_max(void)
{
	return min_t(u64, (u64)totalram_pages() << PAGE_SHIFT, KVCTX_MMAP_ARENA);
}

/* Any page fits */
static u32 session_slot_bytes_max(const struct kvctx_session *s)
{
	return PAGE_ALIGN(s->rights.page_max);
}

static u32 session_dma_align(const struct kvctx_pool *p)
{
	u32 nr = kvctx_nr_members(p), i, align = 0;

	rcu_read_lock();
	for (i = 0; i < nr; i++) {
		struct block_device *bdev = READ_ONCE(p->members[i].bdev);

		if (bdev)
			align = max(align, kvctx_io_unit(bdev));
	}
	rcu_read_unlock();
	return align;
}

static long session_info(struct kvctx_session *s, union kvctx_arg *arg)
{
	const struct kvc_super *super = kvc_super_of(s->pool->core);
	struct kvctx_info *info = &arg->info;
	u32 size = info->size;

	*info = (struct kvctx_info){
		.size = size,
		.session_flags = s->rights.rdonly ? KVCTX_SESSION_RDONLY : 0,
		.features = KVCTX_FEAT_VERIFY | KVCTX_FEAT_SLOTS | KVCTX_FEAT_EVENTS |
			    (IS_ENABLED(CONFIG_PCI_P2PDMA) ? KVCTX_FEAT_P2P : 0) |
			    (IS_ENABLED(CONFIG_IO_URING) ? KVCTX_FEAT_URING : 0),
		.capacity = kvc_capacity(s->pool->core),
		.page_len_max = s->rights.page_max,
		.arena_max = session_arena_max(),
		.segment_size = super->segment_size,
		.chunk_size = kvc_chunk_size(s->pool->core),
		.block_size = KVC_BLOCK,
		.members = kvctx_nr_members(s->pool),
		.dma_align = session_dma_align(s->pool),
		.tenant_flags = s->tenant->flags,
		.tenant_limit = READ_ONCE(super->limits[s->tenant->slot].quota),
		.slot_bytes_max = session_slot_bytes_max(s),
	};
	if (session_ready(s))
		info->session_flags |= KVCTX_SESSION_READY;
	kvctx_info_limits(info);
	kvc_tenant_usage(s->pool->core, s->tenant->slot, &info->tenant_pages, &info->tenant_bytes);
	memcpy(info->pool_uuid, super->pool_uuid, sizeof(info->pool_uuid));
	strscpy_pad(info->pool, s->pool->name, sizeof(info->pool));
	strscpy_pad(info->tenant, s->tenant->name, sizeof(info->tenant));
	return 0;
}

static int session_setup_eventfd(struct kvctx_session *s, const struct kvctx_setup *arg)
{
	struct eventfd_ctx *ctx;

	if (!(arg->flags & KVCTX_SETUP_EVENTFD))
		return 0;
	ctx = eventfd_ctx_fdget(arg->eventfd);
	if (IS_ERR(ctx))
		return -EINVAL;
	s->cq.eventfd = ctx;
	return 0;
}

static int session_setup_arena(struct kvctx_session *s, u64 bytes)
{
	struct kvctx_mem *arena;

	if (!bytes)
		return 0;
	arena = kvctx_mem_alloc(bytes, s->tenant);
	if (IS_ERR(arena))
		return PTR_ERR(arena);
	arena->id = KVCTX_MEM_ARENA;
	s->arena = arena;
	return 0;
}

/* Undo what a failed SETUP, or a session at its end, leaves. */
static void session_setup_undo(struct kvctx_session *s)
{
	kvctx_slots_free(s);
	kvctx_mem_free(s->arena);
	s->arena = NULL;
	kvctx_op_discard_all(s->cq.spare);
	s->cq.spare = NULL;
	kvctx_cq_free(&s->cq);
	if (s->domain)
		kvc_domain_put(s->pool->core, s->domain);
	s->domain = NULL;
	kvctx_cipher_put(s->cipher);
	s->cipher = NULL;
}

/* The key as it is now: who has opened a session keeps to it. */
static int session_setup_cipher(struct kvctx_session *s)
{
	if (!s->rights.encrypted)
		return 0;
	mutex_lock(&kvctx_mutex);
	s->cipher = kvctx_cipher_get(s->tenant->cipher);
	mutex_unlock(&kvctx_mutex);
	return s->cipher && kvctx_cipher_valid(s->cipher) ? 0 : -ENOKEY;
}

static int session_setup_all(struct kvctx_session *s, struct kvctx_setup *arg)
{
	int err;

	err = session_setup_cipher(s);
	if (!err)
		err = kvc_domain_open(s->pool->core, s->tenant->slot, arg->keyspace, &s->domain);
	if (!err)
		err = kvctx_cq_setup(&s->cq, roundup_pow_of_two(arg->cq_entries));
	if (!err)
		err = session_setup_eventfd(s, arg);
	if (!err)
		err = session_setup_arena(s, arg->arena_bytes);
	if (!err && arg->nr_slots)
		err = kvctx_slots_setup(s, &arg->slot_bytes, arg->nr_slots);
	if (err) {
		session_setup_undo(s);
		return err;
	}
	arg->cq_entries = s->cq.entries;
	arg->cq_bytes = s->cq.bytes;
	arg->arena_bytes = s->arena ? s->arena->length : 0;
	/* pairs with session_ready() */
	smp_store_release(&s->ready, true);
	return 0;
}

static long session_setup(struct kvctx_session *s, union kvctx_arg *arg)
{
	struct kvctx_setup *setup = &arg->setup;
	int err = kvctx_setup_check(setup, session_arena_max(), session_slot_bytes_max(s), PAGE_SIZE);

	if (err)
		return err;
	err = mutex_lock_killable(&s->setup_lock);
	if (err)
		return -EINTR;
	err = s->ready ? -EEXIST : session_setup_all(s, setup);
	mutex_unlock(&s->setup_lock);
	return err;
}

static long session_register(struct kvctx_session *s, union kvctx_arg *arg)
{
	int ret;

	if (arg->reg.reserved)
		return -EINVAL;
	ret = kvctx_register(s, arg->reg.addr, arg->reg.length);
	if (ret > 0)
		arg->reg.id = ret;
	return min(ret, 0);
}

static long session_unregister(struct kvctx_session *s, union kvctx_arg *arg)
{
	return arg->unreg.reserved ? -EINVAL : kvctx_unregister(s, arg->unreg.id);
}

static long session_paths(struct kvctx_session *s, union kvctx_arg *arg)
{
	struct kvctx_path __user *user = u64_to_user_ptr(arg->paths.paths);
	u32 all = kvctx_nr_members(s->pool), i, nr = min(arg->paths.nr, all);
	struct kvctx_path *rows;
	struct kvctx_mem *mem;
	int err = 0;

	rows = kcalloc(all, sizeof(*rows), GFP_KERNEL);
	if (!rows)
		return -ENOMEM;
	mem = kvctx_mem_get(s, arg->paths.mem, true);
	if (IS_ERR(mem)) {
		err = PTR_ERR(mem);
		goto out;
	}
	for (i = 0; i < nr; i++)
		kvctx_peer_path(mem, &s->pool->members[i], &rows[i]);
	kvctx_mem_put(s, mem);
	if (copy_to_user(user, rows, nr * sizeof(*rows)))
		err = -EFAULT;
	arg->paths.nr = all;
out:
	kfree(rows);
	return err;
}

static long session_submit(struct kvctx_session *s, union kvctx_arg *arg)
{
	return kvctx_submit(s, &arg->submit, NULL);
}

static long session_wait(struct kvctx_session *s, union kvctx_arg *arg)
{
	int err = kvctx_cq_consume(s, arg->wait.consumed);

	if (err)
		return err;
	arg->wait.consumed = 0;
	return kvctx_cq_wait(s, arg->wait.min, &arg->wait.timeout_ns);
}

static long session_match(struct kvctx_session *s, union kvctx_arg *arg)
{
	return kvctx_match(s, &arg->match);
}

static long session_events(struct kvctx_session *s, union kvctx_arg *arg)
{
	return kvctx_events(s, &arg->events);
}

/* Row n is _IO(KVCTX_IOC_TYPE, n), as in kvctx_calls. */
static const session_call session_calls[KVCTX_CALLS] = {
	[_IOC_NR(KVCTX_IOC_INFO)]		= session_info,
	[_IOC_NR(KVCTX_IOC_SETUP)]		= session_setup,
	[_IOC_NR(KVCTX_IOC_MEM_REGISTER)]	= session_register,
	[_IOC_NR(KVCTX_IOC_MEM_UNREGISTER)]	= session_unregister,
	[_IOC_NR(KVCTX_IOC_SUBMIT)]		= session_submit,
	[_IOC_NR(KVCTX_IOC_WAIT)]		= session_wait,
	[_IOC_NR(KVCTX_IOC_MATCH)]		= session_match,
	[_IOC_NR(KVCTX_IOC_PATHS)]		= session_paths,
	[_IOC_NR(KVCTX_IOC_EVENTS)]		= session_events,
};

static int session_arg_get(const struct kvctx_call *call, const void __user *user, union kvctx_arg *arg)
{
	u32 size;
	int err;

	/* most callers have the size that we know; this may fail for those whose structure is shorter */
	if (!copy_from_user(arg, user, call->known) && arg->size == call->known)
		return 0;
	if (get_user(size, (const u32 __user *)user))
		return -EFAULT;
	if (size < call->min)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	memset(arg, 0, sizeof(*arg));
	err = copy_struct_from_user(arg, call->known, user, size);
	if (err)
		return err;
	return arg->size == size ? 0 : -EINVAL;
}

static int session_arg_put(const struct kvctx_call *call, void __user *user, const union kvctx_arg *arg)
{
	return copy_to_user(user, arg, min(arg->size, call->known)) ? -EFAULT : 0;
}

static long session_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct kvctx_session *s = file->private_data;
	void __user *ptr = (void __user *)user;
	const struct kvctx_call *call;
	unsigned int i = cmd - _IO(KVCTX_IOC_TYPE, 0);
	union kvctx_arg arg;
	long ret;

	if (i >= KVCTX_CALLS)
		return -ENOTTY;
	i = array_index_nospec(i, KVCTX_CALLS);
	call = &kvctx_calls[i];
	ret = session_arg_get(call, ptr, &arg);
	if (ret)
		return ret;
	if (arg.flags & ~call->flags)
		return -EINVAL;
	if (call->ready && !session_ready(s))
		return -EBADFD;
	if (call->out && session_arg_put(call, ptr, &arg))
		return -EFAULT;
	ret = session_calls[i](s, &arg);
	if (((ret >= 0 && call->out) || ret == -ERESTARTNOHAND) && session_arg_put(call, ptr, &arg))
		return -EFAULT;
	return ret;
}

static int session_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvctx_session *s = cmd->file->private_data;

	return session_ready(s) ? kvctx_uring_cmd(s, cmd, issue_flags) : -EBADFD;
}

static __poll_t session_poll(struct file *file, struct poll_table_struct *table)
{
	struct kvctx_session *s = file->private_data;

	poll_wait(file, &s->cq.wait, table);
	if (!session_ready(s))
		return 0;
	return kvctx_cq_readable(s) ? EPOLLIN | EPOLLRDNORM : 0;
}

/*
 * Shared mappings only: a private one would stop following us at the first write. VM_MAYSHARE is what MAP_SHARED
 * means; VM_SHARED is missing where the file was opened read-only.
 */
static int session_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct kvctx_session *s = file->private_data;
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;

	if (!session_ready(s))
		return -EBADFD;
	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_pgoff > U64_MAX >> PAGE_SHIFT)
		return -EINVAL;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	if (offset < KVCTX_MMAP_ARENA)
		return kvctx_cq_mmap(&s->cq, vma, offset);
	if (offset >= KVCTX_MMAP_SLOTS)
		return kvctx_slots_mmap(s, vma, offset - KVCTX_MMAP_SLOTS);
	return s->arena ? kvctx_mem_mmap(s->arena, vma, offset - KVCTX_MMAP_ARENA) : -EINVAL;
}

static void session_free(struct kvctx_session *s)
{
	kvctx_unregister_all(s);
	kvctx_events_exit(s);
	session_setup_undo(s);
	kvctx_tenant_put(s->tenant);
	kfree(s);
}

/* Of an orphan: its last completion has been posted. */
static void session_teardown(struct work_struct *work)
{
	struct kvctx_session *s = container_of(work, struct kvctx_session, teardown);

	/* who queued this work holds the lock still */
	spin_lock_irq(&s->cq.lock);
	spin_unlock_irq(&s->cq.lock);
	session_free(s);
	/* module exit waits for this work before the text goes */
	module_put(THIS_MODULE);
}

static int session_open(struct inode *inode, struct file *file)
{
	struct kvctx_session *s;

	if (!(file->f_mode & FMODE_READ))
		return -EACCES;
	s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (!s)
		return -ENOMEM;
	s->tenant = kvctx_tenant_get(iminor(inode));
	if (!s->tenant) {
		kfree(s);
		return -ENODEV;
	}
	s->pool = s->tenant->pool;
	s->slot = (u16)s->tenant->slot;
	s->no_urgent = kvc_tenant_no_urgent(s->pool->core, s->slot);
	s->paced = kvc_tenant_paced(s->pool->core, s->slot);
	s->tally = kvctx_tally_join(s->tenant->tally);
	s->losses_seen = atomic_read(&s->pool->losses);
	s->rights = (struct kvctx_rights){
		.rdonly = !(file->f_mode & FMODE_WRITE), .verified = s->tenant->flags & KVCTX_TENANT_VERIFIED,
		.encrypted = s->tenant->flags & KVCTX_TENANT_ENCRYPTED,
		.page_max = kvc_page_max(s->pool->core),
	};
	mutex_init(&s->setup_lock);
	xa_init_flags(&s->mems, XA_FLAGS_ALLOC1);
	kvctx_cq_init(&s->cq);
	kvctx_lease_init(s);
	INIT_WORK(&s->teardown, session_teardown);
	file->private_data = s;
	return nonseekable_open(inode, file);
}

/* Leave the rest to the last completion, unless it has come. */
static bool session_orphan(struct kvctx_session *s)
{
	struct kvctx_cq *cq = &s->cq;
	unsigned long flags;
	bool orphaned;

	spin_lock_irqsave(&cq->lock, flags);
	orphaned = cq->inflight || cq->background;
	if (orphaned) {
		__module_get(THIS_MODULE);
		cq->orphaned = true;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return orphaned;
}

/* Who waited in vain did so for all that are closed soon after: a process ends its sessions one by one. */
static void session_drain(struct kvctx_session *s)
{
	struct kvctx_pool *p = s->pool;

	if (time_before(jiffies, READ_ONCE(p->impatient_until)))
		return;
	if (!wait_event_idle_timeout(s->cq.wait, kvctx_cq_drained(s), CLOSE_WAIT))
		WRITE_ONCE(p->impatient_until, jiffies + CLOSE_WAIT);
}

static int session_release(struct inode *inode, struct file *file)
{
	struct kvctx_session *s = file->private_data;

	WRITE_ONCE(s->dying, true);
	kvctx_sweep(s->pool);
	kvctx_lease_exit(s);
	session_drain(s);
	if (!session_orphan(s))
		session_free(s);
	return 0;
}

const struct file_operations kvctx_fops = {
	.owner		= THIS_MODULE,
	.open		= session_open,
	.release	= session_release,
	.unlocked_ioctl	= session_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.uring_cmd	= session_uring_cmd,
	.poll		= session_poll,
	.mmap		= session_mmap,
};
