// SPDX-License-Identifier: LGPL-2.1-or-later
/* Pools attached and detached in the process: what is found again, what is refused, what is lost. */
#include <fcntl.h>
#include <unistd.h>

#include "rig.h"

static void pages_are_found_again(void **state)
{
	int before = rig_descriptors();
	struct kve_pool *p;
	int i;

	(void)state;
	rig_make(rig_dir, 2);
	for (i = 0; i < 3; i++) {
		p = rig_attach();
		assert_string_equal(p->name, "test");
		assert_int_equal(rig_found(p, 0, 20 * (u32)i), 20 * i);
		rig_stored(p, 20 * (u32)i, 20);
		assert_int_equal(rig_found(p, 0, 20 * (u32)i + 20), 20 * i + 20);
		kve_pool_put(p);
	}
	assert_int_equal(rig_descriptors(), before);
}

static void one_engine_serves_all_of_a_process(void **state)
{
	struct kve_pool *a, *b;
	char other[300];

	(void)state;
	rig_make(rig_dir, 1);
	a = rig_attach();
	snprintf(other, sizeof(other), "%s/.", rig_dir);
	assert_int_equal(kve_pool_get(other, &b, rig_why), 0);
	assert_ptr_equal(a, b);
	kve_pool_put(a);
	rig_stored(b, 0, 3);
	kve_pool_put(b);
	a = rig_attach();
	assert_int_equal(rig_found(a, 0, 3), 3);
	kve_pool_put(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_are_found_again),
		TEST(one_engine_serves_all_of_a_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
