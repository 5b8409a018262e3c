// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Tenants whose pages are encrypted: what a session with the key gets, and without; and what is on media, compared with
 * what Documentation/on-media.rst says it is. Each test runs on an io_uring and on threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <openssl/evp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pools.h"
#include "sess.h"
#include "share.h"

#define KEY		64
#define NAME		"kvctx:test_encrypted"
#define TENANT		"secret"

static u8 secret[KEY];
static struct os_atomic by_attendants, by_others;	/* pages en- or decrypted by that thread of a pool, by other threads */

int __real_kve_cipher_run(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, void *at, u32 bytes);
int __wrap_kve_cipher_run(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, void *at, u32 bytes);

int __wrap_kve_cipher_run(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, void *at, u32 bytes)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	os_atomic_inc(strcmp(name, "kvctx-attend") ? &by_others : &by_attendants);
	return __real_kve_cipher_run(c, encrypt, nonce, block, at, bytes);
}

/* The key of that name, in this process's own keyring */
static long give_key(const u8 *key, size_t len)
{
	long id = syscall(SYS_add_key, "user", NAME, key, len, KEY_SPEC_PROCESS_KEYRING);

	if (id < 0 && (errno == EPERM || errno == ENOSYS)) {
		print_message("# SKIP keyrings may not be used here, as in many containers\n");
		skip();
	}
	assert_true(id > 0);
	return id;
}

static void take_key(long id)
{
	assert_int_equal(syscall(SYS_keyctl, KEYCTL_UNLINK, id, KEY_SPEC_PROCESS_KEYRING), 0);
}

static void revoke_key(long id)
{
	assert_int_equal(syscall(SYS_keyctl, KEYCTL_REVOKE, id), 0);
}

/* A pool with a tenant of that key */
static long make(void)
{
	struct kvc_super_key key;
	struct kve_pool *p;
	long id;
	u32 i;

	for (i = 0; i < KEY; i++)
		secret[i] = (u8)(i * 7 + 1);
	id = give_key(secret, KEY);
	rig_make(rig_dir, 1);
	p = rig_attach();
	assert_int_equal(kve_share_key(NAME, &key), 0);
	pthread_mutex_lock(&p->super_lock);
	pthread_mutex_lock(&p->config_lock);
	assert_true(kvc_tenant_add_keyed(p->core, TENANT, 0, 0, 0600, 0, &key) > 0);
	pthread_mutex_unlock(&p->config_lock);
	assert_int_equal(kve_members_write_super(p), 0);
	pthread_mutex_unlock(&p->super_lock);
	kve_pool_put(p);
	return id;
}

static void open_it(struct sess *k, u32 nr_slots)
{
	assert_int_equal(sess_try(k, TENANT, nr_slots, -1), 0);
}

static const u32 lengths[] = { 1, 15, 16, 17, 4095, 4096, 4097, 8192, 65536, 65537, PAGE };

/* Pages of any length, whole and in part, verified and not, also after the next attach */
static void what_was_stored(void **state)
{
	struct kvctx_sqe sqe;
	long id = make();
	u32 i, round, at, len, flags;
	struct sess k;

	(void)state;
	open_it(&k, 0);
	for (i = 0; i < ARRAY_SIZE(lengths); i++)
		assert_int_equal(store(&k, i, lengths[i]), lengths[i]);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < ARRAY_SIZE(lengths); i++) {
			assert_int_equal(load(&k, i, lengths[i]), lengths[i]);
			for (at = 0; at < lengths[i]; at += lengths[i] / 7 + 1) {
				len = min(lengths[i] - at, 1U + lengths[i] / 3);
				sqe = sqe_of(KVCTX_OP_LOAD, i, 1 << 20, len);
				sqe.offset = at;
				sqe.flags = at % 2 ? KVCTX_OP_NO_VERIFY : 0;
				fill(k.arena, lengths[i], i);
				memset(k.arena + (1 << 20), 0x5a, len + 1);
				assert_int_equal(run(&k, sqe, &flags), len);
				assert_int_equal(flags, sqe.flags ? 0 : KVCTX_CQE_VERIFIED);
				assert_memory_equal(k.arena + (1 << 20), k.arena + at, len);
				assert_int_equal(k.arena[(1 << 20) + len], 0x5a);
			}
		}
		assert_int_equal(run(&k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), 0);
		sess_close(&k);
		open_it(&k, 0);
	}
	sess_close(&k);
	take_key(id);
}

/* From and to memory that no device could take as it is */
static void scattered(void **state)
{
	struct kvctx_seg segs[3] = {
		{ .offset = 1, .length = 5000 }, { .offset = 10000, .length = 77 }, { .offset = 20003, .length = 9000 },
	};
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_STORE, 3, (u64)segs, 14077);
	long id = make();
	struct sess k;

	(void)state;
	open_it(&k, 0);
	sqe.nr_segs = 3;
	fill(k.arena, 40000, 9);
	assert_int_equal(run(&k, sqe, NULL), 14077);
	sqe.opcode = KVCTX_OP_LOAD;
	memset(k.arena, 0, 40000);
	assert_int_equal(run(&k, sqe, NULL), 14077);
	fill(k.arena + 40000, 40000, 9);
	assert_memory_equal(k.arena + 1, k.arena + 40001, 5000);
	assert_memory_equal(k.arena + 10000, k.arena + 50000, 77);
	assert_memory_equal(k.arena + 20003, k.arena + 60003, 9000);
	sess_close(&k);
	take_key(id);
}

/* The page of the key as it is on media: *@nonce, *@offset, *@crc of its first chunk */
static u32 find(struct sess *k, u64 key, u8 *nonce, u64 *offset, u32 *crc)
{
	struct kvctx_key name = { .qualifier = key };
	struct kvc_pool *core = k->s->pool->core;
	struct kvc_load ld;

	assert_int_equal(kvc_load_begin(core, k->s->domain, kvctx_key_bytes(&name), &ld), 0);
	memcpy(nonce, kvc_load_nonce(core, &ld), KVC_NONCE_LEN);
	*offset = ld.offset;
	*crc = kvc_load_crc(core, &ld, 0);
	kvc_load_end(core, &ld, 0);
	return ld.length;
}

/* As the documentation has it, with OpenSSL's cipher alone */
static void decrypt(u8 *bytes, u32 nr_blocks, const u8 *nonce)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	u8 tweak[16], *at = bytes;
	u32 i;
	int n;

	for (i = 0; i < nr_blocks; i++, at += 4096) {
		memcpy(tweak, nonce, 12);
		memcpy(tweak + 12, &i, 4);
		assert_true(EVP_DecryptInit_ex(ctx, EVP_aes_256_xts(), NULL, secret, tweak));
		assert_true(EVP_DecryptUpdate(ctx, at, &n, at, 4096) && n == 4096);
	}
	EVP_CIPHER_CTX_free(ctx);
}

static void what_is_on_media(void **state)
{
	u8 nonce[KVC_NONCE_LEN], other[KVC_NONCE_LEN], *media = calloc(1, 8192), sealed[8192], second[8192];
	long id = make();
	struct sess k;
	u64 offset;
	u32 i, crc, chunk;
	int fd;

	(void)state;
	open_it(&k, 0);
	assert_int_equal(store(&k, 1, 5000), 5000);
	fd = open(rig_path("m0"), O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(find(&k, 1, nonce, &offset, &crc), 5000);
	assert_int_equal(pread(fd, media, 8192, (off_t)offset), 8192);
	for (i = 0; i < 8192 && media[i] == 0; i++)
		;
	assert_true(i < 8192);
	/* the chunk's CRC is of what is there */
	chunk = min(kvc_chunk_size(k.s->pool->core), 8192U);
	assert_int_equal(kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, media, chunk)), crc);
	memcpy(sealed, media, 8192);
	decrypt(media, 2, nonce);
	assert_true(right(media, 5000, 1));
	for (i = 5000; i < 8192; i++)
		assert_int_equal(media[i], 0);

	/* the same page under another key, and again under this one: nothing is the same on media */
	fill(k.arena, 5000, 1);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_STORE, 2, 0, 5000), NULL), 5000);
	find(&k, 2, other, &offset, &crc);
	assert_memory_not_equal(other, nonce, KVC_NONCE_LEN);
	assert_int_equal(pread(fd, second, 8192, (off_t)offset), 8192);
	for (i = 0; i < 8192; i += 16)
		assert_memory_not_equal(second + i, sealed + i, 16);

	/* what is damaged is not given out */
	find(&k, 1, nonce, &offset, &crc);
	assert_int_equal(pread(fd, media, 4096, (off_t)offset), 4096);
	media[100] ^= 1;
	assert_int_equal(pwrite(fd, media, 4096, (off_t)offset), 4096);
	close(fd);
	assert_int_equal(load(&k, 1, 5000), -EBADMSG);
	for (i = 0; i < 5000; i++)
		assert_int_equal(k.arena[(1 << 20) + i], 0);
	assert_int_equal(load(&k, 1, 5000), -ENOENT);
	sess_close(&k);
	free(media);
	take_key(id);
}

static u64 misread_at;		/* of the file that the next transfer reads: this byte is another then, once */
static int misread_fd = -1;

static void flip(int fd, u64 at)
{
	u8 byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

static s64 made_right(s64 res)
{
	flip(misread_fd, misread_at);
	rig_tell(NULL);
	return res;
}

/*
 * Of the bytes behind a page depends what its last ones are decrypted to: they are under its CRC as well. One that is
 * misread once is read again, one that is damaged on media is told.
 */
static void behind_the_page(void **state)
{
	static const u32 odd[] = { 1, 5000, 65537 };
	long id = make();
	u8 nonce[KVC_NONCE_LEN];
	struct sess k;
	u64 offset;
	u32 i, crc, flags;

	(void)state;
	open_it(&k, 0);
	misread_fd = open(rig_path("m0"), O_RDWR);
	assert_true(misread_fd >= 0);
	for (i = 0; i < ARRAY_SIZE(odd); i++) {
		assert_int_equal(store(&k, i, odd[i]), odd[i]);
		assert_int_equal(find(&k, i, nonce, &offset, &crc), odd[i]);
		misread_at = offset + odd[i] + 2;
		flip(misread_fd, misread_at);
		rig_tell(made_right);
		assert_int_equal(run(&k, sqe_of(KVCTX_OP_LOAD, i, 1 << 20, odd[i]), &flags), odd[i]);
		assert_int_equal(flags, KVCTX_CQE_VERIFIED);
		assert_true(right(k.arena + (1 << 20), odd[i], i));
		assert_int_equal(os_atomic64_read(&k.s->pool->counters.rereads), i + 1);
	}
	for (i = 0; i < ARRAY_SIZE(odd); i++) {
		find(&k, i, nonce, &offset, &crc);
		flip(misread_fd, offset + odd[i] + 2);
		assert_int_equal(load(&k, i, odd[i]), -EBADMSG);
	}
	close(misread_fd);
	sess_close(&k);
	take_key(id);
}

/* A thread that was there before the process had a keyring, and so has none: it may do what the others may. */
static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t told;
	struct sess *k;
	s32 res;
	bool over;
} elder = { .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER };

static void *elder_run(void *arg)
{
	pthread_mutex_lock(&elder.lock);
	while (!elder.over) {
		if (elder.k) {
			elder.res = store(elder.k, 7, 5000) == 5000 ? load(elder.k, 7, 5000) : -EPROTO;
			elder.k = NULL;
			pthread_cond_broadcast(&elder.told);
		}
		pthread_cond_wait(&elder.told, &elder.lock);
	}
	pthread_mutex_unlock(&elder.lock);
	return arg;
}

static void of_another_thread(void **state)
{
	long id = make();
	struct sess k;

	(void)state;
	open_it(&k, 0);
	pthread_mutex_lock(&elder.lock);
	elder.k = &k;
	pthread_cond_broadcast(&elder.told);
	while (elder.k)
		pthread_cond_wait(&elder.told, &elder.lock);
	pthread_mutex_unlock(&elder.lock);
	assert_int_equal(elder.res, 5000);
	sess_close(&k);
	take_key(id);
}

/* What was read ahead is in its slot as it was stored. */
static void in_slots(void **state)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_GET, 1, 0, 0);
	long id = make();
	struct sess k;
	void *slots;
	s32 slot;

	(void)state;
	open_it(&k, 4);
	assert_int_equal(kve_session_mmap(k.s, 4 * k.setup.slot_bytes, PROT_READ, KVCTX_MMAP_SLOTS, &slots), 0);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	sqe.lease_ms = 10000;
	slot = run(&k, sqe, NULL);
	assert_true(slot >= 0);
	assert_true(right((u8 *)slots + (u64)slot * k.setup.slot_bytes, PAGE, 1));
	munmap(slots, 4 * k.setup.slot_bytes);
	sess_close(&k);
	take_key(id);
}

/* No key, another one, or none at all for the cipher */
static void without_the_key(void **state)
{
	long id = make();
	struct sess k;
	u8 other[KEY];

	(void)state;
	open_it(&k, 0);
	assert_int_equal(store(&k, 1, 5000), 5000);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), 0);
	sess_close(&k);
	take_key(id);
	assert_int_equal(sess_try(&k, TENANT, 0, -1), -ENOKEY);
	assert_true(rig_logged("key " NAME ": Required key not available"));
	memcpy(other, secret, KEY);
	other[KEY - 1] ^= 1;
	id = give_key(other, KEY);
	assert_int_equal(sess_try(&k, TENANT, 0, -1), -ENOKEY);
	assert_true(rig_logged("key " NAME ": Key was rejected by service"));
	id = give_key(secret, KEY - 1);
	assert_int_equal(sess_try(&k, TENANT, 0, -1), -ENOKEY);
	/* halves that are the same are no key for XTS */
	memcpy(other + KEY / 2, other, KEY / 2);
	id = give_key(other, KEY);
	assert_int_equal(sess_try(&k, TENANT, 0, -1), -ENOKEY);
	/* others need none */
	sess_start(&k, 0, -1);
	assert_int_equal(load(&k, 1, 5000), -ENOENT);
	assert_int_equal(store(&k, 1, 4000), 4000);
	sess_close(&k);
	id = give_key(secret, KEY);
	open_it(&k, 0);
	assert_int_equal(load(&k, 1, 5000), 5000);
	sess_close(&k);
	take_key(id);
}

/* Who has a session open has nothing of it any more, but may let go. */
static void revoked(void **state)
{
	struct kvctx_key key = { .qualifier = 1 };
	struct kvctx_match m = { .size = sizeof(m), .keys = (u64)&key, .nr_keys = 1 };
	struct kvctx_sqe lease = sqe_of(KVCTX_OP_LEASE, 1, 0, 0);
	long id = make();
	struct sess k;

	(void)state;
	open_it(&k, 0);
	assert_int_equal(store(&k, 1, 5000), 5000);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MATCH, &m), 0);
	assert_int_equal(m.nr_present, 1);
	revoke_key(id);
	assert_int_equal(load(&k, 1, 5000), -ENOKEY);
	assert_int_equal(store(&k, 2, 5000), -ENOKEY);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_QUERY, 1, 0, 0), NULL), -ENOKEY);
	lease.lease_ms = 1000;
	assert_int_equal(run(&k, lease, NULL), -ENOKEY);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MATCH, &m), -ENOKEY);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_DELETE, 1, 0, 0), NULL), 0);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_FLUSH, 0, 0, 0), NULL), 0);
	sess_close(&k);
	assert_int_equal(sess_try(&k, TENANT, 0, -1), -ENOKEY);
	assert_true(rig_logged("key " NAME ": "));
}

/* What waited is encrypted in its session's time: the thread that lets go on what waits in the pool is everybody's. */
static void in_its_own_time(void **state)
{
	struct kvctx_sqe sqes[64];
	long id = make();
	u32 i, round;
	struct sess k;
	s32 res;

	(void)state;
	os_atomic_set(&by_attendants, 0);
	os_atomic_set(&by_others, 0);
	for (round = 0; round < 2; round++) {
		open_it(&k, 0);
		limit_tenant(&k, &(struct kvc_limits){ .inflight = 3 });
		for (i = 0; i < 64; i++) {
			fill(k.arena + i * 20480, 20000, 64 * round + i);
			sqes[i] = sqe_of(KVCTX_OP_STORE, 64 * round + i, i * 20480, 20000);
		}
		assert_int_equal(submit(&k, sqes, 64, 0), 64);
		/* the second time they end while it is closed, or are cancelled by that */
		for (i = 0; i < 64 && !round; i++)
			assert_int_equal(result_of(&k, NULL), 20000);
		sess_close(&k);
	}
	assert_int_equal(os_atomic_read(&by_attendants), 0);
	assert_in_range(os_atomic_read(&by_others), 64, 128);
	open_it(&k, 0);
	limit_tenant(&k, &(struct kvc_limits){ 0 });
	for (i = 0; i < 128; i++) {
		res = load(&k, i, 20000);
		assert_true(res == 20000 || (i >= 64 && res == -ENOENT));
	}
	sess_close(&k);
	take_key(id);
}

/* CRCs are of what is on media: callers have others. */
static void no_crcs_of_callers(void **state)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_STORE, 1, 0, 5000);
	struct kvctx_info info = { .size = sizeof(info) };
	long id = make();
	u32 crcs[2] = { 0 };
	struct sess k;

	(void)state;
	open_it(&k, 0);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_INFO, &info), 0);
	assert_int_equal(info.tenant_flags, KVCTX_TENANT_ENCRYPTED);
	sqe.crcs = (u64)crcs;
	assert_int_equal(run(&k, sqe, NULL), -EOPNOTSUPP);
	assert_int_equal(store(&k, 1, 5000), 5000);
	sqe.opcode = KVCTX_OP_LOAD;
	assert_int_equal(run(&k, sqe, NULL), -EOPNOTSUPP);
	sess_close(&k);
	take_key(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(what_was_stored), BOTH(scattered), BOTH(what_is_on_media), BOTH(behind_the_page), BOTH(in_slots), BOTH(of_another_thread), BOTH(without_the_key),
		BOTH(revoked), BOTH(in_its_own_time), BOTH(no_crcs_of_callers),
	};

	int failed;

	if (pthread_create(&elder.thread, NULL, elder_run, NULL))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	pthread_mutex_lock(&elder.lock);
	elder.over = true;
	pthread_cond_broadcast(&elder.told);
	pthread_mutex_unlock(&elder.lock);
	pthread_join(elder.thread, NULL);
	return failed;
}
