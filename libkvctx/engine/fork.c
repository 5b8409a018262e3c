// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A child after fork() owns nothing of the engine: it has no thread that would serve anything, and a descriptor in it
 * would hold on to the pool's locks when its parent is gone. So the child closes what is on the list here, before it
 * gets to run, and is told apart from then on (kve_forked()). Memory of the engine is left as it is: nobody can say
 * what was being changed when the parent forked.
 *
 * No fork() takes place while somebody holds the lock, so there is no moment at which a descriptor is open and not on
 * the list. A child of vfork() or posix_spawn() has them closed by O_CLOEXEC.
 */
#include <unistd.h>

#include "engine.h"

static pthread_mutex_t fork_lock;		/* recursive */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int *fork_fds;
static u32 fork_nr, fork_room;
static bool fork_child;

static void fork_make_lock(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&fork_lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&fork_lock);
}

static void fork_in_parent(void)
{
	pthread_mutex_unlock(&fork_lock);
}

static void fork_in_child(void)
{
	u32 i;

	fork_child = true;
	for (i = 0; i < fork_nr; i++)
		close(fork_fds[i]);
	fork_nr = 0;
	/* it is the parent's thread that holds it */
	fork_make_lock();
}

static void fork_init(void)
{
	fork_make_lock();
	/* without memory for it children keep the descriptors: nothing that an open should fail for */
	pthread_atfork(fork_prepare, fork_in_parent, fork_in_child);
}

void kve_fork_lock(void)
{
	pthread_once(&fork_once, fork_init);
	pthread_mutex_lock(&fork_lock);
}

void kve_fork_unlock(void)
{
	pthread_mutex_unlock(&fork_lock);
}

int kve_fork_own(int fd)
{
	int err = 0;

	kve_fork_lock();
	if (fork_nr == fork_room) {
		u32 room = fork_room ? 2 * fork_room : 16;
		int *fds = realloc(fork_fds, room * sizeof(*fds));

		if (fds) {
			fork_fds = fds;
			fork_room = room;
		} else {
			err = -ENOMEM;
		}
	}
	if (!err)
		fork_fds[fork_nr++] = fd;
	kve_fork_unlock();
	return err;
}

void kve_fork_disown(int fd)
{
	u32 i;

	kve_fork_lock();
	for (i = 0; i < fork_nr && fork_fds[i] != fd; i++)
		;
	if (i < fork_nr)
		fork_fds[i] = fork_fds[--fork_nr];
	if (!fork_nr) {
		free(fork_fds);
		fork_fds = NULL;
		fork_room = 0;
	}
	kve_fork_unlock();
}

bool kve_forked(void)
{
	return fork_child;
}
