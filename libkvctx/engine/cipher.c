// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Keys of tenants, and what is done with them: AES-256-XTS by OpenSSL, as on-media.rst has it. kmod/cipher.c is the model.
 *
 * A key is found by its name in the keyrings of this process, as one of type "user", for the cipher is here. It stays the
 * keyring's: whoever revokes it there, or lets it expire, ends its use here with the next SUBMIT.
 */
#include <linux/keyctl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"
#include "share.h"

#define CIPHER_KEY	64		/* bytes: two keys of AES-256 */
#define CIPHER_TWEAK	16
#define CIPHER_NO_BLOCK	(~0U)		/* number of the check, which no page's block has */

struct kve_cipher {
	long id;			/* of the key, in the kernel */
	EVP_CIPHER_CTX *seal, *open;	/* not used, only copied */
};

/* Its bytes, at most @size of them to @to; how many there are, or an error */
static long cipher_read(long id, u8 *to, size_t size)
{
	long n = syscall(SYS_keyctl, KEYCTL_READ, id, to, size);

	return n < 0 ? -errno : n;
}

static EVP_CIPHER_CTX *cipher_ctx(const u8 *key, int encrypt)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	if (ctx && EVP_CipherInit_ex(ctx, EVP_aes_256_xts(), NULL, key, NULL, encrypt))
		return ctx;
	EVP_CIPHER_CTX_free(ctx);
	return NULL;
}

/* What became of a key that cannot be read */
static int cipher_error(long err)
{
	return err == -ENOMEM || err == -EKEYREVOKED || err == -EKEYEXPIRED ? (int)err : -ENOKEY;
}

/*
 * Of the key of that name. 0; -ENOKEY: this process has none, or may not read it; -EKEYREVOKED, -EKEYEXPIRED;
 * -EKEYREJECTED: it is none for AES-256-XTS; -ENOMEM
 */
int kve_cipher_find(const char *name, struct kve_cipher **out)
{
	long id = syscall(SYS_request_key, "user", name, NULL, 0), n;
	struct kve_cipher *c;
	u8 key[CIPHER_KEY];

	if (id < 0)
		return cipher_error(-errno);
	n = cipher_read(id, key, sizeof(key));
	if (n < 0)
		return cipher_error(n);
	c = n == CIPHER_KEY ? calloc(1, sizeof(*c)) : NULL;
	if (c) {
		c->id = id;
		c->seal = cipher_ctx(key, 1);
		c->open = cipher_ctx(key, 0);
	}
	OPENSSL_cleanse(key, sizeof(key));
	if (c && c->seal && c->open) {
		*out = c;
		return 0;
	}
	n = n != CIPHER_KEY || (c && !c->seal) ? -EKEYREJECTED : -ENOMEM;
	kve_cipher_free(c);
	return (int)n;
}

void kve_cipher_free(struct kve_cipher *c)
{
	if (!c)
		return;
	EVP_CIPHER_CTX_free(c->seal);
	EVP_CIPHER_CTX_free(c->open);
	free(c);
}

/* By any thread, whose own keyrings may lack it: that it has ended is said before that it may not be read */
bool kve_cipher_valid(const struct kve_cipher *c)
{
	long n = cipher_read(c->id, NULL, 0);

	return n >= 0 || n == -EACCES;
}

static int cipher_crypt(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, u8 *at, size_t bytes,
			u32 unit)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	u8 tweak[CIPHER_TWEAK];
	int n, ok;

	ok = ctx && EVP_CIPHER_CTX_copy(ctx, encrypt ? c->seal : c->open);
	for (; ok && bytes; bytes -= unit, at += unit, block++) {
		__le32 number = cpu_to_le32(block);

		memcpy(tweak, nonce, KVC_NONCE_LEN);
		memcpy(tweak + KVC_NONCE_LEN, &number, sizeof(number));
		ok = EVP_CipherInit_ex(ctx, NULL, NULL, NULL, tweak, -1) && EVP_CipherUpdate(ctx, at, &n, at, (int)unit);
	}
	EVP_CIPHER_CTX_free(ctx);
	return ok ? 0 : -ENOMEM;
}

/* Of a STORE; false: there is no randomness to be had */
bool kve_cipher_nonce(u8 nonce[KVC_NONCE_LEN])
{
	/* not the library's, which ends before the process's other threads do, and goes on where a snapshot began */
	return getrandom(nonce, KVC_NONCE_LEN, 0) == KVC_NONCE_LEN;
}

/* En- or decrypt, in place, whole blocks of a page, from number @block on. 0, -ENOMEM */
int kve_cipher_run(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, void *at, u32 bytes)
{
	return cipher_crypt(c, encrypt, nonce, block, at, bytes, KVC_BLOCK);
}

/* What tells whether another key is the same. 0, -ENOMEM */
int kve_cipher_check(const struct kve_cipher *c, u8 check[KVC_KEY_CHECK])
{
	static const u8 nonce[KVC_NONCE_LEN];

	memset(check, 0, KVC_KEY_CHECK);
	return cipher_crypt(c, true, nonce, CIPHER_NO_BLOCK, check, KVC_KEY_CHECK, KVC_KEY_CHECK);
}

/* Of the key that a tenant was added with. 0; as kve_cipher_find(); -EKEYREJECTED also: that name has another one */
int kve_cipher_of(const struct kvc_super_key *key, struct kve_cipher **out)
{
	u8 check[KVC_KEY_CHECK];
	struct kve_cipher *c;
	int err = kve_cipher_find(key->name, &c);

	if (err)
		return err;
	err = kve_cipher_check(c, check);
	if (!err && memcmp(check, key->check, sizeof(check)))
		err = -EKEYREJECTED;
	if (err)
		kve_cipher_free(c);
	else
		*out = c;
	return err;
}

int kve_share_has_key(const struct kvc_super_key *key)
{
	struct kve_cipher *c;
	int err = kve_cipher_of(key, &c);

	if (!err)
		kve_cipher_free(c);
	return err;
}

int kve_share_key(const char *name, struct kvc_super_key *key)
{
	struct kve_cipher *c;
	int err = kve_cipher_find(name, &c);

	if (err)
		return err;
	memset(key, 0, sizeof(*key));
	snprintf(key->name, sizeof(key->name), "%s", name);
	err = kve_cipher_check(c, key->check);
	kve_cipher_free(c);
	return err;
}
