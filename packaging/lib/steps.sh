# For scripts of checks: named steps with their times in a table at the end, and the packages that they use.
#
# Source it in a bash script with `set -euo pipefail` that runs as root in the repository's root. A step that fails calls
# `fail`, which ends the script.

STEP=
STEP_BEGAN=0
STEP_TIMES=()

# step WHAT: begins a part.
step() {
    end_step
    STEP=$* STEP_BEGAN=$SECONDS
    printf '\n== %s (%s s)\n' "$STEP" "$SECONDS"
}

end_step() {
    [ -z "$STEP" ] || STEP_TIMES+=("$(printf '%6s s  %s' $((SECONDS - STEP_BEGAN)) "$STEP")")
    STEP=
}

# fail WHY: ends the script.
fail() {
    printf '\n%s: FAILED: %s\n' "$0" "$*" >&2
    exit 1
}

# Process groups of the background, and the files of what they print.
declare -A BESIDE BESIDE_LOGS

# beside NAME COMMAND...: runs it in the background until `joined NAME`, and not longer than the script.
beside() {
    local name=$1
    shift
    BESIDE_LOGS[$name]=$(mktemp)
    set -m
    "$@" >"${BESIDE_LOGS[$name]}" 2>&1 &
    set +m
    BESIDE[$name]=$!
    trap end_beside EXIT
}

# joined NAME: waits for it and prints what it printed; ends the script if it failed.
joined() {
    local status=0
    wait "${BESIDE[$1]}" || status=$?
    cat "${BESIDE_LOGS[$1]}"
    rm "${BESIDE_LOGS[$1]}"
    unset "BESIDE[$1]" "BESIDE_LOGS[$1]"
    [ "$status" = 0 ] || fail "$1"
}

end_beside() {
    local name
    for name in "${!BESIDE[@]}"; do
        kill -- "-${BESIDE[$name]}" 2>/dev/null || true
        rm -f "${BESIDE_LOGS[$name]}"
    done
}

# finish: prints the time of each step.
finish() {
    end_step
    printf '\n== %s passed in %s s\n' "$0" "$SECONDS"
    printf '%s\n' "${STEP_TIMES[@]}"
}

# cargo_test ARGS...: `cargo test ARGS`, where nothing may be missing. Fails also if ARGS select no test.
cargo_test() {
    local log status=0; log=$(mktemp)
    HOOKLATCH_CI=1 cargo test --locked "$@" 2>&1 | tee "$log" || status=$?
    [ "$status" != 0 ] || grep -q '^test result: ok\. [1-9]' "$log" || { echo "no test ran"; status=1; }
    rm "$log"
    return $status
}

# need COMMANDS PACKAGES: installs the packages where one of the commands is missing.
need() {
    local name
    for name in $1; do
        command -v "$name" >/dev/null && continue
        # $2 is not quoted: a word for each package.
        apt-get update -qq && apt-get install -y -qq --no-install-recommends $2 || fail "installing $2"
        return
    done
    echo "installed already: $1"
}

# need_packages: what the tests and the checks use beyond a Rust toolchain.
need_packages() {
    need "cc" "gcc libc6-dev"
    # The power-cut tests make file systems and mount them.
    need "mkfs.xfs losetup" "xfsprogs util-linux mount"
    # The tests of the store on PostgreSQL start servers of their own.
    need "${HOOKLATCH_POSTGRES:-/usr/lib/postgresql/*/bin}/postgres" "postgresql"
    # A pooler is in front of some of them.
    need "/usr/sbin/pgbouncer" "pgbouncer"
    # They drop the packets between servers and nodes.
    need "ip nft" "iproute2 nftables"
    # The units are tested under systemd, in containers.
    need "debootstrap systemd-nspawn" "debootstrap systemd-container"
    # The package is made by Debian's own tools, and judged by them.
    need "dh lintian" "debhelper lintian"
    # The man pages are shown by man, which tells what is wrong with them.
    need "man groff" "man-db groff-base"
    # The guide to stored answers is followed with curl.
    need "curl" "curl"
    # Each provider delivers through both proxies; OpenSSL has the private keys that only providers have.
    need "nginx caddy openssl" "nginx caddy openssl"
    # The providers' own libraries are npm packages.
    need "npm" "nodejs npm"
    # What `import` makes of its hooks is compared with the program itself.
    need "webhook" "webhook"
    # A real sender. The registry comes from its package without being installed.
    need "prometheus-alertmanager" "prometheus-alertmanager"
    # The metrics page and the alerts are checked by Prometheus's own tool.
    need "promtool" "prometheus"
    # The dashboard is looked at in a browser.
    need "chromium" "chromium"
}

# need_python_libraries: the providers' libraries that only PyPI has, for tests/compat.
need_python_libraries() {
    need "python3" "python3 python3-venv"
    python3 -m venv tests/compat/.venv && tests/compat/.venv/bin/pip install -q -r tests/compat/requirements.txt ||
        fail "installing the providers' libraries of PyPI"
}

# need_node: puts the Node.js that tests/node pins first on the path.
need_node() {
    npm ci --prefix tests/node || fail "installing Node.js"
    PATH=$PWD/tests/node/node_modules/.bin:$PATH
    [[ $(node --version) == v22.* ]] || fail "node is $(node --version), not the one of tests/node"
}
