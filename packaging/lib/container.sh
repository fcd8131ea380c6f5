# A Debian machine of one's own: systemd booted as the first process of a container.
#
# To be sourced by a bash script that runs as root:
#
#     . packaging/lib/container.sh
#     trap shut_down EXIT
#     make_root "$dir" curl ca-certificates   # a tree with systemd, dbus and these packages
#     boot "$dir"                             # $LEADER is its first process
#     inside systemctl is-system-running
#
# One container at a time. It has no network but a loopback of its own. What must stay true: whatever
# is started here is ended by its number, also after a failure; nothing is left mounted or registered
# on the machine; and the tree's own files are all that a container can write.

# Debian's release inside. What is packaged must run on the oldest one that is promised.
RELEASE=${RELEASE:-bookworm}

# Where finished trees are kept between runs, one per release and list of packages.
ROOTS=${ROOTS:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hooklatch/roots}

# The container's first process as this machine numbers it, the nspawn that holds it, and its control
# groups.
LEADER=''
NSPAWN=''
CAGES=''

# Seconds until a boot must have come to its end.
PATIENCE=${PATIENCE:-120}

# make_root DIR PACKAGES...: a fresh tree in DIR, which must not exist.
make_root() {
    local dir=$1; shift
    local base=systemd,systemd-sysv,dbus
    local kept; kept="$ROOTS/$RELEASE-$(printf '%s' "$base $*" | cksum | cut -d' ' -f1)"
    if [ ! -d "$kept" ]; then
        command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; return 1; }
        mkdir -p "$ROOTS"
        local new; new=$(mktemp -d "$ROOTS/new.XXXXXX")
        chmod 755 "$new"
        # debootstrap itself resolves no alternatives and orders nothing: further packages are apt's.
        if ! {
            debootstrap --variant=minbase --include=$base "$RELEASE" "$new" "$(mirror)" &&
                { [ $# = 0 ] || install_packages "$new" "$@"; }
        } >"$new.log" 2>&1; then
            tail -n 20 "$new.log" >&2
            rm -rf "$new" "$new.log"
            return 1
        fi
        rm -rf "$new"/var/cache/apt/archives/*.deb "$new.log"
        # Whoever was first has made it; another one's tree is as good.
        mv -T "$new" "$kept" 2>/dev/null || rm -rf "$new"
    fi
    # A boot makes an identity of its own, and does not wait for a network that never comes.
    cp -a --reflink=auto "$kept" "$dir"
    : >"$dir/etc/machine-id"
    echo hooklatch-test >"$dir/etc/hostname"
}

# install_packages DIR PACKAGES...: by apt, with this machine's way to the mirror. Nothing is started.
install_packages() {
    local dir=$1; shift
    cp -L /etc/resolv.conf "$dir/etc/resolv.conf" 2>/dev/null || true
    local way; for way in $(grep -ril 'proxy' /etc/apt/apt.conf /etc/apt/apt.conf.d 2>/dev/null); do
        cp "$way" "$dir/etc/apt/apt.conf.d/"
    done
    chroot "$dir" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get install -y -qq --no-install-recommends "$@"
}

# The mirror that this machine installs from: the first address in its own list.
mirror() {
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
        /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1
}

# boot DIR: starts systemd in DIR and returns when every unit of its boot was started or has failed.
boot() {
    local dir=$1
    CAGES=$(cages)
    # Not registered and in no unit of its own: this machine need not run systemd itself.
    (
        for cage in $CAGES; do
            mkdir "$cage" && echo "$BASHPID" >"$cage/cgroup.procs"
        done
        exec systemd-nspawn --quiet --directory="$dir" --register=no --keep-unit --private-network --boot
    ) >"$dir.console" 2>&1 </dev/null &
    NSPAWN=$!
    local tries
    for ((tries = 0; tries < PATIENCE * 10; tries++)); do
        kill -0 "$NSPAWN" 2>/dev/null || { echo "the container did not start:" >&2; tail -n 20 "$dir.console" >&2; return 1; }
        # nspawn's child is its outer half, whose child is the container's first process.
        LEADER=$(first_process "$NSPAWN")
        if [ -n "$LEADER" ] && inside test -S /run/systemd/private 2>/dev/null; then
            # "degraded" is a boot that has ended too: what failed is the caller's to judge.
            case $(inside systemctl is-system-running 2>/dev/null) in
                running | degraded) return 0 ;;
            esac
        fi
        sleep 0.1
    done
    echo "the container did not come up within $PATIENCE s:" >&2
    tail -n 20 "$dir.console" >&2
    return 1
}

# A control group for each container, in the hierarchies that systemd uses, below this shell's own: in one
# and the same, two of them would end each other's services.
cages() {
    local kind path root
    while IFS=: read -r _ kind path; do
        case $kind in
            name=systemd) root=/sys/fs/cgroup/systemd ;;
            '') root=/sys/fs/cgroup/unified; [ -d "$root" ] || root=/sys/fs/cgroup ;;
            *) continue ;;
        esac
        if [ -d "$root$path" ]; then echo "${root}${path%/}/hooklatch-test-$$"; fi
    done </proc/self/cgroup
}

# The process below $1 that is number 1 to itself.
first_process() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        if [ "$(awk '/^NSpid:/ { print $NF, NF }' "/proc/$child/status" 2>/dev/null)" = "1 3" ]; then
            echo "$child"
            return
        fi
        first_process "$child"
    done
}

# inside CMD...: runs it in the container as root, with an environment of its own.
inside() {
    nsenter --target "$LEADER" --mount --uts --ipc --net --pid --cgroup --root \
        env -i --chdir=/ PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        "$@"
}

# Ends the container, if one runs.
shut_down() {
    [ -n "$NSPAWN" ] || return 0
    local tries
    # RTMIN+3 asks systemd for an orderly halt (systemd(1)).
    if [ -n "$LEADER" ]; then kill -s RTMIN+3 "$LEADER" 2>/dev/null || true; fi
    for ((tries = 0; tries < 300; tries++)); do
        kill -0 "$NSPAWN" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$NSPAWN" ${LEADER:+"$LEADER"} 2>/dev/null || true
    wait "$NSPAWN" 2>/dev/null || true
    local cage
    for cage in $CAGES; do
        find "$cage" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    NSPAWN='' LEADER='' CAGES=''
}
