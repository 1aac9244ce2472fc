#!/usr/bin/env bash
# Runs `testbed` in a virtual machine: QEMU with Debian's own kernel on this machine's files. The real
# openvswitch, red and dctcp modules, the native backend, no root and no image. See docs/native.md.
#
#   scripts/vm.sh run SCENARIO [OPTION...]    as `testbed run`, by the native backend in the machine
#   scripts/vm.sh COMMAND...                  any other command of testbed, as `doctor`
#   scripts/vm.sh --setup                     fetch the kernel (scripts/setup.sh vm does all of it)
#
# The folder it is called in is the one that can be written, so records land in runs/ as ever.
#
# Variables:
#   KV_VM_ACCEL    kvm, tcg (emulated, on its own clock) or tcg-real; default: kvm where it boots, else tcg
#   KV_VM_CPUS, KV_VM_MEMORY_MB, KV_VM_TIMEOUT_S    default 2, 2048, 3600
#   KV_VM_CACHE    where kernels are kept (default ~/.cache/kv-testbed/vm)
#
# The exit code is the command's; 3 when the machine did not get that far.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${KV_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kv-testbed/vm}
boot_modules=(virtio_pci 9pnet_virtio 9p)
kvm_limit_s=20

say() { printf 'vm: %s\n' "$1" >&2; }
fail() { say "$1"; exit 3; }

# ---- The kernel, from Debian's package but not installed: the machine's own boot menu stays as it is.

kernel_folder() { find "$cache" -mindepth 2 -maxdepth 2 -name complete -printf '%h\n' 2>/dev/null | sort -V | tail -n 1; }

fetch_kernel() {
  [ -z "$(kernel_folder)" ] || return 0
  local package version work
  package=$(apt-cache depends linux-image-amd64 | grep -o 'linux-image-[0-9][^ ]*' | head -n 1) || true
  [ -n "$package" ] || fail "apt knows no linux-image-amd64; as root, run: apt-get update"
  version=${package#linux-image-}
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work'" EXIT
  say "fetching $package"
  (cd "$work" && apt-get -q -q download "$package" >&2 2>/dev/null) ||
    fail "cannot download $package; as root, run: apt-get update"
  mkdir "$work/kernel"
  dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/kernel" --wildcards ./boot/vmlinuz-\* ./lib/modules
  depmod -b "$work/kernel" "$version"
  touch "$work/kernel/complete"
  rm -rf "${cache:?}/$version"
  mv "$work/kernel" "$cache/$version"
}

# ---- What the machine boots into: modules for its disks, then the script of the job.

modules_of() {
  local name
  for name in "${boot_modules[@]}"; do
    modprobe -d "$kernel" -S "$version" --show-depends "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++'
}

write_init() { # FOLDER
  local module
  mkdir -p "$1"/{bin,dev,proc,modules,root}
  cp "$(command -v busybox)" "$1/bin/busybox"
  {
    printf '#!/bin/busybox sh\nbb=/bin/busybox\n'
    printf '%s\n' '$bb mount -t proc proc /proc' '$bb mount -t devtmpfs devtmpfs /dev'
    printf '%s\n' 'case $($bb cat /proc/cmdline) in *kv-probe*) $bb poweroff -f ;; esac'
    for module in $(modules_of); do
      cp "$module" "$1/modules/"
      printf '$bb insmod /modules/%s\n' "${module##*/}"
    done
    cat <<'INIT'
share="-t 9p -o trans=virtio,version=9p2000.L,msize=262144"
$bb mount $share,ro,cache=loose root /root || $bb poweroff -f
$bb mount -t proc proc /root/proc
$bb mount -t sysfs sysfs /root/sys
$bb mount -t devtmpfs devtmpfs /root/dev
$bb mkdir -p /root/dev/pts /root/dev/shm
$bb mount -t devpts devpts /root/dev/pts
$bb mount -t tmpfs tmpfs /root/run
$bb mkdir /root/run/job
$bb mount $share,cache=none job /root/run/job || $bb poweroff -f
$bb umount /proc
exec $bb switch_root /root /bin/sh /run/job/job.sh
INIT
  } >"$1/init"
  chmod +x "$1/init"
}

quoted() { printf ' %q' "$@"; }

write_job() { # FOLDER COMMAND...
  local folder=$1
  shift
  cat >"$folder/job.sh" <<JOB
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$(printf %q "$root")
export MODPROBE_OPTIONS=$(printf '%q' "-d $kernel")
# What the kernel loads by itself is looked for in the same place.
printf '#!/bin/sh\nexec /sbin/modprobe "\$@"\n' | sed '2s|modprobe|& -d $kernel|' >/run/modprobe
chmod +x /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
mount -n -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose here $(quoted "$PWD")
cd $(quoted "$PWD") && $(quoted "$@") >/run/job/stdout 2>/run/job/stderr </dev/null
echo \$? >/run/job/status
sync
exec /bin/busybox poweroff -f
JOB
  : >"$folder/stdout"
  : >"$folder/stderr"
}

# ---- QEMU

qemu() { # ACCEL EXTRA...
  local accel=$1 words
  shift
  case $accel in
    kvm) words=(-accel kvm -cpu host -smp "${KV_VM_CPUS:-2}") ;;
    # While the machine computes, its clock counts instructions, 1 ns each, so that computing never makes it
    # late; while it waits it follows the host's clock. That takes a single processor.
    tcg) words=(-accel tcg -cpu max -icount shift=0 -smp 1) ;;
    tcg-real) words=(-accel "tcg,thread=multi" -cpu max -smp "${KV_VM_CPUS:-2}") ;;
    *) fail "KV_VM_ACCEL is '$accel'; it can be kvm, tcg or tcg-real" ;;
  esac
  exec timeout "$limit_s" qemu-system-x86_64 "${words[@]}" -m "${KV_VM_MEMORY_MB:-2048}" \
    -display none -no-reboot -nic none -kernel "$kernel/boot/vmlinuz-$version" -initrd "$job/initrd" "$@"
}

# Whether a kernel boots with KVM here: a device that can be opened does not tell. Asked once per boot.
kvm_boots() {
  [ -w /dev/kvm ] || return 1
  local stamp=$cache/kvm-$(cat /proc/sys/kernel/random/boot_id)
  if [ ! -e "$stamp" ]; then
    say "trying KVM (once, at most $kvm_limit_s s)"
    # In a shell of its own, which also says what it has to say of a QEMU that aborts.
    ( (limit_s=$kvm_limit_s qemu kvm -serial none -append kv-probe) && echo yes >"$stamp" || echo no >"$stamp") \
      </dev/null >/dev/null 2>&1
  fi
  [ "$(cat "$stamp")" = yes ]
}

run_machine() { # COMMAND...
  local accel=${KV_VM_ACCEL:-} pid followers
  kernel=$(kernel_folder)
  [ -n "$kernel" ] || fail "no kernel in $cache: run scripts/setup.sh vm"
  version=${kernel##*/}
  command -v qemu-system-x86_64 >/dev/null || fail "no qemu-system-x86_64: run scripts/setup.sh vm"
  command -v busybox >/dev/null || fail "no busybox: run scripts/setup.sh vm"
  job=$(mktemp -d)
  trap 'kill "${pid:-}" 2>/dev/null || true; rm -rf "$job"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  write_init "$job/init"
  (cd "$job/init" && find . | busybox cpio -o -H newc 2>/dev/null) >"$job/initrd"
  rm -r "$job/init"
  write_job "$job" "$@"
  if [ -z "$accel" ]; then
    if kvm_boots; then accel=kvm; else accel=tcg; fi
  fi
  say "Linux $version by $accel"
  (
    limit_s=${KV_VM_TIMEOUT_S:-3600}
    qemu "$accel" -serial "file:$job/console" -append "console=ttyS0 quiet panic=-1" \
      -virtfs "local,path=/,mount_tag=root,security_model=none,multidevs=remap,readonly=on" \
      -virtfs "local,path=$PWD,mount_tag=here,security_model=none,multidevs=remap" \
      -virtfs "local,path=$job,mount_tag=job,security_model=none"
  ) </dev/null &
  pid=$!
  tail -q -s 0.2 -n +1 -f --pid="$pid" "$job/stdout" &
  followers=$!
  tail -q -s 0.2 -n +1 -f --pid="$pid" "$job/stderr" >&2 &
  followers+=" $!"
  wait "$pid" || true
  # shellcheck disable=SC2086  # two numbers
  wait $followers
  [ -s "$job/status" ] || fail "the machine ended before the command did: $(tail -n 1 "$job/console" 2>/dev/null)"
  return "$(cat "$job/status")"
}

# ---- What was asked for

case ${1:-} in
  --setup) fetch_kernel; exit ;;
  '' | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
[ "$PWD" != / ] || fail "call it in a folder of yours: all of the one it is called in can be written"
words=("$root/.venv/bin/testbed" "$@")
case $1 in run | plan | shell) words+=(--backend native) ;; esac
status=0
run_machine "${words[@]}" || status=$?
exit "$status"
