// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Names from bytes, by one derivation that every language has: SHA-256 (FIPS 180-4) of the bytes as they are. In Python,
 * hashlib.sha256(data).digest() is the digest of the key, and the first 16 bytes of it are the keyspace.
 */
#include <openssl/sha.h>

#include "handle.h"

_Static_assert(SHA256_DIGEST_LENGTH == KVCTX_DIGEST_LEN, "a digest is what SHA-256 gives");

void kvctx_key_from_bytes(struct kvctx_key *key, const void *data, size_t len, uint64_t qualifier)
{
	SHA256(data, len, key->digest);
	key->qualifier = qualifier;
}

void kvctx_keyspace_from_bytes(uint8_t *keyspace, const void *data, size_t len)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	SHA256(data, len, digest);
	memcpy(keyspace, digest, KVCTX_KEYSPACE_LEN);
}
