// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the fuzz targets without libFuzzer, for `make check`.
 *
 *	core-fuzz [--seconds S] [--seed N] [--only TARGET] [--corpus DIR]
 *	core-fuzz --only TARGET --run FILE	one input
 *	core-fuzz --write FILE DIR		the devices of an image to DIR/0, DIR/1, ...
 *	core-fuzz --grow FILE --seed N		a mutation of FILE to standard output
 *
 * Every file of DIR/TARGET is tried first. Then inputs are made from those, or from nothing; all is drawn from the
 * seed, so a failure repeats.
 */
#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_MAX	(FUZZ_OPS_MAX * FUZZ_OP_BYTES)

struct input {
	u8	*data;
	size_t	size;
};

static const struct target {
	const char *name;
	void	(*run)(const u8 *data, size_t size);
	u32	batch;		/* so that each kind gets about the same time */
} targets[] = {
	{ "super", fuzz_super, 100 },
	{ "header", fuzz_header, 200 },
	{ "extent", fuzz_extent, 400 },
	{ "image", fuzz_image, 2 },
};

#define NR_TARGETS	ARRAY_SIZE(targets)

static struct corpus {
	struct input *input;
	u32	nr;
} corpus[NR_TARGETS];

static u64 seed = 1;
static const char *running = "nothing", *file;

static void say_what(int sig)
{
	if (file)
		fprintf(stderr, "fuzz: repeat with: --only %s --run %s\n", running, file);
	else
		fprintf(stderr, "fuzz: repeat with: --only %s --seed %llu --seconds 0\n", running,
			(unsigned long long)seed);
	signal(sig, SIG_DFL);
	raise(sig);
}

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "abort_on_error=1";
}

const char *__ubsan_default_options(void)
{
	return "abort_on_error=1";
}

void fuzz_fail(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

static void read_file(const char *path, struct input *in)
{
	FILE *f = fopen(path, "r");

	in->data = malloc(INPUT_MAX);
	if (!in->data || !f) {
		fprintf(stderr, "fuzz: %s cannot be read\n", path);
		exit(2);
	}
	in->size = fread(in->data, 1, INPUT_MAX, f);
	fclose(f);
}

static int is_file(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void read_corpus(const char *dir, u32 t)
{
	struct dirent **names;
	char path[512];
	int n, i;

	snprintf(path, sizeof(path), "%s/%s", dir, targets[t].name);
	n = scandir(path, &names, is_file, alphasort);
	if (n <= 0)
		return;
	corpus[t].input = calloc((size_t)n, sizeof(*corpus[t].input));
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", dir, targets[t].name, names[i]->d_name);
		read_file(path, &corpus[t].input[corpus[t].nr++]);
		file = path;
		targets[t].run(corpus[t].input[i].data, corpus[t].input[i].size);
		file = NULL;
		free(names[i]);
	}
	free(names);
}

static void run_one(u32 t, struct rng *rng)
{
	const struct corpus *c = &corpus[t];
	u8 *data = malloc(INPUT_MAX), *exact;
	u32 rounds = rng_range(rng, 1, 4);
	size_t size = 0;

	if (c->nr && rng_chance(rng, 8000)) {
		const struct input *in = &c->input[rng_below(rng, c->nr)];

		memcpy(data, in->data, in->size);
		size = in->size;
	} else {
		rounds = rng_range(rng, 1, 40);
	}
	while (rounds--)
		size = fuzz_mutate(rng, data, size, INPUT_MAX);
	/* Exactly the input, so that reading beyond it is seen */
	exact = malloc(size + !size);
	memcpy(exact, data, size);
	free(data);
	targets[t].run(exact, size);
	free(exact);
}

static u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec;
}

static void run_batch(u32 t, u64 *count)
{
	u32 i;

	running = targets[t].name;
	for (i = 0; i < targets[t].batch; i++) {
		struct rng rng = { .state = rng_mix(seed * 1000 + i + 1) };

		run_one(t, &rng);
		++*count;
	}
}

static void run_all(const char *only, u64 seconds)
{
	u64 end = now() + seconds, count[NR_TARGETS] = { 0 };
	u32 t;

	do {
		for (t = 0; t < NR_TARGETS; t++)
			if (!only || !strcmp(only, targets[t].name))
				run_batch(t, &count[t]);
		seed++;
	} while (now() < end);
	printf("fuzz:");
	for (t = 0; t < NR_TARGETS; t++)
		printf(" %s %llu (%u of the corpus)%s", targets[t].name, (unsigned long long)count[t], corpus[t].nr,
		       t == NR_TARGETS - 1 ? "" : ",");
	printf("; up to seed %llu\n", (unsigned long long)seed - 1);
}

static int run_file(const char *only, const char *path)
{
	struct input in;
	u32 t;

	read_file(path, &in);
	running = only;
	file = path;
	for (t = 0; t < NR_TARGETS; t++)
		if (!strcmp(only, targets[t].name))
			targets[t].run(in.data, in.size);
	free(in.data);
	return 0;
}

static int grow_file(const char *path)
{
	struct rng rng = { .state = seed };
	struct input in;
	size_t n;

	read_file(path, &in);
	in.size = fuzz_mutate(&rng, in.data, in.size, INPUT_MAX);
	n = fwrite(in.data, 1, in.size, stdout);
	free(in.data);
	return n != in.size;
}

static int write_devices(const char *path, const char *dir)
{
	struct input in;
	int ret;

	read_file(path, &in);
	ret = fuzz_image_write(in.data, in.size, dir);
	if (ret)
		perror(dir);
	free(in.data);
	return ret != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 't' }, { "seed", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' },    { "corpus", required_argument, NULL, 'c' },
		{ "run", required_argument, NULL, 'r' },     { "write", required_argument, NULL, 'w' },
		{ "grow", required_argument, NULL, 'g' },    { NULL, 0, NULL, 0 },
	};
	const char *only = NULL, *dir = "selftests/core/corpus", *run = NULL, *grow = NULL, *write = NULL;
	u64 seconds = 10;
	u32 t;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'o')
			only = optarg;
		else if (c == 'c')
			dir = optarg;
		else if (c == 'r')
			run = optarg;
		else if (c == 'g')
			grow = optarg;
		else if (c == 'w')
			write = optarg;
		else
			return 2;
	}
	harness_fail = fuzz_fail;
	signal(SIGABRT, say_what);
	if (grow)
		return grow_file(grow);
	if (write)
		return optind < argc ? write_devices(write, argv[optind]) : 2;
	if (run)
		return only ? run_file(only, run) : 2;
	for (t = 0; t < NR_TARGETS; t++) {
		running = targets[t].name;
		if (!only || !strcmp(only, targets[t].name))
			read_corpus(dir, t);
	}
	run_all(only, seconds);
	for (t = 0; t < NR_TARGETS; t++) {
		while (corpus[t].nr)
			free(corpus[t].input[--corpus[t].nr].data);
		free(corpus[t].input);
	}
	return 0;
}
