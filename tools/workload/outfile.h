/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An output file that appears whole or not at all: written beside its place under a temporary name, renamed at the end.
 * "-" is standard output. Something that exists and is not a regular file (a pipe, /dev/null) is written directly.
 */
#ifndef KVCTX_WORKLOAD_OUTFILE_H
#define KVCTX_WORKLOAD_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct outfile {
	FILE *stream;
	char *path;	/* where it goes; NULL when written directly */
	char *temp;
};

static inline bool is_stdout(const char *path)
{
	return path && !strcmp(path, "-");
}

/* 0 or -errno; a NULL @path leaves @out zeroed */
int outfile_open(struct outfile *out, const char *path);

/* Make it appear. 0 or -errno; in both cases @out is closed */
int outfile_commit(struct outfile *out);

/* Forget it; allowed on a zeroed @out and after outfile_commit() */
void outfile_abort(struct outfile *out);

#endif
