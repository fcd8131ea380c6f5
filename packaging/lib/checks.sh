# The checks of a package test: printed as they run, and again as a table at the end.
#
# Source it in a bash script. A failed check does not end the test: the others still run, and the exit code is that of
# all checks together.

CHECKS=()
BAD=0

# The running part of the test; the table shows it with each check.
STEP=

step() { STEP=$*; printf '\n== %s (%s s)\n' "$STEP" "$SECONDS"; }

# check WHAT CMD...: WHAT is ok if CMD succeeds. If CMD fails, its output is shown.
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

# refused CMD...: succeeds if CMD fails.
refused() {
    ! "$@"
}

# within SECONDS CMD...: succeeds if CMD succeeds within SECONDS.
within() {
    local until=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || { echo "not in time: $*"; "$@"; return 1; }
        sleep 0.2
    done
}

# table: prints all checks again. Fails if one has failed.
table() {
    printf '%s\n' "${CHECKS[@]}"
    [ "$BAD" -eq 0 ] || { echo "$BAD of ${#CHECKS[@]} checks FAILED"; return 1; }
    echo "all ${#CHECKS[@]} checks ok"
}
