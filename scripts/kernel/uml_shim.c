/*
 * Loaded (LD_PRELOAD) into the lab's User-Mode Linux kernel, and into nothing else. Two functions of
 * libc are answered here:
 *
 * getrandom(): the guest kernel asks its host for entropy. With KV_TESTBED_SEED set, the answer comes
 * from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) seeded with that decimal number, which makes a
 * run in virtual time repeatable byte for byte. The numbers carry no secret: a program that wants
 * real randomness must never see this library.
 *
 * ptrace(): kernels before 6.13 hand PTRACE_SETREGSET a register area of 2696 bytes. A host whose
 * processor has more state (AMX: 11008 bytes) refuses that with EFAULT and the guest dies at its
 * first process. The area is padded to the host's size, the components beyond it marked as unused.
 * The same place saves time: a stopped process whose registers are already what they are being set
 * to is left alone, which spares one system call at nearly every stop.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- getrandom -------------------------------------------------------------------- */

static uint64_t next_word(void)
{
	static uint64_t state;
	static int seeded;
	uint64_t z;

	if (!seeded) {
		state = strtoull(getenv("KV_TESTBED_SEED"), NULL, 10);
		seeded = 1;
	}
	z = (state += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	unsigned char *out = buf;
	size_t left = len;

	if (!getenv("KV_TESTBED_SEED"))
		return syscall(SYS_getrandom, buf, len, flags);
	while (left) {
		uint64_t word = next_word();
		size_t n = left < sizeof(word) ? left : sizeof(word);

		memcpy(out, &word, n);
		out += n;
		left -= n;
	}
	return (ssize_t)len;
}

/* ---- ptrace ----------------------------------------------------------------------- */

#define AREA_MAX 65536		/* more than any host's register area */
#define KNOWN_MAX 4096		/* the part remembered: all a kernel before 6.13 hands over */
#define SLOTS 1024		/* processes remembered, by process id modulo this */
#define LEGACY_SIZE 512		/* the XSAVE header follows the legacy area */

static struct {
	pid_t pid;
	size_t size;		/* 0: not known */
	unsigned char area[KNOWN_MAX];
} known[SLOTS];

static void forget(pid_t pid)
{
	known[(unsigned int)pid % SLOTS].size = 0;
}

static void remember(pid_t pid, const struct iovec *iov)
{
	unsigned int slot = (unsigned int)pid % SLOTS;

	known[slot].size = 0;
	if (iov->iov_len > KNOWN_MAX)
		return;
	memcpy(known[slot].area, iov->iov_base, iov->iov_len);
	known[slot].pid = pid;
	known[slot].size = iov->iov_len;
}

static int is_known(pid_t pid, const struct iovec *iov)
{
	unsigned int slot = (unsigned int)pid % SLOTS;

	return known[slot].pid == pid && known[slot].size == iov->iov_len &&
	       !memcmp(known[slot].area, iov->iov_base, iov->iov_len);
}

/* The size of the host's register area, asked for once. */
static size_t host_area(pid_t pid)
{
	static unsigned char area[AREA_MAX];
	static size_t size;
	struct iovec iov = { area, sizeof(area) };

	if (!size && !syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov))
		size = iov.iov_len;
	return size;
}

static long set_registers(pid_t pid, struct iovec *iov)
{
	static unsigned char area[AREA_MAX];
	struct iovec padded = { area, host_area(pid) };
	uint64_t components;
	long result;

	if (is_known(pid, iov))
		return 0;
	if (padded.iov_len > iov->iov_len && iov->iov_len > LEGACY_SIZE + sizeof(components)) {
		memcpy(area, iov->iov_base, iov->iov_len);
		memcpy(&components, area + LEGACY_SIZE, sizeof(components));
		/* Bits 17 and 18 are AMX, the only state beyond the area; a guest never uses it. */
		components &= ~(UINT64_C(3) << 17);
		memcpy(area + LEGACY_SIZE, &components, sizeof(components));
		result = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &padded);
	} else {
		result = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, iov);
	}
	if (!result)
		remember(pid, iov);
	return result;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	pid_t pid;
	void *addr, *data;
	long result, word;

	va_start(args, request);
	pid = va_arg(args, pid_t);
	addr = va_arg(args, void *);
	data = va_arg(args, void *);
	va_end(args);

	switch ((int)request) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER:
		/* The system call stores the word; libc's function returns it. */
		result = syscall(SYS_ptrace, request, pid, addr, &word);
		if (result)
			return result;
		errno = 0;
		return word;
	case PTRACE_GETREGSET:
		result = syscall(SYS_ptrace, request, pid, addr, data);
		if (!result && addr == (void *)NT_X86_XSTATE)
			remember(pid, data);
		return result;
	case PTRACE_SETREGSET:
		if (addr == (void *)NT_X86_XSTATE)
			return set_registers(pid, data);
		return syscall(SYS_ptrace, request, pid, addr, data);
	case PTRACE_GETREGS:
	case PTRACE_SETREGS:
	case PTRACE_GETSIGINFO:
	case PTRACE_GETEVENTMSG:
		return syscall(SYS_ptrace, request, pid, addr, data);
	default:
		/* Anything else may let the process run on: what was known of it is void. */
		forget(pid);
		return syscall(SYS_ptrace, request, pid, addr, data);
	}
}
