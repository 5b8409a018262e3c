// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of tenants, for the test scripts: 64 bytes that follow from a seed.
 *
 *	keys run COMMAND...		with a session keyring of its own, which what it starts has too
 *	keys add TYPE NAME SEED		gives that keyring a key, of type user or logon, instead of what has the name
 *	keys revoke TYPE NAME
 *	keys expire TYPE NAME		it has by the time that this ends
 *	keys drop TYPE NAME		the keyring has it no more
 */
#include <errno.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEY	64

static long fail(const char *what)
{
	fprintf(stderr, "keys: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long find(const char *type, const char *name)
{
	long id = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, type, name, 0);

	return id < 0 ? fail(name) : id;
}

static void add(const char *type, const char *name, unsigned long seed)
{
	unsigned char key[KEY];

	for (size_t i = 0; i < KEY; i++)
		key[i] = (unsigned char)(seed * 151 + i * 7 + i * i / 3);
	if (syscall(SYS_add_key, type, name, key, sizeof(key), KEY_SPEC_SESSION_KEYRING) < 0)
		fail(name);
}

static void expire(long id)
{
	if (syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, id, 1))
		fail("expire");
	sleep(2);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (!strcmp(verb, "run") && argc > 2) {
		if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
			fail("keyring");
		execvp(argv[2], argv + 2);
		fail(argv[2]);
	} else if (!strcmp(verb, "add") && argc == 5) {
		add(argv[2], argv[3], strtoul(argv[4], NULL, 0));
	} else if (!strcmp(verb, "revoke") && argc == 4) {
		if (syscall(SYS_keyctl, KEYCTL_REVOKE, find(argv[2], argv[3])))
			fail(argv[3]);
	} else if (!strcmp(verb, "expire") && argc == 4) {
		expire(find(argv[2], argv[3]));
	} else if (!strcmp(verb, "drop") && argc == 4) {
		if (syscall(SYS_keyctl, KEYCTL_UNLINK, find(argv[2], argv[3]), KEY_SPEC_SESSION_KEYRING))
			fail(argv[3]);
	} else {
		fprintf(stderr, "usage: keys run COMMAND... | add TYPE NAME SEED | revoke|expire|drop TYPE NAME\n");
		return 2;
	}
	return 0;
}
