# What a test of the package checks, told as it goes and once more as a table at its end.
#
# To be sourced by a bash script. A check that fails does not end the test: the others still say
# something, and the exit code is theirs together.

CHECKS=()
BAD=0

# The part of the test that goes on: what its checks are about.
STEP=

step() { STEP=$*; printf '\n== %s (%s s)\n' "$STEP" "$SECONDS"; }

# check WHAT CMD...: WHAT is ok where CMD succeeds. What CMD prints is shown where it fails.
check() {
    local what=$1 is=ok said; shift
    said=$("$@" 2>&1) || is=FAILED
    CHECKS+=("$(printf '%-6s  %-36s %s' "$is" "$STEP" "$what")")
    printf '  %-6s  %s\n' "$is" "$what"
    [ "$is" = FAILED ] || return 0
    BAD=$((BAD + 1))
    [ -z "$said" ] || printf '%s\n' "$said" | tail -n 30 | sed 's/^/    | /'
}

# equal FOUND WANTED
equal() {
    [ "$1" = "$2" ] || { echo "found '$1', wanted '$2'"; return 1; }
}

# refused CMD...: CMD fails.
refused() {
    ! "$@"
}

# within SECONDS CMD...: CMD succeeds before so many seconds are over.
within() {
    local until=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || { echo "not in time: $*"; "$@"; return 1; }
        sleep 0.2
    done
}

# table: all checks again. Fails where one has.
table() {
    printf '%s\n' "${CHECKS[@]}"
    [ "$BAD" -eq 0 ] || { echo "$BAD of ${#CHECKS[@]} checks FAILED"; return 1; }
    echo "all ${#CHECKS[@]} checks ok"
}
