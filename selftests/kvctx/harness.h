/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests as in the kernel's kselftest_harness.h, whose names these are: it is not everywhere where these tests run.
 *
 *	FIXTURE(f) { ... };			what the tests of a fixture have, cleared before each, as "self"
 *	FIXTURE_SETUP(f), FIXTURE_TEARDOWN(f)	before and after each of them; no teardown if the setup failed
 *	FIXTURE_VARIANT(f) { ... };		what varies, as "variant"; each test is run for each
 *	FIXTURE_VARIANT_ADD(f, name) { ... };
 *	TEST(name), TEST_F(f, name)		a test, without or with a fixture
 *	TEST_F_TIMEOUT(f, name, s)		one that may take long
 *	EXPECT_EQ(want, seen) [TH_LOG(...)]	also NE LT LE GT GE TRUE FALSE STREQ; what follows is done when it fails
 *	ASSERT_EQ(want, seen)			the same, and the test ends
 *	SKIP(return, "why")
 *	TEST_HARNESS_MAIN
 *
 * Each test runs in a process of its own, which is killed, with its children, when it hangs. It leaves by exit(), so that
 * sanitizers look for leaks. Output is TAP. Arguments: -r FIXTURE.TEST, of which there may be many: only these.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HARNESS_SECONDS	300

struct __test_metadata;

typedef void (*harness_fn)(struct __test_metadata *_metadata, void *self, const void *variant);

struct harness_variant {
	struct harness_variant *next;
	const char *name;
	const void *data;
};

struct harness_fixture {
	const char *name;
	size_t size;
	harness_fn setup, teardown;
	struct harness_variant *variants;	/* in the order of the source */
};

struct __test_metadata {
	struct __test_metadata *next;
	const char *name;
	struct harness_fixture *fixture;
	harness_fn test;
	unsigned int seconds;
};

void harness_add_variant(struct harness_fixture *f, struct harness_variant *v);
void harness_add_test(struct __test_metadata *t);
int harness_main(int argc, char **argv);
void harness_log(struct __test_metadata *t, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void harness_differs(struct __test_metadata *t, const char *file, int line, const char *what, long long want,
		     long long seen);
bool harness_fail(void);	/* false */
void harness_end(void) __attribute__((noreturn));	/* the test, which has failed */
void harness_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* excused.c: why the backend that is tested need not do what "fixture.test" wants; NULL: it has to */
const char *harness_excused(const char *test);

#define HARNESS_ARGS(f)								\
	__attribute__((unused)) struct __test_metadata *_metadata,		\
	__attribute__((unused)) struct harness_data_##f *self,			\
	__attribute__((unused)) const struct harness_variant_##f *variant

/* The function NAME of the fixture's types, and NAME_any, which calls it for the harness */
#define HARNESS_FN(f, fn)							\
	static void fn(HARNESS_ARGS(f));					\
	static void fn##_any(struct __test_metadata *t, void *self, const void *variant)	\
	{									\
		fn(t, self, variant);						\
	}

#define FIXTURE_DATA(f)		struct harness_data_##f
#define FIXTURE_VARIANT(f)	struct harness_variant_##f

#define FIXTURE(f)								\
	FIXTURE_DATA(f);							\
	FIXTURE_VARIANT(f);							\
	static struct harness_fixture harness_fixture_##f = { .name = #f };	\
	FIXTURE_DATA(f)

#define FIXTURE_SETUP(f)							\
	HARNESS_FN(f, f##_setup)						\
	static __attribute__((constructor(110))) void f##_setup_add(void)	\
	{									\
		harness_fixture_##f.size = sizeof(FIXTURE_DATA(f));		\
		harness_fixture_##f.setup = f##_setup_any;			\
	}									\
	static void f##_setup(HARNESS_ARGS(f))

#define FIXTURE_TEARDOWN(f)							\
	HARNESS_FN(f, f##_teardown)						\
	static __attribute__((constructor(110))) void f##_teardown_add(void)	\
	{									\
		harness_fixture_##f.teardown = f##_teardown_any;		\
	}									\
	static void f##_teardown(HARNESS_ARGS(f))

#define FIXTURE_VARIANT_ADD(f, v)						\
	extern const FIXTURE_VARIANT(f) f##_##v##_variant;			\
	static __attribute__((constructor(110))) void f##_##v##_add(void)	\
	{									\
		static struct harness_variant entry = { .name = #v, .data = &f##_##v##_variant };	\
										\
		harness_add_variant(&harness_fixture_##f, &entry);		\
	}									\
	const FIXTURE_VARIANT(f) f##_##v##_variant =

#define TEST_F_TIMEOUT(f, t, s)							\
	HARNESS_FN(f, f##_##t)							\
	static __attribute__((constructor(120))) void f##_##t##_add(void)	\
	{									\
		static struct __test_metadata entry = {				\
			.name = #t, .fixture = &harness_fixture_##f, .test = f##_##t##_any, .seconds = s,	\
		};								\
										\
		harness_add_test(&entry);					\
	}									\
	static void f##_##t(HARNESS_ARGS(f))

#define TEST_F(f, t)		TEST_F_TIMEOUT(f, t, HARNESS_SECONDS)

#define TEST(t)			TEST_F(global, t)

#define TEST_HARNESS_MAIN							\
	int main(int argc, char **argv)						\
	{									\
		return harness_main(argc, argv);				\
	}

#define TH_LOG(...)		harness_log(_metadata, __FILE__, __LINE__, __VA_ARGS__)

#define SKIP(leave, ...)	do { harness_skip(__VA_ARGS__); leave; } while (0)

#define HARNESS_CHECK(want, op, seen, fatal)					\
	for (bool harness_bad = ({						\
		__typeof__(want) harness_want = (want);				\
		__typeof__(seen) harness_seen = (seen);				\
										\
		!(harness_want op harness_seen) &&				\
		(harness_differs(_metadata, __FILE__, __LINE__, #want " " #op " " #seen,	\
				 (long long)harness_want, (long long)harness_seen), true); });	\
	     harness_bad; harness_bad = (fatal) ? (harness_end(), false) : harness_fail())

#define HARNESS_STREQ(want, seen, fatal)					\
	HARNESS_CHECK(0, ==, strcmp(want, seen), fatal)

#define EXPECT_EQ(want, seen)	HARNESS_CHECK(want, ==, seen, false)
#define EXPECT_NE(want, seen)	HARNESS_CHECK(want, !=, seen, false)
#define EXPECT_LT(want, seen)	HARNESS_CHECK(want, <, seen, false)
#define EXPECT_LE(want, seen)	HARNESS_CHECK(want, <=, seen, false)
#define EXPECT_GT(want, seen)	HARNESS_CHECK(want, >, seen, false)
#define EXPECT_GE(want, seen)	HARNESS_CHECK(want, >=, seen, false)
#define EXPECT_TRUE(seen)	HARNESS_CHECK(false, !=, !!(seen), false)
#define EXPECT_FALSE(seen)	HARNESS_CHECK(false, ==, !!(seen), false)
#define EXPECT_STREQ(want, seen) HARNESS_STREQ(want, seen, false)
#define ASSERT_EQ(want, seen)	HARNESS_CHECK(want, ==, seen, true)
#define ASSERT_NE(want, seen)	HARNESS_CHECK(want, !=, seen, true)
#define ASSERT_LT(want, seen)	HARNESS_CHECK(want, <, seen, true)
#define ASSERT_LE(want, seen)	HARNESS_CHECK(want, <=, seen, true)
#define ASSERT_GT(want, seen)	HARNESS_CHECK(want, >, seen, true)
#define ASSERT_GE(want, seen)	HARNESS_CHECK(want, >=, seen, true)
#define ASSERT_TRUE(seen)	HARNESS_CHECK(false, !=, !!(seen), true)
#define ASSERT_FALSE(seen)	HARNESS_CHECK(false, ==, !!(seen), true)
#define ASSERT_STREQ(want, seen) HARNESS_STREQ(want, seen, true)

/* Tests without a fixture have an empty one */
struct harness_data_global {
	int none;
};
struct harness_variant_global;
extern struct harness_fixture harness_fixture_global;

#endif
