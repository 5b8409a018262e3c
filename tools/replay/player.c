// SPDX-License-Identifier: GPL-2.0
/*
 * The replay loop.
 *
 * A request is what an inference engine does with a prompt: MATCH its keys, LOAD the leading pages that are there,
 * compute the others and STORE them. Pages go through the arena in batches of as many as it has slots; in a batch the
 * device works with up to --depth pages in flight while the processor only submits and reaps, and content is made
 * before and checked after. So load and store phases time the device and not our own random numbers.
 *
 * A page that was matched and cannot be loaded is stored again, as an engine would recompute it. Requests are played
 * one after the other, as fast as they go: a trace's timestamps are not waited for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "player.h"
#include "util.h"

#define COMPLAINTS_MAX	20		/* messages about single pages; the counters tell the rest */
#define RETRY_US	5000		/* pause before a STORE that got -EAGAIN is tried again */
#define POISON		0xa5		/* what a slot holds before a verified load */

struct player {
	struct session *session;
	const struct trace *trace;
	const struct options *options;
	struct stats *stats;
	struct progress *progress;
	const uint64_t *ids;		/* of the request being played */
	struct kvctx_key *keys;		/* room for the longest request, as has the next */
	size_t *missing;		/* positions in the request to store, in order */
	size_t nr_missing;
	struct io *ios;			/* a batch, one for each slot */
	size_t *places;			/* position in the request of each io */
	unsigned int complaints;
	uint64_t told_bytes;		/* moved until the last line of progress */
};

static void __printf(2, 3) complain(struct player *p, const char *format, ...)
{
	char text[256];
	va_list args;

	if (p->complaints > COMPLAINTS_MAX)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (p->complaints++ < COMPLAINTS_MAX)
		progress_message(p->progress, "request %" PRIu64 ": %s", p->stats->requests + 1, text);
	else
		progress_message(p->progress, "further messages about pages are left out");
}

/* The session is of no more use */
static int give_up(struct player *p, const char *what, int ret)
{
	stats_error(p->stats, ret);
	progress_message(p->progress, "request %" PRIu64 ": %s: %s", p->stats->requests + 1, what, strerror(-ret));
	return ret;
}

static void page_error(struct player *p, const char *what, size_t place, int res)
{
	stats_error(p->stats, res);
	complain(p, "%s of page %" PRIu64 " (position %zu): %s", what, p->ids[place], place + 1, strerror(-res));
}

static uint64_t base_of(const struct player *p, size_t place)
{
	return content_base(p->options->workload.seed, p->ids[place]);
}

/* Compare a loaded page with what belongs there */
static void check_page(struct player *p, size_t place, const struct io *io)
{
	const uint8_t *bytes = session_slot(p->session, io->slot);
	size_t size = p->options->page_size, same;
	uint64_t base = base_of(p, place);

	if ((size_t)io->res != size) {
		p->stats->wrong_pages++;
		complain(p, "page %" PRIu64 " (position %zu): %d bytes came instead of %zu", p->ids[place], place + 1,
			 io->res, size);
		return;
	}
	if (!p->options->verify)
		return;
	same = content_check(bytes, size, base, 0);
	if (same == size)
		return;
	p->stats->wrong_pages++;
	complain(p, "page %" PRIu64 " (position %zu): byte %zu is 0x%02x instead of 0x%02x", p->ids[place], place + 1,
		 same, bytes[same], content_byte(base, same));
}

static void account_load(struct player *p, size_t place, const struct io *io)
{
	struct stats *s = p->stats;

	if (io->res >= 0) {
		s->pages_loaded++;
		s->bytes_loaded += io->res;
		s->unverified_pages += !(io->flags & KVCTX_CQE_VERIFIED);
		hist_add(&s->load, io->ns);
		check_page(p, place, io);
		return;
	}
	p->missing[p->nr_missing++] = place;
	if (io->res == -ENOENT) {
		s->lost_pages++;
	} else if (io->res == -EBADMSG) {
		s->bad_pages++;
		complain(p, "page %" PRIu64 " (position %zu) failed the kernel's verification", p->ids[place],
			 place + 1);
	} else if (io->res != -ECANCELED) {
		page_error(p, "load", place, io->res);
	}
}

static void prepare(struct player *p, size_t i, size_t place, uint8_t opcode)
{
	p->places[i] = place;
	p->ios[i] = (struct io){
		.opcode = opcode,
		.depth = opcode == KVCTX_OP_STORE ? place + 1 : 0,
		.slot = i,
		.key = p->keys[place],
	};
}

static int run(struct player *p, size_t nr, uint64_t *phase_ns)
{
	uint64_t start = clock_ns();
	int ret = session_run(p->session, p->ios, nr);

	*phase_ns += clock_ns() - start;
	return ret;
}

/* Load the pages at positions @first..@first + @nr of the request, no more than there are slots */
static int load_batch(struct player *p, size_t first, size_t nr)
{
	size_t i;
	int ret;

	for (i = 0; i < nr; i++) {
		prepare(p, i, first + i, KVCTX_OP_LOAD);
		if (p->options->verify)
			memset(session_slot(p->session, i), POISON, p->options->page_size);
	}
	ret = run(p, nr, &p->stats->load_ns);
	if (ret)
		return give_up(p, "load", ret);
	for (i = 0; i < nr; i++)
		account_load(p, p->places[i], &p->ios[i]);
	return 0;
}

static void account_store(struct player *p, size_t place, const struct io *io)
{
	struct stats *s = p->stats;

	if (io->res < 0) {
		if (io->res != -ECANCELED)
			page_error(p, "store", place, io->res);
		return;
	}
	if (io->flags & KVCTX_CQE_UNADMITTED) {
		s->unadmitted_pages++;
		return;
	}
	hist_add(&s->store, io->ns);
	if (io->flags & KVCTX_CQE_DEDUP) {
		s->dedup_pages++;
		return;
	}
	s->pages_stored++;
	s->bytes_stored += p->options->page_size;
}

/* Account what is settled and keep the operations that got -EAGAIN, packed to the front; their number */
static size_t settle_stores(struct player *p, size_t nr)
{
	size_t i, again = 0;

	for (i = 0; i < nr; i++) {
		if (p->ios[i].res != -EAGAIN) {
			account_store(p, p->places[i], &p->ios[i]);
			continue;
		}
		p->stats->retries++;
		p->places[again] = p->places[i];
		p->ios[again++] = p->ios[i];
	}
	return again;
}

/* Reclaim that cannot keep up says -EAGAIN: try again for as long as a stall may last */
static int store_batch(struct player *p, size_t first, size_t nr)
{
	uint64_t deadline = clock_ns() + p->options->stall_s * NS_PER_SEC;
	size_t i;
	int ret;

	for (i = 0; i < nr; i++) {
		prepare(p, i, p->missing[first + i], KVCTX_OP_STORE);
		content_fill(session_slot(p->session, i), p->options->page_size, base_of(p, p->places[i]), 0);
	}
	for (;;) {
		ret = run(p, nr, &p->stats->store_ns);
		if (ret)
			return give_up(p, "store", ret);
		nr = settle_stores(p, nr);
		if (!nr || *p->session->stop)
			return 0;
		if (clock_ns() > deadline)
			break;
		usleep(RETRY_US);
	}
	for (i = 0; i < nr; i++)
		page_error(p, "store", p->places[i], -EAGAIN);
	return 0;
}

static int in_batches(struct player *p, size_t nr, int (*batch)(struct player *p, size_t first, size_t nr))
{
	size_t first, part;
	int ret = 0;

	for (first = 0; !ret && first < nr && !*p->session->stop; first += part) {
		part = nr - first < p->session->slots ? nr - first : p->session->slots;
		ret = batch(p, first, part);
	}
	return ret;
}

static long match(struct player *p, size_t nr)
{
	uint64_t start;
	long present;
	size_t i;

	for (i = 0; i < nr; i++)
		content_key(p->ids[i], &p->keys[i]);
	start = clock_ns();
	present = session_match(p->session, p->keys, nr);
	hist_add(&p->stats->match, clock_ns() - start);
	return present;
}

static int play_request(struct player *p, const struct trace_request *r)
{
	long present;
	size_t i;
	int ret;

	p->ids = trace_ids(p->trace, r);
	p->nr_missing = 0;
	present = match(p, r->nr);
	if (present < 0)
		return give_up(p, "match", present);
	p->stats->pages_referenced += r->nr;
	p->stats->pages_hit += present;
	ret = in_batches(p, present, load_batch);
	if (ret)
		return ret;
	/* What was loaded is in the engine's own memory now: no need to keep it from eviction any longer */
	ret = session_release(p->session);
	if (ret)
		return give_up(p, "release", ret);
	for (i = present; i < r->nr; i++)
		p->missing[p->nr_missing++] = i;
	return in_batches(p, p->nr_missing, store_batch);
}

static void tell_progress(struct player *p)
{
	const struct stats *s = p->stats;
	uint64_t bytes = s->bytes_loaded + s->bytes_stored;

	if (!progress_due(p->progress))
		return;
	/* pages rather than requests measure the work: requests differ a hundredfold */
	progress_line(p->progress, (double)s->pages_referenced, (double)p->trace->nr_ids,
		      "%" PRIu64 "/%zu requests, %.1f %% hit, %.1f MB/s", s->requests, p->trace->nr_requests,
		      stats_hit_ratio(s) * 100, stats_mbps(bytes - p->told_bytes, clock_ns() - p->progress->told));
	p->told_bytes = bytes;
}

static int play_all(struct player *p)
{
	size_t i;
	int ret;

	for (i = 0; i < p->trace->nr_requests && !*p->session->stop; i++) {
		ret = play_request(p, &p->trace->requests[i]);
		if (ret)
			return ret;
		if (!*p->session->stop)
			p->stats->requests++;
		tell_progress(p);
	}
	return 0;
}

static void flush(struct player *p)
{
	uint64_t start = clock_ns();
	int ret = session_flush(p->session);

	p->stats->flush_ns = clock_ns() - start;
	if (ret)
		give_up(p, "flush", ret);
}

static int player_init(struct player *p)
{
	size_t longest = p->trace->longest, slots = p->session->slots;

	p->keys = calloc(longest, sizeof(*p->keys));
	p->missing = calloc(longest, sizeof(*p->missing));
	p->ios = calloc(slots, sizeof(*p->ios));
	p->places = calloc(slots, sizeof(*p->places));
	return p->keys && p->missing && p->ios && p->places ? 0 : -ENOMEM;
}

static void player_exit(struct player *p)
{
	free(p->keys);
	free(p->missing);
	free(p->ios);
	free(p->places);
}

void play(struct session *session, const struct trace *t, const struct options *o, struct stats *stats,
	  struct progress *progress)
{
	struct player p = {
		.session = session,
		.trace = t,
		.options = o,
		.stats = stats,
		.progress = progress,
	};
	uint64_t start = clock_ns();
	int ret = player_init(&p);

	if (ret)
		give_up(&p, "start", ret);
	else
		ret = play_all(&p);
	if (!ret)
		flush(&p);
	stats->elapsed_ns = clock_ns() - start;
	stats->completed = stats->requests == t->nr_requests;
	progress_end(progress);
	player_exit(&p);
}
