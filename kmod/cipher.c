// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of tenants, and what is done with them: AES-256-XTS by the kernel's crypto API, as on-media.rst has it.
 *
 * A key is found by its name in the keyrings of the process that brings the tenant up: of type "logon", which no
 * process can read, or of type "user". It stays the keyring's: whoever revokes it there, or lets it expire, ends its
 * use here, by sessions that are open too. What the cipher has made of it stays in memory, unused, until the tenant is
 * unlocked once more, or is gone with its last session.
 *
 * Locks: none. A cipher does not change; the crypto API's keys may be used by any number at a time.
 */
#include <linux/crypto.h>
#include <linux/err.h>
#include <linux/key.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include <crypto/skcipher.h>
#include <keys/user-type.h>

#include "kvctx.h"

#define CIPHER_KEY	64U		/* bytes: two keys of AES-256 */
#define CIPHER_NO_BLOCK	(~0U)		/* number of the check, which no page's block has */

struct kvctx_cipher {
	refcount_t users;
	struct key *key;
	struct crypto_skcipher *tfm;
};

static int cipher_set_key(struct kvctx_cipher *c)
{
	const struct user_key_payload *payload;
	int err = -EKEYREVOKED;

	down_read(&c->key->sem);
	payload = user_key_payload_locked(c->key);
	if (payload)
		err = payload->datalen == CIPHER_KEY ?
		      crypto_skcipher_setkey(c->tfm, payload->data, payload->datalen) : -EKEYREJECTED;
	up_read(&c->key->sem);
	return err;
}

static struct key *cipher_find_key(const char *name)
{
	struct key *key = request_key(&key_type_logon, name, NULL), *user;

	if (!IS_ERR(key))
		return key;
	/* that type's names have a prefix; what has none is not found, or not looked for */
	user = request_key(&key_type_user, name, NULL);
	/* one that was there and ended is what to tell of */
	return user == ERR_PTR(-ENOKEY) && key != ERR_PTR(-EINVAL) ? key : user;
}

/*
 * With a reference. -ENOKEY: the caller's keyrings have no such key; -EKEYREVOKED, -EKEYEXPIRED; -EKEYREJECTED: it is
 * none for AES-256-XTS; -EOPNOTSUPP: this kernel has no such cipher; -EACCES, -ENOMEM. Sleeps.
 */
struct kvctx_cipher *kvctx_cipher_find(const char *name)
{
	struct kvctx_cipher *c = kzalloc(sizeof(*c), GFP_KERNEL);
	int err;

	if (!c)
		return ERR_PTR(-ENOMEM);
	refcount_set(&c->users, 1);
	c->key = cipher_find_key(name);
	if (IS_ERR(c->key)) {
		err = PTR_ERR(c->key);
		c->key = NULL;
		goto err_put;
	}
	c->tfm = crypto_alloc_skcipher("xts(aes)", 0, 0);
	if (IS_ERR(c->tfm)) {
		err = PTR_ERR(c->tfm) == -ENOENT ? -EOPNOTSUPP : PTR_ERR(c->tfm);
		c->tfm = NULL;
		goto err_put;
	}
	/* as others who serve the tenant do */
	crypto_skcipher_set_flags(c->tfm, CRYPTO_TFM_REQ_FORBID_WEAK_KEYS);
	err = cipher_set_key(c);
	if (!err)
		return c;
err_put:
	kvctx_cipher_put(c);
	return ERR_PTR(err == -EINVAL ? -EKEYREJECTED : err);
}

struct kvctx_cipher *kvctx_cipher_get(struct kvctx_cipher *c)
{
	if (c)
		refcount_inc(&c->users);
	return c;
}

/* @c may be NULL. Sleeps */
void kvctx_cipher_put(struct kvctx_cipher *c)
{
	if (!c || !refcount_dec_and_test(&c->users))
		return;
	crypto_free_skcipher(c->tfm);
	key_put(c->key);
	kfree(c);
}

/* May it be used, still? Any context */
bool kvctx_cipher_valid(const struct kvctx_cipher *c)
{
	return !key_validate(c->key);
}

static int cipher_crypt(struct kvctx_cipher *c, bool encrypt, const u8 *nonce, u32 block, u32 nr, u32 unit,
			struct page *page, u32 offset)
{
	struct skcipher_request *rq = skcipher_request_alloc(c->tfm, GFP_NOIO);
	struct scatterlist sg;
	DECLARE_CRYPTO_WAIT(wait);
	u8 tweak[16];
	int err = 0;

	if (!rq)
		return -ENOMEM;
	skcipher_request_set_callback(rq, CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP, crypto_req_done,
				      &wait);
	sg_init_table(&sg, 1);
	for (; nr && !err; nr--, block++, offset += unit) {
		memcpy(tweak, nonce, KVC_NONCE_LEN);
		put_unaligned_le32(block, tweak + KVC_NONCE_LEN);
		sg_set_page(&sg, page + (offset >> PAGE_SHIFT), unit, offset_in_page(offset));
		skcipher_request_set_crypt(rq, &sg, &sg, unit, tweak);
		err = crypto_wait_req(encrypt ? crypto_skcipher_encrypt(rq) : crypto_skcipher_decrypt(rq), &wait);
	}
	skcipher_request_free(rq);
	return err == -ENOMEM ? -ENOMEM : err ? -EIO : 0;
}

/*
 * En- or decrypt, in place, @nr blocks of a page from number @block on, which lie one behind the other from @offset of
 * @page on. 0, -ENOKEY: the key may not be used any more, -ENOMEM, -EIO. Sleeps.
 */
int kvctx_cipher_run(struct kvctx_cipher *c, bool encrypt, const u8 *nonce, u32 block, u32 nr, struct page *page,
		     u32 offset)
{
	if (!kvctx_cipher_valid(c))
		return -ENOKEY;
	return cipher_crypt(c, encrypt, nonce, block, nr, KVC_BLOCK, page, offset);
}

/* What tells whether another key is the same. 0, -ENOMEM, -EIO. Sleeps */
int kvctx_cipher_check(struct kvctx_cipher *c, u8 check[KVC_KEY_CHECK])
{
	static const u8 nonce[KVC_NONCE_LEN];
	u8 *zeros = kzalloc(KVC_KEY_CHECK, GFP_KERNEL);
	int err;

	if (!zeros)
		return -ENOMEM;
	err = cipher_crypt(c, true, nonce, CIPHER_NO_BLOCK, 1, KVC_KEY_CHECK, virt_to_page(zeros),
			   offset_in_page(zeros));
	if (!err)
		memcpy(check, zeros, KVC_KEY_CHECK);
	kfree(zeros);
	return err;
}
