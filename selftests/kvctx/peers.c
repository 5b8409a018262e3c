// SPDX-License-Identifier: GPL-2.0
/*
 * What p2p.sh has done with peer memory while drivers come and go, or between two looks. See also peer.h.
 *
 *	peers leave SEED BYTES FILE	load a page to the peer, tell where in its BAR it lies and its length, for a
 *					look from outside; its bytes go to FILE as well
 *	peers busy			load and store until the driver leaves; the session survives it
 *	peers wait			let stores wait for space on a slow member until the driver leaves
 *	peers many			let stores wait for space on a slow member until another takes them, too
 *	peers churn SECONDS		register and unregister while the driver comes and goes
 *	peers late			register what is mapped until a driver that waits for it refuses
 *	peers hot			fill the pool over and over, and keep some pages without CRCs in use
 *	peers unchecked			store the page that "strict" looks for, without CRCs
 *	peers strict			what a tenant may do that requires verified pages
 *	peers refused FILE		FILE is a device's memory that nobody can pin: MEM_REGISTER says so
 */
#include "peer.h"

/* Where in its BAR does the peer have what is mapped at @p? */
static long bar_offset(const void *p)
{
	unsigned long long pfn = 0, start = 0, end, flags;
	char path[128];
	FILE *f;
	int fd, bar;

	fd = open("/proc/self/pagemap", O_RDONLY);
	if (pread(fd, &pfn, 8, (uintptr_t)p / 4096 * 8) != 8)
		return -1;
	close(fd);
	pfn &= (1ULL << 55) - 1;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", getenv("KVCTX_PEER_NAME"));
	f = fopen(path, "r");
	for (bar = 0; f && bar <= 2; bar++)
		if (fscanf(f, "%llx %llx %llx", &start, &end, &flags) != 3)
			return -1;
	return pfn * 4096 - start;
}

/* Bring a page into the peer without the CPU and say where it is. */
static int leave(char **args)
{
	uint64_t seed = strtoul(args[0], NULL, 10);
	uint32_t n = strtoul(args[1], NULL, 10);
	uint8_t *peer = map_peer(n);
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	uint32_t id, flags;
	struct kt k;
	int fd = open(args[2], O_WRONLY | O_CREAT | O_TRUNC, 0600), res;

	if (!peer || kt_open(&k, O_RDWR, 0x43, n, 8) || reg(&k, peer, n, &id))
		return 1;
	kt_fill(k.arena, n, seed);
	memset(peer, 0, n);
	for (uint64_t key = 0; key < MEMBERS_MAX; key++) {
		res = kt_store(&k, kt_key(key), 0, n, NULL);
		if (res != (int)n)
			return 1;
		seg = kt_seg(id, 0, n);
		sqe = kt_io(KVCTX_OP_LOAD, kt_key(key), &seg, 1);
		res = kt_do(&k, &sqe, &flags);
		if (res != -EREMOTEIO)
			break;
	}
	if (res != (int)n || flags != KVCTX_CQE_P2P)
		return 1;
	printf("%ld %u\n", bar_offset(peer), n);
	return write(fd, k.arena, n) != (ssize_t)n;
}

/* Submit until operations say that the peer is gone, and go on for a while. */
static int busy_loop(struct kt *k, uint32_t id)
{
	struct kvctx_seg segs[16];
	struct kvctx_sqe sqes[16];
	uint64_t done = 0, gone = 0, gone_before;
	struct kvctx_cqe cqe;

	for (int i = 0; i < 16; i++)
		segs[i] = kt_seg(id, i * (KT_MIB / 2), KT_MIB / 2);
	for (uint64_t n = 0; gone < 160; n++) {
		for (int i = 0; i < 16; i++)
			sqes[i] = kt_io(n % 2 ? KVCTX_OP_LOAD : KVCTX_OP_STORE, kt_key(n / 2 * 16 + i), &segs[i], 1);
		gone_before = gone;
		if (kt_submit(k, sqes, 16, 16) != 16)
			return -EPROTO;
		while (kt_reap(k, &cqe)) {
			gone += cqe.res == -ENODEV;
			done += cqe.res > 0;
			if (cqe.res != -ENODEV && cqe.res != (int)KT_MIB / 2 && cqe.res != -ENOENT)
				return cqe.res;
			if (gone_before && cqe.res > 0)
				return -EPROTO;
		}
		if (n == 1) {
			printf("busy\n");
			fflush(stdout);
		}
	}
	return done ? 0 : -EPROTO;
}

static int busy(char **args)
{
	uint8_t *peer = map_peer(8 * KT_MIB);
	struct kvctx_path row;
	uint32_t id, members;
	struct kt k;
	int res;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x44, KT_MIB, 64) || reg(&k, peer, 8 * KT_MIB, &id))
		return 1;
	res = busy_loop(&k, id);
	printf("loop: %d\n", res);
	if (res)
		return 1;
	res = paths(&k, id, &row, 1, &members);
	printf("paths: %d, reason %u, distance %d\n", res, row.reason, row.distance);
	if (res || row.reason != KVCTX_PATH_GONE || row.distance != -1)
		return 1;
	res = reg(&k, peer, 4096, &members);
	printf("register: %d\n", res);
	/* -ENODEV: its driver is on its way out still */
	if (res != -EFAULT && res != -ENODEV)
		return 1;
	/* the session still serves other memory */
	kt_fill(k.arena, KT_MIB, 1);
	if (kt_store(&k, kt_key(1 << 30), 0, KT_MIB, NULL) != (int)KT_MIB)
		return 1;
	res = unreg(&k, id);
	printf("unregister: %d\n", res);
	return res != 0;
}

/*
 * More stores than a slow member has space for at once, first from this machine's memory: those from the peer's wait
 * behind them, and are let go when the peer leaves. Those of them that had started by then, on a busy machine, succeed.
 */
static int wait_for_space(char **args)
{
	enum { NR = 1000 };
	static struct kvctx_sqe sqes[2 * NR];
	uint8_t *peer = map_peer(KT_MIB);
	uint32_t id, done = 0, started = 0, gone = 0;
	struct kvctx_seg segs[2];
	struct kvctx_cqe cqe;
	struct kt k;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x47, KT_MIB, 2 * NR) || reg(&k, peer, KT_MIB, &id))
		return 1;
	segs[0] = kt_seg(KVCTX_MEM_ARENA, 0, 4096);
	segs[1] = kt_seg(id, 0, 4096);
	for (int i = 0; i < 2 * NR; i++)
		sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(i), &segs[i / NR], 1);
	if (kt_submit(&k, sqes, 2 * NR, 0) != 2 * NR)
		return 1;
	printf("busy\n");
	fflush(stdout);
	while (done + started + gone < 2 * NR && kt_wait(&k, 1, KT_LIMIT) > 0)
		while (kt_reap(&k, &cqe)) {
			done += cqe.res == 4096 && cqe.user_data < sqes[NR].user_data;
			started += cqe.res == 4096 && cqe.user_data >= sqes[NR].user_data;
			gone += cqe.res == -ENODEV && cqe.user_data >= sqes[NR].user_data;
		}
	printf("done %u, started %u, gone %u\n", done, started, gone);
	return done != NR || !gone || started + gone != NR;
}

/* All are from the peer, and all of them are given before any other member takes them. */
static int many(char **args)
{
	enum { NR = 3000, BYTES = 64 << 10 };
	static struct kvctx_sqe sqes[NR];
	uint8_t *peer = map_peer(BYTES);
	uint32_t id, done = 0, other = 0;
	struct kvctx_seg seg;
	struct kvctx_cqe cqe;
	struct kt k;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x4c, 0, NR) || reg(&k, peer, BYTES, &id))
		return 1;
	kt_fill(peer, BYTES, 1);
	seg = kt_seg(id, 0, BYTES);
	for (int i = 0; i < NR; i++)
		sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(i), &seg, 1);
	if (kt_submit(&k, sqes, NR, 0) != NR)
		return 1;
	printf("busy\n");
	fflush(stdout);
	while (done + other < NR && kt_wait(&k, 1, KT_LIMIT) > 0)
		while (kt_reap(&k, &cqe)) {
			done += cqe.res == BYTES && cqe.flags == KVCTX_CQE_P2P;
			other += cqe.res != BYTES || cqe.flags != KVCTX_CQE_P2P;
		}
	printf("done %u, other %u\n", done, other);
	return done != NR;
}

/* Register, use, unregister, whatever the driver does meanwhile. */
static int churn(char **args)
{
	uint64_t end = kt_now() + strtoul(args[0], NULL, 10) * KT_SEC;
	uint32_t rounds = 0, used = 0, id;
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	uint8_t *peer;
	struct kt k;
	int res;

	if (kt_open(&k, O_RDWR, 0x48, 0, 8))
		return 1;
	for (; kt_now() < end; rounds++) {
		peer = map_peer(KT_MIB);
		if (!peer)
			continue;
		res = reg(&k, peer, KT_MIB, &id);
		if (!res) {
			seg = kt_seg(id, 0, 65536);
			sqe = kt_io(KVCTX_OP_STORE, kt_key(rounds), &seg, 1);
			res = kt_do(&k, &sqe, NULL);
			used += res == 65536;
			if (res == 65536 || res == -ENODEV)
				res = 0;
			if (unreg(&k, id))
				return 1;
		}
		munmap(peer, KT_MIB);
		if (res && res != -EFAULT && res != -ENODEV) {
			printf("result %d\n", res);
			return 1;
		}
	}
	printf("%u rounds, %u of them stored\n", rounds, used);
	return !used || used == rounds;
}

/* The driver leaves, and waits until nobody maps its memory: who registers must not wait for the driver. */
static int late(char **args)
{
	uint8_t *peer = map_peer(KT_MIB);
	struct kt k;
	uint32_t id;
	int res;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x4b, 0, 8))
		return 1;
	printf("busy\n");
	fflush(stdout);
	do {
		res = reg(&k, peer, KT_MIB, &id);
		if (!res && unreg(&k, id))
			return 1;
	} while (!res);
	printf("register: %d\n", res);
	return res != -ENODEV;
}

/* Reclaim moves pages that are in use; those without CRCs as they are. */
static int hot(char **args)
{
	enum { HOT = 16, ROUNDS = 1500 };
	uint8_t *peer = map_peer(8 * KT_MIB);
	uint32_t n = 64 << 10, id, flags, right = 0;
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	struct kt k;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x49, KT_MIB, 8) || reg(&k, peer, 8 * KT_MIB, &id))
		return 1;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		seg = kt_seg(id, 0, i < HOT ? n : KT_MIB);
		if (i < HOT)
			kt_fill(peer, n, i);
		sqe = kt_io(KVCTX_OP_STORE, kt_key(i), &seg, 1);
		if (kt_do(&k, &sqe, NULL) != (int)sqe.length)
			return 1;
		for (uint32_t j = 0; i >= HOT && i % 10 == 0 && j < HOT; j++)
			if (kt_load(&k, kt_key(j), 0, n, &flags) != (int)n || flags)
				return 1;
	}
	for (uint32_t j = 0; j < HOT; j++)
		right += kt_load(&k, kt_key(j), 0, n, &flags) == (int)n && !flags && kt_check(k.arena, n, j) == -1;
	printf("right %u\n", right);
	return right != HOT;
}

#define STRICT_BYTES	(256U << 10)

static struct kvctx_key unchecked_key(void)
{
	return (struct kvctx_key){ .digest = "stored before anybody was strict" };
}

static int unchecked(char **args)
{
	uint8_t *peer = map_peer(STRICT_BYTES);
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	uint32_t id;
	struct kt k;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x4a, 0, 8) || reg(&k, peer, STRICT_BYTES, &id))
		return 1;
	seg = kt_seg(id, 0, STRICT_BYTES);
	sqe = kt_io(KVCTX_OP_STORE, unchecked_key(), &seg, 1);
	return kt_do(&k, &sqe, NULL) != (int)STRICT_BYTES;
}

/* One operation on a whole page; complains when the result or the flags are not as expected. */
static int expect(struct kt *k, enum kvctx_opcode op, struct kvctx_key key, uint32_t mem, uint32_t *crcs,
		  uint32_t op_flags, int want, uint32_t want_flags)
{
	struct kvctx_seg seg = kt_seg(mem, 0, STRICT_BYTES);
	struct kvctx_sqe sqe = kt_io(op, key, &seg, 1);
	uint32_t flags = 0;
	int res;

	sqe.crcs = (uintptr_t)crcs;
	sqe.flags = op_flags;
	res = kt_do(k, &sqe, &flags);
	if (res == want && flags == want_flags)
		return 0;
	printf("%s memory %u, %s CRCs: %d and flags %#x, should be %d and %#x\n",
	       op == KVCTX_OP_STORE ? "store from" : "load to", mem, crcs ? "with" : "without", res, flags, want,
	       want_flags);
	return 1;
}

static int strict(char **args)
{
	const enum kvctx_opcode store = KVCTX_OP_STORE, load = KVCTX_OP_LOAD;
	const uint32_t arena = KVCTX_MEM_ARENA, n = STRICT_BYTES;
	uint8_t *peer = map_peer(STRICT_BYTES);
	static uint32_t crcs[CHUNKS_MAX];
	struct kvctx_key old = unchecked_key();
	struct kvctx_info i;
	uint32_t id;
	struct kt k;
	int bad = 0;

	(void)args;
	if (!peer || kt_open(&k, O_RDWR, 0x4a, KT_MIB, 8) || reg(&k, peer, STRICT_BYTES, &id))
		return 1;
	info(&k, &i);
	if (!(i.tenant_flags & KVCTX_TENANT_VERIFIED))
		return 1;
	kt_fill(peer, n, 1);
	page_crcs(peer, n, i.chunk_size, crcs);
	bad += expect(&k, load, old, arena, NULL, 0, -EPERM, 0);
	bad += expect(&k, load, old, id, NULL, 0, -EPERM, 0);
	bad += expect(&k, load, old, id, crcs, 0, -EOPNOTSUPP, 0);
	bad += expect(&k, store, kt_key(1), id, NULL, 0, -EPERM, 0);
	bad += expect(&k, store, kt_key(1), id, crcs, 0, n, KVCTX_CQE_P2P);
	bad += expect(&k, load, kt_key(1), arena, NULL, 0, n, KVCTX_CQE_VERIFIED);
	bad += expect(&k, load, kt_key(1), arena, NULL, KVCTX_OP_NO_VERIFY, -EPERM, 0);
	bad += expect(&k, load, kt_key(1), id, NULL, 0, -EPERM, 0);
	bad += expect(&k, load, kt_key(1), id, crcs, KVCTX_OP_NO_VERIFY, -EPERM, 0);
	bad += expect(&k, load, kt_key(1), id, crcs, 0, n, KVCTX_CQE_P2P);
	bad += expect(&k, store, kt_key(2), arena, NULL, 0, n, 0);
	return bad;
}

static int refused(char **args)
{
	int fd = open(args[0], O_RDWR | O_CLOEXEC), res;
	void *p = mmap(NULL, KT_MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct kvctx_info i;
	uint32_t id;
	struct kt k;

	if (p == MAP_FAILED || kt_open(&k, O_RDWR, 0x45, 0, 8))
		return 1;
	info(&k, &i);
	res = reg(&k, p, KT_MIB, &id);
	printf("register: %d, p2p: %d\n", res, !!(i.features & KVCTX_FEAT_P2P));
	return res != -EREMOTEIO;
}

static const struct {
	const char *name;
	int args;
	int (*fn)(char **args);
} commands[] = {
	{ "leave", 3, leave }, { "busy", 0, busy }, { "wait", 0, wait_for_space }, { "many", 0, many }, { "churn", 1, churn },
	{ "late", 0, late }, { "hot", 0, hot }, { "unchecked", 0, unchecked }, { "strict", 0, strict },
	{ "refused", 1, refused },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name) && argc == 2 + commands[i].args)
			return commands[i].fn(argv + 2);
	fprintf(stderr, "peers: no such command\n");
	return 2;
}
