# A stock guest kernel that stands in for a machine with root and modules: what every script beside this
# begins with. Files land in /mnt; its settings.sh has PYTHON, PYTHONPATH, ROOT, SCENARIO and MODULES.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run
mkdir -p /run/kernel/lib
ln -s "$MODULES" /run/kernel/lib/modules
cd /mnt || exit

find_modules() { export MODPROBE_OPTIONS="-d /run/kernel"; }

testbed() { "$PYTHON" -m testbed.cli "$@"; }

state() { # everything a lab could leave behind
  ls /sys/class/net
  ls /run /run/netns 2>/dev/null
  cat /proc/mounts
  ps -e -o args= | grep -v -e '^\[' -e '^ps ' -e '^grep '
}

settled() { # file: what is there once it is as before.txt has it, or after ten seconds
  for _ in $(seq 50); do
    state >"$1"
    cmp -s "$1" before.txt && return
    sleep 0.2
  done
}

run() { # name [option...]: one run, its output and its status
  local name=$1
  shift
  testbed run "$SCENARIO" --backend native --out "$name" "$@" >"$name.out" 2>"$name.err"
  echo $? >"$name.status"
}

await_step() { # name step: until a run has come to a step
  for _ in $(seq 600); do
    grep -q "$2" "$1/.lab/progress.log" 2>/dev/null && return
    sleep 0.2
  done
}

finish() {
  echo end >end.txt
  exec python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
}
