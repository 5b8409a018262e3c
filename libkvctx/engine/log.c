// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the engine says goes to the program, if that has asked for it: a library does not print.
 */
#include <stdarg.h>
#include <stdio.h>

#include "engine.h"
#include "kvctx.h"

#define LOG_TEXT	512

/* The lock is held over the call: who took his function back is not called any more. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static kvctx_log_fn log_fn;
static void *log_arg;

KVE_PUBLIC void kvctx_set_log(kvctx_log_fn fn, void *arg)
{
	pthread_mutex_lock(&log_lock);
	log_fn = fn;
	log_arg = arg;
	pthread_mutex_unlock(&log_lock);
}

void kve_log(int priority, const char *fmt, ...)
{
	char text[LOG_TEXT];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	pthread_mutex_lock(&log_lock);
	if (log_fn)
		log_fn(log_arg, priority, text);
	pthread_mutex_unlock(&log_lock);
}

int kve_refuse(char *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, KVE_WHY, fmt, args);
	va_end(args);
	return err;
}
