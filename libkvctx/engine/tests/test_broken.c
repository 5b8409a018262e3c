// SPDX-License-Identifier: LGPL-2.1-or-later
/* A broken invariant: nothing is served in this process any more, and the program goes on. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

static struct timespec changed(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mtim;
}

static void nothing_is_served_any_more(void **state)
{
	static struct kvc_pool *left;		/* nobody knows what a broken engine would free */
	struct timespec before, after;
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	left = p->core;
	rig_stored(p, 0, 3);
	assert_int_equal(rig_flush(p, NULL), 0);
	rig_stored(p, 3, 3);
	assert_false(kve_broken());
	assert_true(KVC_WARN_ONCE(1 + 1 == 2));
	assert_true(kve_broken());
	assert_true(rig_logged("invariant broken, nothing is served any more: 1 + 1 == 2"));
	rig_refused(-ENODEV, "broken");
	/* the worker has come to the end of what it was at */
	assert_int_equal(rig_flush(p, NULL), -ENODEV);
	before = changed(rig_path("m0"));
	assert_non_null(left);
	/* what is on media stays as it was */
	kve_pool_put(p);
	after = changed(rig_path("m0"));
	assert_memory_equal(&before, &after, sizeof(before));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_served_any_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
