// SPDX-License-Identifier: LGPL-2.1-or-later
/* Makes the kernel in memory ready for a program that knows nothing of it. */
#include "fake_kernel.h"

__attribute__((constructor)) static void ready(void)
{
	fake_reset();
}

__attribute__((destructor)) static void done(void)
{
	fake_drop_pages();
}
