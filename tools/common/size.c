// SPDX-License-Identifier: GPL-2.0
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"

int parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	unsigned int shift = 0;
	const char *unit;
	uint64_t value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit || (end[1] && strcasecmp(end + 1, "iB")))
			return -EINVAL;
		shift = 10 * (unsigned int)(unit - units + 1);
	}
	if (errno || value > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes = value << shift;
	return 0;
}
