#!/usr/bin/env bash
# Builds the lab's User-Mode Linux kernel once, from the distribution's own source package, into
# the user's cache folder. Nothing is downloaded and no root is needed.
#
#   scripts/build-kernel.sh            build unless this very kernel is already there; print its folder
#   scripts/build-kernel.sh --where    print the folder it would be in; exit 1 when it is not there yet
#   scripts/build-kernel.sh --shim     build only the small library that every lab kernel is started with
#
# Variables:
#   KV_KERNEL_SOURCE   a kernel source tarball (default: the newest /usr/src/linux-source-6.*.tar.*)
#   KV_KERNEL_CACHE    where kernels are kept (default: ${XDG_CACHE_HOME:-~/.cache}/kv-testbed/kernel)
#   KV_KERNEL_JOBS     parallel compiler jobs (default: the number of processors)
#
# The folder's name is a digest of the source tarball, the configuration fragment, the recipe number
# below and the compiler: any change builds a new kernel and leaves the old one. All work is done in
# a temporary folder that is renamed into place at the end, so an interrupted build leaves nothing
# that looks finished.
set -euo pipefail

# Raise this number with every change below that changes the kernel that comes out.
recipe=7

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fragment=$here/kernel/uml.config
cache=${KV_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kv-testbed/kernel}
jobs=${KV_KERNEL_JOBS:-$(nproc)}

fail() { printf 'build-kernel: %s\n' "$1" >&2; exit 3; }

source_tarball() {
  if [ -n "${KV_KERNEL_SOURCE:-}" ]; then
    [ -f "$KV_KERNEL_SOURCE" ] || fail "KV_KERNEL_SOURCE=$KV_KERNEL_SOURCE: no such file"
    printf '%s\n' "$KV_KERNEL_SOURCE"
    return
  fi
  local found
  found=$(find /usr/src -maxdepth 1 -name 'linux-source-6.*.tar.*' 2>/dev/null | sort -V | tail -n 1)
  [ -n "$found" ] || fail "no kernel source under /usr/src; install linux-source-6.12 (scripts/setup.sh does), or name a tarball in KV_KERNEL_SOURCE"
  printf '%s\n' "$found"
}

# Reading 150 MB takes a second, and every call needs this digest: it is kept with the path, the size
# and the moment of the last change that it belongs to.
digest_of() { # FILE
  local known=$cache/.tarball-digest mark digest part
  mark=$(stat -Lc '%s %y' "$1") && mark="$(realpath "$1") $mark"
  if [ "$(sed -n 1p "$known" 2>/dev/null)" = "$mark" ]; then
    sed -n 2p "$known"
    return
  fi
  digest=$(sha256sum <"$1")
  if mkdir -p "$cache" 2>/dev/null && part=$(mktemp "$cache/.digest-XXXXXX" 2>/dev/null); then
    printf '%s\n%s\n' "$mark" "$digest" >"$part"
    mv "$part" "$known"
  fi
  printf '%s\n' "$digest"
}

compiler=${CC:-gcc}
command -v "$compiler" >/dev/null || fail "no C compiler '$compiler'; install gcc"

# The library is found by a digest of its source, so that a kernel need not be rebuilt for it.
build_shim() {
  local source=$here/kernel/uml_shim.c digest target part
  digest=$(sha256sum <"$source" | cut -c1-16)
  target=$cache/shim-$digest.so
  [ -f "$target" ] && return
  mkdir -p "$cache"
  part=$(mktemp "$cache/.shim-XXXXXX")
  "$compiler" -shared -fPIC -O2 -Wall -Wextra -Werror -o "$part" "$source" || fail "cannot compile $source"
  chmod 755 "$part"
  mv "$part" "$target"
}

if [ "${1:-}" = --shim ]; then
  build_shim
  exit
fi

tarball=$(source_tarball)
key=$({ digest_of "$tarball"; cat "$fragment"; echo "recipe $recipe"; "$compiler" --version; } | sha256sum | cut -c1-16)
folder=$cache/$key

if [ "${1:-}" = --where ]; then
  printf '%s\n' "$folder"
  [ -f "$folder/kernel.json" ]
  exit
fi
[ $# -eq 0 ] || fail "unknown argument '$1'; known are --where and --shim"

missing=()
for tool in make flex bison bc xz ld strip flock; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] || fail "missing to build a kernel: ${missing[*]} (scripts/setup.sh installs them)"

build_shim
mkdir -p "$cache"
exec 9>"$cache/.lock"
if ! flock -n 9; then
  echo "build-kernel: waiting for another build in $cache" >&2
  flock 9
fi
if [ -f "$folder/kernel.json" ]; then
  printf '%s\n' "$folder"
  exit 0
fi

# A build that was killed left its folder behind; the lock says nobody is using it.
rm -rf "$cache"/.build-*
work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
log=$work/build.log
started=$SECONDS

step() { printf 'build-kernel: %s (%d s)\n' "$1" $((SECONDS - started)) >&2; }

run() {
  "$@" >>"$log" 2>&1 9>&- || {
    tail -n 20 "$log" >&2
    cp "$log" "$cache/failed.log"
    fail "'$*' failed; the whole output is in $cache/failed.log"
  }
}

step "unpacking $(basename "$tarball")"
mkdir "$work/source"
run tar -xf "$tarball" -C "$work/source" --strip-components=1
tree=$work/source

step "configuring"
# Change one constant of the architecture, and see that it changed.
constant() { # file, pattern, replacement, expected line
  run sed -i "s/$2/$3/" "$tree/$1"
  grep -qE "$4" "$tree/$1" || fail "$1 of this kernel has no line like '$4' to change; use another KV_KERNEL_SOURCE"
}
# HZ is fixed at 100, which would make TCP's shortest timeout 10 ms.
constant arch/um/Kconfig '^\tdefault 100$' '\tdefault 1000' 'default 1000$'
# In virtual time the clock has steps of 256 ns, and no timer is shorter than 500 ns: several packets at
# 100 Gbit/s. Eight nanoseconds keep every packet apart.
constant arch/um/include/linux/time-internal.h 'TIMER_MULTIPLIER 256' 'TIMER_MULTIPLIER 8' 'TIMER_MULTIPLIER 8$'
constant arch/um/include/linux/time-internal.h 'TIMER_MIN_DELTA  *500' 'TIMER_MIN_DELTA 8' 'TIMER_MIN_DELTA 8$'
# There, too, a system call that fails (EAGAIN) takes a microsecond in which no timer fires, and each reading
# of the clock a step of it, so that a program that tries or looks again and again does not stop the clock.
# One step is enough for both, and it is for programs only: TCP looks at the clock several times for each
# packet, so that one that hands over a megabyte was held up by 20 us and with it all others, the probes too.
constant arch/um/kernel/skas/syscall.c 'um_udelay(1);' 'um_ndelay(8);' 'um_ndelay\(8\);$'
constant arch/um/kernel/skas/syscall.c 'if (IS_ERR_VALUE(ret) &&' \
  'if ((IS_ERR_VALUE(ret) || syscall == __NR_clock_gettime || syscall == __NR_gettimeofday || syscall == __NR_time) \&\&' \
  'syscall == __NR_clock_gettime'
constant arch/um/kernel/time.c 'time_travel_update_time_rel(TIMER_MULTIPLIER);' '(void)0;' '^\s+\(void\)0;$'
# The architecture compiles for code and data anywhere in 64 bits, so that every call goes through a
# register, and takes each memcpy of a few bytes for a call. The image lies below 2 GiB, has no modules,
# and its copies may be inlined.
constant arch/um/Makefile 'mcmodel=large' 'mcmodel=small' 'KBUILD_CFLAGS \+= -mcmodel=small$'
constant arch/x86/Makefile.um '-fno-builtin -m64' '-m64' '^KBUILD_CFLAGS \+= -m64 ?$'
# Linux 6.12 lets ordinary programs go before those with a fixed priority (SCHED_FIFO, as the probes) when it
# believes that they had nothing of the last second; in virtual time nothing takes what would be missed.
constant kernel/sched/deadline.c 'u64 runtime =  50 \* NSEC_PER_MSEC;' 'u64 runtime = 0;' 'u64 runtime = 0;$'
# At each timer three kilobytes of registers would be zeroed, most of them floating-point ones that nobody reads.
constant arch/um/os-Linux/signal.c 'memset(&regs, 0, sizeof(regs));' \
  'memset(regs.gp, 0, sizeof(regs.gp)), regs.is_user = 0;' 'memset\(regs.gp, .* regs.is_user = 0;$'
# The seed is all that may enter random numbers. The kernel also stirs in where a program was interrupted, and
# with it how long the machine's list of libraries is, which lies in front of them in memory; and when, and with
# it how many system calls failed before, each of which looked for a file that another machine may have.
constant kernel/irq/handle.c 'add_interrupt_randomness(desc->irq_data.irq);' '(void)0;' '^\s\(void\)0;$'
constant drivers/char/random.c 'random_get_entropy()' '0UL' 'entropy = 0UL;$'
# Nothing of the moment, the user or the machine in the image.
export KBUILD_BUILD_TIMESTAMP='2024-01-01' KBUILD_BUILD_USER=kv KBUILD_BUILD_HOST=testbed KBUILD_BUILD_VERSION=1
export ARCH=um LC_ALL=C
cp "$fragment" "$work/allno.config"
run make -C "$tree" CC="$compiler" KCONFIG_ALLCONFIG="$work/allno.config" allnoconfig
while IFS= read -r line; do
  case $line in
    CONFIG_*=*) grep -qxF -- "$line" "$tree/.config" || fail "the configuration did not take: $line" ;;
    '# CONFIG_'*' is not set')
      option=${line#\# }
      if grep -q "^${option%% *}=" "$tree/.config"; then fail "the configuration did not take: $line"; fi ;;
  esac
done <"$fragment"

version=$(make -s -C "$tree" CC="$compiler" kernelrelease)
step "compiling $version with $jobs jobs"
(
  # Progress: objects compiled so far, about every ten seconds.
  while sleep 10; do
    printf 'build-kernel: %5d files compiled (%d s)\n' "$(grep -c '^  CC ' "$log" || true)" $((SECONDS - started)) >&2
  done
) 9>&- &
ticker=$!
trap 'kill $ticker 2>/dev/null || true; rm -rf "$work"' EXIT
run make -C "$tree" CC="$compiler" -j"$jobs" linux
kill "$ticker" 2>/dev/null || true
trap 'rm -rf "$work"' EXIT

mkdir "$work/out"
run strip -o "$work/out/linux" "$tree/linux"
cp "$tree/.config" "$work/out/config"
cat >"$work/out/kernel.json" <<JSON
{
  "version": "$version",
  "source": "$(basename "$tarball")",
  "key": "$key",
  "recipe": $recipe,
  "fragment_sha256": "$(sha256sum <"$fragment" | cut -d' ' -f1)",
  "compiler": "$("$compiler" --version | head -n 1)",
  "linux_sha256": "$(sha256sum <"$work/out/linux" | cut -d' ' -f1)"
}
JSON
mv "$work/out" "$folder"
rm -f "$cache/failed.log"
step "done: $folder"
printf '%s\n' "$folder"
