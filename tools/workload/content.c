// SPDX-License-Identifier: GPL-2.0
/*
 * Page content and names. A page is the SplitMix64 stream of its base, eight bytes a number, little-endian on every
 * machine. The stream does not compress and does not deduplicate, so a device cannot shorten the work.
 */
#include <endian.h>
#include <string.h>

#include "content.h"
#include "rng.h"

#define WORD	sizeof(uint64_t)

uint64_t content_base(uint64_t seed, uint64_t id)
{
	return rng_mix(rng_mix(seed + RNG_GAMMA) ^ rng_mix(id));
}

static uint64_t word_at(uint64_t base, uint64_t index)
{
	return htole64(rng_at(base, index));
}

/* Bytes of the word at @offset that lie from @offset on, at most @len; they are put into @bytes */
static size_t word_part(uint8_t bytes[WORD], size_t len, uint64_t base, uint64_t offset)
{
	uint64_t word = word_at(base, offset / WORD);
	size_t skip = offset % WORD;
	size_t part = WORD - skip;

	if (part > len)
		part = len;
	memcpy(bytes, (uint8_t *)&word + skip, part);
	return part;
}

void content_fill(void *buf, size_t len, uint64_t base, uint64_t offset)
{
	uint8_t *p = buf;
	uint8_t bytes[WORD];
	uint64_t index;
	size_t part;

	if (len && offset % WORD) {
		part = word_part(bytes, len, base, offset);
		memcpy(p, bytes, part);
		p += part;
		len -= part;
		offset += part;
	}
	for (index = offset / WORD; len >= WORD; index++, p += WORD, len -= WORD) {
		uint64_t word = word_at(base, index);

		memcpy(p, &word, WORD);
	}
	if (len)
		memcpy(p, bytes, word_part(bytes, len, base, index * WORD));
}

static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t len)
{
	size_t i = 0;

	while (i < len && a[i] == b[i])
		i++;
	return i;
}

/* As content_check(), for the at most seven bytes that share one word of the stream */
static size_t check_part(const uint8_t *p, size_t len, uint64_t base, uint64_t offset, size_t *part)
{
	uint8_t bytes[WORD];

	*part = word_part(bytes, len, base, offset);
	return first_difference(p, bytes, *part);
}

size_t content_check(const void *buf, size_t len, uint64_t base, uint64_t offset)
{
	const uint8_t *start = buf, *p = buf, *end = start + len;
	size_t part, same;
	uint64_t index;

	if (len && offset % WORD) {
		same = check_part(p, len, base, offset, &part);
		if (same < part)
			return same;
		p += part;
		offset += part;
	}
	for (index = offset / WORD; (size_t)(end - p) >= WORD; index++, p += WORD) {
		uint64_t expect = word_at(base, index), found;

		memcpy(&found, p, WORD);
		if (found != expect)
			return (size_t)(p - start) + first_difference(p, (uint8_t *)&expect, WORD);
	}
	if (p == end)
		return len;
	return (size_t)(p - start) + check_part(p, (size_t)(end - p), base, index * WORD, &part);
}

uint8_t content_byte(uint64_t base, uint64_t offset)
{
	uint8_t byte;

	content_fill(&byte, 1, base, offset);
	return byte;
}

void content_key(uint64_t id, struct kvctx_key *key)
{
	size_t i;

	/* rng_mix() is a bijection: the first eight bytes alone tell all ids apart */
	for (i = 0; i < KVCTX_DIGEST_LEN / WORD; i++) {
		uint64_t word = htole64(rng_mix(id + i * RNG_GAMMA));

		memcpy(key->digest + i * WORD, &word, WORD);
	}
	key->qualifier = 0;
}

void content_keyspace(uint64_t seed, uint64_t page_size, uint8_t keyspace[KVCTX_KEYSPACE_LEN])
{
	uint64_t words[2] = {
		htole64(rng_mix(seed + RNG_GAMMA)),
		htole64(rng_mix(page_size + RNG_GAMMA)),
	};

	memcpy(keyspace, words, sizeof(words));
}
