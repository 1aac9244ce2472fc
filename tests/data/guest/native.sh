# First program of a stock guest kernel that stands in for a machine with root and modules: runs the
# native backend there, kills one of two runs, and notes what is there before and after. Files land in /mnt.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run
. /mnt/settings.sh # PYTHON, PYTHONPATH, SCENARIO, MODULES
mkdir -p /run/kernel/lib
ln -s "$MODULES" /run/kernel/lib/modules
cd /mnt || exit

testbed() { "$PYTHON" -m testbed.cli "$@"; }

state() { # everything a lab could leave behind
  ls /sys/class/net
  ls /run /run/netns 2>/dev/null
  cat /proc/mounts
  ps -e -o args= | grep -v -e '^\[' -e '^ps ' -e '^grep '
}

run() { # name [dilation]: one run, its output and its status
  testbed run "$SCENARIO" --set dilation="${2:-1000}" --backend native --out "$1" >"$1.out" 2>"$1.err"
  echo $? >"$1.status"
}

run no-modules
export MODPROBE_OPTIONS="-d /run/kernel"
testbed doctor --json >doctor.json
state >before.txt
echo 'p1 ping -c 1 d1' | testbed shell "$SCENARIO" --set dilation=1000 --backend native >shell.out 2>shell.err
echo $? >shell.status
state >after-shell.txt
run complete
state >after-run.txt
cat /proc/sys/net/ipv4/tcp_allowed_congestion_control >allowed.txt

run beside 2000 &
beside=$!
run killed 4000 &
shell=$!
for _ in $(seq 600); do
  grep -q traffic killed/.lab/progress.log 2>/dev/null && break
  sleep 0.2
done
state >during.txt
kill -9 "$(pgrep -P $shell)"
wait $shell
wait $beside
sleep 0.5
state >after-kill.txt
echo end >end.txt
exec python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
