#!/usr/bin/env bash
# Sets this checkout up: Debian packages, the Python environments, the lab's kernel. Run again, it
# does only what is missing, and nothing within two seconds when nothing is.
#
#   scripts/setup.sh [PART...]     parts: packages, python, kernel, all (the default: these three), and
#                                  vm: QEMU and Debian's kernel for scripts/vm.sh (some 500 MB)
#
# Variables:
#   KV_SETUP           the parts, where none is given as an argument (KV_SETUP=python,kernel)
#   KV_TESTS           set: with what only tests need, vm among it (as in CI, where CI is set)
#   KV_KERNEL_SOURCE, KV_KERNEL_CACHE, KV_KERNEL_JOBS: see scripts/build-kernel.sh
#
# Root (or sudo) is needed only while packages are missing. Exit 3: something is missing that this
# script cannot get; the last lines name it and the command to run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The system's Python and no other: Debian's mininet is a module of this one.
python=/usr/bin/python3

packages=(
  mininet openvswitch-switch iproute2 ethtool iperf3 iputils-ping # the lab
  user-mode-linux                                                 # the lab on a real clock, without root
  tshark                                                          # tests
  python3-venv                                                    # .venv
  flex bison bc libelf-dev xz-utils gcc make libc6-dev            # the kernel's build
)
# What the report is tried in costs more than all the rest: CI and `make test` want it, a run does not. Nor
# does it want what reads the Vagrantfile (80 MB), which later Debians may not have.
[ -z "${CI:-}${KV_TESTS:-}" ] || packages+=(chromium)
[ -z "${CI:-}${KV_TESTS:-}" ] || ! grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release ||
  packages+=(vagrant)
source_package=linux-source-6.12
policy=/usr/sbin/policy-rc.d
policy_mark='# Made by the set-up of kv-testbed for the time of one installation.'

say() { printf 'setup: %s\n' "$1" >&2; }
fail() { say "$1"; exit 3; }

# ---- Debian packages

missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  for name in "${packages[@]}"; do
    grep -qxF -- "$name installed" <<<"$installed" || printf '%s\n' "$name"
  done
}

# Read to its end: `grep -q` leaves early, and under pipefail the writer's SIGPIPE is then a failure.
has_candidate() { grep -q '^  Candidate: [0-9]' <<<"$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)"; }

# Prints the source package to install, or nothing when a source that will do is there already.
missing_source() {
  [ -z "${KV_KERNEL_SOURCE:-}" ] || return 0
  ! compgen -G "/usr/src/$source_package.tar.*" >/dev/null || return 0
  if ! has_candidate "$source_package"; then
    # Another release or distribution: whatever 6.x source it has.
    ! compgen -G '/usr/src/linux-source-6.*.tar.*' >/dev/null || return 0
    local other
    other=$(apt-cache pkgnames linux-source-6. 2>/dev/null | grep -x 'linux-source-6\.[0-9]*' | sort -V | tail -n 1)
    printf '%s\n' "${other:-$source_package}"
    return 0
  fi
  printf '%s\n' "$source_package"
}

# How to become root, as words before a command; fails when there is no way.
become_root() {
  if [ "$(id -u)" -eq 0 ]; then
    printf 'env\n'
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    printf 'sudo -n env\n'
  elif command -v sudo >/dev/null && [ -t 0 ]; then
    printf 'sudo env\n'
  else
    return 1
  fi
}

# Debian starts a service as soon as it is installed. The lab starts its own Open vSwitch, so a
# machine that had none must not get one running by this script: refuse it while installing
# (policy-rc.d), and do not let it start at the next boot either.
keep_services_stopped() {
  service_is_new=no
  policy_is_ours=no
  if grep -qxF openvswitch-switch <<<"$1"; then service_is_new=yes; fi
  [ "$service_is_new" = yes ] || return 0
  # A set-up that was killed may have left its own policy behind: that one is replaced, then removed.
  if [ -e "$policy" ] && ! grep -qF "$policy_mark" "$policy"; then return 0; fi
  policy_is_ours=yes
  # shellcheck disable=SC2016  # $1 is for the policy's shell
  printf '%s\n' '#!/bin/sh' "$policy_mark" 'case $1 in openvswitch*|ovs*) exit 101 ;; esac' 'exit 0' |
    "${as_root[@]}" sh -c "cat >$policy && chmod 755 $policy"
}

let_services_be() {
  [ "${policy_is_ours:-no}" = no ] || "${as_root[@]}" rm -f "$policy"
  policy_is_ours=no
}

disable_new_service() {
  [ "$service_is_new" = yes ] || return 0
  if [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --quiet openvswitch-switch.service || true
    say "the openvswitch-switch service was installed and left off; the lab starts its own"
  fi
}

apt_get() {
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >&2 </dev/null
}

setup_packages() {
  command -v apt-get >/dev/null ||
    fail "no apt-get here. Install by hand what corresponds to: ${packages[*]}; name a kernel source tarball in KV_KERNEL_SOURCE; then run KV_SETUP=python,kernel scripts/setup.sh"
  local missing source command words
  missing=$(missing_packages)
  source=$(missing_source)
  [ -n "$missing$source" ] || return 0
  command="apt-get update && apt-get install -y --no-install-recommends $(xargs <<<"$missing $source")"
  words=$(become_root) ||
    fail "packages are missing and this user cannot become root: $(xargs <<<"$missing $source")
setup: as root, run: $command"
  read -ra as_root <<<"$words"
  say "installing $(xargs <<<"$missing $source")"
  trap let_services_be EXIT
  trap 'exit 130' INT TERM HUP
  apt_get update || fail "apt-get update failed; as root, run: $command"
  # Only now does a fresh machine know which kernel sources it could have.
  source=$(missing_source)
  if [ -n "$source" ] && ! has_candidate "$source"; then
    fail "no package linux-source-6.* here; name a kernel source tarball (6.12 is the tested one) in KV_KERNEL_SOURCE"
  fi
  keep_services_stopped "$missing"
  # shellcheck disable=SC2086  # one word per package
  apt_get install --no-install-recommends $missing $source || fail "apt-get failed; as root, run: $command"
  let_services_be
  trap - EXIT INT TERM HUP
  disable_new_service
}

# ---- Python

# What an environment was made from: its own folder (scripts in it have absolute paths), the
# interpreter and the files that name its packages.
digest_of() { { printf '%s\n' "$root"; "$python" --version; cat "$@"; } | sha256sum | cut -d' ' -f1; }

is_set_up() { # FOLDER DIGEST
  [ -x "$1/bin/python" ] && [ "$(cat "$1/.kv-testbed-stamp" 2>/dev/null)" = "$2" ]
}

make_environment() { # FOLDER OPTION...
  local folder=$1
  shift
  rm -f "$folder/.kv-testbed-stamp"
  # An environment of another folder or interpreter is made anew, a good one is only brought up to date.
  if ! [[ $(sed -n 's/^command = //p' "$folder/pyvenv.cfg" 2>/dev/null) == "$python -m venv"*" $folder" ]] ||
    ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
    "$python" -m venv --clear "$@" "$folder" || fail "cannot make $folder; is python3-venv installed? (KV_SETUP=packages scripts/setup.sh)"
  fi
}

pip_install() { # FOLDER ARGUMENT...
  local folder=$1
  shift
  "$folder/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@" >&2 ||
    fail "pip could not install $*; its message stands above. Run scripts/setup.sh again once the index is reachable"
}

setup_venv() {
  local folder=$root/.venv digest
  digest=$(digest_of "$root/pyproject.toml")
  ! is_set_up "$folder" "$digest" || return 0
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" --version); 3.11 or newer is needed"
  say "making .venv (one to two minutes)"
  make_environment "$folder" --system-site-packages
  pip_install "$folder" -e "${root}[dev]"
  printf '%s\n' "$digest" >"$folder/.kv-testbed-stamp"
}

# Ryu 4.34 has an environment of its own, built with old tools: requirements-ryu.txt says why.
setup_ryu() {
  local folder=$root/.venv-ryu requirements=$root/requirements-ryu.txt digest
  digest=$(digest_of "$requirements")
  ! is_set_up "$folder" "$digest" || return 0
  say "making .venv-ryu"
  make_environment "$folder"
  pip_install "$folder" setuptools==57.5.0 wheel==0.37.1 pbr==5.11.1
  pip_install "$folder" --no-build-isolation -r "$requirements"
  printf '%s\n' "$digest" >"$folder/.kv-testbed-stamp"
}

setup_python() {
  [ -x "$python" ] || fail "no $python"
  setup_venv
  setup_ryu
}

# ---- The kernel

setup_kernel() { "$root/scripts/build-kernel.sh" >/dev/null; }

# The library that every lab kernel is started with, the distribution's too: a second's work.
setup_shim() {
  command -v "${CC:-gcc}" >/dev/null || return 0
  "$root/scripts/build-kernel.sh" --shim >/dev/null
}

# ---- The virtual machine of scripts/vm.sh

setup_vm() {
  packages=(qemu-system-x86 busybox-static kmod)
  # Set: no kernel source is wanted for this.
  KV_KERNEL_SOURCE=${KV_KERNEL_SOURCE:-none} setup_packages
  "$root/scripts/vm.sh" --setup || exit 3
}

# ---- Parts

[ $# -gt 0 ] || IFS=', ' read -ra arguments <<<"${KV_SETUP:-all}"
[ $# -eq 0 ] || arguments=("$@")
for part in "${arguments[@]}"; do
  case $part in
    packages | python | kernel | vm | all) ;;
    *) say "unknown part '$part'; the parts are packages, python, kernel, vm, all"; exit 2 ;;
  esac
done

wants() { [[ " ${arguments[*]} " == *" $1 "* || " ${arguments[*]} " == *" all "* ]]; }

# Two at once (make demo beside make test) would write the same environments: the second one waits.
exec 8<"$root/scripts"
if ! flock -n 8; then
  say "waiting for another set-up of this checkout"
  flock 8
fi
if wants packages; then setup_packages; fi
if wants python; then setup_python; fi
if wants kernel; then setup_kernel; else setup_shim; fi
if [[ " ${arguments[*]} " == *" vm "* ]]; then
  setup_vm
elif wants all && [ -n "${CI:-}${KV_TESTS:-}" ]; then
  (setup_vm) || say "no virtual machine: the tests that boot one will say so"
fi
