// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches pools that somebody has tampered with, one after another.
 *
 *	hostile DEVICE FIRST COUNT
 *
 * The device holds the pool "t", detached, with pages of the program `pages` from number 0 on. Each number from FIRST on
 * is the seed of an image: the pool with some structures changed, most of the time with checksums put right again, as
 * nobody but an attacker would. It is attached; a refusal has to come with a reason. When it is taken, all its tenants'
 * nodes are opened, pages are matched and loaded, new ones are stored, flushed, loaded and deleted, and it is detached.
 *
 * What an image says may be false, so pages of the pool may be missing or be others; but when no checksum was put
 * right, what is loaded has to be right, and new pages always. Nothing else than the documented errors may come, and
 * nothing in the kernel's log that looks like a fault: then the seed is printed, and the program ends.
 */
#include <dirent.h>
#include <linux/fs.h>
#include <linux/kvctx_genl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <stdarg.h>

#include "media/format_media.h"
#include "media.h"
#include "rng.h"

#include "ktest.h"

#define KEYS		160U	/* pages that the pool may have */
#define NEW		6U	/* pages to store */
#define NEW_KEY		100000U
#define PAGE		20000U	/* bytes of each */
#define SUPERS_MAX	16U
#define REASONS_MAX	48

static const char *device;
static int fd;
static u8 *base, *img;		/* the pool, the image */
static u32 size;
static struct kvc_super super;
static u32 supers[SUPERS_MAX], nr_supers;
static struct rng rng;
static bool forged;		/* a checksum was put right */
static u64 image;

static unsigned long refused, taken, loaded, missing, bad;
static struct {
	char	text[200];
	unsigned long nr;
} reasons[REASONS_MAX];

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("FAILED image %llu: ", (unsigned long long)image);
	vprintf(format, args);
	printf("\n");
	va_end(args);
	exit(1);
}

/* Tampering */

static u64 hurtful(void)
{
	static const u64 list[] = {
		0, 1, 2, 4, 63, 64, 239, 240, 255, 256, 4095, 4096, 4097, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff,
		0x100000000, 0xfffff000, KVC_COUNTER_END - 1, KVC_COUNTER_END, 1ULL << 63, ~0ULL, KVC_PAGE_MAX,
		KVC_SEGMENT_MIN, KVC_SEGMENT_MAX, KVC_EXTENT_MAX, KVC_SEGMENTS_END,
	};

	if (rng_chance(&rng, 7000))
		return list[rng_below(&rng, ARRAY_SIZE(list))] + rng_below(&rng, 3) - 1;
	return rng_chance(&rng, 5000) ? 1ULL << rng_below(&rng, 64) : rng_u64(&rng);
}

/* Some bytes of [@p, @p + @len) */
static void tamper(u8 *p, u32 len)
{
	u32 n = rng_range(&rng, 1, 3), at, width;
	u64 v;

	while (n--) {
		at = rng_below(&rng, len);
		if (rng_chance(&rng, 3000)) {
			p[at] ^= (u8)(1U << rng_below(&rng, 8));
			continue;
		}
		width = 1U << rng_below(&rng, 4);
		at &= ~(width - 1);
		v = htole64(hurtful());
		memcpy(p + at, &v, min(width, len - at));
	}
}

static u8 *segment(u32 i)
{
	return img + KVC_DATA_OFFSET + i * super.segment_size;
}

static u32 nr_segments(void)
{
	return super.members[0].nr_segments;
}

/* The extent at block @block of a segment: its bytes, 0: there is none */
static u32 extent_at(u32 seg, u32 block)
{
	u32 bytes, blocks = (u32)(super.segment_size / KVC_BLOCK);

	if (block >= blocks || kvc_extent_peek(segment(seg) + block * KVC_BLOCK, &bytes) != KVC_OK ||
	    bytes > (blocks - block) * KVC_BLOCK)
		return 0;
	return bytes;
}

/* Any extent of any segment that has a log; false: none was found */
static bool any_extent(u32 *seg, u32 *block)
{
	u32 tries, bytes, next;

	for (tries = 0; tries < 50; tries++) {
		*seg = rng_below(&rng, nr_segments());
		*block = 0;
		bytes = extent_at(*seg, 0);
		if (!bytes)
			continue;
		/* most often one with records */
		while (rng_chance(&rng, 7000)) {
			next = *block + bytes / KVC_BLOCK;
			bytes = extent_at(*seg, next);
			if (!bytes)
				break;
			*block = next;
		}
		return true;
	}
	return false;
}

static void put_right(u32 seg, u32 block)
{
	if (rng_chance(&rng, 1000))
		return;
	media_fix_extent(segment(seg) + block * KVC_BLOCK, (u32)super.segment_size - block * KVC_BLOCK);
	forged = true;
}

static void tamper_super(void)
{
	u32 len = rng_chance(&rng, 6000) ? 256 : sizeof(struct kvc_media_super), one = rng_below(&rng, nr_supers), i;
	bool all = rng_chance(&rng, 8000), fix = rng_chance(&rng, 9000);
	struct rng same = rng;

	for (i = 0; i < nr_supers; i++) {
		if (!all && i != one)
			continue;
		rng = same;
		tamper(img + supers[i], len);
		if (fix)
			media_fix_super(img + supers[i]);
	}
	forged |= fix;
}

static void tamper_extent(void)
{
	u32 seg, block, bytes;

	if (!any_extent(&seg, &block))
		return;
	bytes = extent_at(seg, block);
	tamper(segment(seg) + block * KVC_BLOCK, rng_chance(&rng, 3000) ? bytes : min(bytes, 700U));
	put_right(seg, block);
}

/* One field of one record, so that the others are still believed */
static void tamper_record(void)
{
	struct kvc_media_extent *x;
	struct kvc_media_rec *r;
	u32 seg, block, pos, n;

	if (!any_extent(&seg, &block))
		return;
	x = (void *)(segment(seg) + block * KVC_BLOCK);
	n = le32_to_cpu(x->nr_records);
	if (!n || n > 1000)
		return;
	pos = KVC_EXTENT_HEADER;
	for (n = rng_below(&rng, n); n && pos + KVC_REC_FIXED < extent_at(seg, block); n--) {
		r = (void *)((u8 *)x + pos);
		pos += kvc_rec_bytes(le32_to_cpu(r->nr_crcs) & 0xffff);
	}
	if (pos + KVC_REC_FIXED > extent_at(seg, block))
		return;
	r = (void *)((u8 *)x + pos);
	switch (rng_below(&rng, 12)) {
	case 0: r->block = cpu_to_le32((u32)hurtful()); break;
	case 1: r->length = cpu_to_le32((u32)hurtful()); break;
	case 2: r->seq = cpu_to_le64(hurtful()); break;
	case 3: r->tenant = cpu_to_le32((u32)hurtful()); break;
	case 4: r->epoch = cpu_to_le32((u32)hurtful()); break;
	case 5: r->type = cpu_to_le16((u16)hurtful()); break;
	case 6: r->flags = cpu_to_le16((u16)hurtful()); break;
	case 7: r->victim_gen = cpu_to_le64(hurtful()); break;
	case 8: r->nr_crcs = cpu_to_le32((u32)hurtful()); break;
	case 9: r->key[rng_below(&rng, KVC_KEY_LEN)] ^= 1; break;
	case 10: r->keyspace[rng_below(&rng, KVC_KEYSPACE_LEN)] ^= 1; break;
	default: r->block = cpu_to_le32(rng_below(&rng, (u32)(super.segment_size / KVC_BLOCK) + 2));
	}
	put_right(seg, block);
}

/* A whole log in the place of another, which then claims the same pages, from its own generation or that of before */
static void copy_log(void)
{
	u32 from, to, block, bytes;
	bool same_generation = rng_chance(&rng, 5000);
	struct kvc_media_extent *first, *x;

	if (!any_extent(&from, &block) || !any_extent(&to, &block) || from == to)
		return;
	first = (void *)segment(to);
	for (block = 0; (bytes = extent_at(from, block)); block += bytes / KVC_BLOCK) {
		u64 generation = le64_to_cpu(first->generation), salt = le64_to_cpu(first->salt);

		x = (void *)(segment(to) + block * KVC_BLOCK);
		memcpy(x, segment(from) + block * KVC_BLOCK, bytes);
		if (rng_chance(&rng, 9500))
			x->segment = cpu_to_le32(to);
		if (same_generation && block) {
			x->generation = cpu_to_le64(generation);
			x->salt = cpu_to_le64(salt);
		}
		put_right(to, block);
	}
}

/* What needs no attacker */
static void damage(void)
{
	u32 at = rng_below(&rng, size / KVC_BLOCK) * KVC_BLOCK, from = rng_below(&rng, size / KVC_BLOCK) * KVC_BLOCK;
	u32 seg, block, i;

	if (rng_chance(&rng, 5000) && any_extent(&seg, &block))
		at = (u32)(segment(seg) - img) + block * KVC_BLOCK;
	switch (rng_below(&rng, 5)) {
	case 0:
		memset(img + at, 0, KVC_BLOCK);
		break;
	case 1:
		memcpy(img + at, base + from, KVC_BLOCK);
		break;
	case 2:
		memset(img + at + 512 * rng_below(&rng, 8), 0, 512);
		break;
	case 3:
		for (i = 0; i < KVC_BLOCK; i++)
			img[at + i] = (u8)rng_u64(&rng);
		break;
	default:
		tamper(img + at, KVC_BLOCK);
	}
}

static void make_image(void)
{
	static void (*const kinds[])(void) = {
		tamper_super, tamper_extent, tamper_extent, tamper_record, tamper_record, tamper_record, copy_log, damage,
	};
	u32 n = rng_range(&rng, 1, 6);
	bool blind;

	rng.state = rng_mix(image + 1);
	rng_u64(&rng);
	blind = rng_chance(&rng, 2500);
	/* superblocks that are refused hide everything behind them */
	forged = false;
	memcpy(img, base, size);
	while (n--)
		if (blind)
			damage();
		else
			kinds[rng_below(&rng, ARRAY_SIZE(kinds))]();
}

static void write_image(void)
{
	if (pwrite(fd, img, size, 0) != (ssize_t)size)
		fail("write: %s", strerror(errno));
	ioctl(fd, BLKFLSBUF);
}

static void read_base(void)
{
	u64 bytes;
	u32 at;

	fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes))
		fail("%s: %s", device, strerror(errno));
	size = (u32)bytes;
	if (posix_memalign((void **)&base, 4096, size) || posix_memalign((void **)&img, 4096, size) ||
	    pread(fd, base, size, 0) != (ssize_t)size)
		fail("%s: cannot be read", device);
	for (at = 0; at + KVC_SUPER_BYTES <= size && nr_supers < SUPERS_MAX; at += KVC_BLOCK)
		if (!memcmp(base + at, KVC_SUPER_MAGIC, 8) && kvc_super_decode(base + at, &super) == KVC_OK)
			supers[nr_supers++] = at;
	if (!nr_supers)
		fail("%s: no pool", device);
}

/* The control side */

static struct nl_sock *sk;
static int family;
static char pool[KVCTX_NAME_MAX + 1], text[200];

static int take_object(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[KVCTX_A_MAX + 1];

	(void)arg;
	if (!genlmsg_parse(nlmsg_hdr(msg), 0, attrs, KVCTX_A_MAX, NULL) && attrs[KVCTX_A_POOL])
		snprintf(pool, sizeof(pool), "%s", nla_get_string(attrs[KVCTX_A_POOL]));
	return NL_OK;
}

static int take_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	struct nlmsghdr *nlh = (struct nlmsghdr *)((char *)e - NLMSG_HDRLEN);
	int skip = (int)sizeof(*e), rem;
	struct nlattr *attr;

	(void)from;
	*(int *)arg = e->error;
	text[0] = 0;
	if (!(nlh->nlmsg_flags & NLM_F_ACK_TLVS))
		return NL_STOP;
	if (!(nlh->nlmsg_flags & NLM_F_CAPPED))
		skip += (int)(e->msg.nlmsg_len - sizeof(e->msg));
	rem = (int)nlh->nlmsg_len - NLMSG_HDRLEN - skip;
	for (attr = (void *)((char *)e + skip); nla_ok(attr, rem); attr = nla_next(attr, &rem))
		if (nla_type(attr) == NLMSGERR_ATTR_MSG)
			snprintf(text, sizeof(text), "%s", (char *)nla_data(attr));
	return NL_STOP;
}

static int take_ack(struct nl_msg *msg, void *arg)
{
	(void)msg;
	*(int *)arg = 0;
	return NL_STOP;
}

static int ask(int cmd, int attr, const char *value)
{
	struct nl_msg *msg = nlmsg_alloc();
	int err = 1;

	nl_socket_modify_cb(sk, NL_CB_VALID, NL_CB_CUSTOM, take_object, NULL);
	nl_socket_modify_cb(sk, NL_CB_ACK, NL_CB_CUSTOM, take_ack, &err);
	nl_socket_modify_err_cb(sk, NL_CB_CUSTOM, take_error, &err);
	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, NLM_F_REQUEST | NLM_F_ACK, (u8)cmd,
				 KVCTX_GENL_VERSION) || nla_put_string(msg, attr, value) || nl_send_auto(sk, msg) < 0)
		fail("netlink");
	nlmsg_free(msg);
	while (err == 1)
		nl_recvmsgs_default(sk);
	return err;
}

static void connect_netlink(void)
{
	int one = 1;

	sk = nl_socket_alloc();
	if (!sk || genl_connect(sk))
		fail("netlink");
	setsockopt(nl_socket_get_fd(sk), SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	family = genl_ctrl_resolve(sk, KVCTX_GENL_NAME);
	if (family < 0)
		fail("no family %s", KVCTX_GENL_NAME);
}

/* Reasons that differ in numbers only are one */
static void count_reason(void)
{
	char *p, *q;
	int i;

	for (p = q = text; *p; p++)
		if (*p < '0' || *p > '9')
			*q++ = *p;
	*q = 0;
	for (i = 0; i < REASONS_MAX; i++) {
		if (!reasons[i].nr)
			snprintf(reasons[i].text, sizeof(reasons[i].text), "%s", text);
		if (strcmp(reasons[i].text, text))
			continue;
		reasons[i].nr++;
		return;
	}
}

/* The data side */

static struct kvctx_key key_of(u64 n)
{
	struct kvctx_key key = { .digest = "pages of the test scripts", .qualifier = n };

	return key;
}

static bool is_miss(int res)
{
	return res == -ENOENT || res == -EBADMSG || res == -EIO;
}

static void load_old(struct kt *k, u32 n)
{
	int len = kt_op(k, KVCTX_OP_QUERY, key_of(n)), res;

	if (len == -ENOENT) {
		missing++;
		return;
	}
	if (len < 1)
		fail("query of page %u: %s", n, strerror(-len));
	if ((size_t)len > k->arena_bytes)
		return;
	res = kt_load(k, key_of(n), 0, (u32)len, NULL);
	if (res != len && !is_miss(res))
		fail("load of page %u, %d bytes: %d", n, len, res);
	if (res == len && !forged && (len != (int)PAGE || kt_check(k->arena, PAGE, n) != -1))
		fail("page %u has wrong bytes, and nobody forged them", n);
	loaded += res == len;
	bad += res == -EBADMSG;
}

static void use_new(struct kt *k)
{
	bool stored[NEW] = { false };
	int res;
	u32 i;

	for (i = 0; i < NEW; i++) {
		struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, PAGE);
		struct kvctx_sqe sqe = kt_io(KVCTX_OP_STORE, key_of(NEW_KEY + i), &seg, 1);
		u32 flags = 0;

		kt_fill(k->arena, PAGE, NEW_KEY + i);
		sqe.flags = KVCTX_OP_NOWAIT;
		res = kt_do(k, &sqe, &flags);
		stored[i] = res == (int)PAGE && !(flags & KVCTX_CQE_DEDUP);
		if (res != (int)PAGE && res != -EAGAIN && res != -ENOSPC && res != -E2BIG)
			fail("store: %d", res);
	}
	res = kt_op(k, KVCTX_OP_FLUSH, (struct kvctx_key){ 0 });
	if (res)
		fail("flush: %d", res);
	for (i = 0; i < NEW; i++) {
		memset(k->arena, 0, PAGE);
		res = kt_load(k, key_of(NEW_KEY + i), 0, PAGE, NULL);
		if (stored[i] && res != -ENOENT && (res != (int)PAGE || kt_check(k->arena, PAGE, NEW_KEY + i) != -1))
			fail("a page stored since: %d", res);
	}
	res = kt_op(k, KVCTX_OP_DELETE, key_of(NEW_KEY));
	if (res && res != -ENOENT && res != -ENOSPC)
		fail("delete: %d", res);
}

static void use_tenant(const char *name)
{
	struct kvctx_key keys[KEYS];
	struct kvctx_match m = { .size = sizeof(m), .keys = (uintptr_t)keys, .nr_keys = KEYS };
	char path[300];
	struct kt k;
	int ret;
	u32 i;

	snprintf(path, sizeof(path), "/dev/kvctx/%s/%s", pool, name);
	setenv("KVCTX_NODE", path, 1);
	ret = kt_open(&k, O_RDWR, 0x77, 4 * PAGE, 8);
	if (ret)
		fail("%s: %s", path, strerror(-ret));
	for (i = 0; i < KEYS; i++)
		keys[i] = key_of(i);
	ret = kt_ioctl(k.file, KVCTX_IOC_MATCH, &m);
	if (ret < 0)
		fail("match: %s", strerror(-ret));
	for (i = 0; i < KEYS; i++)
		load_old(&k, i);
	use_new(&k);
	kt_close(&k);
}

static void use_pool(void)
{
	char path[300];
	struct dirent *e;
	u32 nr = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/dev/kvctx/%s", pool);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && nr++ < 3)
			use_tenant(e->d_name);
	if (d)
		closedir(d);
}

/* A fault in the kernel's log, since it was read last? */
static void check_log(void)
{
	static const char *const faults[] = {
		"BUG", "WARNING", "Oops", "Call Trace", "general protection", "KASAN", "UBSAN", "refcount_t", "blocked for",
		"Bad page",
	};
	static int log = -1;
	char line[8192];
	ssize_t n;
	u32 i;

	if (log < 0)
		log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	while ((n = read(log, line, sizeof(line) - 1)) > 0) {
		line[n] = 0;
		for (i = 0; i < ARRAY_SIZE(faults); i++)
			if (strstr(line, faults[i]))
				fail("the kernel says: %s", line);
	}
}

static void try_image(void)
{
	int tries = 200, err;

	make_image();
	write_image();
	err = ask(KVCTX_CMD_POOL_ATTACH, KVCTX_A_DEVICE, device);
	if (err) {
		refused++;
		if (!text[0])
			fail("refused without a reason: %s", strerror(-err));
		count_reason();
	} else {
		taken++;
		use_pool();
		/* a session that has just been closed may still be leaving */
		while ((err = ask(KVCTX_CMD_POOL_DETACH, KVCTX_A_POOL, pool)) == -EBUSY && tries--)
			usleep(10000);
		if (err)
			fail("detach of %s: %s", pool, text);
	}
	check_log();
}

int main(int argc, char **argv)
{
	u64 first, count;
	int i;

	if (argc != 4) {
		fprintf(stderr, "usage: hostile DEVICE FIRST COUNT\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	device = argv[1];
	first = strtoull(argv[2], NULL, 0);
	count = strtoull(argv[3], NULL, 0);
	connect_netlink();
	read_base();
	check_log();
	for (image = first; image < first + count; image++)
		try_image();
	for (i = 0; i < REASONS_MAX && reasons[i].nr; i++)
		printf("refused %lu: %s\n", reasons[i].nr, reasons[i].text);
	printf("images=%llu refused=%lu taken=%lu loaded=%lu missing=%lu bad=%lu\n", (unsigned long long)count, refused,
	       taken, loaded, missing, bad);
	/* the pool as it was */
	memcpy(img, base, size);
	write_image();
	return 0;
}
