// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants whose pages are encrypted, as far as the engine has to do with it: the superblock says by which key, and the
 * nonce that a page was stored with is found with it, wherever the page goes and after any attach.
 */
#include "log/log.h"
#include "media/format_media.h"
#include "test.h"

static const struct kvc_super_key key = { .name = "kvctx:test", .check = { 1, 2, 3 } };

static int make(void **state)
{
	*state = rig_small(1);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static struct kvc_domain *tenant_with_key(struct rig *r, int *slot)
{
	*slot = kvc_tenant_add_keyed(r->pool, "secret", 0, 0, 0600, 0, &key);
	assert_true(*slot > 0);
	return rig_domain(r, (u32)*slot, 0);
}

static void nonce_of(u32 version, u8 *nonce)
{
	page_bytes(nonce, 0x6e6f6e6365ULL + version, 0, KVC_NONCE_LEN);
}

static void store(struct rig *r, struct kvc_domain *d, u32 id, u32 version, u32 length, bool replace)
{
	u8 nonce[KVC_NONCE_LEN], k[KVC_KEY_LEN];
	struct kvc_store st;
	int ret;

	key_make(k, id);
	nonce_of(version, nonce);
	do {
		ret = replace ? kvc_replace_begin(r->pool, d, k, length, id, KVC_ANY_MEMBER, &st) :
				kvc_store_begin(r->pool, d, k, length, id, KVC_ANY_MEMBER, &st);
		if (ret == -EAGAIN)
			rig_work(r);
	} while (ret == -EAGAIN);
	assert_int_equal(ret, 0);
	rig_write_page(r, &st, version);
	kvc_store_nonce(r->pool, &st, nonce);
	kvc_store_commit(r->pool, &st);
}

/* Is it there, with the nonce that it was stored with? */
static bool has_nonce(struct rig *r, struct kvc_domain *d, u32 id, u32 version)
{
	u8 nonce[KVC_NONCE_LEN];
	struct kvc_load ld;
	bool same;

	nonce_of(version, nonce);
	if (rig_hold(r, d, id, &ld))
		return false;
	same = !memcmp(kvc_load_nonce(r->pool, &ld), nonce, KVC_NONCE_LEN);
	kvc_load_end(r->pool, &ld, 0);
	return same && rig_load(r, d, id, version) == 0;
}

static void key_in_the_superblock(void **state)
{
	struct rig *r = *state;
	struct kvc_super *s = calloc(1, sizeof(*s)), *back = calloc(1, sizeof(*back));
	u8 *slot = malloc(KVC_SUPER_BYTES);
	int n;

	tenant_with_key(r, &n);
	*s = *kvc_super_of(r->pool);
	assert_int_equal(s->tenants[n].flags, KVC_TENANT_USED | KVC_TENANT_ENCRYPTED);
	assert_memory_equal(&s->keys[n], &key, sizeof(key));
	kvc_super_encode(s, 0, slot);
	/* an older program must not take what is encrypted for pages */
	assert_int_equal(le64_to_cpu(((struct kvc_media_super *)slot)->incompat), KVC_INCOMPAT_KEYS);
	assert_int_equal(kvc_super_decode(slot, back), KVC_OK);
	assert_memory_equal(back, s, sizeof(*s));

	/* neither a key without such a tenant, nor such a tenant without a key */
	s->tenants[n].flags = KVC_TENANT_USED;
	assert_int_equal(kvc_super_check(s), KVC_BAD_TENANT);
	s->tenants[n].flags = 0;
	assert_int_equal(kvc_super_check(s), KVC_BAD_TENANT);
	s->tenants[n].flags = KVC_TENANT_USED | KVC_TENANT_ENCRYPTED;
	assert_int_equal(kvc_super_check(s), KVC_OK);
	memset(&s->keys[n], 0, sizeof(s->keys[n]));
	assert_int_equal(kvc_super_check(s), KVC_BAD_TENANT);

	assert_int_equal(kvc_tenant_remove(r->pool, "secret"), 0);
	/* records of its pages are still there, and end the log for an older program */
	kvc_super_encode(kvc_super_of(r->pool), 0, slot);
	assert_int_equal(le64_to_cpu(((struct kvc_media_super *)slot)->incompat), KVC_INCOMPAT_KEYS);
	assert_int_equal(kvc_super_decode(slot, back), KVC_OK);
	assert_int_equal(back->incompat, KVC_INCOMPAT_KEYS);
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	free(slot);
	free(s);
	free(back);
}

static void names_of_keys(void **state)
{
	struct rig *r = *state;
	struct kvc_super_key k = key;

	(void)r;
	memset(k.name, 'x', sizeof(k.name));
	assert_false(kvc_key_name_ok(k.name));
	assert_int_equal(kvc_tenant_add_keyed(r->pool, "a", 0, 0, 0600, 0, &k), -EINVAL);
	k.name[KVC_KEY_NAME_MAX - 1] = 0;
	assert_true(kvc_key_name_ok(k.name));
	assert_false(kvc_key_name_ok(""));
	assert_false(kvc_key_name_ok("a b"));
	assert_false(kvc_key_name_ok("a\xff"));
	assert_true(kvc_key_name_ok("kvctx:a/b"));
}

/* What a tenant requires may change, that it is encrypted does not. */
static void stays_encrypted(void **state)
{
	struct rig *r = *state;
	int n;

	tenant_with_key(r, &n);
	assert_int_equal(kvc_tenant_set(r->pool, "secret", KVC_TENANT_VERIFIED), 0);
	assert_int_equal(kvc_super_of(r->pool)->tenants[n].flags,
			 KVC_TENANT_USED | KVC_TENANT_ENCRYPTED | KVC_TENANT_VERIFIED);
	assert_int_equal(kvc_tenant_set(r->pool, "secret", 0), 0);
	assert_int_equal(kvc_super_of(r->pool)->tenants[n].flags, KVC_TENANT_USED | KVC_TENANT_ENCRYPTED);
	assert_int_equal(kvc_tenant_set(r->pool, "default", KVC_TENANT_ENCRYPTED), -EINVAL);
}

/* In entry blocks that there were before anybody had a key too, beside pages of others */
static void nonces_stay(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *d;
	int slot;
	u32 i;

	for (i = 0; i < 5; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 5000), 0);
	d = tenant_with_key(r, &slot);
	for (i = 0; i < 100; i++)
		store(r, d, i, 1000 + i, 1 + i, false);
	store(r, d, 7, 2000, 9000, true);
	for (i = 0; i < 100; i++)
		assert_true(has_nonce(r, d, i, i == 7 ? 2000 : 1000 + i));
	kvc_domain_put(r->pool, d);
	rig_flush(r);
	rig_write_super(r);
	rig_again(r);
	d = rig_domain(r, (u32)slot, 0);
	for (i = 0; i < 100; i++)
		assert_true(has_nonce(r, d, i, i == 7 ? 2000 : 1000 + i));
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	kvc_domain_put(r->pool, d);
}

/* Reclaim copies a page with its nonce: the copy is the same bytes. */
static void nonces_move(void **state)
{
	struct rig *r = *state;
	struct kvc_load before, now;
	struct kvc_domain *d;
	u32 id, i, moved = 0;
	int slot;

	d = tenant_with_key(r, &slot);
	for (i = 0; i < 4; i++)
		store(r, d, i, 1000 + i, 4096, false);
	assert_int_equal(rig_hold(r, d, 0, &before), 0);
	kvc_load_end(r->pool, &before, 0);
	for (id = 100; id < 5000 && !moved; id++) {
		store(r, d, id, id, 16384, false);
		/* they are asked for again and again */
		for (i = 0; i < 4; i++)
			if (!rig_hold(r, d, i, &now))
				kvc_load_end(r->pool, &now, 0);
		rig_work(r);
		moved = (u32)rig_stats(r).moved_pages;
	}
	assert_true(moved);
	for (i = 0; i < 4; i++)
		assert_true(has_nonce(r, d, i, 1000 + i));
	kvc_domain_put(r->pool, d);
	rig_flush(r);
	rig_write_super(r);
	rig_again(r);
	d = rig_domain(r, (u32)slot, 0);
	for (i = 0; i < 4; i++)
		assert_true(has_nonce(r, d, i, 1000 + i));
	kvc_domain_put(r->pool, d);
}

static bool refuse_all(size_t size)
{
	(void)size;
	return true;
}

/* Without memory for nonces there is no such tenant, and the pool is as before. */
static void no_memory(void **state)
{
	struct rig *r = *state;
	u64 bytes;
	int slot;

	assert_int_equal(rig_store(r, r->d, 0, 0, 5000), 0);
	bytes = kvc_index_bytes(r->pool);
	os_alloc_fault = refuse_all;
	assert_int_equal(kvc_tenant_add_keyed(r->pool, "secret", 0, 0, 0600, 0, &key), -ENOMEM);
	os_alloc_fault = NULL;
	assert_int_equal(kvc_super_of(r->pool)->tenants[1].flags, 0);
	assert_int_equal(kvc_index_bytes(r->pool), bytes);
	kvc_domain_put(r->pool, tenant_with_key(r, &slot));
	/* of the one head's block */
	assert_int_equal(kvc_index_bytes(r->pool), bytes + 1024);
}

/* A page whose record says the opposite of its tenant is not one of his: nobody gets bytes that nobody decrypts. */
static void neither_for_the_other(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *d;
	int slot;

	d = tenant_with_key(r, &slot);
	store(r, d, 1, 1, 5000, false);
	assert_int_equal(rig_store(r, r->d, 1, 1, 5000), 0);
	kvc_domain_put(r->pool, d);
	rig_flush(r);
	rig_write_super(r);
	rig_detach(r);
	r->super->tenants[slot].flags = KVC_TENANT_USED;
	memset(&r->super->keys[slot], 0, sizeof(r->super->keys[slot]));
	r->super->tenants[0].flags = KVC_TENANT_USED | KVC_TENANT_ENCRYPTED;
	r->super->keys[0] = key;
	rig_attach(r);
	d = rig_domain(r, (u32)slot, 0);
	assert_int_equal(rig_query(r, d, 1), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_stats(r).recover_skipped, 2);
	kvc_domain_put(r->pool, d);
}

static const struct CMUnitTest encrypted_tests[] = {
	cmocka_unit_test_setup_teardown(key_in_the_superblock, make, unmake),
	cmocka_unit_test_setup_teardown(names_of_keys, make, unmake),
	cmocka_unit_test_setup_teardown(stays_encrypted, make, unmake),
	cmocka_unit_test_setup_teardown(nonces_stay, make, unmake),
	cmocka_unit_test_setup_teardown(nonces_move, make, unmake),
	cmocka_unit_test_setup_teardown(no_memory, make, unmake),
	cmocka_unit_test_setup_teardown(neither_for_the_other, make, unmake),
};

TEST_GROUP(encrypted);
