# A Debian machine for tests: systemd boots as the first process of a container.
#
# Source it in a bash script that runs as root:
#
#     . packaging/lib/container.sh
#     trap shut_down EXIT
#     make_root "$dir" curl ca-certificates   # a tree with systemd, dbus and these packages
#     boot "$dir"                             # $LEADER is its first process
#     inside systemctl is-system-running
#
# The functions act on the container in $LEADER, $NSPAWN and $CAGES; a test with several of them keeps these three for
# each. Its only network is its own loopback, unless `boot` is given another one. What must stay true: this file ends
# each process that it starts by its number, also after a failure; it leaves nothing mounted or registered on the
# machine; and a container can write only the tree's own files.

# Debian's release in the container: the package must run on the oldest one that we promise.
RELEASE=${RELEASE:-bookworm}

# Finished trees stay here between runs, one per release and list of packages.
ROOTS=${ROOTS:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hooklatch/roots}

# The container's first process, by its number on this machine; the nspawn process above it; its control groups.
LEADER=''
NSPAWN=''
CAGES=''

# Time limit of a boot, in seconds.
PATIENCE=${PATIENCE:-120}

# make_root DIR PACKAGES...: makes a fresh tree in DIR, which must not exist.
make_root() {
    local dir=$1; shift
    fetch_root "$@"
    cp -a --reflink=auto "$KEPT" "$dir"
    forget_identity "$dir"
    echo hooklatch-test >"$dir/etc/hostname"
}

# forget_identity DIR: the next boot of the tree makes its own.
forget_identity() {
    : >"$1/etc/machine-id"
    rm -f "$1/var/lib/dbus/machine-id"
}

# fetch_root PACKAGES...: sets KEPT to the finished tree. Needs a network if an earlier run has not made it.
fetch_root() {
    local base=systemd,systemd-sysv,dbus
    KEPT="$ROOTS/$RELEASE-$(printf '%s' "$base $*" | cksum | cut -d' ' -f1)"
    if [ ! -d "$KEPT" ]; then
        command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; return 1; }
        mkdir -p "$ROOTS"
        local new; new=$(mktemp -d "$ROOTS/new.XXXXXX")
        chmod 755 "$new"
        # debootstrap neither resolves alternatives nor orders packages, so apt installs the further ones.
        if ! {
            debootstrap --variant=minbase --include=$base "$RELEASE" "$new" "$(mirror)" &&
                { [ $# = 0 ] || install_packages "$new" "$@"; }
        } >"$new.log" 2>&1; then
            tail -n 20 "$new.log" >&2
            rm -rf "$new" "$new.log"
            return 1
        fi
        rm -rf "$new"/var/cache/apt/archives/*.deb "$new.log"
        # Another run may have been faster; its tree is equally good.
        mv -T "$new" "$KEPT" 2>/dev/null || rm -rf "$new"
    fi
}

# install_packages DIR PACKAGES...: installs with apt and this machine's proxy settings. It starts nothing.
install_packages() {
    local dir=$1; shift
    cp -L /etc/resolv.conf "$dir/etc/resolv.conf" 2>/dev/null || true
    local way; for way in $(grep -ril 'proxy' /etc/apt/apt.conf /etc/apt/apt.conf.d 2>/dev/null); do
        cp "$way" "$dir/etc/apt/apt.conf.d/"
    done
    chroot "$dir" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get install -y -qq --no-install-recommends "$@"
}

# This machine's Debian mirror: the first address in its own list.
mirror() {
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
        /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1
}

# boot DIR OPTIONS...: starts systemd in DIR and returns when each unit of its boot has started or failed. nspawn gets
# the options.
boot() {
    local dir=$1; shift
    CAGES=$(cages "${dir##*/}")
    # Neither registered nor in its own unit, because this machine may not run systemd itself.
    (
        for cage in $CAGES; do
            mkdir "$cage" && echo "$BASHPID" >"$cage/cgroup.procs"
        done
        exec systemd-nspawn --quiet --directory="$dir" --register=no --keep-unit --private-network "$@" --boot
    ) >"$dir.console" 2>&1 </dev/null &
    NSPAWN=$!
    local tries
    for ((tries = 0; tries < PATIENCE * 10; tries++)); do
        kill -0 "$NSPAWN" 2>/dev/null || { echo "the container did not start:" >&2; tail -n 20 "$dir.console" >&2; return 1; }
        # nspawn's child is its outer part, and that one's child is the container's first process.
        LEADER=$(first_process "$NSPAWN")
        if [ -n "$LEADER" ] && inside test -S /run/systemd/private 2>/dev/null; then
            # A "degraded" boot has ended too: the caller judges the failed units.
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

# The control groups of container $1, in the hierarchies that systemd uses, below this shell's own: two containers in
# the same group would end each other's services.
cages() {
    local kind path root
    while IFS=: read -r _ kind path; do
        case $kind in
            name=systemd) root=/sys/fs/cgroup/systemd ;;
            '') root=/sys/fs/cgroup/unified; [ -d "$root" ] || root=/sys/fs/cgroup ;;
            *) continue ;;
        esac
        if [ -d "$root$path" ]; then echo "${root}${path%/}/hooklatch-test-$$-$1"; fi
    done </proc/self/cgroup
}

# The descendant of $1 that has number 1 in its own namespace.
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

# inside CMD...: runs CMD in the container as root, with a clean environment.
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
    cut_power
}

# Ends the container at once, if one runs.
cut_power() {
    [ -n "$NSPAWN" ] || return 0
    kill -KILL "$NSPAWN" ${LEADER:+"$LEADER"} 2>/dev/null || true
    wait "$NSPAWN" 2>/dev/null || true
    local cage tries
    for cage in $CAGES; do
        # The killed processes need a moment to disappear.
        for ((tries = 0; tries < 50; tries++)); do
            [ -d "$cage" ] || break
            find "$cage" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
    done
    NSPAWN='' LEADER='' CAGES=''
}
