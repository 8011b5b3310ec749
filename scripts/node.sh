# shellcheck shell=bash
# A private RabbitMQ node: one directory ($dir) with everything it writes, and the processes that belong to it.
# Sourced by scripts/broker, which sets repo, dir and version.
#
#   env                          URL, ports and node name; written once, when the node is made
#   data/ log/ .erlang.cookie    the node's own; log/console.log is what it says before it has a log
#   pid epmd.pid lock            its processes; who works on the directory

# ---- the server's files ------------------------------------------------------------------------------------

trixie=${repo:?}/target/trixie # RabbitMQ 4, for version=4

# server_bin ROOT: the folder of the real scripts, which have rabbitmq-env beside them. What is on PATH is a wrapper
# that changes to the rabbitmq user.
server_bin() {
    local bin
    for bin in /usr/lib/rabbitmq/bin /usr/lib/rabbitmq/sbin /usr/lib64/rabbitmq/bin /opt/rabbitmq/sbin \
        /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin \
        "${HOMEBREW_PREFIX:-/home/linuxbrew/.linuxbrew}/opt/rabbitmq/sbin"; do
        if [[ -e $1$bin/rabbitmq-server && -e $1$bin/rabbitmq-env ]]; then
            echo "$bin"
            return
        fi
    done
    return 1
}

ensure_server() {
    if [[ $version == 4 ]]; then
        ensure_trixie
    elif ! server_bin '' >/dev/null; then
        install_package rabbitmq-server
        server_bin '' >/dev/null || die "rabbitmq-server is installed, but I do not find its scripts"
    fi
}

# The mirror that this machine's own apt uses, if it is a Debian; otherwise nothing: debootstrap's default.
debian_mirror() {
    grep -qs '^ID=debian$' /etc/os-release || return 0
    # Not all of these files exist.
    sed -nE 's%^(deb( +\[[^]]*\])?|URIs:) +(https?://[^ ]+).*%\3%p' /etc/apt/sources.list \
        /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 1p || true
}

ensure_trixie() {
    local mirror try
    [[ $(id -u) == 0 ]] || die "RabbitMQ 4 runs in a chroot: this needs root"
    [[ ! -d $trixie ]] || return 0
    mkdir -p "$repo/target"
    (
        lock 8
        [[ ! -d $trixie ]] || exit 0
        have debootstrap || install_package debootstrap
        mirror=$(debian_mirror)
        for try in 1 2 3; do
            say "installing RabbitMQ 4 from Debian trixie into $trixie (about a minute, try $try of 3)"
            # Renamed when complete, so that what is there is always whole.
            rm -rf "$trixie.part"
            if bounded 900 debootstrap --variant=minbase --include=rabbitmq-server trixie "$trixie.part" \
                ${mirror:+"$mirror"} </dev/null >&2 8>&- 9>&-; then
                rm -rf "$trixie.part"/var/cache/apt/archives/*.deb
                mv "$trixie.part" "$trixie"
                exit 0
            fi
        done
        die "debootstrap failed: see $trixie.part/debootstrap"
    ) 8>"$trixie.lock"
}

# ---- its processes -----------------------------------------------------------------------------------------

load_node() {
    [[ -f ${dir:?}/env ]] || return 1
    # shellcheck source=/dev/null
    . "$dir/env"
    version=${VERSION:?}
}

# running PIDFILE MARK: prints the pid if that process lives and is ours. A pid alone may be someone else's by now.
running() {
    local pid args
    pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] || return 1
    if [[ -d /proc/self ]]; then
        args=$({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null) || return 1
    else
        args=$(ps -ww -p "$pid" -o args=) || return 1
    fi
    [[ " $args " == *" $2 "* ]] && echo "$pid"
}
node_pid() { running "$dir/pid" "-ackonce $NODE"; }
epmd_pid() { running "$dir/epmd.pid" "-port $EPMD_PORT"; }

# A zombie has closed its files and ports; in a container nobody may ever collect it.
alive() { kill -0 "$1" 2>/dev/null && ! grep -qs '^State:.*Z' "/proc/$1/status"; }

# set_command PROGRAM ARGS…: sets `command` to what runs PROGRAM in the node's own world.
set_command() {
    local home=$dir root='' bin jail=(env)
    if [[ $version == 4 ]]; then
        root=$trixie home=/srv
        # The mounts live in a namespace of their own, so they vanish with the last process in it. /dev because a
        # /dev/null that is no device breaks the server in odd ways.
        # shellcheck disable=SC2016
        jail=(unshare --mount sh -euc 'mount --bind "$1" "$2/srv"; mount --rbind /dev "$2/dev"
            mount -t proc proc "$2/proc" 2>/dev/null || true
            shift; exec chroot "$@"' sh "$dir" "$root")
    fi
    bin=$(server_bin "$root") || die "there is no rabbitmq-server: scripts/broker new installs it"
    [[ $1 != rabbitmq* ]] || set -- "$bin/$1" "${@:2}"
    # env -i: the caller's RABBITMQ_… variables, and what is in /etc/rabbitmq, are meant for another node.
    command=("${jail[@]}" env -i PATH="$PATH:/usr/bin:/usr/sbin" LANG=C.UTF-8 HOME="$home" ERL_CRASH_DUMP_SECONDS=0
        ERL_EPMD_PORT="$EPMD_PORT" ERL_EPMD_ADDRESS=127.0.0.1
        RABBITMQ_NODENAME="$NODE" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$PORT"
        RABBITMQ_DIST_PORT="$DIST_PORT" RABBITMQ_MNESIA_BASE="$home/data" RABBITMQ_LOG_BASE="$home/log"
        RABBITMQ_PID_FILE="$home/pid" RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins"
        RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_CONFIG_FILES="$home/conf.d"
        RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" RABBITMQ_CONF_ENV_FILE="$home/rabbitmq-env.conf"
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} -ackonce $NODE"
        RABBITMQ_CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}")
    [[ $1 != */rabbitmq-server || ! -d $dir/plugins ]] || command+=(RABBITMQ_PLUGINS_DIR="$home/plugins")
    command+=("$@")
}

# link_plugins: shows the server no plugin but itself. Searching through all of them takes a quarter of its start.
# Made anew at each start, because an upgrade of the package renames them.
link_plugins() {
    local root='' plugin
    [[ $version != 4 ]] || root=$trixie
    rm -rf "$dir/plugins"
    for plugin in "$root$(server_bin "$root")"/../plugins/rabbit-[0-9]* \
        "$root"/usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins/rabbit-[0-9]*; do
        [[ -e $plugin ]] || continue
        mkdir -p "$dir/plugins"
        ln -sf "${plugin#"$root"}" "$dir/plugins/" # as a path inside the chroot
    done
}

# in_background: runs `command`, which must hold none of our files: not a lock, and not the pipe that a caller reads.
# setsid: it survives the shell, and the Ctrl-C that was meant for it.
in_background() {
    ! have setsid || command=(setsid "${command[@]}")
    cd "$dir" || return
    "${command[@]}" </dev/null >>log/console.log 2>&1 8>&- 9>&- &
}

# Its own epmd: the shared one on 4369 would outlive the node, and the one of a chroot would fight with it.
start_epmd() {
    local pid tries
    ! epmd_pid >/dev/null || return 0
    set_command epmd -port "$EPMD_PORT" -address 127.0.0.1
    in_background
    pid=$!
    echo "$pid" >"$dir/epmd.pid"
    for ((tries = 0; tries < 100; tries++)); do
        if port_open "$EPMD_PORT"; then break; fi
        sleep 0.05
    done
    # If it is gone, then another process answered there.
    epmd_pid >/dev/null && port_open "$EPMD_PORT" && return
    kill "$pid" 2>/dev/null || true
    return 1
}

# ---- its life ----------------------------------------------------------------------------------------------

# Without flock (macOS) nothing is serialised; each test has a directory of its own anyway.
lock() { ! have flock || flock -w 1200 "$1" || die "another scripts/broker holds its lock for too long"; }

# Picks three neighbouring ports below the ephemeral range, where no outgoing connection can take them while the
# node is down. epmd takes its port at once, and so claims all three.
make_node() {
    local tries base
    mkdir -p "$dir/log" "$dir/data" "$dir/conf.d"
    echo '[].' | tee "$dir/enabled_plugins" >"$dir/advanced.config"
    printf '%s\n' 'loopback_users.guest = true' 'disk_free_limit.absolute = 50MB' >"$dir/rabbitmq.conf"
    (
        lock 8
        for ((tries = 0; tries < 20; tries++)); do
            base=$((20000 + 4 * (RANDOM % 3000)))
            if port_open $base || port_open $((base + 1)) || port_open $((base + 2)); then continue; fi
            printf '%s\n' "URL=amqp://127.0.0.1:$base" "PORT=$base" "DIST_PORT=$((base + 1))" \
                "EPMD_PORT=$((base + 2))" "NODE=ackonce-$base@localhost" "VERSION=$version" >"$dir/env"
            load_node
            ! start_epmd || exit 0
        done
        rm -f "$dir/env"
        die "no free ports between 20000 and 32000, or epmd does not start: see $dir/log/console.log"
    ) 8>"${TMPDIR:-/tmp}/ackonce-ports-$(id -u).lock"
    load_node
}

# start_node: returns when guest can log in. A node that is on its way up is waited for.
start_node() {
    local launcher=''
    if ! node_pid >/dev/null; then
        start_epmd || die "epmd does not start: see $dir/log/console.log"
        say "starting $NODE in $dir"
        rm -f "$dir/pid"
        link_plugins
        set_command rabbitmq-server
        # The usual 1024 files are few for a broker.
        ulimit -Sn 65536 2>/dev/null || ulimit -Sn "$(ulimit -Hn)" || true
        in_background
        launcher=$!
    fi
    for ((SECONDS = 0; SECONDS < 180; )); do
        ! amqp_answers "$PORT" || return 0
        # It gave up: no need to wait.
        alive "${launcher:-none}" || node_pid >/dev/null || break
        sleep 0.1
    done
    tail -n 40 "$dir"/log/*.log >&2 || true
    [[ -z $launcher ]] || kill "$launcher" 2>/dev/null || true
    stop_node
    die "the node did not start: its log is above, and in $dir/log"
}

# signal_node SIGNAL: returns when the process is gone, with its ports.
signal_node() {
    local pid tries
    pid=$(node_pid) || return 0
    kill "-$1" "$pid"
    for ((tries = 0; tries < 600; tries++)); do
        alive "$pid" || return 0
        sleep 0.05
    done
    return 1
}

# TERM is a clean stop for RabbitMQ, and saves the two seconds that rabbitmqctl takes to start.
stop_node() {
    local pid
    signal_node TERM || { say "$NODE does not stop: killing it" && signal_node KILL; }
    ! pid=$(epmd_pid) || kill "$pid"
}
