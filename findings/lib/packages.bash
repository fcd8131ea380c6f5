# What the findings share: a temporary folder with pinned packages of npm and PyPI.
set -euo pipefail
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
cd "$FOLDER"

# npm_packages NAME@VERSION...: with Node.js 22 first on the path.
npm_packages() {
    npm install --silent --no-audit --no-fund node@22.23.3 "$@" >/dev/null
    PATH=$FOLDER/node_modules/.bin:$PATH
}

# pip_packages NAME==VERSION...
pip_packages() {
    python3 -m venv venv
    venv/bin/pip install --quiet --disable-pip-version-check "$@"
}

# expect TEXT: compares it with what is read, and prints it.
expect() {
    local seen; seen=$(cat)
    [ "$seen" = "$1" ] || { printf 'changed. It was:\n%s\nit is:\n%s\n' "$1" "$seen" >&2; exit 1; }
    printf '%s\n' "$seen"
}
