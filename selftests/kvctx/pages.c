// SPDX-License-Identifier: GPL-2.0
/*
 * Pages for the test scripts: the same keys and bytes in every run, so that one process can look for what another
 * stored before a detach, a reboot of the target, or an accident.
 *
 *	pages store FROM COUNT SIZE [nowait]    prints "stored=N dedup=N again=N errors=N unadmitted=N"
 *	pages load FROM COUNT SIZE              prints "right=N wrong=N bad=N missing=N gone=N errors=N"
 *	pages delete FROM COUNT                 prints "deleted=N missing=N errors=N"
 *	pages flush                             prints "flushed"
 *	pages info                              prints "tenant_flags=N", "tenant_limit=N"
 *	pages hold SECONDS                      keeps a session open; SIGTERM ends that, and closes it
 *	pages hang                              keeps operations in flight until it is killed
 *	pages stick SESSIONS SIZE               submits loads of pages 0 to 15 in so many sessions, until it is killed
 *	pages lease FROM COUNT SECONDS          holds leases, and renews them
 *	pages flip DEVICE N BYTE                inverts a bit of page N's byte on a block device or file
 *	pages find DEVICE N                     prints "found=N": how often page N is there as it was stored
 *
 * "bad" is -EBADMSG, "missing" -ENOENT, "gone" -ENODEV or -EIO. Exit status 1 only when nothing could be done; the
 * scripts judge the numbers.
 */
#include <sys/stat.h>
#include <linux/fs.h>

#include "ktest.h"

#define DEPTH 16
#define SLOT (4 * KT_MIB)

static void die(const char *what, int err)
{
	fprintf(stderr, "pages: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void session(struct kt *k)
{
	int ret = kt_open(k, O_RDWR, 0x77, DEPTH * SLOT, 2 * DEPTH);

	if (ret)
		die(kt_node(), ret);
}

struct tally {
	unsigned long right, wrong, dedup, again, unadmitted, bad, missing, gone, errors;
};

static void count(struct kt *k, struct tally *t, const struct kvctx_cqe *cqe, bool load, uint32_t size, uint64_t from)
{
	uint64_t n = cqe->user_data;

	if (cqe->res == (int)size) {
		if (cqe->flags & KVCTX_CQE_DEDUP)
			t->dedup++;
		else if (load && kt_check(k->arena + (n - from) % DEPTH * SLOT, size, n) != -1)
			t->wrong++;
		else
			t->right++;
	} else if (cqe->res == 0 && cqe->flags == KVCTX_CQE_UNADMITTED) {
		t->unadmitted++;
	} else if (cqe->res == -EAGAIN) {
		t->again++;
	} else if (cqe->res == -EBADMSG) {
		t->bad++;
	} else if (cqe->res == -ENOENT) {
		t->missing++;
	} else if (cqe->res == -ENODEV || cqe->res == -EIO) {
		t->gone++;
	} else {
		fprintf(stderr, "pages: page %llu: %s\n", (unsigned long long)n, strerror(-cqe->res));
		t->errors++;
	}
}

/* Batches of DEPTH, each waited for */
static void transfer(struct kt *k, bool load, uint64_t from, uint64_t nr, uint32_t size, uint32_t flags,
		     struct tally *t)
{
	struct kvctx_sqe sqes[DEPTH];
	struct kvctx_seg segs[DEPTH];
	struct kvctx_cqe cqe;
	uint64_t n, b;

	for (n = from; n < from + nr; n += b) {
		for (b = 0; b < DEPTH && n + b < from + nr; b++) {
			uint64_t at = (n + b - from) % DEPTH * SLOT;

			if (load)
				memset(k->arena + at, 0, size);
			else
				kt_fill(k->arena + at, size, n + b);
			segs[b] = kt_seg(KVCTX_MEM_ARENA, at, size);
			sqes[b] = kt_io(load ? KVCTX_OP_LOAD : KVCTX_OP_STORE, kt_page_key(n + b), &segs[b], 1);
			sqes[b].user_data = n + b;
			sqes[b].flags = flags;
		}
		if (kt_submit(k, sqes, b, b) != (int)b)
			die("submit", EPROTO);
		for (uint64_t i = 0; i < b; i++) {
			if (!kt_reap(k, &cqe))
				die("completion", ETIME);
			count(k, t, &cqe, load, size, from);
		}
	}
}

static void hang(struct kt *k)
{
	struct kvctx_sqe sqes[DEPTH];
	struct kvctx_seg segs[DEPTH];
	struct kvctx_cqe cqe;

	for (uint64_t n = 1UL << 40;; n++) {
		for (int i = 0; i < DEPTH; i++) {
			segs[i] = kt_seg(KVCTX_MEM_ARENA, i * SLOT, KT_MIB);
			sqes[i] = kt_io(n % 2 ? KVCTX_OP_LOAD : KVCTX_OP_STORE, kt_page_key(n / 2 * DEPTH + i), &segs[i], 1);
		}
		kt_submit(k, sqes, DEPTH, 1);
		while (kt_reap(k, &cqe))
			;
	}
}

static void stick(uint64_t sessions, uint32_t size)
{
	for (; sessions; sessions--) {
		struct kvctx_sqe sqes[DEPTH];
		struct kvctx_seg segs[DEPTH];
		struct kt k;

		session(&k);
		for (int i = 0; i < DEPTH; i++) {
			segs[i] = kt_seg(KVCTX_MEM_ARENA, i * SLOT, size);
			sqes[i] = kt_io(KVCTX_OP_LOAD, kt_page_key(i), &segs[i], 1);
		}
		if (kt_submit(&k, sqes, DEPTH, 0) != DEPTH)
			die("submit", EIO);
	}
	puts("holding");
	fflush(stdout);
	pause();
}

static void take_leases(struct kt *k, uint64_t from, uint64_t nr)
{
	for (uint64_t n = from; n < from + nr; n++) {
		struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LEASE, kt_page_key(n));
		int res;

		sqe.lease_ms = 60000;
		res = kt_do(k, &sqe, NULL);
		if (res < 0)
			die("lease", res);
	}
}

/* Pages begin on 4096-byte boundaries: the next one, from @pos on, that has page @n's first @len bytes; -1: none */
static int64_t next_place(const char *device, int fd, uint64_t n, size_t len, uint64_t pos)
{
	uint8_t *buf = aligned_alloc(4096, KT_MIB);
	int64_t place = -1;
	ssize_t got = 0;

	for (; buf && place < 0 && (got = pread(fd, buf, KT_MIB, pos)) > 0; pos += got)
		for (ssize_t i = 0; i + 4096 <= got && place < 0; i += 4096)
			if (kt_check(buf + i, len, n) == -1)
				place = pos + i;
	if (!buf || got < 0)
		die(device, errno);
	free(buf);
	return place;
}

static void flip(const char *path, uint64_t n, uint64_t byte)
{
	int fd = open(path, O_RDWR | O_SYNC);
	int64_t place;
	uint8_t b;

	if (fd < 0)
		die(path, errno);
	place = next_place(path, fd, n, 64, 0);
	if (place < 0)
		die("page not found on the device", ENOENT);
	if (pread(fd, &b, 1, place + byte) != 1)
		die("read", errno);
	b ^= 0x10;
	if (pwrite(fd, &b, 1, place + byte) != 1 || fsync(fd))
		die("write", errno);
	ioctl(fd, BLKFLSBUF);
	printf("flipped byte %llu of page %llu at %llu\n", (unsigned long long)byte, (unsigned long long)n,
	       (unsigned long long)place);
	close(fd);
}

/* How often it is there */
static unsigned long find(const char *device, uint64_t n)
{
	int fd = open(device, O_RDONLY | O_DIRECT);
	unsigned long found = 0;
	int64_t place = -4096;

	if (fd < 0)
		die(device, errno);
	while ((place = next_place(device, fd, n, 256, place + 4096)) >= 0)
		found++;
	close(fd);
	return found;
}

static void delete(struct kt *k, uint64_t from, uint64_t nr)
{
	unsigned long deleted = 0, missing = 0, errors = 0;

	for (uint64_t n = from; n < from + nr; n++) {
		int res = kt_op(k, KVCTX_OP_DELETE, kt_page_key(n));

		if (!res)
			deleted++;
		else if (res == -ENOENT)
			missing++;
		else
			errors++;
	}
	printf("deleted=%lu missing=%lu errors=%lu\n", deleted, missing, errors);
}

static uint64_t num(const char *s)
{
	return strtoull(s, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct tally t = { 0 };
	sigset_t term;
	struct kt k;

	if (!strcmp(verb, "flip") && argc == 5) {
		flip(argv[2], num(argv[3]), num(argv[4]));
		return 0;
	}
	if (!strcmp(verb, "find") && argc == 4) {
		printf("found=%lu\n", find(argv[2], num(argv[3])));
		return 0;
	}
	if (!strcmp(verb, "stick") && argc == 4) {
		stick(num(argv[2]), num(argv[3]));
		return 1;
	}
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	if (!strcmp(verb, "hold"))	/* also in threads that the session brings */
		pthread_sigmask(SIG_BLOCK, &term, NULL);
	session(&k);
	if (!strcmp(verb, "store") && argc >= 5) {
		transfer(&k, false, num(argv[2]), num(argv[3]), num(argv[4]), argc > 5 ? KVCTX_OP_NOWAIT : 0, &t);
		printf("stored=%lu dedup=%lu again=%lu errors=%lu unadmitted=%lu\n", t.right, t.dedup, t.again,
		       t.errors, t.unadmitted);
	} else if (!strcmp(verb, "load") && argc == 5) {
		transfer(&k, true, num(argv[2]), num(argv[3]), num(argv[4]), 0, &t);
		printf("right=%lu wrong=%lu bad=%lu missing=%lu gone=%lu errors=%lu\n", t.right, t.wrong, t.bad,
		       t.missing, t.gone, t.errors + t.again);
	} else if (!strcmp(verb, "delete") && argc == 4) {
		delete(&k, num(argv[2]), num(argv[3]));
	} else if (!strcmp(verb, "flush") && argc == 2) {
		struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_FLUSH, (struct kvctx_key){ 0 });
		int res = kt_do(&k, &sqe, NULL);

		if (res)
			die("flush", res);
		puts("flushed");
	} else if (!strcmp(verb, "info") && argc == 2) {
		struct kvctx_info info = { .size = sizeof(info) };

		int res = kt_ioctl(k.file, KVCTX_IOC_INFO, &info);

		if (res)
			die("info", res);
		printf("tenant_flags=%u\ntenant_limit=%llu\n", info.tenant_flags, info.tenant_limit);
	} else if (!strcmp(verb, "hold") && argc == 3) {
		puts("holding");
		fflush(stdout);
		sigtimedwait(&term, NULL, &(struct timespec){ .tv_sec = num(argv[2]) });
	} else if (!strcmp(verb, "hang") && argc == 2) {
		hang(&k);
	} else if (!strcmp(verb, "lease") && argc == 5) {
		take_leases(&k, num(argv[2]), num(argv[3]));
		puts("holding");
		fflush(stdout);
		/* however long that takes: a lease ends after a minute */
		for (uint64_t left = num(argv[4]), step; left; left -= step) {
			step = left < 10 ? left : 10;
			sleep(step);
			take_leases(&k, num(argv[2]), num(argv[3]));
		}
	} else {
		fprintf(stderr, "usage: pages store|load|delete|flush|info|hold|hang|stick|lease|flip|find ... (see pages.c)\n");
		return 2;
	}
	kt_close(&k);
	return 0;
}
