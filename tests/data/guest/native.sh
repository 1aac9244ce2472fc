# Runs the native backend in a stock guest kernel, kills one of two runs, and notes what is there before
# and after.
. /mnt/settings.sh
. "$ROOT/tests/data/guest/machine.sh"

run no-modules --set dilation=1000
find_modules
testbed doctor --json >doctor.json
state >before.txt
echo 'p1 ping -c 1 d1' | testbed shell "$SCENARIO" --set dilation=1000 --backend native >shell.out 2>shell.err
echo $? >shell.status
state >after-shell.txt
run complete --set dilation=1000
state >after-run.txt
cat /proc/sys/net/ipv4/tcp_allowed_congestion_control >allowed.txt

run beside --set dilation=2000 &
beside=$!
run killed --set dilation=4000 &
shell=$!
await_step killed traffic
state >during.txt
kill -9 "$(pgrep -P $shell)"
wait $shell
wait $beside
settled after-kill.txt
finish
