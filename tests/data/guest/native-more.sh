# Runs the native backend in a stock guest kernel under Ryu, with a person at its prompt, and with a part
# of it killed, and notes what is there before and after.
. /mnt/settings.sh
. "$ROOT/tests/data/guest/machine.sh"
find_modules
state >before.txt

run ryu --set dilation=1000 --set controller.framework=ryu
state >after-ryu.txt

"$PYTHON" "$ROOT/tests/data/guest/typist.py" "$SCENARIO" >typed.json 2>typed.err
state >after-typed.txt

dies() { # name step seconds part
  run "$1" --set dilation=4000 &
  running=$!
  await_step "$1" 'open vswitch'
  python3 -IS "$ROOT/tests/data/guest/killer.py" "$1/.lab/progress.log" "$2" "$3" "$4" 2>"$1.killer"
  wait $running
  settled "after-$1.txt"
}
dies vswitchd 'forwarding rules' 0 ovs-vswitchd
dies controller 'addresses and queues' 0 controller
dies senders traffic 1 traffic
dies harness traffic 1 testbed
finish
