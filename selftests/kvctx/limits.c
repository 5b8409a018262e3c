// SPDX-License-Identifier: GPL-2.0
/*
 * What a tenant may not take, seen by its sessions. The tenant has been given --max-pinned 8M, and nobody else uses it;
 * turns: the pool is on the device "slow" (slow.sh), and limits.sh counts who waited.
 */
#include <sys/mman.h>

#include "ktest.h"
#include "harness.h"

#define MOST		(8 * KT_MIB)
#define PAGE		4096UL
#define LOADED		(64U << 10)
#define NR		200U

static int reg(struct kt *k, void *addr, size_t length, uint32_t *id)
{
	struct kvctx_mem_register r = { .size = sizeof(r), .addr = (uintptr_t)addr, .length = length };
	int err = kt_ioctl(k->file, KVCTX_IOC_MEM_REGISTER, &r);

	*id = r.id;
	return err;
}

static int unreg(struct kt *k, uint32_t id)
{
	struct kvctx_mem_unregister u = { .size = sizeof(u), .id = id };

	return kt_ioctl(k->file, KVCTX_IOC_MEM_UNREGISTER, &u);
}

/* Arenas, slots and registrations of two sessions sum to the limit, to the page. */
TEST(memory)
{
	/* as a daemon takes it without a copy */
	int fd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint32_t id, other_id, none;
	struct kt k, other;
	uint8_t *mine;

	ASSERT_EQ(0, ftruncate(fd, MOST));
	ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	mine = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, mine);
	EXPECT_EQ(-EDQUOT, kt_open(&k, O_RDWR, 0x53, MOST + 1, 8));
	EXPECT_EQ(-EDQUOT, kt_open_slots(&k, O_RDWR, 0x53, MOST, 8, PAGE, 1));
	ASSERT_EQ(0, kt_open_slots(&k, O_RDWR, 0x53, MOST / 2, 8, PAGE, 4));
	ASSERT_EQ(0, kt_open(&other, O_RDWR, 0x53, 2 * PAGE, 8));
	/* pages that are there in part count whole */
	ASSERT_EQ(0, reg(&k, mine + PAGE - 1, 2, &id));
	EXPECT_EQ(-EDQUOT, reg(&other, mine, MOST / 2 - 7 * PAGE, &none));
	ASSERT_EQ(0, reg(&other, mine, MOST / 2 - 8 * PAGE, &other_id));
	EXPECT_EQ(-EDQUOT, reg(&k, mine, 1, &none));
	EXPECT_EQ(-EDQUOT, reg(&other, mine, 1, &none));
	/* who is refused goes on with what he has */
	kt_fill(k.arena, LOADED, 1);
	EXPECT_EQ((int)LOADED, kt_store(&k, kt_key(1), 0, LOADED, NULL));
	EXPECT_EQ((int)LOADED, kt_load(&k, kt_key(1), LOADED, LOADED, NULL));
	EXPECT_EQ(0, unreg(&k, id));
	EXPECT_EQ(0, reg(&other, mine, 2 * PAGE, &none));
	EXPECT_EQ(-EDQUOT, reg(&k, mine, 1, &id));
	kt_close(&other);
	ASSERT_EQ(0, reg(&k, mine, MOST / 2 - 4 * PAGE, &id));
	kt_close(&k);
	ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x53, MOST, 8));
	kt_close(&k);
	munmap(mine, MOST);
	close(fd);
}

/* Half of them urgent, the others in the background, all on a device that is stuck until they are there */
TEST(turns)
{
	static struct kvctx_seg segs[NR];
	static struct kvctx_sqe sqes[NR];
	struct kt k;

	ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x54, 4 * KT_MIB, NR));
	ASSERT_EQ((int)LOADED, kt_store(&k, kt_key(2), 0, LOADED, NULL));
	for (unsigned int i = 0; i < NR; i++) {
		segs[i] = kt_seg(KVCTX_MEM_ARENA, i % 64 * LOADED, LOADED);
		sqes[i] = kt_io(KVCTX_OP_LOAD, kt_key(2), &segs[i], 1);
		sqes[i].prio = i % 2 ? KVCTX_PRIO_BACKGROUND : i % 4 ? KVCTX_PRIO_URGENT : KVCTX_PRIO_DEFAULT;
	}
	ASSERT_LE(0, kt_slow("stuck"));
	EXPECT_EQ((int)NR, kt_submit(&k, sqes, NR, 0));
	ASSERT_LE(0, kt_slow("resume"));
	EXPECT_LE((int)NR, kt_wait(&k, NR, KT_LIMIT));
	kt_close(&k);
}

TEST_HARNESS_MAIN
