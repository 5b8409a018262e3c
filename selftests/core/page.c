// SPDX-License-Identifier: GPL-2.0
/*
 * Keys and page bytes. See page.h.
 */
#include "page.h"
#include "rng.h"

void key_make(u8 key[KVC_KEY_LEN], u32 id)
{
	u32 i, round = id / KVC_KEY_LEN;

	for (i = 0; i < KVC_KEY_LEN; i++)
		key[i] = (u8)(0xa0 + i);
	/* 255 rounds differ in one byte; keys beyond them in two */
	key[id % KVC_KEY_LEN] ^= (u8)(1 + round % 255);
	if (round >= 255)
		key[(id + 1) % KVC_KEY_LEN] ^= (u8)(round / 255);
}

void keyspace_make(u8 keyspace[KVC_KEYSPACE_LEN], u32 id)
{
	memset(keyspace, 0x5c, KVC_KEYSPACE_LEN);
	keyspace[id % KVC_KEYSPACE_LEN] ^= (u8)(id / KVC_KEYSPACE_LEN + 1);
}

/* Eight bytes at a time, so that any range can be made alone */
static u64 page_word(u64 start, u64 index)
{
	return htole64(rng_mix(start + index * 0x9e3779b97f4a7c15ULL));
}

/* Bytes of words that the range cuts, at either end of it */
static u32 cut_word(u8 out[8], u64 start, u64 at, u32 left)
{
	u32 skip = (u32)(at % 8), n = min_t(u32, 8 - skip, left);
	u64 word = page_word(start, at / 8);

	memcpy(out, (u8 *)&word + skip, n);
	return n;
}

void page_bytes(void *buf, u64 version, u64 from, u32 len)
{
	u64 start = rng_mix(version), at, word;
	u8 *out = buf, part[8];
	u32 done = 0, n;

	while (done < len) {
		at = from + done;
		if (at % 8 == 0) {
			for (; len - done >= 8; done += 8) {
				word = page_word(start, (from + done) / 8);
				memcpy(out + done, &word, 8);
			}
			at = from + done;
		}
		if (done < len) {
			n = cut_word(part, start, at, len - done);
			memcpy(out + done, part, n);
			done += n;
		}
	}
}

u32 page_compare(const void *buf, u64 version, u64 from, u32 len)
{
	u64 start = rng_mix(version), word;
	const u8 *in = buf;
	u32 done = 0, n, i;
	u8 part[8];

	while (done < len) {
		if ((from + done) % 8 == 0) {
			for (; len - done >= 8; done += 8) {
				memcpy(&word, in + done, 8);
				if (word != page_word(start, (from + done) / 8))
					break;
			}
			if (done == len)
				break;
		}
		n = cut_word(part, start, from + done, len - done);
		for (i = 0; i < n; i++)
			if (in[done + i] != part[i])
				return done + i;
		done += n;
	}
	return len;
}

u32 page_crc(const void *buf, u32 len)
{
	return kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, buf, len));
}
