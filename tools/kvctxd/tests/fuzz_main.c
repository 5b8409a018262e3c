// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz.c without libFuzzer: kvctxd-inputs FILE... has each file be a client, one after the other.
 */
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	static uint8_t input[65536];
	size_t size;
	FILE *f;

	LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		f = fopen(argv[i], "r");
		if (!f) {
			perror(argv[i]);
			return 1;
		}
		size = fread(input, 1, sizeof(input), f);
		fclose(f);
		LLVMFuzzerTestOneInput(input, size);
	}
	printf("%d inputs\n", argc - 1);
	return 0;
}
