// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that operations move pages from and to: the arena, registrations, scratch; and how to walk it.
 * Of registrations here the pages; the rest, and what is special about those of a peer, is in register.c.
 *
 * A memory is a row of extents, physically contiguous runs of pages, however they came about: a huge page is one
 * extent or part of one. The arena is allocated in chunks as large as the allocator gives and split into single
 * pages, so that each is an ordinary page with a reference count of its own: mappings, cudaHostRegister() or
 * ibv_reg_mr() may hold it beyond the life of the session.
 *
 * Pages are charged to the user who asked for them, up to RLIMIT_MEMLOCK of the process, unless that has CAP_IPC_LOCK;
 * for as long as the memory exists, whoever has the session by then. Others charge the same account: io_uring, iommufd.
 * VmPin of the process tells of them, too. They count against the tenant's limit, which all its sessions share.
 *
 * Pages of a peer are pinned without FOLL_LONGTERM: their driver must be able to leave at any time, and kvctx lets
 * go of them when it does. They are not this machine's memory and not charged.
 *
 * A memory is immutable once built, but for a peer's, which loses its pages with nobody using it. Who uses it holds
 * @users (registrations), or lives inside the session (arena) or the operation (scratch).
 *
 * Walking needs no mapping: without HIGHMEM every extent is contiguous in the kernel's own address space.
 */
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "op.h"

#define ALLOC_ORDER	(21 - PAGE_SHIFT)	/* 2 MiB: what an IOMMU or a PRP list likes best */
#define PIN_BATCH	2048
#define COPY_STEP	(64U << 10)

static_assert(!IS_ENABLED(CONFIG_HIGHMEM));

static unsigned long mem_extent_end(const struct kvctx_mem *mem, u32 i)
{
	return i + 1 < mem->nr_extents ? mem->extents[i + 1].index : mem->nr_pages;
}

unsigned long kvctx_mem_extent_pages(const struct kvctx_mem *mem, u32 i)
{
	return mem_extent_end(mem, i) - mem->extents[i].index;
}

static int mem_extents_grow(struct kvctx_mem *mem)
{
	u32 max = mem->max_extents ? 2 * mem->max_extents : 8;
	struct kvctx_extent *new;

	/* more than INT_MAX bytes are not to be had, and no reason to warn: a user asks for them */
	new = kvmalloc_array(max, sizeof(*new), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!new)
		return -ENOMEM;
	if (mem->nr_extents)
		memcpy(new, mem->extents, mem->nr_extents * sizeof(*new));
	kvfree(mem->extents);
	mem->extents = new;
	mem->max_extents = max;
	return 0;
}

/* Append @nr contiguous pages, to the last extent if they continue it. */
static int mem_extents_add(struct kvctx_mem *mem, struct page *page, unsigned long nr)
{
	int err;

	if (mem->nr_extents) {
		const struct kvctx_extent *last = &mem->extents[mem->nr_extents - 1];
		unsigned long n = mem->nr_pages - last->index;

		if (page == last->page + n && page_to_pfn(page) == page_to_pfn(last->page) + n) {
			mem->nr_pages += nr;
			return 0;
		}
	}
	if (mem->nr_extents == mem->max_extents) {
		err = mem_extents_grow(mem);
		if (err)
			return err;
	}
	mem->extents[mem->nr_extents++] = (struct kvctx_extent){ .index = mem->nr_pages, .page = page };
	mem->nr_pages += nr;
	return 0;
}

static void mem_extent_release(struct kvctx_mem *mem, u32 i)
{
	struct page *page = mem->extents[i].page;
	unsigned long nr = kvctx_mem_extent_pages(mem, i);

	if (mem->pinned) {
		unpin_user_page_range_dirty_lock(page, nr, !mem->foreign);
		return;
	}
	while (nr--)
		__free_page(page++);
}

/* Let go of all pages; the memory stays behind empty. */
void kvctx_mem_unpin(struct kvctx_mem *mem)
{
	u32 i;

	for (i = 0; i < mem->nr_extents; i++) {
		mem_extent_release(mem, i);
		cond_resched();
	}
	mem->nr_extents = 0;
	mem->nr_pages = 0;
}

static int mem_charge(struct kvctx_mem *mem, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();
	long had;

	if (!capable(CAP_IPC_LOCK)) {
		had = atomic_long_read(&user->locked_vm);
		do {
			if (pages > limit || had > limit - pages)
				return -ENOMEM;
		} while (!atomic_long_try_cmpxchg(&user->locked_vm, &had, had + pages));
		mem->user = get_uid(user);
	}
	mem->mm = current->mm;
	mmgrab(mem->mm);
	atomic64_add(pages, &mem->mm->pinned_vm);
	mem->accounted = pages;
	return 0;
}

static void mem_uncharge(struct kvctx_mem *mem)
{
	if (mem->user) {
		atomic_long_sub(mem->accounted, &mem->user->locked_vm);
		free_uid(mem->user);
	}
	atomic64_sub(mem->accounted, &mem->mm->pinned_vm);
	mmdrop(mem->mm);
}

void kvctx_mem_free(struct kvctx_mem *mem)
{
	if (!mem)
		return;
	kvctx_mem_unpin(mem);
	if (mem->mm)
		mem_uncharge(mem);
	if (mem->payer)
		kvc_tenant_unpin(mem->payer->pool->core, mem->payer->slot, (u64)mem->accounted << PAGE_SHIFT);
	kvfree(mem->extents);
	kfree(mem);
}

/* A memory without pages yet, its @pages charged to the caller and his tenant, if there is one. */
static struct kvctx_mem *mem_new(unsigned long pages, struct kvctx_tenant *payer)
{
	struct kvctx_mem *mem;
	int err;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	if (!payer)
		return mem;
	err = kvc_tenant_pin(payer->pool->core, payer->slot, (u64)pages << PAGE_SHIFT);
	if (err)
		goto err_free;
	mem->payer = payer;
	mem->accounted = pages;
	err = mem_charge(mem, pages);
	if (err)
		goto err_free;
	return mem;

err_free:
	kvctx_mem_free(mem);
	return ERR_PTR(err);
}

/* One chunk of at most 1 << @order pages; tells the order it found. */
static struct page *mem_alloc_chunk(unsigned int *order)
{
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	struct page *page;

	for (; *order; --*order) {
		page = alloc_pages(gfp | __GFP_NORETRY, *order);
		if (page) {
			split_page(page, *order);
			return page;
		}
	}
	return alloc_page(gfp | __GFP_RETRY_MAYFAIL);
}

/* Zeroed memory of at least @bytes */
struct kvctx_mem *kvctx_mem_alloc(u64 bytes, struct kvctx_tenant *payer)
{
	unsigned long left = PHYS_PFN(bytes + PAGE_SIZE - 1), nr;
	unsigned int order = ALLOC_ORDER;
	struct kvctx_mem *mem;
	struct page *page;
	int err;

	mem = mem_new(left, payer);
	if (IS_ERR(mem))
		return mem;
	mem->length = (u64)left << PAGE_SHIFT;
	for (; left; left -= nr) {
		order = min_t(unsigned int, order, ilog2(left));
		page = mem_alloc_chunk(&order);
		err = -ENOMEM;
		if (!page)
			goto err_free;
		nr = 1UL << order;
		err = mem_extents_add(mem, page, nr);
		if (err) {
			while (nr--)
				__free_page(page++);
			goto err_free;
		}
		err = -EINTR;
		if (fatal_signal_pending(current))
			goto err_free;
		cond_resched();
	}
	return mem;

err_free:
	kvctx_mem_free(mem);
	return ERR_PTR(err);
}

static int mem_pin_error(long got)
{
	switch (got) {
	case -ENOMEM:
	case -EAGAIN:
		return -ENOMEM;
	case -EINTR:
	case -ERESTARTSYS:
		return -EINTR;
	default:
		return -EFAULT;
	}
}

static bool mem_all_foreign(struct page **pages, int nr)
{
	while (nr--)
		if (!is_pci_p2pdma_page(pages[nr]))
			return false;
	return true;
}

/* Is a device's memory mapped there without struct pages, so that nobody can pin it? */
static bool mem_maps_device(unsigned long addr)
{
	struct follow_pfnmap_args args = { .address = addr };
	struct pci_dev *pdev;
	bool found = false;

	mmap_read_lock(current->mm);
	args.vma = vma_lookup(current->mm, addr);
	if (args.vma && args.vma->vm_flags & VM_PFNMAP && !follow_pfnmap_start(&args)) {
		pdev = kvctx_path_device(PFN_PHYS(args.pfn), PAGE_SIZE);
		found = pdev;
		pci_dev_put(pdev);
		follow_pfnmap_end(&args);
	}
	mmap_read_unlock(current->mm);
	return found;
}

/*
 * What is mapped at @addr? 0: memory; 1: memory of a peer; or why it cannot be pinned. Asked for good, peer memory is
 * refused, with -EFAULT where the file that maps it wants to know of writes, as those of sysfs do.
 */
static int mem_pin_probe(unsigned long addr)
{
	struct page *page;
	long got = pin_user_pages_fast(addr, 1, FOLL_WRITE | FOLL_LONGTERM, &page);
	bool foreign = false;

	if (got == 1) {
		unpin_user_page(page);
		return 0;
	}
	if (got != -EREMOTEIO && got != -EFAULT)
		return mem_pin_error(got);
	if (pin_user_pages_fast(addr, 1, FOLL_WRITE | FOLL_PCI_P2PDMA, &page) == 1) {
		foreign = is_pci_p2pdma_page(page);
		unpin_user_page(page);
	}
	if (foreign)
		return 1;
	return mem_maps_device(addr) ? -EREMOTEIO : -EFAULT;
}

/* Pages of [addr, + up to PIN_BATCH pages), as runs. */
static int mem_pin_some(struct kvctx_mem *mem, unsigned long addr, unsigned long want, struct page **pages)
{
	unsigned int flags = FOLL_WRITE | (mem->foreign ? FOLL_PCI_P2PDMA : FOLL_LONGTERM);
	int got, i, n, err;

	got = pin_user_pages_fast(addr, min_t(unsigned long, want, PIN_BATCH), flags, pages);
	if (got <= 0)
		return mem_pin_error(got);
	if (mem->foreign && !mem_all_foreign(pages, got)) {
		unpin_user_pages(pages, got);
		return -EFAULT;
	}
	for (i = 0; i < got; i += n) {
		n = 1;
		while (i + n < got && pages[i + n] == pages[i] + n &&
		       page_to_pfn(pages[i + n]) == page_to_pfn(pages[i]) + n)
			n++;
		err = mem_extents_add(mem, pages[i], n);
		if (err) {
			unpin_user_pages(pages + i, got - i);
			return err;
		}
	}
	return 0;
}

/* Pin [addr, addr + length) of the caller. */
struct kvctx_mem *kvctx_mem_pin(struct kvctx_tenant *payer, u64 addr, u64 length)
{
	unsigned long start = (unsigned long)addr & PAGE_MASK, total;
	struct kvctx_mem *mem;
	struct page **pages;
	u64 end;
	int err, foreign;

	if (!length || check_add_overflow(addr, length, &end) || end > ULONG_MAX - PAGE_SIZE)
		return ERR_PTR(-EINVAL);
	total = PHYS_PFN(PAGE_ALIGN((unsigned long)end) - start);
	foreign = mem_pin_probe(start);
	if (foreign < 0)
		return ERR_PTR(foreign);
	pages = kvmalloc_array(PIN_BATCH, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return ERR_PTR(-ENOMEM);
	mem = mem_new(total, foreign ? NULL : payer);
	if (IS_ERR(mem))
		goto out;
	mem->pinned = true;
	mem->foreign = foreign;
	mem->first = offset_in_page(addr);
	mem->length = length;
	do {
		err = mem_pin_some(mem, start + (mem->nr_pages << PAGE_SHIFT), total - mem->nr_pages, pages);
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	} while (!err && mem->nr_pages < total);
	if (err) {
		kvctx_mem_free(mem);
		mem = ERR_PTR(err);
	}
out:
	kvfree(pages);
	return mem;
}

/*
 * The bytes of @iter, whose owner keeps them for as long as this memory exists; to be freed with kvfree(). Like all
 * memories one range of addresses: in between there are only whole pages.
 */
struct kvctx_mem *kvctx_mem_borrow(const struct iov_iter *iter)
{
	const struct bio_vec *bv = iter->bvec;
	size_t skip = iter->iov_offset, left = iter->count, n;
	struct kvctx_mem *mem;
	struct page *page;
	u32 at;

	if (!iov_iter_is_bvec(iter))
		return ERR_PTR(-EFAULT);
	mem = kvzalloc(sizeof(*mem) + iter->nr_segs * sizeof(*mem->extents), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->extents = (struct kvctx_extent *)(mem + 1);
	mem->max_extents = iter->nr_segs;
	mem->length = iter->count;
	for (; skip >= bv->bv_len; bv++)
		skip -= bv->bv_len;
	for (; left; left -= n, bv++, skip = 0) {
		page = bv->bv_page + PHYS_PFN(bv->bv_offset + skip);
		at = offset_in_page(bv->bv_offset + skip);
		n = min_t(size_t, left, bv->bv_len - skip);
		if (!mem->nr_pages)
			mem->first = at;
		else if (at)
			goto err;
		if (is_pci_p2pdma_page(page) || (n < left && !PAGE_ALIGNED(at + n)) ||
		    mem_extents_add(mem, page, PHYS_PFN(PAGE_ALIGN(at + n))))
			goto err;
	}
	return mem;

err:
	kvfree(mem);
	return ERR_PTR(-EFAULT);
}

/* The extent that holds page @index; @guess is tried first, with the one behind it. */
static u32 mem_extent_find(const struct kvctx_mem *mem, unsigned long index, u32 guess)
{
	u32 lo = 0, end = mem->nr_extents;

	if (guess < end && mem->extents[guess].index <= index) {
		if (index < mem_extent_end(mem, guess))
			return guess;
		if (guess + 1 < end && index < mem_extent_end(mem, guess + 1))
			return guess + 1;
	}
	while (end - lo > 1) {
		u32 mid = lo + (end - lo) / 2;

		if (mem->extents[mid].index <= index)
			lo = mid;
		else
			end = mid;
	}
	return lo;
}

/* Map [offset, + size of @vma) of a memory that was allocated here. */
int kvctx_mem_mmap(struct kvctx_mem *mem, struct vm_area_struct *vma, u64 offset)
{
	unsigned long index = PHYS_PFN(offset), addr = vma->vm_start, n, left, end;
	struct page *batch[32];
	u32 extent = 0;
	int err;

	if (offset > mem->length || vma->vm_end - vma->vm_start > mem->length - offset)
		return -EINVAL;
	end = index + vma_pages(vma);
	while (index < end) {
		for (n = 0; n < ARRAY_SIZE(batch) && index < end; n++, index++) {
			extent = mem_extent_find(mem, index, extent);
			batch[n] = mem->extents[extent].page + (index - mem->extents[extent].index);
		}
		left = n;
		err = vm_insert_pages(vma, addr, batch, &left);
		if (err)
			return err;
		addr += n << PAGE_SHIFT;
	}
	return 0;
}

void kvctx_cursor_init(struct kvctx_cursor *c, const struct kvctx_piece *pieces)
{
	*c = (struct kvctx_cursor){ .piece = pieces };
}

/* What lies at the cursor, up to where the physical contiguity or the piece ends. */
void kvctx_cursor_run(struct kvctx_cursor *c, struct kvctx_run *run)
{
	const struct kvctx_piece *piece = c->piece;
	const struct kvctx_mem *mem = piece->mem;
	unsigned long index;
	u64 at, bytes;

	run->length = piece->length - c->done;
	run->offset = 0;
	run->page = NULL;
	if (!mem)
		return;
	at = mem->first + piece->offset + c->done;
	index = PHYS_PFN(at);
	c->extent = mem_extent_find(mem, index, c->extent);
	bytes = ((u64)mem_extent_end(mem, c->extent) << PAGE_SHIFT) - at;
	run->length = min_t(u64, run->length, bytes);
	run->offset = offset_in_page(at);
	run->page = mem->extents[c->extent].page + (index - mem->extents[c->extent].index);
}

void kvctx_cursor_advance(struct kvctx_cursor *c, u64 n)
{
	while (n) {
		u32 step = min_t(u64, n, c->piece->length - c->done);

		c->done += step;
		n -= step;
		if (c->done == c->piece->length) {
			c->piece++;
			c->done = 0;
		}
	}
}

/* Up to @max bytes at the cursor, which moves behind them; NULL: a gap, or nothing for the CPU. */
static void *mem_cursor_next(struct kvctx_cursor *c, u64 max, u32 *n)
{
	const struct kvctx_mem *mem = c->piece->mem;
	struct kvctx_run run;

	kvctx_cursor_run(c, &run);
	*n = min_t(u64, max, run.length);
	kvctx_cursor_advance(c, *n);
	return mem && !mem->foreign ? page_address(run.page) + run.offset : NULL;
}

/* Gather: gaps are zeros. */
void kvctx_cursor_read(struct kvctx_cursor *c, void *buf, u32 n)
{
	u32 step;
	void *p;

	for (; n; n -= step, buf += step) {
		p = mem_cursor_next(c, n, &step);
		if (p)
			memcpy(buf, p, step);
		else
			memset(buf, 0, step);
	}
}

/* Scatter: what falls into gaps is dropped. */
void kvctx_cursor_write(struct kvctx_cursor *c, const void *buf, u32 n)
{
	u32 step;
	void *p;

	for (; n; n -= step, buf += step) {
		p = mem_cursor_next(c, n, &step);
		if (p)
			memcpy(p, buf, step);
	}
}

void kvctx_cursor_zero(struct kvctx_cursor *c, u64 n)
{
	u32 step;
	void *p;

	for (; n; n -= step) {
		p = mem_cursor_next(c, n, &step);
		if (p)
			memset(p, 0, step);
		cond_resched();
	}
}

/* From one to the other, as read() and write() would. May sleep. */
void kvctx_cursor_copy(struct kvctx_cursor *to, struct kvctx_cursor *from, u32 n)
{
	u32 step;
	void *p;

	for (; n; n -= step) {
		p = mem_cursor_next(from, min(n, COPY_STEP), &step);
		if (p)
			kvctx_cursor_write(to, p, step);
		else
			kvctx_cursor_zero(to, step);
		cond_resched();
	}
}

/* CRC32C of the next @n bytes, which hold no gap. */
u32 kvctx_cursor_crc(struct kvctx_cursor *c, u32 n)
{
	u32 crc = KVC_CRC_INIT, step;
	void *p;

	for (; n; n -= step) {
		p = mem_cursor_next(c, n, &step);
		if (p)
			crc = kvc_crc_feed(crc, p, step);
	}
	return kvc_crc_finish(crc);
}

/* En- or decrypt whole blocks of a page, from number @block on, in memory of ours. 0, -ENOKEY, -ENOMEM, -EIO. Sleeps */
int kvctx_cursor_crypt(struct kvctx_cursor *c, struct kvctx_cipher *cipher, bool encrypt, const u8 *nonce, u32 block,
		       u64 n)
{
	struct kvctx_run run;
	int err = 0;
	u32 step;

	for (; n && !err; n -= step, block += step / KVC_BLOCK) {
		kvctx_cursor_run(c, &run);
		step = min_t(u64, n, run.length);
		err = kvctx_cipher_run(cipher, encrypt, nonce, block, step / KVC_BLOCK, run.page, run.offset);
		kvctx_cursor_advance(c, step);
		cond_resched();
	}
	return err;
}
