// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU TCG plugin: guest instructions executed between two marks, by place in the kernel's text.
 *
 *	-plugin FILE.so,out=FILE
 *
 * A program in the guest executes the instruction "nopl 0x4b56NNNN(%rax)", which does nothing else (selftests/bench's
 * program "mark"). Mark 0 begins a measurement; a mark NNNN > 0 ends it and writes one line for each place where
 * instructions were executed meanwhile:
 *
 *	NNNN ADDRESS COUNT	decimal, hexadecimal, decimal
 *
 * Places are granules of 16 bytes of kernel text, and address 0 for all user code; selftests/bench/insn.py adds them up
 * to symbols and modules. All virtual CPUs count, so what else the guest does in between counts too: run it with one
 * CPU and nothing else to do. An instruction of the kernel with a repeat prefix counts once.
 *
 * Debian's QEMU loads plugins but ships no header for them: what is used of version 4 of the interface (QEMU 10,
 * include/plugins/qemu-plugin.h) is declared here.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT	__attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;

struct qemu_info;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_tb;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum { QEMU_PLUGIN_CB_NO_REGS = 0 };
enum { QEMU_PLUGIN_INLINE_ADD_U64 = 0 };

typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned int vcpu, void *userdata);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest, size_t len);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t cb, int flags,
					    void *userdata);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, int op, qemu_plugin_u64 entry,
							 uint64_t imm);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64 entry);

EXPORT extern int qemu_plugin_version;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv);

int qemu_plugin_version = 4;

#define SLOT_BITS	20
#define NR_SLOTS	(1U << SLOT_BITS)
#define GRANULE_SHIFT	4
#define USER_GRANULE	1ULL		/* of no kernel address */
#define MARK_SIZE	7		/* 0f 1f 80 imm32 */
#define MARK_TAG	0x4b56U		/* upper half of imm32 */

/*
 * A hash table without removal. Slots are taken when code is translated, under the lock; counted in the scoreboard by
 * translated code, without one.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct qemu_plugin_scoreboard *counts;
static uint64_t granules[NR_SLOTS];	/* 0: free */
static uint64_t begun[NR_SLOTS];	/* counts at mark 0 */
static uint32_t used[NR_SLOTS];		/* slots taken, in order */
static uint32_t nr_used;
static FILE *out;

static qemu_plugin_u64 counter(uint32_t slot)
{
	return (qemu_plugin_u64){ counts, slot * sizeof(uint64_t) };
}

static uint32_t slot_of(uint64_t granule)
{
	uint32_t slot = (granule * 0x9e3779b97f4a7c15ULL) >> (64 - SLOT_BITS);

	while (granules[slot] && granules[slot] != granule)
		slot = (slot + 1) % NR_SLOTS;
	if (granules[slot])
		return slot;
	if (nr_used == NR_SLOTS - 1) {
		fprintf(stderr, "count: more than %u granules of code\n", NR_SLOTS);
		exit(1);
	}
	granules[slot] = granule;
	used[nr_used++] = slot;
	return slot;
}

static void begin(void)
{
	uint32_t i;

	for (i = 0; i < nr_used; i++)
		begun[used[i]] = qemu_plugin_u64_sum(counter(used[i]));
}

static void end(unsigned int id)
{
	uint64_t n, granule;
	uint32_t i;

	for (i = 0; i < nr_used; i++) {
		n = qemu_plugin_u64_sum(counter(used[i])) - begun[used[i]];
		granule = granules[used[i]];
		if (n)
			fprintf(out, "%u %" PRIx64 " %" PRIu64 "\n", id,
				granule == USER_GRANULE ? 0 : granule << GRANULE_SHIFT, n);
	}
	fflush(out);
}

static void marked(unsigned int vcpu, void *userdata)
{
	unsigned int id = (uintptr_t)userdata;

	(void)vcpu;
	pthread_mutex_lock(&lock);
	if (id)
		end(id);
	else
		begin();
	pthread_mutex_unlock(&lock);
}

static bool is_mark(const struct qemu_plugin_insn *insn, uint16_t *id)
{
	static const uint8_t nopl_rax[] = { 0x0f, 0x1f, 0x80 };
	uint8_t bytes[MARK_SIZE];
	uint32_t imm;

	if (qemu_plugin_insn_size(insn) != MARK_SIZE || qemu_plugin_insn_data(insn, bytes, MARK_SIZE) != MARK_SIZE ||
	    memcmp(bytes, nopl_rax, sizeof(nopl_rax)))
		return false;
	memcpy(&imm, bytes + sizeof(nopl_rax), sizeof(imm));
	*id = imm;
	return imm >> 16 == MARK_TAG;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, n = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *insn;
	uint16_t mark;
	uint64_t va;

	(void)id;
	pthread_mutex_lock(&lock);
	for (i = 0; i < n; i++) {
		insn = qemu_plugin_tb_get_insn(tb, i);
		va = qemu_plugin_insn_vaddr(insn);
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
			counter(slot_of(va >> 63 ? va >> GRANULE_SHIFT : USER_GRANULE)), 1);
		if (!(va >> 63) && is_mark(insn, &mark))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)mark);
	}
	pthread_mutex_unlock(&lock);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		if (strncmp(argv[i], "out=", 4) || out) {
			fprintf(stderr, "count: %s: unknown, or given twice\n", argv[i]);
			return 1;
		}
		out = fopen(argv[i] + 4, "w");
		if (!out) {
			perror(argv[i] + 4);
			return 1;
		}
	}
	if (!out) {
		fprintf(stderr, "count: needs out=FILE\n");
		return 1;
	}
	counts = qemu_plugin_scoreboard_new(NR_SLOTS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
