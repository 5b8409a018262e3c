// SPDX-License-Identifier: GPL-2.0
/* The progress line, see progress.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"
#include "util.h"

#define TELL_TERMINAL_NS	(200 * NS_PER_MSEC)
#define TELL_OTHER_NS		(5 * NS_PER_SEC)
#define ERASE_LINE		"\r\033[K"

void progress_init(struct progress *p, FILE *out, const struct trace *t, bool on)
{
	memset(p, 0, sizeof(*p));
	p->out = out;
	p->on = on;
	p->terminal = isatty(fileno(out));
	p->total_requests = t->nr_requests;
	p->total_pages = t->nr_ids;
	p->started = clock_ns();
	p->told = p->started;
}

void progress_left(char *text, size_t size, double gone, double done, double all)
{
	bool early = done <= all / 100;
	uint64_t seconds = early ? 0 : (uint64_t)(gone * (all - done) / done);
	uint64_t minutes = seconds / 60, hours = minutes / 60;

	if (early)
		snprintf(text, size, "?");
	else if (hours)
		snprintf(text, size, "%" PRIu64 ":%02u:%02u", hours, (unsigned int)(minutes % 60),
			 (unsigned int)(seconds % 60));
	else
		snprintf(text, size, "%u:%02u", (unsigned int)minutes, (unsigned int)(seconds % 60));
}

bool progress_due(const struct progress *p)
{
	return p->on && clock_ns() - p->told >= (p->terminal ? TELL_TERMINAL_NS : TELL_OTHER_NS);
}

void progress_line(struct progress *p, const char *format, ...)
{
	va_list args;

	if (p->terminal)
		fputs(ERASE_LINE, p->out);
	va_start(args, format);
	vfprintf(p->out, format, args);
	va_end(args);
	if (!p->terminal)
		fputc('\n', p->out);
	fflush(p->out);
	p->line_open = p->terminal;
	p->told = clock_ns();
}

void progress_update(struct progress *p, const struct stats *s)
{
	uint64_t now, bytes = s->bytes_loaded + s->bytes_stored;
	char left[32];

	if (!progress_due(p))
		return;
	now = clock_ns();
	/* pages rather than requests measure the work: requests differ a hundredfold */
	progress_left(left, sizeof(left), (double)(now - p->started) / NS_PER_SEC, (double)s->pages_referenced,
		      (double)p->total_pages);
	progress_line(p, "%" PRIu64 "/%" PRIu64 " requests, %.1f %% hit, %.1f MB/s, %s left", s->requests,
		      p->total_requests, stats_hit_ratio(s) * 100, stats_mbps(bytes - p->told_bytes, now - p->told),
		      left);
	p->told_bytes = bytes;
}

void progress_message(struct progress *p, const char *format, ...)
{
	va_list args;

	progress_end(p);
	fputs("kvctx-replay: ", p->out);
	va_start(args, format);
	vfprintf(p->out, format, args);
	va_end(args);
	fputc('\n', p->out);
}

void progress_end(struct progress *p)
{
	if (p->line_open)
		fputs(ERASE_LINE, p->out);
	p->line_open = false;
	fflush(p->out);
}
