// SPDX-License-Identifier: GPL-2.0
/*
 * Programs of operations: reading them, changing them. See fuzz.h.
 *
 * A change is one to an operation (inserted, repeated, taken out, exchanged with another) or to one of its numbers,
 * which becomes what is likely to hurt: bounds, their neighbours, powers of two.
 */
#include "media/format.h"
#include "fuzz.h"

bool fuzz_next(struct fuzz_program *p, struct fuzz_op *op)
{
	__le32 x;
	__le64 y;

	if (p->left < FUZZ_OP_BYTES || p->done == FUZZ_OPS_MAX)
		return false;
	op->op = p->data[0];
	op->a = p->data[1];
	op->b = p->data[2];
	op->c = p->data[3];
	memcpy(&x, p->data + 4, sizeof(x));
	memcpy(&y, p->data + 8, sizeof(y));
	op->x = le32_to_cpu(x);
	op->y = le64_to_cpu(y);
	p->data += FUZZ_OP_BYTES;
	p->left -= FUZZ_OP_BYTES;
	p->done++;
	return true;
}

void fuzz_patch(u8 *buf, u32 len, const struct fuzz_op *op)
{
	u32 at = op->x % len, kind = op->a % 8, from, n;
	__le64 v = cpu_to_le64(op->y);

	if (kind < 4) {
		n = 1U << kind;
		memcpy(buf + at, &v, min(n, len - at));
	} else if (kind < 6) {
		buf[at] ^= (u8)(1U << op->y % 8);
	} else {
		from = (u32)(op->y % len);
		memmove(buf + at, buf + from, min_t(u32, op->b, len - max(at, from)));
	}
}

static u64 hurtful(struct rng *rng)
{
	static const u64 list[] = {
		0, 1, 2, 3, 4, 63, 64, 65, 239, 240, 241, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 0x7fffffff,
		0x80000000, 0xffffffff, 0x100000000, 0xfffff000, (1ULL << 61), (1ULL << 62) - 1, 1ULL << 62,
		1ULL << 63, ~0ULL, KVC_PAGE_MAX, KVC_PAGE_MAX + 1, KVC_SEGMENT_MIN, KVC_SEGMENT_MAX, KVC_EXTENT_MAX,
		KVC_MEMBERS_MAX, KVC_TENANTS_MAX,
	};
	u32 n = rng_below(rng, 10);

	if (n < 4)
		return list[rng_below(rng, ARRAY_SIZE(list))] + rng_below(rng, 3) - 1;
	if (n < 8)
		return rng_below(rng, 1U << rng_range(rng, 1, 16));
	if (n < 9)
		return 1ULL << rng_below(rng, 64);
	return rng_u64(rng);
}

static u8 small(struct rng *rng)
{
	return (u8)(rng_chance(rng, 7000) ? rng_below(rng, 16) : rng_below(rng, 256));
}

static void put_random(struct rng *rng, u8 *op)
{
	__le32 x = cpu_to_le32((u32)hurtful(rng));
	__le64 y = cpu_to_le64(hurtful(rng));
	u32 i;

	for (i = 0; i < 4; i++)
		op[i] = small(rng);
	memcpy(op + 4, &x, sizeof(x));
	memcpy(op + 8, &y, sizeof(y));
}

static void change_number(struct rng *rng, u8 *op)
{
	__le32 x = cpu_to_le32((u32)hurtful(rng));
	__le64 y = cpu_to_le64(hurtful(rng));
	u32 n = rng_below(rng, 8);

	if (n < 4)
		op[n] = small(rng);
	else if (n == 4)
		memcpy(op + 4, &x, sizeof(x));
	else if (n == 5)
		memcpy(op + 8, &y, sizeof(y));
	else
		op[rng_below(rng, FUZZ_OP_BYTES)] ^= (u8)(1U << rng_below(rng, 8));
}

/* Make room for one more operation at @at. */
static u8 *insert(u8 *data, u32 nr, u32 at)
{
	u8 *op = data + at * FUZZ_OP_BYTES;

	memmove(op + FUZZ_OP_BYTES, op, (nr - at) * FUZZ_OP_BYTES);
	return op;
}

static u32 mutate_once(struct rng *rng, u8 *data, u32 nr, u32 room)
{
	u32 what = rng_below(rng, 10), at = nr ? rng_below(rng, nr) : 0, other = nr ? rng_below(rng, nr) : 0;
	u8 old[FUZZ_OP_BYTES], *op = data + at * FUZZ_OP_BYTES;

	if (nr == 0 || (what < 3 && nr < room)) {
		put_random(rng, insert(data, nr, nr ? rng_below(rng, nr + 1) : 0));
		return nr + 1;
	}
	memcpy(old, op, FUZZ_OP_BYTES);
	if (what < 5 && nr < room) {
		memcpy(insert(data, nr, other), old, FUZZ_OP_BYTES);
		return nr + 1;
	}
	if (what == 5 && nr > 1) {
		memmove(op, op + FUZZ_OP_BYTES, (nr - at - 1) * FUZZ_OP_BYTES);
		return nr - 1;
	}
	if (what == 6) {
		memcpy(op, data + other * FUZZ_OP_BYTES, FUZZ_OP_BYTES);
		memcpy(data + other * FUZZ_OP_BYTES, old, FUZZ_OP_BYTES);
		return nr;
	}
	change_number(rng, op);
	return nr;
}

size_t fuzz_mutate(struct rng *rng, u8 *data, size_t size, size_t max)
{
	u32 room = (u32)min_t(size_t, max / FUZZ_OP_BYTES, FUZZ_OPS_MAX), n = rng_range(rng, 1, 4);
	u32 nr = (u32)min_t(size_t, size / FUZZ_OP_BYTES, room);

	while (n-- && room)
		nr = mutate_once(rng, data, nr, room);
	return nr * FUZZ_OP_BYTES;
}
