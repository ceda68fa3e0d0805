# What the commands of a page find around them: see pages.py. ROOT stands for /, PORT is the broker's.
# Nobody is root here, nothing is installed, and there is no systemd. What a page wants of these is
# done for real where processes and files are enough (systemctl), and by nobody where they are not.
set -e -o pipefail

sudo() { if [ "$1" = -u ]; then shift 2; fi; "$@"; }
nobody() { :; }                      # the machine's package manager, users and owners
apt() { nobody; }
pip() { nobody; }
userdel() { nobody; }
chown() { nobody; }
diff() { command diff "$@" || [ $? = 1 ]; }   # 1: there are differences, which is what it is for

until_true() {                       # a command that becomes true, on a busy machine within minutes
    for _ in $(seq 750); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "in vain: $*" >&2
    return 1
}

answers() { (: < "/dev/tcp/127.0.0.1/$1"); }

# A service is a process; its unit is what it runs.
declare -A unit=(
    [mosquitto]="mosquitto -c $ROOT/etc/mosquitto/mosquitto.conf"
    [opid-node]="opid-node run $ROOT/etc/opid-node/node.toml"
    [opid-gateway]="env OPID_GATEWAY_SETTLE_S=0.5 OPID_GATEWAY_SUMMARY_WAIT_S=3 OPID_GATEWAY_RETRY_S=1
        opid-gateway run $ROOT/etc/opid-gateway/gateway.toml"
)
declare -A pid
service_start() {
    mkdir -p "$ROOT/run/$1" "$ROOT/var/cache/$1"   # as RuntimeDirectory= and CacheDirectory= do
    ${unit[$1]} > "$ROOT/$1.out" 2>> "$ROOT/$1.log" &
    pid[$1]=$!
    case $1 in
        mosquitto) until_true answers "$PORT" ;;
        opid-node) until_true grep -q '"connected": true' "$ROOT/run/opid-node/status.json" ;;
        opid-gateway) until_true opid-gateway status "$ROOT/etc/opid-gateway/gateway.toml" ;;
    esac
}
service_stop() {
    if [ -n "${pid[$1]}" ]; then
        kill "${pid[$1]}"
        wait "${pid[$1]}" || true
        pid[$1]=
    fi
}
systemctl() {
    local verb=$1 service=${*: -1}
    case $verb in
        daemon-reload) ;;
        start | enable) service_start "$service" ;;
        stop | disable) service_stop "$service" ;;
        restart) service_stop "$service" && service_start "$service" ;;
        reload) kill -HUP "${pid[$service]}" ;;
        *) return 1 ;;
    esac
}

# -- a command that goes on until somebody ends it --------------------------------------------------

opid-gateway() {
    if [ "$1" != web ]; then command opid-gateway "$@"; return; fi
    OPID_WEB_PORT=$WEB command opid-gateway "$@" 2> "$ROOT/web.log" &
    until_true answers "$WEB" || { cat "$ROOT/web.log" >&2; return 1; }
}

# -- what pages take for granted -------------------------------------------------------------------

a_broker() {                         # Debian's, with its folder for more, and a listener for anybody
    mkdir -p "$ROOT/etc/mosquitto/conf.d"
    echo "user $(id -un)
include_dir $ROOT/etc/mosquitto/conf.d
listener ${1:-$PORT} 127.0.0.1
allow_anonymous true" > "$ROOT/etc/mosquitto/mosquitto.conf"
    service_start mosquitto
}

a_node() {                           # SITE NODE PORT CLASSES SENSOR…, each known by reference and scale
    local site=$1 node=$2 port=$3 classes=$4
    mkdir -p "$ROOT/etc/opid-node"
    echo "[node]
site = '$site'
node = '$node'
classes = $classes
now_tolerance_ms = 600000
[broker]
port = $port
[state]
folder = '$ROOT/var/lib/opid-node'
status_file = '$ROOT/run/opid-node/status.json'
[serve]
# tflite = 'model.tflite'" > "$ROOT/etc/opid-node/node.toml"
    for sensor in "${@:5}"; do echo "[[sensors]]
id = '$sensor'
role = '${sensor%%-*}'
reference = 50
scale = 10" >> "$ROOT/etc/opid-node/node.toml"; done
}

at_home() {                          # the node north of docs/labels.md, and its source
    a_broker
    a_node home north "$PORT" "['dry', 'damp']" air-1
    systemctl start opid-node
    python "$SUPPORT/porch.py" 2
    mkdir -p "$ROOT/opt/opid-node/bin"
    ln -s "$(type -P opid-node)" "$ROOT/opt/opid-node/bin/opid-node"
    ln -s "$ROOT/opt/opid-node/bin/opid-node" "$ROOT/usr/local/bin/"
    touch "$ROOT/etc/systemd/system/opid-node.service"
}

alone() {                            # a node without a gateway, when its file no longer has lux-south
    local file=$ROOT/etc/opid-node/node.toml
    a_node yard alone "$SPARE" "['dry', 'damp']" lux-south
    echo "[[foreign]]
filter = 'yard/temp'
source = 'temp'
fields = 'temp-1'
[[sensors]]
id = 'temp-1'
role = 'temp'" >> "$file"
    sed -i 's/^now_tolerance.*/warmup_readings = 8/' "$file"
    systemctl start opid-node
    for temp in 20 21 23 22 20 24 21 22 20 21; do PORT=$SPARE mosquitto_pub -t yard/temp -m $temp; done
    until_true grep -q '"readings": 10' "$ROOT/run/opid-node/status.json"
    sed -i "/^id = 'lux-south'/,/^scale/d" "$file"
    sed -i '0,/^\[\[sensors\]\]/{//d}' "$file"
}

machine() {                          # NODE: the machine to which its folder of init's was carried
    local home=$ROOT/machines/$1
    mkdir -p "$ROOT/machines"
    cp -r "$ROOT/etc/opid-gateway/nodes/greenhouse-$1" "$home"
    sed -i -E "s|\"/(var/lib\|run)/|\"$home/\\1/|" "$home/node.toml"
    mkdir -p "$home/run/opid-node"
    sed -i '/^\[\[sensors/,$d' "$home/node.toml"
    for role in co2 soil temp; do echo "[[sensors]]
id = '$role-$1'
role = '$role'
reference = 0
scale = 1" >> "$home/node.toml"; done
    unit[$1]="opid-node run $home/node.toml"
    service_start "$1"
}

greenhouse() {                       # the fleet of docs/gateway.md at work
    mkdir -p "$ROOT/etc/mosquitto/conf.d"
    ln -s "$ROOT/etc/opid-gateway/mosquitto/opid.conf" "$ROOT/etc/mosquitto/conf.d/"
    a_broker "$SPARE"
    service_start opid-gateway
    for node in "$@"; do machine "$node"; done
    python "$SUPPORT/greenhouse.py" "$@" 2> "$ROOT/sensors.log" &
}

a_gateway() {                        # of the node at home, which has no passwords
    opid-gateway init "$ROOT/etc/opid-gateway" --broker-port "$PORT" "$@" > /dev/null
    sed -i '/^credentials/d' "$ROOT/etc/opid-gateway/gateway.toml"
    systemctl start opid-gateway
}

online() {                           # so many nodes are, and each has what was sent to it
    listed=$(opid-gateway node list "$1") || return 1
    [ "$(printf '%s\n' "$listed" | grep -c ' yes ')" = "$2" ] || return 1
    ! printf '%s\n' "$listed" | grep -q '(has '
}
