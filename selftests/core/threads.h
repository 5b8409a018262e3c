/* SPDX-License-Identifier: GPL-2.0 */
#ifndef THREADS_H
#define THREADS_H

/* A pool of its own, whose index grows under its readers; ends the program when a page is not found. */
void threads_index(void);

#endif
