// SPDX-License-Identifier: GPL-2.0
/*
 * mark N: tell the plugin that counts instructions (plugin/count.c) to begin (0) or to end measurement N (1 to 65535).
 *
 * The number is part of the instruction, so the instruction is written where it can be executed. Without the plugin it
 * does nothing.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	static const uint8_t nopl_rax[] = { 0x0f, 0x1f, 0x80 }, ret = 0xc3;
	char *end = argc == 2 ? argv[1] : "";
	unsigned long n = strtoul(end, &end, 10);
	uint32_t imm = 0x4b560000U | n;
	uint8_t *code;
	void (*run)(void);

	if (argc != 2 || !*argv[1] || *end || n > UINT16_MAX) {
		fprintf(stderr, "usage: mark N, 0 to %u\n", UINT16_MAX);
		return 2;
	}
	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED) {
		perror("mark");
		return 1;
	}
	memcpy(code, nopl_rax, sizeof(nopl_rax));
	memcpy(code + sizeof(nopl_rax), &imm, sizeof(imm));
	code[sizeof(nopl_rax) + sizeof(imm)] = ret;
	memcpy(&run, &code, sizeof(run));
	run();
	return 0;
}
