/*
 * getrandom() answered by a seeded generator, for the lab's User-Mode Linux kernel only.
 *
 * The guest kernel asks its host for entropy with getrandom(). Answering from a seed makes a run
 * in virtual time repeatable byte for byte. The numbers carry no secret: this library must never
 * be loaded into any other program, and the launcher sets LD_PRELOAD for that one exec alone.
 *
 * The generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). The seed is the decimal number
 * in KV_TESTBED_SEED; without it the library ends the process rather than answer unseeded.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t state;
static int seeded;

static uint64_t next(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	unsigned char *out = buf;
	size_t left = len;

	(void)flags;
	if (!seeded) {
		const char *text = getenv("KV_TESTBED_SEED");

		if (!text || !*text) {
			fputs("seeded_random: KV_TESTBED_SEED is not set\n", stderr);
			_exit(96);
		}
		state = strtoull(text, NULL, 10);
		seeded = 1;
	}
	while (left) {
		uint64_t word = next();
		size_t n = left < sizeof(word) ? left : sizeof(word);

		memcpy(out, &word, n);
		out += n;
		left -= n;
	}
	return (ssize_t)len;
}
