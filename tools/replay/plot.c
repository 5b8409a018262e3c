// SPDX-License-Identifier: GPL-2.0
/*
 * Curves by gnuplot, see plot.h. It reads its commands and the points from a nameless file and writes the picture to
 * where the output goes: no name of a file is ever part of a command.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plot.h"
#include "util.h"

extern char **environ;

/* Run gnuplot with @in and @out as its standard input and output. 0 or -errno */
static int run_gnuplot(char *const argv[], int in, int out)
{
	posix_spawn_file_actions_t files;
	int ret, status;
	pid_t pid;

	ret = posix_spawn_file_actions_init(&files);
	if (ret)
		return -ret;
	ret = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
	if (!ret)
		ret = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	if (!ret)
		ret = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (ret)
		return -ret;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

int plot_possible(void)
{
	char *const argv[] = { "gnuplot", "--version", NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), ret;

	if (null < 0)
		return -errno;
	ret = run_gnuplot(argv, null, null);
	close(null);
	return ret;
}

/* A place on the horizontal axis */
struct place {
	const struct sim_capacity *capacity;
	double percent;		/* of the distinct pages */
};

static int compare(const void *a, const void *b)
{
	double x = ((const struct place *)a)->percent, y = ((const struct place *)b)->percent;

	return (x > y) - (x < y);
}

static void sort_places(const struct simulation *s, struct place *places)
{
	size_t i;

	for (i = 0; i < s->nr_capacities; i++) {
		places[i].capacity = &s->capacities[i];
		places[i].percent = (double)s->capacities[i].pages / (double)s->distinct * 100;
	}
	qsort(places, s->nr_capacities, sizeof(*places), compare);
}

/* A capacity as it was given: digits, a point, a suffix. gnuplot takes labels for formats */
static void write_label(const struct place *place, FILE *script)
{
	const char *c;

	for (c = place->capacity->given->text; *c; c++)
		fprintf(script, "%s%c", *c == '%' ? "%" : "", *c);
}

static void write_axes(const struct simulation *s, const struct place *places, FILE *script)
{
	size_t i;

	fputs("set terminal svg noenhanced size 800,480 font 'sans,11' background 'white'\n"
	      "set xlabel 'capacity'\nset ylabel 'prefix hit ratio'\nset yrange [0:*]\nset grid\n"
	      "set key bottom right\nset logscale x\n", script);
	fprintf(script, "set xrange [%.9g:%.9g]\nset xtics (", places[0].percent * 0.8,
		places[s->nr_capacities - 1].percent * 1.25);
	for (i = 0; i < s->nr_capacities; i++) {
		fputs(i ? ", '" : "'", script);
		write_label(&places[i], script);
		fprintf(script, "' %.9g", places[i].percent);
	}
	fputs(")\n", script);
}

static void write_titles(FILE *script)
{
	fputs("plot '-' with lines dashtype 2 lc rgb 'black' title 'optimum, page by page', "
	      "'-' with lines dashtype 3 lc rgb 'black' title 'LRU, page by page', "
	      "'-' with linespoints title 'prefix'\n", script);
}

static void write_grain(const struct simulation *s, const struct place *places, enum pagegrain which, FILE *script)
{
	size_t i;

	for (i = 0; i < s->nr_capacities; i++)
		fprintf(script, "%.9g %.6f\n", places[i].percent, sim_ratio(s, places[i].capacity->grain[which]));
	fputs("e\n", script);
}

static void write_engine(const struct simulation *s, const struct place *places, FILE *script)
{
	size_t i;

	for (i = 0; i < s->nr_capacities; i++)
		fprintf(script, "%.9g %.6f\n", places[i].percent, sim_ratio(s, places[i].capacity->counters.hits));
	fputs("e\n", script);
}

static int write_script(const struct simulation *s, FILE *script)
{
	struct place places[CAPACITIES_MAX];

	sort_places(s, places);
	write_axes(s, places, script);
	write_titles(script);
	write_grain(s, places, PAGEGRAIN_OPTIMUM, script);
	write_grain(s, places, PAGEGRAIN_LRU, script);
	write_engine(s, places, script);
	return fflush(script) || ferror(script) ? -EIO : 0;
}

int plot_draw(const struct simulation *s, FILE *out)
{
	char *const argv[] = { "gnuplot", "-", NULL };
	FILE *script = tmpfile();
	int ret;

	if (!script)
		return -errno;
	ret = write_script(s, script);
	if (!ret && lseek(fileno(script), 0, SEEK_SET) < 0)
		ret = -errno;
	if (!ret)
		ret = run_gnuplot(argv, fileno(script), fileno(out));
	fclose(script);
	return ret;
}
