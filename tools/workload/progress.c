// SPDX-License-Identifier: GPL-2.0
/* The progress line, see progress.h. */
#include <err.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "progress.h"

#define TELL_TERMINAL_NS	(200 * NS_PER_MSEC)
#define TELL_OTHER_NS		(5 * NS_PER_SEC)
#define ERASE_LINE		"\r\033[K"

void progress_init(struct progress *p, bool on)
{
	*p = (struct progress){ .on = on, .terminal = isatty(STDERR_FILENO), .started = clock_ns() };
	p->told = p->started;
}

bool progress_due(const struct progress *p)
{
	return p->on && clock_ns() - p->told >= (p->terminal ? TELL_TERMINAL_NS : TELL_OTHER_NS);
}

/* As 0:59, 1:05 or 1:00:09; "?" while nobody can tell */
static void tell_left(const struct progress *p, double done, double all)
{
	double gone = (double)(clock_ns() - p->started) / NS_PER_SEC;
	bool early = done <= all / 100;
	uint64_t seconds = early ? 0 : (uint64_t)(gone * (all - done) / done);

	if (early)
		fputs(", ? left", stderr);
	else if (seconds >= 3600)
		fprintf(stderr, ", %" PRIu64 ":%02u:%02u left", seconds / 3600, (unsigned int)(seconds / 60 % 60),
			(unsigned int)(seconds % 60));
	else
		fprintf(stderr, ", %u:%02u left", (unsigned int)(seconds / 60), (unsigned int)(seconds % 60));
}

void progress_line(struct progress *p, double done, double all, const char *format, ...)
{
	va_list args;

	if (p->terminal)
		fputs(ERASE_LINE, stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	tell_left(p, done, all);
	if (!p->terminal)
		fputc('\n', stderr);
	fflush(stderr);
	p->line_open = p->terminal;
	p->told = clock_ns();
}

void progress_message(struct progress *p, const char *format, ...)
{
	va_list args;

	progress_end(p);
	va_start(args, format);
	vwarnx(format, args);
	va_end(args);
}

void progress_end(struct progress *p)
{
	if (p->line_open)
		fputs(ERASE_LINE, stderr);
	p->line_open = false;
	fflush(stderr);
}
